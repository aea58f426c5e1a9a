"""Stand-in device nodes for a recorded tree: Git can't hold device nodes, a container needs real ones.

A node has the numbers that the tree records. Without a driver behind them it answers ENXIO once a device cgroup lets
a container through, and EPERM before. The numbers of /dev/null and its neighbours (major 1) are never used: every
container may open those, so they would prove nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpugrant_operator.node.sources import values
from gpugrant_operator.node.tree import Tree

_DRM_MAJOR = 226
_NVIDIA_MAJOR = 195
_MISC_MAJOR = 10
_MEM_MAJOR = 1
_NVIDIA_FIXED = {"nvidiactl": 255, "nvidia-modeset": 254}


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """`path` is below dev/."""

    path: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a tree records of device numbers."""

    real: dict[str, tuple[int, int]]
    """Path below dev/ → numbers, where the tree holds a real node."""
    sysfs: dict[str, tuple[int, int]]
    """Node name → numbers."""
    majors: dict[str, int]
    """Driver → major of a character device."""
    misc: dict[str, int]
    """Name → minor of a misc device."""


def read_numbers(tree: Tree, paths: Iterable[str]) -> Numbers:
    """Everything that says a number for these paths."""
    real: dict[str, tuple[int, int]] = {}
    sysfs: dict[str, tuple[int, int]] = {}
    for path in paths:
        place = tree.locate(f"dev/{path}")
        if place is not None:
            info = place.lstat()
            if stat.S_ISCHR(info.st_mode):
                real[path] = (os.major(info.st_rdev), os.minor(info.st_rdev))
        name = path.rpartition("/")[2]
        for source in (f"sys/class/drm/{name}/dev", f"sys/class/{name}/{name}/dev", f"sys/class/misc/{name}/dev"):
            found = values.read(tree, source, values.numbers, "two numbers such as 226:128")
            if found is not None:
                sysfs[name] = found
    return Numbers(real, sysfs, _table(tree, "proc/devices"), _table(tree, "proc/misc"))


def _table(tree: Tree, path: str) -> dict[str, int]:
    """`number name` lines; those of block devices in /proc/devices are left out."""
    text = tree.text(path)
    lines = (text or "").partition("Block devices:")[0].splitlines()
    matches = (re.fullmatch(r"\s*([0-9]{1,7})\s+(\S+)\s*", line) for line in lines)
    found = {match[2]: int(match[1]) for match in matches if match}
    if text is not None and not found:
        tree.remark(path, "is no table of device numbers")
    return found


def plan(paths: Iterable[str], numbers: Numbers) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """Nodes to be made, and a clause for each path without a number."""
    nodes: list[Node] = []
    unknown: list[str] = []
    for path in sorted(paths):
        found = _numbers(path, numbers)
        if found is None or found[0] in (0, _MEM_MAJOR):
            unknown.append(f"no device number is recorded for /dev/{path}, so it is left out")
        else:
            nodes.append(Node(path, *found))
    return tuple(nodes), tuple(unknown)


def _numbers(path: str, numbers: Numbers) -> tuple[int, int] | None:
    name = path.rpartition("/")[2]
    return numbers.real.get(path) or numbers.sysfs.get(name) or _by_driver(name, numbers) or _by_rule(name)


def _by_driver(name: str, numbers: Numbers) -> tuple[int, int] | None:
    """From /proc/devices and /proc/misc, by the names that the drivers register."""
    if name in numbers.misc:
        return (_MISC_MAJOR, numbers.misc[name])
    if name == "nvidia-uvm-tools" and "nvidia-uvm" in numbers.majors:
        return (numbers.majors["nvidia-uvm"], 1)
    cap = re.fullmatch(r"nvidia-cap([0-9]{1,5})", name)
    if cap and "nvidia-caps" in numbers.majors:
        return (numbers.majors["nvidia-caps"], int(cap[1]))
    if name in numbers.majors and name not in _NVIDIA_FIXED:
        return (numbers.majors[name], 0)
    return None


def _by_rule(name: str) -> tuple[int, int] | None:
    """The majors that the kernel has fixed."""
    if name in _NVIDIA_FIXED:
        return (_NVIDIA_MAJOR, _NVIDIA_FIXED[name])
    drm = re.fullmatch(r"(?:renderD|card)([0-9]{1,5})", name)
    if drm:
        return (_DRM_MAJOR, int(drm[1]))
    card = re.fullmatch(r"nvidia([0-9]{1,3})", name)
    return (_NVIDIA_MAJOR, int(card[1])) if card else None


def make(folder: Path, nodes: Iterable[Node]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Makes what is missing below `folder` (a root's dev); the paths that are there, and a clause for each failure."""
    made: set[str] = set()
    failed: list[str] = []
    for node in nodes:
        try:
            _make(folder / node.path, os.makedev(node.major, node.minor))
            made.add(node.path)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            failed.append(f"the device node {folder / node.path} can't be made: {reason}; run this as root")
    return frozenset(made), tuple(failed)


def _make(path: Path, device: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        info = path.lstat()
    except FileNotFoundError:
        info = None
    if info is not None and stat.S_ISCHR(info.st_mode) and info.st_rdev == device:
        return
    if info is not None:
        path.unlink()
    os.mknod(path, 0o666 | stat.S_IFCHR, device)
    path.chmod(0o666)


def remove(folder: Path, paths: Iterable[str]) -> None:
    """Takes away nodes that a former run made; anything that is no character device stays."""
    for name in paths:
        path = folder / name
        try:
            if stat.S_ISCHR(path.lstat().st_mode):
                path.unlink()
        except OSError:
            continue
