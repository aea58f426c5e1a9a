"""The API is restored from an older copy while the gate has gone on: what is stored now counts, and nothing is held
twice on the way (design 4)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import kubernetes
import pytest

import rig
import standalone
from gpugrant_crds import snapshot
from gpugrant_crds.snapshot import Snapshot
from gpugrant_operator import gateclient
from gpugrant_operator.gateclient import GateError
from standalone import Instance

pytestmark = [
    pytest.mark.real,
    pytest.mark.must_run,
    pytest.mark.timeout(180),
    pytest.mark.req("R25", "R28", "D7", "D8"),
]

DEVICE = "nvidia.com/gpu=all"


@pytest.fixture
def instance() -> Iterator[Instance]:
    with standalone.up() as running:
        yield running


def stop(instance: Instance) -> None:
    rig.succeeded(standalone.program("down", "--root", instance.root))


def start(instance: Instance) -> None:
    rig.succeeded(standalone.program("up", "--detach", "--root", instance.root, "--hardware", standalone.WORKSTATION))


def machine(instance: Instance) -> dict[str, Any]:
    client = kubernetes.config.new_client_from_config(str(instance.layout.kubeconfig))
    objects = kubernetes.client.CustomObjectsApi(client)
    return dict(objects.get_cluster_custom_object("gpu.rediacc.io", "v1alpha1", "gpumachines", instance.machine))


def stored(instance: Instance) -> dict[str, Any]:
    """The snapshot that the gate has on disk."""
    return dict(json.loads(instance.layout.snapshot.read_text())["snapshot"])


class Watcher(threading.Thread):
    """Notes which repos hold the device at the gate, again and again."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(daemon=True)
        self.seen: list[frozenset[str]] = []
        self._socket = instance.layout.control("gate")
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.02):
            try:
                status = gateclient.ask(self._socket, lambda gate: gate.status())
            except GateError:
                continue
            held = frozenset(grant.repo for grant in status.grants if grant.device == DEVICE)
            if not self.seen or self.seen[-1] != held:
                self.seen.append(held)

    def stop(self) -> list[frozenset[str]]:
        self._over.set()
        self.join()
        return self.seen


def test_a_store_that_was_restored_from_an_older_copy(instance: Instance) -> None:
    """The copy: exclusive for gpu-a. Since then it went to gpu-b. Restored, gpu-a has it again, and gpu-b no more."""
    assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", DEVICE, "--exclusive").exit_code == 0
    copy = instance.root / "copy.tar"
    rig.succeeded(standalone.program("store", "backup", copy, "--root", instance.root))
    assert instance.rdc("repo", "gpu", "revoke", "gpu-a", "--device", DEVICE).exit_code == 0
    assert instance.rdc("repo", "gpu", "grant", "gpu-b", "--device", DEVICE, "--exclusive").exit_code == 0
    before = stored(instance)
    assert [grant["repo"] for grant in before["grants"]] == ["gpu-b"]

    refused = standalone.program("store", "restore", copy, "--root", instance.root)
    assert (refused.returncode, "gpugrant down" in refused.stderr) == (1, True)
    stop(instance)
    rig.succeeded(standalone.program("store", "restore", copy, "--root", instance.root))
    watcher = Watcher(instance)
    watcher.start()
    start(instance)
    rig.wait_for(lambda: [grant["repo"] for grant in stored(instance)["grants"]] == ["gpu-a"], seconds=40)
    listed = rig.wait_for(lambda: ready(instance), seconds=30)
    seen = watcher.stop()

    assert listed == ["gpu-a"]
    after = stored(instance)
    assert after["epoch"] > before["epoch"]
    assert machine(instance)["status"]["ledgerEpoch"] == after["epoch"]
    assert all(len(held) <= 1 for held in seen), seen
    assert frozenset({"gpu-a"}) in seen
    # gpu-a gets it only when the gate has answered that gpu-b is out
    assert frozenset() in seen[: seen.index(frozenset({"gpu-a"}))]
    assert instance.rdc("repo", "gpu", "grant", "gpu-b", "--device", DEVICE, "--exclusive").exit_code == 1


def ready(instance: Instance) -> list[str]:
    listed = instance.rdc("repo", "gpu", "list", "-o", "json")
    return [its["repo"] for its in json.loads(listed.stdout) if its["inForce"]] if listed.exit_code == 0 else []


def test_a_machine_that_was_made_anew_takes_its_gate(instance: Instance) -> None:
    """The old object was dropped by force while its gate was silent: it is gone, so the new one takes its place."""
    assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", DEVICE).exit_code == 0
    old = machine(instance)["metadata"]["uid"]
    held = stored(instance)
    stop(instance)
    # as after a store that was lost: the gate goes on with a machine that nobody knows
    held_text = instance.layout.snapshot.read_text().replace(old, "00000000-0000-4000-8000-000000000000")
    data = json.loads(held_text)
    read = Snapshot.model_validate(data["snapshot"])
    digest = snapshot.digest(read.api_id, read.machine, read.machine_uid, read.grants, read.policy)
    data["snapshot"]["digest"] = digest
    data["snapshot"]["epoch"] = held["epoch"] + 5
    instance.layout.snapshot.write_text(json.dumps(data))
    start(instance)
    rig.wait_for(lambda: stored(instance)["machineUid"] == old, seconds=40)
    assert stored(instance)["supersedes"] == "00000000-0000-4000-8000-000000000000"
    assert rig.wait_for(lambda: ready(instance), seconds=30) == ["gpu-a"]
