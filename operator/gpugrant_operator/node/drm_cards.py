"""DRM devices that are no PCI card: GPUs on a chip, and every render node with what stands behind it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gpugrant_crds.inventory import Gpu, Health, RenderNode
from gpugrant_operator.node import card
from gpugrant_operator.node.observed import DrmNode, Observed, Tegra
from gpugrant_operator.node.vendors import pci

_XCP = "amdgpu_xcp"
"""A partition of an AMD card: a platform device whose card KFD tells."""


def platform_gpus(seen: Observed) -> list[Gpu]:
    """GPUs of a system on a chip: a render node whose device is no PCI function, and a Jetson's."""
    by_parent: dict[str, list[DrmNode]] = {}
    for node in seen.drm:
        if node.parent and pci.address(node.parent) is None:
            by_parent.setdefault(node.parent, []).append(node)
    if seen.tegra is None:
        found = (_on_chip(parent, nodes, seen) for parent, nodes in sorted(by_parent.items()))
        return [gpu for gpu in found if gpu is not None]
    own = {parent: nodes for parent, nodes in by_parent.items() if _is_tegra(nodes)}
    others = (_on_chip(parent, nodes, seen) for parent, nodes in sorted(by_parent.items()) if parent not in own)
    jetson = _jetson(seen.tegra, [node.name for nodes in own.values() for node in nodes], seen)
    return [jetson, *(gpu for gpu in others if gpu is not None)]


def _on_chip(parent: str, nodes: list[DrmNode], seen: Observed) -> Gpu | None:
    renders = tuple(sorted((n.name for n in nodes if n.name.startswith("renderD")), key=card.by_number))
    driver = nodes[0].driver
    if not renders or parent.startswith(_XCP) or pci.is_virtual(None, driver, parent):
        return None
    compatible = next((node.compatible for node in nodes if node.compatible), None)
    present = any(f"dri/{name}" in seen.device_nodes for name in renders)
    return Gpu(
        id=f"platform:{parent}",
        vendor="nvidia" if (compatible or "").startswith("nvidia,") else "other",
        name=f"{compatible or driver or 'GPU'} ({parent})",
        name_source="fallback",
        driver=driver,
        driver_version=card.driver_version(driver, seen),
        card_node=next((n.name for n in nodes if n.name.startswith("card")), None),
        render_nodes=renders,
        health=card.OK if present else card.NO_RENDER_NODE,
    )


def _is_tegra(nodes: list[DrmNode]) -> bool:
    return any((node.compatible or "").startswith("nvidia,") or "tegra" in (node.driver or "") for node in nodes)


def _jetson(tegra: Tegra, drm: list[str], seen: Observed) -> Gpu:
    """One GPU, whose nodes are NVIDIA's host1x ones; its memory is the machine's."""
    there = jetson_nodes(seen)
    missing = Health(state="unusable", reason="NoDeviceNode", text="neither /dev/nvhost-gpu nor /dev/nvidia0 is there")
    return Gpu(
        id=f"platform:{tegra.gpu}",
        vendor="nvidia",
        name=f"{tegra.model} GPU" if tegra.model else "NVIDIA Jetson GPU",
        name_source="device-tree" if tegra.model else "fallback",
        driver="nvgpu",
        driver_version=tegra.release,
        card_node=next(iter(sorted((n for n in drm if n.startswith("card")), key=card.by_number)), None),
        render_nodes=tuple(sorted((n for n in drm if n.startswith("renderD")), key=card.by_number)),
        health=card.OK if {"nvhost-gpu", "nvidia0"} & there else missing,
    )


def jetson_nodes(seen: Observed) -> frozenset[str]:
    """Nodes that are a Jetson's own GPU: all of NVIDIA's, unless a PCI card has them."""
    if seen.tegra is None:
        return frozenset()
    cards = {f"nvidia{proc.minor}" for proc in seen.proc_cards}
    own = ("nvhost-", "nvmap", "nvidia0")
    return frozenset(node for node in seen.device_nodes if node.startswith(own) and node not in cards)


def render_nodes(seen: Observed, owners: Mapping[str, str]) -> tuple[RenderNode, ...]:
    """Every one that sysfs or /dev has; `owners`: name → its card's id."""
    drm = {node.name: node for node in seen.drm}
    vendors = {function.address: function.vendor for function in seen.pci}
    parents = {name: function.address for function in seen.pci for name in function.drm}
    drivers = {function.address: function.driver for function in seen.pci}
    names = {path.removeprefix("dri/") for path in seen.device_nodes if path.startswith("dri/renderD")}
    names |= {name for name in (*drm, *parents) if name.startswith("renderD")}
    nodes = []
    for name in sorted(names, key=card.by_number):
        parent = (drm[name].parent if name in drm else None) or parents.get(name)
        driver = (drm[name].driver if name in drm else None) or drivers.get(parent or "")
        address = pci.address(parent or "")
        nodes.append(
            RenderNode(
                path=f"/dev/dri/{name}",
                driver=driver,
                pci_address=address,
                platform_path=parent if address is None else None,
                by_path=seen.by_path.get(name),
                gpu_id=owners.get(name),
                virtual=pci.is_virtual(vendors.get(parent or ""), driver, parent),
            )
        )
    return tuple(nodes)
