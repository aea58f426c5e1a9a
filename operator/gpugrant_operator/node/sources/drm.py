"""/sys/class/drm and /dev/dri/by-path: cards and render nodes of every driver (reference cdi-gpu 3.3)."""

from __future__ import annotations

import re

from gpugrant_operator.node.observed import DrmNode
from gpugrant_operator.node.sources.host import DRM_NODE
from gpugrant_operator.node.tree import Tree

BASE = "sys/class/drm"


def nodes(tree: Tree) -> tuple[DrmNode, ...]:
    return tuple(_node(tree, name) for name in tree.names(BASE) if DRM_NODE.fullmatch(name))


def _node(tree: Tree, name: str) -> DrmNode:
    device = f"{BASE}/{name}/device"
    uevent = tree.text(f"{device}/uevent") or ""
    if uevent and re.fullmatch(r"(?:[A-Z0-9_]+=.*(?:\n|$))+", uevent) is None:
        tree.remark(f"{device}/uevent", "holds something else than KEY=value")
    driver = tree.link_name(f"{device}/driver") or _value(uevent, "DRIVER")
    return DrmNode(name, tree.link_name(device), driver, _value(uevent, "OF_COMPATIBLE_0"))


def _value(uevent: str, key: str) -> str | None:
    match = re.search(rf"^{key}=(\S+)$", uevent, re.MULTILINE)
    return match[1][:64] if match else None


def by_path(tree: Tree) -> dict[str, str]:
    """Node name → its name below /dev/dri/by-path."""
    base = "dev/dri/by-path"
    links = ((tree.link_name(f"{base}/{name}"), name) for name in tree.names(base))
    return {node: name for node, name in links if node is not None}
