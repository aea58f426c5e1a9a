"""PCI: addresses, which functions are GPUs, and the names in pci.ids and amdgpu.ids (reference cdi-gpu 3.1, 3.6)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Literal

Vendor = Literal["nvidia", "amd", "intel", "other"]

NVIDIA, AMD, INTEL = "10de", "1002", "8086"
VENDORS: Mapping[str, Vendor] = {NVIDIA: "nvidia", AMD: "amd", INTEL: "intel"}

# Display chips of management controllers, and what hypervisors show a guest: no GPU to grant.
_BMC = frozenset(("1a03", "102b"))
_BMC_FUNCTIONS = frozenset((("19e5", "1711"), ("1002", "515e")))
"""Huawei's iBMC and ATI's ES1000: their makers have other chips as well."""
_VIRTUAL = frozenset(("15ad", "1af4", "1414", "1234", "1013", "1b36", "80ee", "1ab8", "5853", "1d0f"))
_VIRTUAL_DRIVERS = frozenset(
    (
        *("vgem", "vkms", "virtio-pci", "virtio_gpu", "vmwgfx", "hyperv_drm", "bochs-drm", "cirrus", "qxl"),
        *("simpledrm", "simple-framebuffer", "vboxvideo", "xen-drm", "evdi"),
    )
)
_VIRTUAL_PARENTS = ("vgem", "vkms", "evdi")
"""Names of platform devices that a driver makes for itself."""

_ADDRESS = re.compile(r"([0-9a-fA-F]{3,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


def address(text: str) -> str | None:
    """`00000000:0C:00.0` as sysfs writes it, `0000:0c:00.0`; None where it is no address."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus.lower()}:{device.lower()}.{function}"


def is_gpu(vendor: str, device: str, class_code: str) -> bool:
    """Whether a PCI function is a GPU that can be granted. `class_code` has six hexadecimal digits."""
    if vendor in _BMC or vendor in _VIRTUAL or (vendor, device) in _BMC_FUNCTIONS:
        return False
    if class_code[:4] in ("0300", "0302", "0380"):
        return True
    # Processing accelerators are GPUs only of these two; Habana and Intel's NPU have the class as well.
    return class_code[:4] == "1200" and vendor in (NVIDIA, AMD)


def is_virtual(vendor: str | None, driver: str | None, parent: str | None = None) -> bool:
    """Whether a render node has no GPU behind it, or only a hypervisor's. `parent` is its device's name."""
    made = (parent or "").startswith(_VIRTUAL_PARENTS)
    return made or (vendor or "") in _VIRTUAL or (driver or "") in _VIRTUAL_DRIVERS


def pci_ids_names(text: str, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Names by (vendor, device) from pci.ids: a vendor at column 0, its devices after one tab."""
    names: dict[tuple[str, str], str] = {}
    vendors = {vendor for vendor, _ in wanted}
    vendor, vendor_name = "", ""
    for line in text.splitlines():
        if line[:1] not in ("", "#", "\t"):
            vendor, _, vendor_name = line.partition("  ")
            if line.startswith("C "):
                break
        elif vendor in vendors and line.startswith("\t") and not line.startswith("\t\t"):
            device, _, name = line[1:].partition("  ")
            if (vendor, device) in wanted and name:
                names[vendor, device] = f"{_short(vendor, vendor_name)} {name.strip()}"
    return names


def _short(vendor: str, name: str) -> str:
    known = {NVIDIA: "NVIDIA", AMD: "AMD", INTEL: "Intel"}
    return known.get(vendor, name.strip())


def amdgpu_ids_names(text: str) -> dict[tuple[str, str], str]:
    """Marketing names by (device, revision) from libdrm's amdgpu.ids."""
    names: dict[tuple[str, str], str] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",", 2)]
        if len(parts) == 3 and not line.startswith("#"):
            names[parts[0].lower(), parts[1].lower()] = parts[2]
    return names


def fallback_name(vendor: str, device: str) -> str:
    """Never an empty name."""
    return f"AMD {vendor}:{device}" if vendor == AMD else f"Unknown ({vendor}:{device})"
