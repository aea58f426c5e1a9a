"""/sys/bus/pci/devices: which functions are displays and accelerators, and their names in pci.ids (reference 3.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpugrant_operator.node.observed import PciFunction
from gpugrant_operator.node.sources import values
from gpugrant_operator.node.sources.host import DRM_NODE
from gpugrant_operator.node.tree import Tree
from gpugrant_operator.node.vendors import pci

BASE = "sys/bus/pci/devices"

IDS_MAX = 4 * 1024 * 1024
"""Bytes of pci.ids; it has 1.5 MiB in 2026."""


def functions(tree: Tree) -> tuple[tuple[PciFunction, ...], bool]:
    """Those that may be GPUs, and whether one could not be read."""
    found: list[PciFunction] = []
    unread = False
    for name in tree.names(BASE):
        address = pci.address(name)
        if address is None:
            tree.remark(f"{BASE}/{name}", "has no name of a PCI function")
            continue
        function = _function(tree, f"{BASE}/{name}", address)
        unread = unread or function is None
        if isinstance(function, PciFunction):
            found.append(function)
    return tuple(found), unread


def _function(tree: Tree, path: str, address: str) -> PciFunction | bool | None:
    """None: it can't be read; False: it is something else, such as a bridge or a disk."""
    class_code = values.read(tree, f"{path}/class", values.hex_of(6), "a class such as 0x030000", required=True)
    vendor = values.read(tree, f"{path}/vendor", values.hex_of(4), "a vendor such as 0x10de", required=True)
    device = values.read(tree, f"{path}/device", values.hex_of(4), "a device such as 0x27b2", required=True)
    if class_code is None or vendor is None or device is None:
        return None
    if class_code[:2] not in ("03", "12"):
        # hundreds on a server: only displays and accelerators are read further
        return False
    drm = tuple(entry for entry in tree.names(f"{path}/drm") if DRM_NODE.fullmatch(entry))
    for entry in drm:
        values.read(tree, f"{path}/drm/{entry}/dev", values.numbers, "two numbers such as 226:128")
    return PciFunction(
        address=address,
        vendor=vendor,
        device=device,
        class_code=class_code,
        subsystem_vendor=values.read(tree, f"{path}/subsystem_vendor", values.hex_of(4), "a vendor such as 0x10de"),
        subsystem_device=values.read(tree, f"{path}/subsystem_device", values.hex_of(4), "a device such as 0x27b2"),
        revision=values.read(tree, f"{path}/revision", values.hex_of(2), "a revision such as 0xa1"),
        driver=tree.link_name(f"{path}/driver"),
        drm=drm,
        numa_node=_numa(tree, path),
        vram_bytes=values.read(tree, f"{path}/mem_info_vram_total", values.natural, "a number of bytes"),
        product_name=values.line(tree, f"{path}/product_name"),
        serial=values.line(tree, f"{path}/serial_number"),
        unique_id=values.read(tree, f"{path}/unique_id", _unique_id, "a hexadecimal id") or None,
        physical=pci.address(tree.link_name(f"{path}/physfn") or ""),
    )


def _numa(tree: Tree, path: str) -> int | None:
    node = values.read(tree, f"{path}/numa_node", values.integer, "a number of a NUMA node")
    return None if node is None or node < 0 else node


def _unique_id(text: str) -> str | None:
    """Sixteen digits; empty for none or zero, which consumer cards have."""
    match = re.fullmatch(r"(?:0x)?([0-9a-fA-F]{1,16})", text)
    if match is None:
        return None if text else ""
    return match[1].lower().rjust(16, "0") if int(match[1], 16) else ""


def names(tree: Tree, found: Iterable[PciFunction]) -> dict[tuple[str, str], str]:
    """Names by (vendor, device)."""
    wanted = {(function.vendor, function.device) for function in found}
    for path in ("usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids"):
        text = tree.text(path, IDS_MAX) if wanted else None
        if text is None:
            continue
        if re.search(r"^[0-9a-f]{4}  \S", text, re.MULTILINE) is None:
            tree.remark(path, "is no list of PCI ids")
            continue
        return pci.pci_ids_names(text, wanted)
    return {}


def amd_names(tree: Tree, found: Iterable[PciFunction]) -> dict[tuple[str, str], str]:
    """AMD's marketing names by (device, revision)."""
    path = "usr/share/libdrm/amdgpu.ids"
    text = tree.text(path, IDS_MAX) if any(function.vendor == pci.AMD for function in found) else None
    if text is None:
        return {}
    known = pci.amdgpu_ids_names(text)
    if not known:
        tree.remark(path, "is no list of AMD's names")
    return known
