"""What every card has in common, whoever made it: name, driver, DRM nodes, and whether they are there. Pure."""

from __future__ import annotations

import re

from gpugrant_crds.inventory import Gpu, Health, PciIds
from gpugrant_operator.node.observed import Observed, PciFunction
from gpugrant_operator.node.vendors import pci

OK = Health(state="ok", reason="Ok")
NO_RENDER_NODE = Health(state="unusable", reason="NoDeviceNode", text="it has no render node in /dev/dri")


def base(function: PciFunction, seen: Observed, vendor: pci.Vendor, identity: str, health: Health) -> Gpu:
    name, source = _name(function, seen)
    drm = drm_names(function, seen)
    return Gpu(
        id=identity,
        vendor=vendor,
        name=name,
        name_source=source,
        pci_address=function.address,
        pci_ids=PciIds(
            vendor=function.vendor,
            device=function.device,
            subsystem_vendor=function.subsystem_vendor,
            subsystem_device=function.subsystem_device,
        ),
        driver=function.driver,
        driver_version=driver_version(function.driver, seen),
        memory_bytes=function.vram_bytes,
        memory_source="sysfs" if function.vram_bytes is not None else None,
        serial=function.serial,
        card_node=next((name for name in drm if name.startswith("card")), None),
        render_nodes=renders(function, seen),
        numa_node=function.numa_node,
        health=health,
    )


def _name(function: PciFunction, seen: Observed) -> tuple[str, str]:
    if function.product_name:
        return function.product_name, "sysfs"
    marketing = seen.amd_names.get((function.device, (function.revision or "").lower()))
    if function.vendor == pci.AMD and marketing:
        return marketing, "amdgpu.ids"
    known = seen.pci_names.get((function.vendor, function.device))
    if known:
        return known, "pci.ids"
    return pci.fallback_name(function.vendor, function.device), "fallback"


def driver_version(driver: str | None, seen: Observed) -> str | None:
    if driver is None:
        return None
    # a driver of the kernel tree has no version of its own: it is the kernel's
    return seen.module_versions.get(driver) or seen.kernel


def drm_names(function: PciFunction, seen: Observed) -> tuple[str, ...]:
    """Its cards and render nodes, by number."""
    names = set(function.drm) | {node.name for node in seen.drm if node.parent == function.address}
    return tuple(sorted(names, key=by_number))


def renders(function: PciFunction, seen: Observed) -> tuple[str, ...]:
    return tuple(name for name in drm_names(function, seen) if name.startswith("renderD"))


def by_number(name: str) -> tuple[str, int]:
    digits = re.sub(r"\D", "", name)
    return (re.sub(r"\d", "", name), int(digits or 0))


def health(function: PciFunction, seen: Observed) -> Health:
    """Of a card that is used by its render node."""
    bound = unbound(function)
    if bound is not None:
        return bound
    there = any(f"dri/{name}" in seen.device_nodes for name in renders(function, seen))
    return OK if there else NO_RENDER_NODE


def unbound(function: PciFunction) -> Health | None:
    """Why no driver of this machine has it; None: one has."""
    if function.driver is None:
        return Health(state="unusable", reason="NoDriver", text="no driver is bound to it")
    if function.driver == "vfio-pci":
        return Health(state="unusable", reason="PassedThrough", text="it is passed through to a virtual machine")
    return None
