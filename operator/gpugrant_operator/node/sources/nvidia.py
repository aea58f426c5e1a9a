"""NVIDIA's procfs, and the driver's version (reference cdi-gpu 3.2). Nothing of it is there on WSL or with nouveau."""

from __future__ import annotations

import re

from gpugrant_operator.node.sources import values
from gpugrant_operator.node.tree import Tree
from gpugrant_operator.node.vendors import nvidia, pci

CARDS = "proc/driver/nvidia/gpus"
CAPABILITIES = "proc/driver/nvidia/capabilities"
_MINORS = "proc/driver/nvidia-caps/mig-minors"


def cards(tree: Tree) -> tuple[nvidia.ProcCard, ...]:
    """Wakes a sleeping card: nothing for a poll."""
    found = []
    for name in tree.names(CARDS):
        path = f"{CARDS}/{name}/information"
        address, text = pci.address(name), tree.text(path)
        if address is None or text is None:
            continue
        card = nvidia.parse_information(address, text)
        if card.model is None and card.uuid is None and card.minor is None:
            tree.remark(path, "says nothing of a card")
        found.append(card)
    return tuple(found)


def module_version(tree: Tree) -> str | None:
    """Of the module that is loaded, which may be another one than the libraries are of."""
    own = values.read(tree, "sys/module/nvidia/version", _version, "a version such as 580.95.05")
    text = tree.text("proc/driver/nvidia/version")
    told = None if text is None else nvidia.parse_module_version(text)
    if text is not None and told is None:
        tree.remark("proc/driver/nvidia/version", "names no version")
    return own or told


def _version(text: str) -> str | None:
    return text if re.fullmatch(r"[0-9]+(\.[0-9]+){1,3}", text) else None


def caps(tree: Tree) -> tuple[nvidia.Cap, ...]:
    text = tree.text(_MINORS)
    found = () if text is None else nvidia.parse_caps(text)
    if found is None:
        tree.remark(_MINORS, "is no list of capabilities")
    return found or ()


def instances(tree: Tree) -> dict[int, tuple[tuple[int, int], ...]]:
    """A card's minor → its MIG instances, (GI, CI)."""
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for card in tree.names(CAPABILITIES):
        minor = _number("gpu", card)
        if minor is None:
            continue
        base = f"{CAPABILITIES}/{card}/mig"
        pairs = [
            (gi, ci)
            for folder in tree.names(base)
            if (gi := _number("gi", folder)) is not None
            for inner in tree.names(f"{base}/{folder}")
            if (ci := _number("ci", inner)) is not None
        ]
        if pairs:
            found[minor] = tuple(sorted(pairs))
    return found


def _number(prefix: str, name: str) -> int | None:
    match = re.fullmatch(rf"{prefix}([0-9]{{1,4}})", name)
    return None if match is None else int(match[1])
