"""A stand-in for NVIDIA's library, built from source: the real binding talks to it, one file of text is the machine."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "standins/nvml.c"
SETTINGS = "usr/share/stand-in-nvml"
LIBRARY = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"

HANGS = -1
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18


@functools.cache
def built() -> Path:
    """The library; skips the test where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the stand-in of NVML")
    folder = Path(tempfile.mkdtemp(prefix="gpugrant-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(target), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return target


@dataclass(frozen=True)
class Instance:
    gi: int
    ci: int
    uuid: str
    name: str = "MIG 3g.40gb"


@dataclass(frozen=True)
class Card:
    """As nvml.c has it: `error` fails every getter, a negative one the handle."""

    minor: int
    uuid: str
    address: str
    name: str
    mib: int = 46068
    mig: int = -1
    serial: str = ""
    action: int = 0
    error: int = 0
    instances: tuple[Instance, ...] = field(default=())

    def lines(self) -> list[str]:
        domain, rest = self.address.split(":", 1)
        fields = (self.minor, self.uuid, f"{domain:0>8}:{rest.upper()}", self.mib, self.mig, self.serial, self.action)
        own = "|".join(["card", *map(str, fields), str(self.error), self.name])
        return [own, *(f"mig|{one.gi}|{one.ci}|{one.uuid}|{one.name}" for one in self.instances)]


def put(tree: Path, cards: list[Card], *, driver: str = "580.95.05", init: int = 0) -> None:
    """Makes `tree` a machine whose NVML says this."""
    lines = [f"init|{init}", f"driver|{driver}", *(line for card in cards for line in card.lines())]
    for path in (SETTINGS, LIBRARY):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / SETTINGS).write_text("\n".join(lines) + "\n")
    versioned = tree / f"{LIBRARY.removesuffix('.1')}.{driver}"
    shutil.copy(built(), versioned)
    (tree / LIBRARY).unlink(missing_ok=True)
    (tree / LIBRARY).symlink_to(versioned.name)
