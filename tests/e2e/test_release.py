"""`gpugrant machine release`: a device that can't be taken back is given up, on real parts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import kubernetes
import pytest

import rig
import standalone
from standalone import Instance

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.timeout(120), pytest.mark.req("R49", "R51")]

DEVICE = "nvidia.com/gpu=all"


@pytest.fixture
def instance() -> Iterator[Instance]:
    with standalone.up() as running:
        yield running


def ledger(instance: Instance) -> dict[str, list[str]]:
    """Who holds the device, who it is being taken from, and who was given up."""
    client = kubernetes.config.new_client_from_config(str(instance.layout.kubeconfig))
    objects = kubernetes.client.CustomObjectsApi(client)
    machine = objects.get_cluster_custom_object("gpu.rediacc.io", "v1alpha1", "gpumachines", instance.machine)
    found = next((its for its in machine["status"].get("allocations", []) if its["device"] == DEVICE), {})
    return {
        "held": [holder["repo"] for holder in found.get("repos", [])],
        "releasing": [debt["repo"] for debt in found.get("releasing", [])],
        "givenUp": list(found.get("givenUp", [])),
    }


def events(instance: Instance) -> list[str]:
    client = kubernetes.config.new_client_from_config(str(instance.layout.kubeconfig))
    found = kubernetes.client.CoreV1Api(client).list_namespaced_event("default").items
    return [event.message for event in found if (event.type, event.reason) == ("Warning", "ReleaseUnverified")]


def test_a_device_that_a_silent_gate_keeps(instance: Instance) -> None:
    nothing = instance.gpugrant("machine", "release", DEVICE, "--force")
    assert (nothing.exit_code, "it is not being taken from any repo" in nothing.output) == (1, True)
    assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", DEVICE, "--exclusive").exit_code == 0
    gate = json.loads(instance.layout.lock("gate").read_text())["pid"]
    os.kill(gate, signal.SIGSTOP)
    try:
        instance.rdc("repo", "gpu", "revoke", "gpu-a", "--device", DEVICE, "--no-wait")
        rig.wait_for(lambda: ledger(instance)["releasing"] == ["gpu-a"], seconds=30)

        assert instance.gpugrant("machine", "release", DEVICE).exit_code == 2
        wrong = instance.gpugrant("machine", "release", DEVICE, "--force", "--machine", "elsewhere")
        assert (wrong.exit_code, "there is no machine elsewhere" in wrong.output) == (1, True)
        assert ledger(instance)["releasing"] == ["gpu-a"]
        done = instance.gpugrant("machine", "release", DEVICE, "--force", "--machine", instance.machine)
        assert done.exit_code == 0, done.output
        assert f"warning: containers of repo gpu-a may still use {DEVICE}" in done.output
        assert ledger(instance) == {"held": [], "releasing": [], "givenUp": ["gpu-a"]}
        assert any(f"containers of repo gpu-a may still use {DEVICE}" in message for message in events(instance))
    finally:
        os.kill(gate, signal.SIGCONT)
    granted = instance.rdc("repo", "gpu", "grant", "gpu-b", "--device", DEVICE, "--exclusive")
    assert granted.exit_code == 0, granted.output
    # the gate says that nothing of gpu-a holds it
    rig.wait_for(lambda: ledger(instance) == {"held": ["gpu-b"], "releasing": [], "givenUp": []}, seconds=30)
