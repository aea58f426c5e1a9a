"""Hardware atoms: what a CDI device stands for, so that names that share hardware are known (reference cdi-gpu 7.3).

An atom is a path such as `gpu/nvidia:GPU-1d…/gi1/ci0`; two devices share hardware where an atom of one is an atom of
the other or lies below one. Pure: which node is which card is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpugrant_crds.cdi import Device, Edits, Spec

_SHARED = re.compile(
    r"nvidiactl|nvidia-uvm|nvidia-uvm-tools|nvidia-modeset|nvidia-caps-imex-channels(?:/.*)?|kfd|infiniband(?:/.*)?"
    r"|null|zero|full|random|urandom|tty|gdrdrv|nvidia-nvswitch(?:ctl|[0-9]+)"
)
"""Nodes that every user of a vendor's cards needs, and plain ones: they tell nothing apart."""

_CAP = re.compile(r"nvidia-caps/nvidia-cap([0-9]{1,7})")


@dataclass(frozen=True, slots=True)
class Part:
    """What a capability node of MIG gives: a GPU instance of a card, or a compute instance of that."""

    card: str
    """The card's atom."""
    gi: int
    ci: int | None = None

    @property
    def atom(self) -> str:
        instance = f"{self.card}/gi{self.gi}"
        return instance if self.ci is None else f"{instance}/ci{self.ci}"


@dataclass(frozen=True, slots=True)
class Hardware:
    """What stands behind the device nodes of one machine. Paths are below /dev."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    """Path → atom."""
    caps: Mapping[int, Part] = field(default_factory=dict)
    """N of nvidia-cap<N> → the part that it gives; a number that is not here gives a card's MIG control, or is
    unknown: then the whole card counts."""
    folders: tuple[str, ...] = ("/dev/",)
    """Where the nodes lie: a recorded tree's are made below a root."""

    def inside(self, path: str) -> str | None:
        """The path below /dev; None: it is no device node's place. /dev itself is empty."""
        for folder in self.folders:
            if path.startswith(folder) or f"{path}/" == folder:
                return path[len(folder) :].strip("/")
        return None


def of_spec(spec: Spec, hardware: Hardware) -> dict[str, tuple[str, ...]]:
    """Qualified name → its atoms, sorted."""
    return {spec.qualified(device): of_device(spec, device, hardware) for device in spec.devices}


def of_device(spec: Spec, device: Device, hardware: Hardware) -> tuple[str, ...]:
    """The atoms that one device gives, what its file gives to every device included."""
    paths = [path for edits in (device.edits, spec.edits) for path in _paths(edits, hardware)]
    own = list(_paths(device.edits, hardware))
    if not own and not any(atom for path in paths for atom in _expand(path, hardware)):
        # only an environment variable, a hook or libraries: a runtime's hook may add any card of the vendor
        return (f"unknown/{spec.kind}",)
    caps = {int(match[1]) for path in paths if (match := _CAP.fullmatch(path))}
    parts = [hardware.caps[cap] for cap in caps if cap in hardware.caps]
    # a control node of MIG, or one that nobody knows, may give all of a card
    partial = {part.card for part in parts} if len(parts) == len(caps) else set()
    found = {atom for path in paths for atom in _expand(path, hardware)} - partial
    finer = {(part.card, part.gi) for part in parts if part.ci is not None}
    found |= {part.atom for part in parts if part.ci is not None or (part.card, part.gi) not in finer}
    return tuple(sorted(found))


def _paths(edits: Edits, hardware: Hardware) -> Iterable[str]:
    """Below /dev: the nodes, and the mounts whose source lies there."""
    sources = [node.source for node in edits.device_nodes] + [mount.host_path for mount in edits.mounts]
    nodes = len(edits.device_nodes)
    for number, source in enumerate(sources):
        inside = hardware.inside(source)
        if inside is not None:
            yield inside
        elif number < nodes:
            # a node that lies elsewhere is one that nobody knows
            yield source


def _expand(path: str, hardware: Hardware) -> Iterable[str]:
    """The atoms of one path; of a folder, those of all that lies in it."""
    known = hardware.nodes.get(path)
    if known is not None:
        yield known
        return
    below = [atom for node, atom in hardware.nodes.items() if not path or node.startswith(f"{path}/")]
    if below:
        yield from below
    elif not _SHARED.fullmatch(path) and not _CAP.fullmatch(path):
        yield f"node/{path.strip('/')}"


def overlap(a: Iterable[str], b: Iterable[str], *, same_vendor: bool = False) -> bool:
    """Whether two devices share hardware; `same_vendor`: their names have the same vendor.

    Symmetric. What is unknown shares with everything of its vendor.
    """
    first, second = tuple(a), tuple(b)
    if same_vendor and any(atom.startswith("unknown/") for atom in (*first, *second)):
        return True
    return any(covers(one, other) or covers(other, one) for one in first for other in second)


def covers(whole: str, part: str) -> bool:
    """Whether `part` is `whole` or lies below it."""
    return part == whole or part.startswith(f"{whole}/")


def moved(device: str, before: Iterable[str], now: Iterable[str]) -> bool:
    """Whether a name that stood for `before` stands for other hardware `now` (R47): something of it is new.

    A name whose hardware is not known, before or now, has not moved: a driver that was unloaded, or a card that does
    not tell its UUID, is no other card.
    """
    old, new = tuple(before), tuple(now)
    if not old or not new or not all(_is_told(device, atom) for atom in (*old, *new)):
        return False
    return not all(any(covers(was, atom) for was in old) for atom in new)


def _is_told(device: str, atom: str) -> bool:
    """Whether the atom says which card it is. Of NVIDIA's, an address means that the card gave no UUID."""
    nameless = device.startswith("nvidia.com/") and atom.startswith("gpu/pci:")
    return atom.startswith(("gpu/", "wsl/")) and not nameless


def names_a_set(device: str, found: Iterable[str]) -> bool:
    """Whether a qualified name stands for several pieces of hardware: it never counts as moved (R47)."""
    return device.rpartition("=")[2] == "all" or len(tuple(found)) > 1
