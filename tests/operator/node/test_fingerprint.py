"""What makes a machine worth another look, and what does not (reference cdi-gpu 7.4)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kinds
import nvml
from gpugrant_gate.life.fingerprint import Fingerprint
from gpugrant_operator.node import fingerprint
from gpugrant_operator.node.tree import Tree
from machines import Machine

Change = Callable[[Machine], None]


def make(kind: str, folder: Path) -> Machine:
    machine = Machine(folder / "tree", folder / "root")
    machine.tree.mkdir(parents=True)
    kinds.KINDS[kind](machine)
    return machine


def take(machine: Machine) -> str:
    return fingerprint.take(Tree(machine.tree))


def driver_updated(m: Machine) -> None:
    m.write("sys/module/nvidia/version", "590.48.01\n")


def libraries_updated(m: Machine) -> None:
    """The new driver's files are there, its module only after a reboot."""
    nvml.put(m.tree, [kinds.told("0000:70:00.0", 0, 1)], driver="590.48.01")


def renumbered(m: Machine) -> None:
    """A reboot that probed in another order."""
    m.write("proc/sys/kernel/random/boot_id", "11111111-52a1-4c31-9d0b-6f1f6f0a2b17\n")
    m.write("dev/nvidia1")
    m.remove("dev/nvidia0")


def drm_swapped(m: Machine) -> None:
    """The same boot, and two cards that changed their numbers."""
    for name, address in (("renderD128", "0000:00:02.0"), ("renderD129", "0000:03:00.0")):
        m.remove(f"sys/class/drm/{name}/device")
        m.link(f"sys/class/drm/{name}/device", f"../../../bus/pci/devices/{address}")


def instance_made(m: Machine) -> None:
    m.write("proc/driver/nvidia/capabilities/gpu0/mig/gi3/ci0/access", "DeviceFileMinor: 12\n")


def instance_destroyed(m: Machine) -> None:
    m.remove("proc/driver/nvidia/capabilities/gpu0/mig/gi2")


def windows_driver_updated(m: Machine) -> None:
    stores = m.tree / "usr/lib/wsl/drivers"
    (stores / "nvlti.inf_amd64_4bd2a3580753f54d").rename(stores / "nvlti.inf_amd64_0000000000000000")


def repartitioned(m: Machine) -> None:
    m.write("sys/class/kfd/kfd/topology/generation_id", "3\n")


def card_added(m: Machine) -> None:
    kinds.nvidia(m, "0000:99:00.0", 7, 9)


def given_to_a_guest(m: Machine) -> None:
    m.remove("sys/bus/pci/devices/0000:70:00.0/driver")
    m.link("sys/bus/pci/devices/0000:70:00.0/driver", "../../../../bus/pci/drivers/vfio-pci")


def module_unloaded(m: Machine) -> None:
    m.remove("sys/module/nvidia")


def toolkit_updated(m: Machine) -> None:
    m.script("usr/bin/nvidia-ctk", "echo another release of it")


def node_gone(m: Machine) -> None:
    m.remove("dev/nvidia0")


SEEN: dict[str, tuple[str, Change]] = {
    "a driver's update": ("nvidia-one", driver_updated),
    "a driver's files without its module": ("nvidia-one", libraries_updated),
    "a reboot with renumbered cards": ("nvidia-one", renumbered),
    "render nodes that changed their cards": ("intel-arc-and-igpu", drm_swapped),
    "a MIG instance more": ("nvidia-mig", instance_made),
    "a MIG instance less": ("nvidia-mig", instance_destroyed),
    "another driver store on WSL": ("wsl-nvidia", windows_driver_updated),
    "another partition of AMD's": ("amd-mi308", repartitioned),
    "a card more": ("nvidia-one", card_added),
    "a card given to a guest": ("nvidia-one", given_to_a_guest),
    "a driver that was unloaded": ("nvidia-one", module_unloaded),
    "another toolkit": ("nvidia-one", toolkit_updated),
    "a node that went": ("nvidia-one", node_gone),
}


def display_plugged(m: Machine) -> None:
    m.write("sys/class/drm/card1-HDMI-A-1/status", "connected\n")


def client_opened(m: Machine) -> None:
    m.write("dev/shm/something")
    m.write("proc/4711/status", "Name: python\n")
    m.write("dev/pts/3")


def card_is_read(m: Machine) -> None:
    """What a poll must not even look at: it wakes the card."""
    shutil.rmtree(m.tree / "proc/driver/nvidia/gpus")


def disk_more(m: Machine) -> None:
    m.write("dev/sdb")


UNSEEN: dict[str, tuple[str, Change]] = {
    "a display that is plugged in": ("nvidia-one", display_plugged),
    "a client that comes and goes": ("nvidia-one", client_opened),
    "a card's own procfs": ("nvidia-one", card_is_read),
    "a disk more": ("nvidia-one", disk_more),
}


@pytest.mark.req("R40", "R42")
@pytest.mark.parametrize(("kind", "change"), SEEN.values(), ids=SEEN)
def test_a_change_that_counts_is_seen(kind: str, change: Change, tmp_path: Path) -> None:
    machine = make(kind, tmp_path)
    before = take(machine)
    change(machine)
    assert take(machine) != before


@pytest.mark.parametrize(("kind", "change"), UNSEEN.values(), ids=UNSEEN)
def test_what_comes_and_goes_by_itself_is_not(kind: str, change: Change, tmp_path: Path) -> None:
    machine = make(kind, tmp_path)
    before = take(machine)
    change(machine)
    assert take(machine) == before


@pytest.mark.parametrize("kind", sorted(kinds.KINDS))
async def test_gate_and_detection_see_the_same(kind: str, tmp_path: Path) -> None:
    """Else the machine would be detected without end."""
    machine = make(kind, tmp_path)
    assert await Fingerprint(machine.tree, lambda: 0.0).current("") == take(machine)


async def test_gate_and_detection_see_the_same_of_this_machine() -> None:
    assert await Fingerprint(Path("/"), lambda: 0.0).current("") == fingerprint.take(Tree())


def test_a_detection_records_it_and_changes_nothing_of_it(tmp_path: Path, nodes_can_be_made: None) -> None:
    machine = make("nvidia-one", tmp_path)
    found = machine.setup().inventory
    assert found.fingerprint == take(machine)


@pytest.mark.parametrize("kind", ["nvidia-mig", "amd-consumer", "wsl-nvidia"])
def test_any_damage_leaves_a_fingerprint(kind: str, tmp_path: Path) -> None:
    """A folder, a loop, a FIFO or nothing at all in place of a file that it reads."""
    machine = make(kind, tmp_path)
    place: dict[str, Callable[[Path], None]] = {
        "folder": Path.mkdir,
        "fifo": os.mkfifo,
        "loop": lambda path: path.symlink_to(path.name),
    }
    for path in (
        "proc/sys/kernel/random/boot_id",
        "sys/class/kfd/kfd/topology/generation_id",
        "sys/module/nvidia/version",
    ):
        for name, put in place.items():
            shutil.rmtree(tmp_path / name, ignore_errors=True)
            copy = Machine(tmp_path / name / "tree", tmp_path / name / "root")
            shutil.copytree(machine.tree, copy.tree, symlinks=True)
            target = copy.tree / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            put(target)
            assert take(copy).startswith("sha256:")
    shutil.rmtree(machine.tree)
    assert take(machine).startswith("sha256:")
