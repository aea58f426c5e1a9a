"""What each check says of what was seen: a healthy machine, and one with a single thing wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpugrant_crds.cdi import Problem, ProblemReason
from gpugrant_crds.inventory import Cdi, CdiDevice, Inventory
from gpugrant_crds.inventory import Problem as Noted
from gpugrant_crds.layout import Layout
from gpugrant_crds.snapshot import GateStatus, Pending, RepoStatus
from gpugrant_crds.v1alpha1 import RepoGpuGrant
from gpugrant_operator.cli.doctor import checks
from gpugrant_operator.cli.doctor.seen import Chmod, Daemon, Finding, Part, Seen, SetUp

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LAYOUT = Layout(Path("/r"))
NAME = "nvidia.com/gpu=all"
DAEMON = Daemon(
    name="gpu-a",
    repo_id="a1",
    sealed=True,
    upstream=Path("/run/a.sock"),
    listen=Path("/r/a.sock"),
    answers=True,
    release=(28, 5),
    folders=frozenset({"/r/etc/cdi"}),
    served=True,
    inode=(1, 2),
)
INVENTORY = Inventory(
    generated_at="2025-12-31T00:00:00Z",
    hostname="m",
    platform="native",
    fingerprint="sha256:1",
    cdi=Cdi(directories=("/r/etc/cdi",), devices=(CdiDevice(name=NAME, usable=True),)),
)
GATE = GateStatus(machine="m", epoch=3, repos=(RepoStatus(name="gpu-a", id="a1", fit=True, sealed=True),))
WELL = Seen(
    layout=LAYOUT,
    now=NOW,
    version="1",
    is_root=True,
    parts=tuple(Part(name, 7, ok=True) for name in ("supervisor", "apiserver", "operator", "gate")),
    daemons=(DAEMON,),
    gate=GATE,
    spec_names=frozenset({NAME}),
    inventory=INVENTORY,
    fingerprint="sha256:1",
    kubeconfig_mode=0o600,
    certificate_begins=NOW - timedelta(days=1),
    certificate_ends=NOW + timedelta(days=300),
    free=2**40,
)


def part(at: int, **fields: Any) -> dict[str, Any]:
    parts = list(WELL.parts)
    parts[at] = replace(parts[at], **fields)
    return {"parts": tuple(parts)}


def daemon(**fields: Any) -> dict[str, Any]:
    return {"daemons": (replace(DAEMON, **fields),)}


def gate(**fields: Any) -> dict[str, Any]:
    return {"gate": GATE.model_copy(update=fields)}


def noted(**fields: Any) -> dict[str, Any]:
    return {"inventory": INVENTORY.model_copy(update=fields)}


def grant(status: str) -> RepoGpuGrant:
    ready = {
        "type": "Ready",
        "status": status,
        "reason": "R",
        "message": "why",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return RepoGpuGrant.model_validate(
        {
            "metadata": {"name": "g", "namespace": "n"},
            "spec": {"machine": "m", "repo": "gpu-a", "device": NAME},
            "status": {"conditions": [ready]},
        }
    )


WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("access", {"unreadable": ("/r/x can't be read",)}, "/r/x can't be read: what depends on it was not looked at"),
    ("parts", {"parts": tuple(Part(its.name) for its in WELL.parts)}, "nothing runs below /r"),
    ("parts", part(0, pid=0), "no supervisor runs: a part that dies stays dead"),
    ("parts", part(2, pid=0), "the operator does not run"),
    ("parts", part(3, ok=None), "the gate (process 7) does not answer"),
    ("parts", part(1, ok=False, message="starting"), "the apiserver is not well: starting"),
    ("versions", part(0, version="0"), "the running supervisor is version 0, and 1 is installed"),
    ("files", {"settings_problem": "gate.yaml:1: no"}, "gate.yaml:1: no"),
    ("files", {"repo_problems": ("x.yaml:2: no",)}, "/r/etc/rediacc/gpu/repos.d/x.yaml:2: no"),
    ("gate", gate(problems=("the snapshot is torn",)), "the gate says: the snapshot is torn"),
    ("gate", gate(epoch=-1), "the gate holds no snapshot, so all hardware is refused"),
    (
        "gate",
        gate(pending=(Pending(repo="gpu-a", device=NAME, since=NOW, reason="RevokeStuck", message="c survives"),)),
        "c survives",
    ),
    (
        "daemons",
        gate(repos=(RepoStatus(name="gpu-a", id="a1", fit=False, message="the daemon is rootless"),)),
        "repo gpu-a: the daemon is rootless",
    ),
    ("daemons", daemon(answers=False), "the daemon of repo gpu-a does not answer at /run/a.sock"),
    ("daemons", daemon(release=(24, 0)), "the daemon of repo gpu-a is Docker 24.0"),
    ("daemons", daemon(folders=frozenset()), "CDI is off in the daemon of repo gpu-a"),
    ("daemons", daemon(folders=frozenset({"/etc/cdi"})), "the daemon of repo gpu-a reads CDI specs from /etc/cdi"),
    ("sockets", daemon(open_to=("group docker",)), "the raw socket /run/a.sock of repo gpu-a is open to group docker"),
    ("sockets", daemon(served=False), "nobody listens for repo gpu-a at /r/a.sock"),
    ("repos", {"daemons": (DAEMON, replace(DAEMON, name="b"))}, "the repos gpu-a and b are behind one daemon"),
    (
        "specs",
        {"spec_problems": (Problem(ProblemReason.SPEC_INVALID, "no kind", "x.yaml", 3),)},
        "/r/etc/cdi/x.yaml:3: no kind",
    ),
    ("specs", {"shadowing": ((Path("/run/cdi/n.yaml"), (NAME,)),)}, f"/run/cdi/n.yaml has {NAME} too"),
    ("inventory", {"inventory": None}, "there is no /r/etc/rediacc/gpu/inventory.json"),
    ("inventory", {"inventory": "not JSON"}, "/r/etc/rediacc/gpu/inventory.json can't be read: not JSON"),
    ("inventory", {"fingerprint": "sha256:2"}, "the hardware or its drivers changed since 2025-12-31T00:00:00Z"),
    ("inventory", {"spec_names": frozenset()}, f"{NAME} is recorded and stands in no spec of /r/etc/cdi"),
    (
        "inventory",
        noted(problems=(Noted(reason="RestartRequired", message="restart it", since="2025-12-31T00:00:00Z"),)),
        "restart it (RestartRequired, since 2025-12-31T00:00:00Z)",
    ),
    ("units", {"changed_units": (Path("/etc/systemd/x"),)}, "/etc/systemd/x is gone, or not as setup wrote it"),
    ("kubeconfig", {"kubeconfig_mode": 0o644}, "kubeconfig holds an admin's token and has mode 0644"),
    ("kubeconfig", {"api_problem": "no answer"}, "the API can't be used: no answer"),
    ("certificate", {"certificate_ends": NOW}, "the API server's certificate ended at 2026-01-01 00:00 UTC"),
    (
        "certificate",
        {"certificate_ends": NOW + timedelta(days=3)},
        "the API server's certificate ends at 2026-01-04 00:00 UTC",
    ),
    ("certificate", {"certificate_begins": NOW + timedelta(days=1)}, "certificate begins only at 2026-01-02 00:00 UTC"),
    ("clock", {"clock_ahead": NOW + timedelta(hours=1)}, "the clock went back: the gate has seen 2026-01-01 01:00:00"),
    ("room", {"free": 2**20}, "only 1 MiB are free at /r/var/lib/rediacc/gpu"),
    ("grants", {"grants": (grant("False"),)}, f"grant n/g ({NAME} for repo gpu-a) is not in force: why"),
)

ADVICE: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("versions", part(0, version="0"), "is installed"),
    ("daemons", {"daemons": ()}, "no repo is behind the gate"),
    ("sealed", daemon(sealed=False), "repo gpu-a is not sealed"),
)


def found(seen: Seen) -> dict[str, tuple[Finding, ...]]:
    return {check.name: findings for check, findings in checks.judge(seen) if findings}


def test_a_machine_that_is_well() -> None:
    assert found(replace(WELL, grants=(grant("True"),))) == {}


@pytest.mark.parametrize(("name", "changed", "said"), WRONG)
def test_each_fault_is_found_by_its_own_check_alone(name: str, changed: dict[str, Any], said: str) -> None:
    judged = found(replace(WELL, **changed))
    assert [name] == list(judged)
    assert any(said in finding.message and finding.fix for finding in judged[name]), judged


@pytest.mark.parametrize(("name", "changed", "said"), ADVICE)
def test_what_works_and_could_be_safer_is_advice(name: str, changed: dict[str, Any], said: str) -> None:
    (finding,) = found(replace(WELL, **changed))[name]
    assert (finding.level, said in finding.message) == ("advice", True)


def test_every_check_has_a_case() -> None:
    assert {name for name, _, _ in (*WRONG, *ADVICE)} == {check.name for check in checks.CHECKS}


@pytest.mark.parametrize(
    ("changed", "mend"),
    [
        ({"kubeconfig_mode": 0o640}, Chmod(LAYOUT.kubeconfig, 0o600)),
        ({"inventory": None}, SetUp()),
        ({"fingerprint": "sha256:2"}, SetUp()),
        ({"changed_units": (Path("/x"),)}, SetUp()),
        (daemon(open_to=("everybody on this machine",)), None),
    ],
)
def test_what_is_mended_on_demand(changed: dict[str, Any], mend: Chmod | SetUp | None) -> None:
    ((finding,),) = found(replace(WELL, **changed)).values()
    assert finding.mend == mend
