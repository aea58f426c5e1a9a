"""Killed parts: back within seconds, grants as before; and what holds while one is away."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

import rig

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.timeout(300)]

GPU = "nvidia.com/gpu=all"
SMI = ("run", "--rm", "--device", GPU, "ubuntu:24.04", "nvidia-smi", "-L")


@pytest.fixture
def granted(system: rig.System) -> Iterator[rig.System]:
    """The system with one exclusive grant for gpu-a in force."""
    rig.succeeded(system.kubectl("delete", "rgg", "--all", "-A", "--timeout=30s"))
    rig.succeeded(system.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU, "--exclusive"))
    yield system
    rig.succeeded(system.kubectl("delete", "rgg", "--all", "-A", "--timeout=30s"))


def pid_of(system: rig.System, part: str) -> int:
    lock = system.root / "run/rediacc/gpu" / f"{part}.lock"
    return int(json.loads(lock.read_text())["pid"])


def healthy(system: rig.System) -> bool:
    done = system.gpugrant("status", "-o", "json")
    return bool(done.stdout) and all(part["ok"] for part in json.loads(done.stdout)["parts"])


def grants(system: rig.System) -> list[tuple[str, str]]:
    items = json.loads(rig.succeeded(system.kubectl("get", "rgg", "-A", "-o", "json")))["items"]
    return [(item["metadata"]["uid"], item["spec"]["device"]) for item in items]


def still_enforced(system: rig.System) -> bool:
    """gpu-a has the device and gpu-b is refused."""
    return system.docker("gpu-a", *SMI).stdout.startswith("GPU 0: ") and system.docker("gpu-b", *SMI).returncode != 0


@pytest.mark.req("D8", "D9")
@pytest.mark.parametrize("part", ["apiserver", "operator", "gate"])
def test_a_killed_part_comes_back(granted: rig.System, part: str) -> None:
    """kill -9: another process within seconds, the same grants, and no grant more."""
    before, pid = grants(granted), pid_of(granted, part)

    os.kill(pid, signal.SIGKILL)
    rig.wait_for(lambda: pid_of(granted, part) != pid and healthy(granted), seconds=20)

    assert grants(granted) == before
    assert still_enforced(granted)


def test_the_parts_outlive_the_supervisor(granted: rig.System) -> None:
    """kill -9 of the supervisor: the parts go on, and the next `gpugrant up` adopts them."""
    pids = {part: pid_of(granted, part) for part in ("apiserver", "operator", "gate")}

    os.kill(pid_of(granted, "supervisor"), signal.SIGKILL)
    assert still_enforced(granted)
    hardware = str(rig.CHECKOUT / "examples/machines/workstation")
    rig.succeeded(granted.gpugrant("up", "--detach", "--root", str(granted.root), "--hardware", hardware))

    assert {part: pid_of(granted, part) for part in pids} == pids
    assert still_enforced(granted)


def test_the_gate_enforces_without_operator_and_api(granted: rig.System) -> None:
    """With supervisor, operator and API server gone the last snapshot stays in force."""
    for part in ("supervisor", "operator", "apiserver"):
        os.kill(pid_of(granted, part), signal.SIGKILL)
    assert still_enforced(granted)
    hardware = str(rig.CHECKOUT / "examples/machines/workstation")
    rig.succeeded(granted.gpugrant("up", "--detach", "--root", str(granted.root), "--hardware", hardware))
    assert still_enforced(granted)


@pytest.mark.req("R1")
def test_a_gate_without_a_sound_snapshot_refuses_all_hardware(granted: rig.System) -> None:
    """Stopped, its snapshot torn, started alone: refused, until the operator has pushed again."""
    hardware = str(rig.CHECKOUT / "examples/machines/workstation")
    rig.succeeded(granted.gpugrant("down", "--root", str(granted.root)))
    snapshot = granted.root / "var/lib/rediacc/gpu/snapshot.json"
    snapshot.write_bytes(snapshot.read_bytes()[:-20])
    try:
        with rig.background(granted, "gpugrant", "gate", "--root", str(granted.root), "--hardware", hardware):
            rig.wait_for(lambda: granted.docker("gpu-a", "version").returncode == 0)
            refused = granted.docker("gpu-a", *SMI)
            assert refused.returncode != 0
            assert "no grant snapshot" in refused.stderr
            assert granted.docker("gpu-a", "run", "--rm", "ubuntu:24.04", "true").returncode == 0
    finally:
        rig.succeeded(granted.gpugrant("up", "--detach", "--root", str(granted.root), "--hardware", hardware))
    rig.wait_for(lambda: still_enforced(granted), seconds=20)
