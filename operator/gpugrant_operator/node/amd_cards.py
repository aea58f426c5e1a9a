"""AMD's cards: identity by unique id, partitions and compute by KFD (reference cdi-gpu 3.4, 7.2). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpugrant_crds.inventory import Gpu, Partition
from gpugrant_operator.node import card
from gpugrant_operator.node.observed import Observed, PciFunction
from gpugrant_operator.node.vendors.amd import KfdNode


@dataclass(frozen=True, slots=True)
class AmdDevice:
    """A KFD node that can be granted: `gpu<N>`, its render node, the card it belongs to."""

    name: str
    render_node: str
    address: str


def devices(seen: Observed) -> tuple[AmdDevice, ...]:
    """KFD nodes whose device files are there, numbered in the order of their places (reference cdi-gpu 7.4)."""
    if "kfd" not in seen.device_nodes:
        return ()
    usable = [node for node in seen.kfd if f"dri/{node.render_name}" in seen.device_nodes]
    return tuple(AmdDevice(f"gpu{n}", node.render_name, node.card_address) for n, node in enumerate(usable))


def problems(seen: Observed) -> tuple[tuple[str, str], ...]:
    """What keeps a card that can compute from being a `rediacc.io/amd` device."""
    if "kfd" in seen.device_nodes and not seen.kfd_there:
        return (("ProbeFailed", "/dev/kfd is there and /sys/class/kfd is not: no AMD card can be told to compute"),)
    if seen.kfd and "kfd" not in seen.device_nodes:
        return (("NoDeviceNode", "/dev/kfd is not there, so no AMD card of this machine can compute"),)
    missing = [node for node in seen.kfd if f"dri/{node.render_name}" not in seen.device_nodes]
    return tuple(
        ("NoDeviceNode", f"/dev/dri/{node.render_name} of the AMD card {node.card_address} is not there")
        for node in missing
    )


def of_function(function: PciFunction, seen: Observed) -> Gpu:
    nodes = [node for node in seen.kfd if node.card_address == function.address]
    identity = _identity(function, nodes)
    gpu = card.base(function, seen, "amd", identity, card.health(function, seen))
    changes: dict[str, object] = {}
    if gpu.memory_bytes is None and (total := sum(node.memory_bytes or 0 for node in nodes)):
        changes |= {"memory_bytes": total, "memory_source": "kfd"}
    if len(nodes) > 1:
        changes["partitions"] = tuple(
            Partition(id=f"{identity}/p{index}", index=index, render_node=node.render_name)
            for node, index in partitions(nodes).items()
        )
    renders = {*gpu.render_nodes, *(node.render_name for node in nodes)}
    changes["render_nodes"] = tuple(sorted(renders, key=card.by_number))
    return gpu.model_copy(update=changes)


def partitions(nodes: list[KfdNode]) -> Mapping[KfdNode, int]:
    """One card's KFD nodes → their partition's index; where the kernel gives all the same, their place counts."""
    told = [node.partition for node in nodes]
    if len(set(told)) == len(nodes):
        return dict(zip(nodes, told, strict=True))
    return {node: place for place, node in enumerate(sorted(nodes, key=lambda node: node.render_minor))}


def _identity(function: PciFunction, nodes: list[KfdNode]) -> str:
    if function.unique_id:
        return f"amd:{function.unique_id}"
    unique = next((node.unique_id for node in nodes if node.unique_id), 0)
    return f"amd:{unique:016x}" if unique else f"pci:{function.address}"
