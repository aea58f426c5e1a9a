"""Which cards a machine has, who they are and whether they can be used: sources joined by PCI address, then by UUID.

Pure. PCI says what is present, the vendors' tools and procfs add what they know; a card that a tool does not list is
still there, and its health says so. Virtual GPUs, virtual functions and the chips of management controllers are no
cards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpugrant_crds.inventory import Gpu, Partition, RenderNode
from gpugrant_operator.node import amd_cards, card, drm_cards, nvidia_cards
from gpugrant_operator.node.amd_cards import AmdDevice
from gpugrant_operator.node.observed import Observed, PciFunction
from gpugrant_operator.node.vendors import pci

Problems = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Cards:
    gpus: tuple[Gpu, ...]
    render_nodes: tuple[RenderNode, ...]
    amd_devices: tuple[AmdDevice, ...]
    nvidia_present: bool
    """An NVIDIA card that this machine itself can use: one passed through to a guest does not count (design 7)."""
    nvidia_seen: bool
    """Any NVIDIA card, also one passed through or one that may be there: while there is one, nvidia.yaml stays."""
    nvidia_blocked: bool
    """The driver hangs, or waits for a reboot: nvidia-ctk would hang or fail as well, and the last good spec stays."""
    nvidia_minors: frozenset[int]
    """N of the /dev/nvidia<N> that a whole spec must hold."""
    problems: Problems


def join(seen: Observed) -> Cards:
    """All cards of the machine, sorted by place."""
    functions = tuple(f for f in seen.pci if pci.is_gpu(f.vendor, f.device, f.class_code))
    addresses = {function.address for function in seen.pci}
    whole = tuple(f for f in functions if f.physical is None or f.physical not in addresses)
    gpus = [_from_pci(function, seen) for function in whole]
    gpus = [_with_virtual_functions(gpu, functions, seen) for gpu in gpus]
    gpus += nvidia_cards.without_pci({function.address for function in functions}, seen)
    gpus += drm_cards.platform_gpus(seen)
    gpus.sort(key=lambda gpu: (gpu.pci_address or "~", -1 if gpu.index is None else gpu.index, gpu.id))
    passed = [gpu for gpu in gpus if gpu.vendor == "nvidia" and gpu.health.reason == "PassedThrough"]
    cards = [gpu for gpu in gpus if gpu.vendor == "nvidia" and gpu.health.reason != "PassedThrough"]
    return Cards(
        gpus=tuple(gpus),
        render_nodes=drm_cards.render_nodes(seen, _owners(gpus)),
        amd_devices=amd_cards.devices(seen),
        nvidia_present=bool(cards) or seen.wsl_driver,
        nvidia_seen=bool(cards or passed) or seen.wsl_driver or seen.pci_unread,
        nvidia_blocked=nvidia_cards.is_blocked(seen),
        nvidia_minors=frozenset(g.minor for g in cards if g.minor is not None and g.health.state == "ok"),
        problems=(*seen.problems, *nvidia_cards.problems(seen), *amd_cards.problems(seen), *_broken(gpus)),
    )


_BROKEN = frozenset(("FellOffBus", "NeedsReset", "NoDeviceNode"))
"""What is nobody's choice. A card without a driver, excluded or given to a guest may be meant so."""


def _broken(gpus: list[Gpu]) -> Problems:
    return tuple(
        (gpu.health.reason, f"{gpu.name} at {gpu.pci_address or gpu.id} can't be used: {gpu.health.text}")
        for gpu in gpus
        if gpu.health.reason in _BROKEN and gpu.vendor != "other"
    )


def _owners(gpus: list[Gpu]) -> Mapping[str, str]:
    return {name: gpu.id for gpu in gpus for name in gpu.render_nodes}


def _from_pci(function: PciFunction, seen: Observed) -> Gpu:
    match pci.VENDORS.get(function.vendor, "other"):
        case "nvidia":
            return nvidia_cards.of_function(function, seen)
        case "amd":
            return amd_cards.of_function(function, seen)
        case vendor:
            return card.base(function, seen, vendor, f"pci:{function.address}", card.health(function, seen))


def _with_virtual_functions(gpu: Gpu, functions: tuple[PciFunction, ...], seen: Observed) -> Gpu:
    """SR-IOV: a virtual function that this machine itself uses is a part of its card, not a card of its own."""
    own = [function for function in functions if function.physical == gpu.pci_address]
    if gpu.pci_address is None or not own:
        return gpu
    parts = [
        Partition(id=f"{gpu.id}/vf{function.address}", index=len(gpu.partitions) + number, render_node=render)
        for number, (function, render) in enumerate((f, name) for f in own for name in card.renders(f, seen)[:1])
    ]
    names = {*gpu.render_nodes, *(part.render_node for part in parts if part.render_node)}
    return gpu.model_copy(
        update={"partitions": (*gpu.partitions, *parts), "render_nodes": tuple(sorted(names, key=card.by_number))}
    )


__all__ = ["AmdDevice", "Cards", "join"]
