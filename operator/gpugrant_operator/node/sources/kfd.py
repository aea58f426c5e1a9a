"""KFD's topology: AMD's cards and partitions that can compute (reference cdi-gpu 3.4)."""

from __future__ import annotations

import re

from gpugrant_operator.node.sources import values
from gpugrant_operator.node.tree import Tree
from gpugrant_operator.node.vendors import amd

TOPOLOGY = "sys/class/kfd/kfd/topology"


def is_there(tree: Tree) -> bool:
    return tree.exists(TOPOLOGY)


def nodes(tree: Tree) -> tuple[amd.KfdNode, ...]:
    """Its GPU nodes in the order of their places."""
    if not is_there(tree):
        return ()
    values.read(tree, f"{TOPOLOGY}/generation_id", values.natural, "a number")
    found = (_node(tree, f"{TOPOLOGY}/nodes/{name}", name) for name in tree.names(f"{TOPOLOGY}/nodes"))
    return tuple(sorted((node for node in found if node is not None), key=lambda node: node.order))


def _node(tree: Tree, path: str, name: str) -> amd.KfdNode | None:
    number = values.natural(name)
    if number is None:
        tree.remark(path, "has no name of a node")
        return None
    values.line(tree, f"{path}/name")
    gpu_id = values.read(tree, f"{path}/gpu_id", values.natural, "a number", required=True)
    properties = _properties(tree, f"{path}/properties", ("simd_count",))
    if not gpu_id or not properties.get("simd_count"):
        if gpu_id and properties:
            tree.remark(f"{path}/properties", "is a GPU's and counts no compute unit")
        return None
    missing = amd.NEEDED - properties.keys()
    if missing:
        tree.remark(f"{path}/properties", f"has no {sorted(missing)[0]}")
        return None
    banks = tree.names(f"{path}/mem_banks")
    sizes = (_properties(tree, f"{path}/mem_banks/{bank}/properties", ("size_in_bytes",)) for bank in banks)
    return amd.gpu_node(number, gpu_id, properties, sum(size.get("size_in_bytes", 0) for size in sizes))


def _properties(tree: Tree, path: str, needed: tuple[str, ...]) -> dict[str, int]:
    faults = len(tree.faults)
    text = tree.text(path)
    if text is None and len(tree.faults) == faults:
        tree.remark(path, "is not there")
    found = amd.parse_properties(text or "")
    if text is not None and (any(key not in found for key in needed) or not _is_table(text)):
        tree.remark(path, "is no table of a KFD node's properties")
    return found


def _is_table(text: str) -> bool:
    return all(re.fullmatch(r"\S+ \S+", line.strip()) for line in text.splitlines() if line.strip())
