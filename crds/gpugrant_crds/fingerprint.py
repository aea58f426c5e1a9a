"""A cheap sum over what a machine's hardware and drivers show: equal sums, nothing to detect anew (reference 7.4).

Pure: whoever calls it gives the functions that read. The gate polls it and the detection records it, so both must read
the same: here stands what, and nowhere else. Nothing in it wakes a sleeping card, and what comes and goes by itself
(connectors of displays, clients' folders) is left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

EVERY = 60.0
"""Seconds between two looks."""

DATA_MAX = 4096
"""Bytes of a file that count: versions, ids and numbers."""

_DRIVERS = ("nvidia", "nouveau", "nova_core", "amdgpu", "radeon", "i915", "xe", "dxgkrnl")
_DRM = re.compile(r"(?:card|renderD)[0-9]+")
_DEVICE = re.compile(r"nvidia[0-9]*|nvidiactl|nvidia-(?:uvm|uvm-tools|modeset)|kfd|dxg|nvmap")
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")
_PROGRAMS = ("usr/bin/nvidia-ctk", "usr/bin/nvidia-smi")


@dataclass(frozen=True, slots=True)
class Files:
    """How a machine is read; paths are relative to its root. None of them raises."""

    names: Callable[[str], Iterable[str]]
    """The entries of a folder; none where there is no folder."""
    data: Callable[[str], bytes | None]
    """A file's first DATA_MAX bytes; None where there is none."""
    link: Callable[[str], str | None]
    """The last part of where a link points; None where there is no link."""
    stamp: Callable[[str], tuple[int, int] | None]
    """Size and time of change in nanoseconds; None where nothing is there."""


def take(files: Files) -> str:
    """`sha256:<hex>`."""
    seen = [
        ["boot", _text(files, "proc/sys/kernel/random/boot_id")],
        ["modules", [[name, _module(files, name)] for name in _DRIVERS]],
        [
            "pci",
            [
                [name, files.link(f"sys/bus/pci/devices/{name}/driver")]
                for name in _sorted(files, "sys/bus/pci/devices")
            ],
        ],
        ["drm", [[name, files.link(f"sys/class/drm/{name}/device")] for name in _sorted(files, "sys/class/drm", _DRM)]],
        [
            "nodes",
            [*_sorted(files, "dev", _DEVICE), *_sorted(files, "dev/dri", _DRM), *_sorted(files, "dev/nvidia-caps")],
        ],
        ["kfd", _text(files, "sys/class/kfd/kfd/topology/generation_id")],
        ["mig", _mig(files)],
        ["wsl", [_sorted(files, "usr/lib/wsl/drivers"), _sorted(files, "usr/lib/wsl/lib")]],
        ["libraries", [files.link(f"{folder}/libnvidia-ml.so.1") for folder in _LIBRARIES]],
        ["programs", [files.stamp(path) for path in _PROGRAMS]],
    ]
    canonical = json.dumps(seen, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _sorted(files: Files, folder: str, wanted: re.Pattern[str] | None = None) -> list[str]:
    return sorted(name for name in files.names(folder) if wanted is None or wanted.fullmatch(name))


def _text(files: Files, path: str) -> str | None:
    data = files.data(path)
    return None if data is None else data.decode("utf-8", "replace").strip()


def _module(files: Files, name: str) -> str | bool:
    """Its version; for a module of the kernel's own, which has none, whether it is loaded."""
    return _text(files, f"sys/module/{name}/version") or bool(list(files.names(f"sys/module/{name}")))


def _mig(files: Files) -> list[str]:
    """The MIG instances that there are, by the names of procfs' folders."""
    base = "proc/driver/nvidia/capabilities"
    return [
        f"{card}/{gi}/{ci}"
        for card in _sorted(files, base)
        for gi in _sorted(files, f"{base}/{card}/mig")
        for ci in _sorted(files, f"{base}/{card}/mig/{gi}")
    ]
