"""Which card stands behind which device node: what atoms of CDI devices are made of (reference cdi-gpu 7.3). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gpugrant_crds.atoms import Hardware, Part
from gpugrant_crds.inventory import Gpu
from gpugrant_operator.node import drm_cards
from gpugrant_operator.node.observed import Observed


def behind(seen: Observed, gpus: Iterable[Gpu], folders: tuple[str, ...]) -> Hardware:
    """`folders` are those that nodes may lie in, each with a slash at its end."""
    found = tuple(gpus)
    nodes: dict[str, str] = {}
    for gpu in found:
        atom = f"gpu/{gpu.id}"
        if gpu.minor is not None:
            nodes[f"nvidia{gpu.minor}"] = atom
        names = [gpu.card_node, *gpu.render_nodes]
        nodes |= {f"dri/{name}": atom for name in names if name}
        nodes |= _partitions(gpu)
        if gpu.driver == "nvgpu":
            nodes |= dict.fromkeys(drm_cards.jetson_nodes(seen), atom)
    nodes |= _only_one_left(found, seen)
    nodes |= _cards_beside(nodes, seen)
    if seen.platform == "wsl" or "dxg" in seen.device_nodes:
        # CDI can't keep cards apart there: the machine is the unit
        nodes["dxg"] = "wsl/dxg"
    nodes |= {
        f"dri/by-path/{name}": nodes[f"dri/{node}"] for node, name in seen.by_path.items() if f"dri/{node}" in nodes
    }
    return Hardware(nodes, _caps(seen, found), folders)


def _partitions(gpu: Gpu) -> Mapping[str, str]:
    """Render nodes of parts: their ids begin with the card's."""
    return {f"dri/{part.render_node}": f"gpu/{part.id}" for part in gpu.partitions if part.render_node}


def _only_one_left(gpus: tuple[Gpu, ...], seen: Observed) -> Mapping[str, str]:
    """An old driver tells no minors: one card and one node that are left belong together."""
    claimed = {f"nvidia{gpu.minor}" for gpu in gpus if gpu.minor is not None}
    nodes = {node for node in seen.device_nodes if re.fullmatch(r"nvidia[0-9]+", node)} - claimed
    cards = [gpu for gpu in gpus if gpu.vendor == "nvidia" and gpu.driver == "nvidia" and gpu.minor is None]
    return {nodes.pop(): f"gpu/{cards[0].id}"} if len(nodes) == len(cards) == 1 else {}


def _cards_beside(nodes: Mapping[str, str], seen: Observed) -> Mapping[str, str]:
    """`card<N>` of the same DRM device as a known render node: of a partition, the partition's."""
    renders = {node.parent: node.name for node in seen.drm if node.parent and node.name.startswith("renderD")}
    found = {}
    for node in seen.drm:
        render = f"dri/{renders.get(node.parent or '')}"
        if node.name.startswith("card") and render in nodes:
            found[f"dri/{node.name}"] = nodes[render]
    return found


def _caps(seen: Observed, gpus: tuple[Gpu, ...]) -> dict[int, Part]:
    atoms = {gpu.minor: f"gpu/{gpu.id}" for gpu in gpus if gpu.minor is not None}
    return {
        cap.number: Part(atoms[cap.card], cap.gi, cap.ci)
        for cap in seen.caps
        if cap.card in atoms and cap.gi is not None
    }
