"""How `rdc` ends when the operator says no, says nothing, or not yet: a real API server, and the test as operator."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes
import pytest

import rig
from gpugrant_crds.layout import Layout
from gpugrant_crds.v1alpha1 import DETECT_ANNOTATION, FINALIZER, GROUP, VERSION
from gpugrant_operator.cli import waiting

pytestmark = pytest.mark.real

MACHINE = "node-1"
ALL = "nvidia.com/gpu=all"
ZERO = "nvidia.com/gpu=0"
MERGE = "application/merge-patch+json"
HELD = f"{ALL} on {MACHINE} is reserved for repo gpu-b (exclusive grant default/other)"


@dataclass
class Operator:
    """The test's hands: what an operator would write."""

    root: Path
    objects: Any

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gpugrant_operator.cli.rdc", *words]
        environ = {"GPUGRANT_ROOT": str(self.root), "PATH": "/usr/bin"}
        return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def grants(self) -> list[dict[str, Any]]:
        listed = self.objects.list_cluster_custom_object(GROUP, VERSION, "repogpugrants")["items"]
        return sorted(listed, key=lambda grant: str(grant["spec"]["device"]))

    def seen(self, number: int, ready: Callable[[dict[str, Any]], bool] = lambda _: True) -> list[dict[str, Any]]:
        """The grants, when there are that many."""
        found = waiting.until(
            lambda: grants if len(grants := self.grants()) == number and all(map(ready, grants)) else None, 30
        )
        assert found is not None, self.grants()
        return found

    def say(self, grant: Mapping[str, Any], **conditions: tuple[str, str, str]) -> None:
        """Writes a grant's status, of the generation that is stored."""
        meta = grant["metadata"]
        now = self.objects.get_namespaced_custom_object(
            GROUP, VERSION, meta["namespace"], "repogpugrants", meta["name"]
        )
        status = {"observedGeneration": now["metadata"]["generation"], "conditions": _conditions(conditions)}
        self.objects.patch_namespaced_custom_object_status(
            GROUP,
            VERSION,
            meta["namespace"],
            "repogpugrants",
            meta["name"],
            {"status": status},
            _content_type=MERGE,
        )

    def machine(self, status: Mapping[str, Any]) -> None:
        self.objects.patch_cluster_custom_object_status(
            GROUP, VERSION, "gpumachines", MACHINE, {"status": dict(status)}, _content_type=MERGE
        )

    def asked(self) -> str:
        """The request of a detection, when there is one that nobody answered."""

        def look() -> str | None:
            machine = self.objects.get_cluster_custom_object(GROUP, VERSION, "gpumachines", MACHINE)
            request: str | None = machine["metadata"].get("annotations", {}).get(DETECT_ANNOTATION)
            answered = machine.get("status", {}).get("detection", {}).get("request")
            return request if request != answered else None

        found = waiting.until(look, 30)
        assert found is not None
        return found


def _conditions(said: Mapping[str, tuple[str, str, str]]) -> list[dict[str, str]]:
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": "2026-03-01T12:00:00Z",
        }
        for kind, (status, reason, message) in said.items()
    ]


@pytest.fixture(scope="module")
def api() -> Iterator[tuple[Path, Any]]:
    root = rig.short_folder()
    layout = Layout(root)
    command = [sys.executable, "-m", "gpugrant_operator.cli.gpugrant", "apiserver", "--root", root]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            assert waiting.until(lambda: layout.kubeconfig.exists() or None, 30)
            client = kubernetes.config.new_client_from_config(str(layout.kubeconfig))
            objects = kubernetes.client.CustomObjectsApi(client)
            body = {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": "GpuMachine",
                "metadata": {"name": MACHINE},
                "spec": {},
            }
            objects.create_cluster_custom_object(GROUP, VERSION, "gpumachines", body)
            yield root, objects
            client.rest_client.pool_manager.clear()
            client.close()
        finally:
            server.terminate()
    shutil.rmtree(root)


@pytest.fixture
def operator(api: tuple[Path, Any]) -> Iterator[Operator]:
    """With a detected machine that has two repos; what a test left is removed."""
    made = Operator(*api)
    made.machine(
        {
            "devices": [{"name": ALL}, {"name": ZERO}],
            "gate": {"repos": [{"name": "gpu-a", "id": "id-a"}, {"name": "gpu-b", "id": "id-b"}]},
            "allocations": [],
            "conditions": [],
        }
    )
    yield made
    for grant in made.grants():
        meta = grant["metadata"]
        where = (GROUP, VERSION, meta["namespace"], "repogpugrants", meta["name"])
        made.objects.delete_namespaced_custom_object(*where)
        if meta.get("finalizers"):
            made.objects.patch_namespaced_custom_object(*where, {"metadata": {"finalizers": []}}, _content_type=MERGE)


ENFORCED = {"Ready": ("True", "Enforced", ""), "Accepted": ("True", "Enforced", "")}
LOST = {
    "Ready": ("False", "ExclusiveHeld", HELD),
    "Accepted": ("False", "ExclusiveHeld", HELD),
    "Conflicted": ("True", "ExclusiveHeld", HELD),
}
WAITING = {"Ready": ("False", "GatePending", "waiting for the gate"), "Accepted": ("True", "Enforced", "")}


def ended(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    stdout, stderr = child.communicate(timeout=60)
    return child.returncode, stdout, stderr


@pytest.mark.req("R48")
def test_a_grant_that_loses_after_it_was_written_is_deleted_and_the_holder_named(operator: Operator) -> None:
    child = operator.start("repo", "gpu", "grant", "gpu-a", "--device", ALL)
    operator.say(operator.seen(1)[0], **LOST)
    assert ended(child) == (1, "", f"error: {HELD}\n")
    assert operator.grants() == []


@pytest.mark.req("R22", "R48")
def test_when_one_of_two_loses_both_go(operator: Operator) -> None:
    child = operator.start("repo", "gpu", "grant", "gpu-a", "--device", ALL, "--device", ZERO)
    zero, every = operator.seen(2)
    operator.say(zero, **ENFORCED)
    operator.say(every, **LOST)
    assert ended(child)[0] == 1
    assert operator.grants() == []


@pytest.mark.req("R22", "R48")
def test_an_upgrade_that_loses_leaves_the_grant_as_it_was(operator: Operator) -> None:
    child = operator.start("repo", "gpu", "grant", "gpu-a", "--device", ALL)
    operator.say(operator.seen(1)[0], **ENFORCED)
    assert ended(child)[0] == 0
    child = operator.start("repo", "gpu", "grant", "gpu-a", "--device", ALL, "--exclusive")
    (grant,) = operator.seen(1, lambda grant: bool(grant["spec"].get("exclusive")))
    operator.say(grant, **LOST)
    assert ended(child) == (1, "", f"error: {HELD}\n")
    (left,) = operator.grants()
    assert not left["spec"].get("exclusive")


@pytest.mark.req("R48")
def test_a_declared_grant_that_waits_is_not_ours_to_delete(operator: Operator) -> None:
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "RepoGpuGrant",
        "metadata": {"name": "declared", "namespace": "default"},
        "spec": {"machine": MACHINE, "repo": "gpu-a", "device": ALL},
    }
    made = operator.objects.create_namespaced_custom_object(GROUP, VERSION, "default", "repogpugrants", body)
    operator.say(made, **LOST)
    code, _, stderr = ended(operator.start("repo", "gpu", "grant", "gpu-a", "--device", ALL))
    assert code == 1
    assert HELD in stderr
    assert len(operator.grants()) == 1


@pytest.mark.req("R6")
def test_a_grant_that_nobody_decides_is_taken_back_in_time_out(operator: Operator) -> None:
    child = operator.start("repo", "gpu", "grant", "gpu-a", "--device", ALL, "--timeout", "1s")
    code, _, stderr = ended(child)
    assert code == 3
    assert stderr == "error: not accepted in 1 s, and taken back: the operator has not looked at it yet\n"
    assert operator.grants() == []


@pytest.mark.req("R6")
def test_a_grant_that_is_accepted_stays_when_the_gate_is_late(operator: Operator) -> None:
    child = operator.start("repo", "gpu", "grant", "gpu-a", "--device", ALL, "--timeout", "5s")
    operator.say(operator.seen(1)[0], **WAITING)
    code, _, stderr = ended(child)
    assert code == 3
    assert "is accepted and not enforced after 5 s: waiting for the gate" in stderr
    assert len(operator.grants()) == 1


def test_who_does_not_wait_is_back_when_the_grant_is_accepted(operator: Operator) -> None:
    child = operator.start("repo", "gpu", "grant", "gpu-a", "--device", ALL, "--no-wait")
    operator.say(operator.seen(1)[0], **WAITING)
    assert ended(child)[0] == 0


def test_a_grant_that_somebody_deletes_meanwhile_is_told(operator: Operator) -> None:
    child = operator.start("repo", "gpu", "grant", "gpu-a", "--device", ALL)
    meta = operator.seen(1)[0]["metadata"]
    operator.objects.delete_namespaced_custom_object(GROUP, VERSION, "default", "repogpugrants", meta["name"])
    code, _, stderr = ended(child)
    assert code == 1
    assert "was deleted by somebody else" in stderr


@pytest.mark.req("R51")
def test_a_revocation_that_the_gate_does_not_answer_times_out(operator: Operator) -> None:
    child = operator.start("repo", "gpu", "grant", "gpu-a", "--device", ALL)
    (grant,) = operator.seen(1)
    operator.say(grant, **ENFORCED)
    assert ended(child)[0] == 0
    meta = grant["metadata"]
    operator.objects.patch_namespaced_custom_object(
        GROUP,
        VERSION,
        "default",
        "repogpugrants",
        meta["name"],
        {"metadata": {"finalizers": [FINALIZER]}},
        _content_type=MERGE,
    )
    child = operator.start("repo", "gpu", "revoke", "gpu-a", "--device", ALL, "--timeout", "1s")
    code, _, stderr = ended(child)
    assert code == 3
    assert f"the grant default/{meta['name']} waits for the gate's answer" in stderr


@pytest.mark.req("R51")
def test_a_revocation_without_an_operator_is_not_taken_for_done(operator: Operator) -> None:
    """Without a finalizer the object goes at once; the ledger, which the gate enforces, still holds the device."""
    child = operator.start("repo", "gpu", "grant", "gpu-a", "--device", ALL)
    (grant,) = operator.seen(1)
    operator.say(grant, **ENFORCED)
    assert ended(child)[0] == 0
    meta = grant["metadata"]
    held = {"namespace": "default", "name": meta["name"], "uid": meta["uid"]}
    operator.machine(
        {"allocations": [{"device": ALL, "repos": [{"repo": "gpu-a", "repoId": "id-a", "grants": [held]}]}]}
    )
    child = operator.start("repo", "gpu", "revoke", "gpu-a", "--device", ALL, "--timeout", "1s")
    code, _, stderr = ended(child)
    assert code == 3
    assert "has not taken the device from the ledger" in stderr


@pytest.mark.req("R10")
def test_a_detection_that_fails_is_one_sentence(operator: Operator) -> None:
    child = operator.start("machine", "setup", MACHINE)
    problem = "nvidia-ctk failed: no driver"
    operator.machine(
        {
            "detection": {"request": operator.asked(), "succeeded": False},
            "conditions": _conditions({"Detected": ("False", "DetectionFailed", problem)}),
        }
    )
    code, stdout, stderr = ended(child)
    assert (code, stdout) == (1, "")
    assert stderr.endswith(f"error: {problem}\n")


@pytest.mark.req("R10")
def test_a_detection_is_followed_with_its_progress(operator: Operator) -> None:
    child = operator.start("machine", "setup", MACHINE)
    request = operator.asked()
    assert child.stderr is not None
    operator.machine({"conditions": _conditions({"Detected": ("False", "Detecting", "looking for GPUs")})})
    lines = iter(child.stderr.readline, "")
    assert any("looking for GPUs" in line for line in lines)
    operator.machine(
        {
            "detection": {"request": request, "succeeded": True},
            "conditions": _conditions({"Ready": ("True", "NoGpu", "there is no GPU on this machine")}),
        }
    )
    code, stdout, _ = ended(child)
    assert (code, stdout) == (0, f"machine {MACHINE} is ready: there is no GPU on this machine\n")


@pytest.mark.req("R10")
def test_a_detection_that_nobody_does_times_out(operator: Operator) -> None:
    code, _, stderr = ended(operator.start("machine", "setup", MACHINE, "--timeout", "1s"))
    assert (code, "is not ready after 1 s" in stderr) == (3, True)


@pytest.mark.req("R10")
def test_a_machine_that_is_being_deleted_is_refused_at_once(operator: Operator) -> None:
    where = (GROUP, VERSION, "gpumachines", "node-7")
    meta = {"name": "node-7", "finalizers": [FINALIZER]}
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GpuMachine", "metadata": meta, "spec": {}}
    operator.objects.create_cluster_custom_object(GROUP, VERSION, "gpumachines", body)
    try:
        operator.objects.delete_cluster_custom_object(*where)
        said = {"status": {"conditions": _conditions({"Ready": ("False", "Releasing", "waiting for the gate")})}}
        operator.objects.patch_cluster_custom_object_status(*where, said, _content_type=MERGE)
        code, stdout, stderr = ended(operator.start("machine", "setup", "node-7"))
        assert (code, stdout) == (1, "")
        assert stderr == (
            "error: machine node-7 is being deleted, so it can't be set up; its Ready condition says: "
            "waiting for the gate\n"
        )
        left = operator.objects.get_cluster_custom_object(*where)
        assert DETECT_ANNOTATION not in left["metadata"].get("annotations", {})
    finally:
        operator.objects.patch_cluster_custom_object(*where, {"metadata": {"finalizers": []}}, _content_type=MERGE)


@pytest.mark.req("R10")
def test_setup_makes_the_object_of_this_machine_and_of_no_other(operator: Operator) -> None:
    settings = Layout(operator.root).gate_settings
    settings.write_text("nodeName: node-9\n")
    try:
        code, _, stderr = ended(operator.start("machine", "setup", "node-9", "--timeout", "1s"))
        assert (code, stderr.startswith("made the GpuMachine node-9\n")) == (3, True)
        machine = operator.objects.get_cluster_custom_object(GROUP, VERSION, "gpumachines", "node-9")
        assert DETECT_ANNOTATION in machine["metadata"]["annotations"]
        operator.objects.delete_cluster_custom_object(GROUP, VERSION, "gpumachines", "node-9")
        code, _, stderr = ended(operator.start("machine", "setup", "node-8"))
        assert (code, stderr) == (1, f"error: there is no machine node-8; did you mean node-9 or {MACHINE}?\n")
    finally:
        settings.unlink()


@pytest.mark.req("R19")
def test_a_machine_that_was_never_set_up_names_the_command(operator: Operator) -> None:
    operator.machine({"devices": None})
    code, _, stderr = ended(operator.start("machine", "gpu", "list", MACHINE))
    assert (code, stderr) == (1, f"error: machine {MACHINE} was never set up; run: rdc machine setup {MACHINE}\n")


@pytest.mark.req("R8")
def test_rdc_refuses_a_machine_that_was_never_detected(operator: Operator) -> None:
    operator.machine({"devices": None})
    code, _, stderr = ended(operator.start("repo", "gpu", "grant", f"gpu-a@{MACHINE}", "--device", ALL))
    assert (code, f"rdc machine setup {MACHINE}" in stderr) == (1, True)
    assert operator.grants() == []


def test_the_grants_of_a_repo_that_is_nowhere_are_listed_and_without_any_it_is_refused(operator: Operator) -> None:
    code, stdout, stderr = ended(operator.start("repo", "gpu", "list", "gpu-x"))
    assert (code, stdout) == (1, "")
    assert stderr == f"error: machine {MACHINE} has no repo gpu-x; did you mean gpu-b or gpu-a?\n"
    code, _, stderr = ended(operator.start("repo", "gpu", "list", "gpu-a"))
    assert (code, stderr) == (0, "repo gpu-a has no grants\n")
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "RepoGpuGrant",
        "metadata": {"name": "left", "namespace": "default"},
        "spec": {"machine": "gone", "repo": "gpu-x", "device": ALL},
    }
    operator.objects.create_namespaced_custom_object(GROUP, VERSION, "default", "repogpugrants", body)
    for ref in ("gpu-x", "gpu-x@gone"):
        code, stdout, _ = ended(operator.start("repo", "gpu", "list", ref))
        assert (code, "default/left" in stdout) == (0, True)


def test_an_api_that_does_not_answer_is_one_sentence(operator: Operator, tmp_path: Path) -> None:
    text = Layout(operator.root).kubeconfig.read_text()
    away = tmp_path / "kubeconfig"
    away.write_text(re.sub(r"https://127\.0\.0\.1:\d+", "https://127.0.0.1:1", text))
    command = [sys.executable, "-m", "gpugrant_operator.cli.rdc", "repo", "gpu", "list"]
    environ = {"GPUGRANT_ROOT": str(tmp_path), "KUBECONFIG": str(away), "PATH": "/usr/bin"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the API at https://127.0.0.1:1 does not answer: ")
    assert done.stderr.count("\n") == 1


def test_no_api_at_all_says_how_to_get_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gpugrant_operator.cli.rdc", "repo", "gpu", "list"]
    environ = {"GPUGRANT_ROOT": str(tmp_path), "PATH": "/usr/bin"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "start one with gpugrant up, or set KUBECONFIG" in done.stderr
