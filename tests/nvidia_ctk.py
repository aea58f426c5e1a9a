"""The real nvidia-ctk on a machine without a GPU: built from its Go module, run in a tree that it takes for one.

What is hardware is stood in for: NVML and WSL's dxcore (stand_ins/*.c), device nodes without a driver. The tree is read
as a recorded machine by setup; its own nvidia-ctk is a script that notes its arguments and runs the real one in a
chroot, since that one reads /proc and /sys from the root.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from machines import Machine

MODULE = "github.com/NVIDIA/nvidia-container-toolkit"
NEWEST = "1.20.2"
VERSIONS = ("1.17.8", NEWEST)
"""Before and after the toolkit had a refresh unit of its own (1.18)."""

DRIVER = "580.95.05"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
C_SOURCES = Path(__file__).with_name("stand_ins")


@dataclass(frozen=True, slots=True)
class Card:
    minor: int
    bus: int
    uuid: str
    render: int | None = None

    @property
    def address(self) -> str:
        return f"0000:{self.bus:02x}:00.0"


CARDS = (
    Card(3, 1, "GPU-11111111-2222-3333-4444-555555555555", render=128),
    Card(0, 2, "GPU-11111111-2222-3333-4444-666666666666"),
)
"""NVML's first card is /dev/nvidia3, its second /dev/nvidia0: the index is not the minor."""


def programs(version: str) -> Path:
    """A folder with nvidia-ctk and nvidia-cdi-hook, built once and kept; skips where that can't be done."""
    if os.geteuid() != 0 or platform.machine() != "x86_64":
        pytest.skip("the real nvidia-ctk is run in a chroot, as root, on x86-64")
    if shutil.which("go") is None or shutil.which("gcc") is None:
        pytest.skip("nvidia-ctk is built with Go and gcc")
    cache = Path(os.environ.get("GPUGRANT_CACHE") or Path.home() / ".cache/gpugrant")
    made = cache / f"nvidia-ctk-{version}"
    if not made.exists():
        aside = cache / f"nvidia-ctk-{version}.{os.getpid()}"
        flags = f"-X {MODULE}/internal/info.version={version}"
        wanted = [f"{MODULE}/cmd/{name}@v{version}" for name in ("nvidia-ctk", "nvidia-cdi-hook")]
        done = subprocess.run(
            ["go", "install", "-ldflags", flags, *wanted],
            env={**os.environ, "GOBIN": str(aside)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"nvidia-ctk {version} can't be built here: {(done.stderr.splitlines() or ['?'])[-1]}")
        if not made.exists():
            aside.rename(made)
    return made


def module(version: str) -> Path:
    """The module's own files, its systemd units among them."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{MODULE}@v{version}"], capture_output=True, text=True, check=True
    )
    return Path(json.loads(done.stdout)["Dir"])


SCRIPT = """\
echo "nvidia-ctk $*" >>"$GPUGRANT_HARDWARE/calls"
# the folder that is written lies outside of the tree: it is shown inside at the same place
exec unshare --mount sh -c '
    inside=$GPUGRANT_HARDWARE$GPUGRANT_ROOT/etc/cdi
    mkdir -p "$inside"
    mount --bind "$GPUGRANT_ROOT/etc/cdi" "$inside"
    tree=$GPUGRANT_HARDWARE
    unset GPUGRANT_HARDWARE
    exec chroot "$tree" /usr/bin/nvidia-ctk.real "$@"
' sh "$@"
"""


def install(machine: Machine, version: str) -> None:
    """The toolkit's programs in the tree."""
    built = programs(version)
    for name, place in (("nvidia-ctk", "nvidia-ctk.real"), ("nvidia-cdi-hook", "nvidia-cdi-hook")):
        target = machine.tree / "usr/bin" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(built / name, target)
    for library in ("lib64/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/libc.so.6"):
        (machine.tree / library).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path("/") / library, machine.tree / library)
    machine.script("usr/bin/nvidia-ctk", SCRIPT)
    machine.node("dev/null", 1, 3)


def native(machine: Machine, version: str, cards: Sequence[Card] = CARDS) -> None:
    """A server with these cards, the driver's libraries and the toolkit of that version."""
    install(machine, version)
    machine.write("etc/hostname", "gpu-server\n")
    machine.write("proc/sys/kernel/random/boot_id", "6a2f1c7e-0f3b-4d59-9a55-6f1f0a9d1c11\n")
    machine.write("proc/sys/kernel/osrelease", "6.12.48\n")
    machine.write("proc/devices", "Character devices:\n195 nvidia\n508 nvidia-uvm\n")
    driver(machine, DRIVER, cards)
    build(machine.tree / "usr/bin/nvidia-smi", "nvidia_smi.c")
    for name, major, minor in (
        ("nvidiactl", 195, 255),
        ("nvidia-modeset", 195, 254),
        ("nvidia-uvm", 508, 0),
        ("nvidia-uvm-tools", 508, 1),
    ):
        machine.node(f"dev/{name}", major, minor)
    for card in cards:
        add(machine, card)


def driver(machine: Machine, version: str, cards: Sequence[Card] = CARDS) -> None:
    """The driver's module and libraries, in place of those of another version."""
    table = ", ".join(f'{{{card.minor}, {card.bus}, "{card.uuid}"}}' for card in cards)
    shutil.rmtree(machine.tree / LIBRARIES, ignore_errors=True)
    machine.write("sys/module/nvidia/version", f"{version}\n")
    for name in ("libnvidia-ml.so", "libcuda.so"):
        build(machine.tree / LIBRARIES / f"{name}.{version}", "nvml.c", CARDS=table, VERSION=f'"{version}"')
        machine.link(f"{LIBRARIES}/{name}.1", f"{name}.{version}")


def add(machine: Machine, card: Card) -> None:
    machine.pci(card.address, "10de", "26b9", "030200", "nvidia")
    machine.node(f"dev/nvidia{card.minor}", 195, card.minor)
    machine.write(
        f"proc/driver/nvidia/gpus/{card.address}/information",
        f"Model: \t\t NVIDIA L40S\nGPU UUID: \t {card.uuid}\nBus Location: \t {card.address}\n"
        f"Device Minor: \t {card.minor}\n",
    )
    if card.render is not None:
        node = f"renderD{card.render}"
        machine.node(f"dev/dri/{node}", 226, card.render)
        machine.write(f"sys/bus/pci/devices/{card.address}/drm/{node}/dev", f"226:{card.render}\n")
        machine.link(f"sys/class/drm/{node}/device", f"../../../bus/pci/devices/{card.address}")


def windows(machine: Machine, store: str) -> None:
    """A WSL2 machine; called again, Windows has brought another driver."""
    stores = machine.tree / "usr/lib/wsl/drivers"
    shutil.rmtree(stores, ignore_errors=True)
    build(machine.tree / "usr/lib/wsl/lib/libdxcore.so", "dxcore.c")
    machine.node("dev/dxg", 10, 125)
    for name in ("libcuda.so.1.1", "libcuda_loader.so", "libnvidia-ml.so.1", "nvidia-smi"):
        machine.write(f"usr/lib/wsl/drivers/{store}/{name}")
    # the loader's search path of WSL, which its /etc/ld.so.conf.d has
    script = SCRIPT.replace("exec chroot", "LD_LIBRARY_PATH=/usr/lib/wsl/lib exec chroot")
    machine.script("usr/bin/nvidia-ctk", script)


def build(target: Path, source: str, **defines: str) -> None:
    """Compiles a stand-in; a library when the name says so."""
    target.parent.mkdir(parents=True, exist_ok=True)
    library = ["-shared", "-fPIC", f"-Wl,-soname,{target.name.split('.so')[0]}.so.1"] if ".so" in target.name else []
    path = f"-Wl,-rpath,$ORIGIN/../{LIBRARIES.removeprefix('usr/')}"
    given = [f"-D{name}={value}" for name, value in defines.items()]
    command = ["gcc", "-O1", *library, path, *given, "-o", str(target), str(C_SOURCES / source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
