"""The same system on changed copies of the recorded machine: another name, a card more, a card less."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import rig
from machines import EXAMPLES, Machine

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.timeout(300)]

GPU = "nvidia.com/gpu=all"
SMI = ("run", "--rm", "--device", GPU, "ubuntu:24.04", "nvidia-smi", "-L")
Changed = Callable[[Callable[[Machine], None]], AbstractContextManager[rig.System]]


@pytest.fixture
def changed(tmp_path: Path) -> Iterator[Changed]:
    """Brings up the system on a changed copy of the workstation."""
    root = rig.short_folder()

    @contextmanager
    def up(change: Callable[[Machine], None]) -> Iterator[rig.System]:
        machine = Machine(tmp_path / "tree", root)
        shutil.copytree(EXAMPLES / "workstation", machine.tree, symlinks=True)
        change(machine)
        try:
            yield rig.bring_up(root, machine.tree)
        finally:
            rig.succeeded(rig.script("down", "--root", root))

    yield up
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.req("R1", "R17", "R19", "D13")
def test_another_name_and_a_card_more(changed: Changed) -> None:
    """The machine's name, the cards and the names follow the tree; so does what a container sees."""

    def change(machine: Machine) -> None:
        machine.write("etc/hostname", "Bench-7.example\n")
        machine.add_nvidia_card()

    with changed(change) as system:
        shown = rig.succeeded(system.kubectl("get", "gpumachines"))
        devices = rig.succeeded(system.rdc("machine", "gpu", "list", "bench-7.example"))
        refused = system.docker("gpu-b", *SMI)
        rig.succeeded(system.rdc("repo", "gpu", "grant", "gpu-a@bench-7.example", "--device", GPU))
        rig.succeeded(system.rdc("repo", "gpu", "grant", "gpu-a", "--device", "nvidia.com/gpu=1"))
        both = rig.succeeded(system.docker("gpu-a", *SMI))
        second = rig.succeeded(
            system.docker("gpu-a", "run", "--rm", "--device", "nvidia.com/gpu=1", "ubuntu:24.04", "nvidia-smi", "-L")
        )

    assert "bench-7.example" in shown
    assert "nvidia.com/gpu=1" in devices
    assert "rdc repo gpu grant gpu-b@bench-7.example" in refused.stderr
    assert len(both.splitlines()) == 2
    assert len(second.splitlines()) == 1
    assert "GPU-2e0d8b53" in second


@pytest.mark.req("R8", "R17", "R31")
def test_a_card_less(changed: Changed) -> None:
    """Without the NVIDIA card its names can't be granted, and hints name what this machine has."""
    with changed(Machine.remove_nvidia_card) as system:
        devices = rig.succeeded(system.rdc("machine", "gpu", "list", "workstation"))
        refused = system.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU)
        rig.succeeded(system.rdc("repo", "gpu", "grant", "gpu-a", "--device", "rediacc.io/amd=all"))
        nodes = rig.succeeded(
            system.docker("gpu-a", "run", "--rm", "--device", "rediacc.io/amd=all", "ubuntu:24.04", "ls", "/dev")
        )

    assert "nvidia" not in devices.lower()
    assert refused.returncode == 1
    assert "has no device nvidia.com/gpu=all" in refused.stderr
    assert "kfd" in nodes.split()


@pytest.mark.req("R12", "R19")
def test_no_gpu_at_all(tmp_path: Path) -> None:
    """A machine without a GPU is Ready, its inventory is there with empty lists, and the listing says so."""
    root = rig.short_folder()
    try:
        system = rig.bring_up(root, EXAMPLES / "no-gpu")
        ready = rig.succeeded(system.kubectl("wait", "--for=condition=Ready", "gm/no-gpu", "--timeout=20s"))
        listed = system.rdc("machine", "gpu", "list", "no-gpu")
    finally:
        rig.succeeded(rig.script("down", "--root", root))

    assert "met" in ready
    assert listed.returncode == 0
    assert "no GPU" in listed.stdout
    assert '"gpus": []' in (root / "etc/rediacc/gpu/inventory.json").read_text()
    shutil.rmtree(root)
