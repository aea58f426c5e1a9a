"""Reads a machine: boot, PCI, DRM, KFD, NVIDIA's procfs, nvidia-smi, names (design 7, in this order).

Each step is bounded in time and none is fatal: what fails is a problem entry. Nothing is concluded here.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpugrant_operator.node import programs
from gpugrant_operator.node.observed import DrmNode, Observed, PciFunction, SmiRun
from gpugrant_operator.node.tree import Tree
from gpugrant_operator.node.vendors import amd, nvidia, pci

Progress = Callable[[str], None]

IDS_MAX = 4 * 1024 * 1024
"""Bytes of pci.ids; it has 1.5 MiB in 2026."""

_DRM_NODE = re.compile(r"(?:card|renderD)[0-9]+")
_GPU_NODE = re.compile(r"nvidia.*|kfd|dxg")


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds. A healthy nvidia-smi answers in 1 to 5, one with eight sleeping cards in 15."""

    smi: float = 20.0
    toolkit: float = 60.0
    install: float = 900.0
    """Of one call of a package manager: minutes over a slow line."""
    systemctl: float = 120.0
    """A restart of the refresh unit waits for nvidia-ctk."""
    lock: float = 150.0
    """A second setup waits for the first: longer than a run whose programs all time out."""


def gather(tree: Tree, env: Mapping[str, str], limits: Limits, progress: Progress) -> Observed:
    """All that detection looks at; `env` is given to the tree's programs."""
    platform = _is_wsl(tree)
    progress("looking at PCI, DRM and KFD")
    functions = _pci(tree)
    drm = _drm(tree)
    kfd = _kfd(tree)
    proc_cards = _proc_cards(tree)
    wsl_driver = platform and _wsl_driver(tree)
    smi: SmiRun | None = None
    if wsl_driver or proc_cards or any(_has_nvidia_driver(function) for function in functions):
        progress("asking nvidia-smi")
        smi = _smi(tree, env, limits)
    drivers = {function.driver for function in functions} | {node.driver for node in drm}
    return Observed(
        hostname=_hostname(tree),
        boot_id=tree.text("proc/sys/kernel/random/boot_id"),
        kernel=tree.text("proc/sys/kernel/osrelease"),
        platform="wsl" if platform else "native",
        pci=functions,
        drm=drm,
        by_path=_by_path(tree),
        device_nodes=device_nodes(tree),
        kfd=kfd,
        proc_cards=proc_cards,
        smi=smi,
        wsl_driver=wsl_driver,
        nvidia_module=_module_version(tree),
        module_versions={
            name: text for name in sorted(filter(None, drivers)) if (text := tree.text(f"sys/module/{name}/version"))
        },
        pci_names=_pci_names(tree, functions),
        amd_names=_amd_names(tree, functions),
        problems=tuple(("ProbeFailed", fault) for fault in dict.fromkeys(tree.faults)),
    )


def _hostname(tree: Tree) -> str:
    if tree.is_live:
        return socket.gethostname()
    text = tree.text("etc/hostname") or ""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return lines[0] if lines else "localhost"


def _is_wsl(tree: Tree) -> bool:
    # both: /dev/dxg alone is also there on Hyper-V guests with a shared GPU
    return tree.exists("dev/dxg") and tree.exists("usr/lib/wsl/lib")


def _wsl_driver(tree: Tree) -> bool:
    stores = tree.names("usr/lib/wsl/drivers")
    return any(tree.exists(f"usr/lib/wsl/drivers/{store}/libcuda.so.1.1") for store in stores)


def _has_nvidia_driver(function: PciFunction) -> bool:
    return function.vendor == pci.NVIDIA and function.driver == "nvidia"


def _pci(tree: Tree) -> tuple[PciFunction, ...]:
    base = "sys/bus/pci/devices"
    found = (_pci_function(tree, f"{base}/{name}", name) for name in tree.names(base))
    return tuple(function for function in found if function is not None)


def _pci_function(tree: Tree, path: str, name: str) -> PciFunction | None:
    address = pci.address(name)
    vendor, device = pci.hex4(tree.text(f"{path}/vendor")), pci.hex4(tree.text(f"{path}/device"))
    class_code = pci.hex4(tree.text(f"{path}/class"))
    if address is None or vendor is None or device is None or class_code is None:
        return None
    class_code = class_code.rjust(6, "0")
    # bridges, disks and the rest are hundreds on a server: only displays and accelerators are read further
    if class_code[:2] not in ("03", "12"):
        return None
    return PciFunction(
        address=address,
        vendor=vendor,
        device=device,
        class_code=class_code,
        subsystem_vendor=pci.hex4(tree.text(f"{path}/subsystem_vendor")),
        subsystem_device=pci.hex4(tree.text(f"{path}/subsystem_device")),
        revision=(tree.text(f"{path}/revision") or "").removeprefix("0x") or None,
        driver=tree.link_name(f"{path}/driver"),
        drm=tuple(entry for entry in tree.names(f"{path}/drm") if _DRM_NODE.fullmatch(entry)),
        numa_node=_number(tree.text(f"{path}/numa_node")),
        vram_bytes=_number(tree.text(f"{path}/mem_info_vram_total")),
        product_name=tree.text(f"{path}/product_name") or None,
        serial=tree.text(f"{path}/serial_number") or None,
        unique_id=_hex(tree.text(f"{path}/unique_id")),
    )


def _number(text: str | None) -> int | None:
    """A number that is not negative (-1 means none); None else."""
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,19}", text) else None


def _hex(text: str | None) -> str | None:
    match = re.fullmatch(r"(?:0x)?([0-9a-fA-F]{1,16})", text or "")
    return match[1].lower().rjust(16, "0") if match and int(match[1], 16) else None


def _drm(tree: Tree) -> tuple[DrmNode, ...]:
    base = "sys/class/drm"
    return tuple(
        DrmNode(name, tree.link_name(f"{base}/{name}/device"), _drm_driver(tree, f"{base}/{name}/device"))
        for name in tree.names(base)
        if _DRM_NODE.fullmatch(name)
    )


def _drm_driver(tree: Tree, device: str) -> str | None:
    driver = tree.link_name(f"{device}/driver")
    if driver is not None:
        return driver
    match = re.search(r"^DRIVER=(\S+)$", tree.text(f"{device}/uevent") or "", re.MULTILINE)
    return match[1] if match else None


def _by_path(tree: Tree) -> dict[str, str]:
    base = "dev/dri/by-path"
    links = ((tree.link_name(f"{base}/{name}"), name) for name in tree.names(base))
    return {node: name for node, name in links if node is not None}


def device_nodes(tree: Tree) -> frozenset[str]:
    """Paths below dev/ that stand for device nodes of GPUs."""
    found = {f"dri/{name}" for name in tree.names("dev/dri") if _DRM_NODE.fullmatch(name)}
    found |= {f"nvidia-caps/{name}" for name in tree.names("dev/nvidia-caps")}
    for name in tree.names("dev"):
        path = tree.locate(f"dev/{name}") if _GPU_NODE.fullmatch(name) else None
        if path is not None and not path.is_dir():
            found.add(name)
    return frozenset(found)


def _kfd(tree: Tree) -> tuple[amd.KfdNode, ...]:
    base = "sys/class/kfd/kfd/topology/nodes"
    nodes = []
    for name in tree.names(base):
        properties = amd.parse_properties(tree.text(f"{base}/{name}/properties") or "")
        banks = tree.names(f"{base}/{name}/mem_banks") if properties.get("simd_count") else ()
        sizes = (
            amd.parse_properties(tree.text(f"{base}/{name}/mem_banks/{bank}/properties") or "").get("size_in_bytes", 0)
            for bank in banks
        )
        number = int(name) if name.isascii() and name.isdigit() else -1
        node = amd.gpu_node(number, tree.text(f"{base}/{name}/gpu_id") or "", properties, sum(sizes))
        if node is not None:
            nodes.append(node)
    return tuple(sorted(nodes, key=lambda node: node.order))


def _proc_cards(tree: Tree) -> tuple[nvidia.ProcCard, ...]:
    base = "proc/driver/nvidia/gpus"
    cards = []
    for name in tree.names(base):
        address, text = pci.address(name), tree.text(f"{base}/{name}/information")
        if address is not None and text is not None:
            cards.append(nvidia.parse_information(address, text))
    return tuple(cards)


def _module_version(tree: Tree) -> str | None:
    text = tree.text("sys/module/nvidia/version")
    return text or nvidia.parse_module_version(tree.text("proc/driver/nvidia/version") or "")


def _smi(tree: Tree, env: Mapping[str, str], limits: Limits) -> SmiRun | None:
    program = tree.program("nvidia-smi")
    if program is None:
        return None
    for fields in (nvidia.QUERY, nvidia.SMALL_QUERY):
        args = [f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        ended = programs.run(program, args, timeout=limits.smi, env=env)
        if ended.code != nvidia.BAD_ARGUMENT:
            break
    if ended.code is None:
        return SmiRun(None, ended.why, timed_out=True)
    answer = nvidia.parse_query(ended.stdout, fields)
    if not ended.ok and not answer.cards:
        return SmiRun(None, ended.why or nvidia.failure(ended.code, ended.stdout + "\n" + ended.stderr))
    return SmiRun(answer)


def _pci_names(tree: Tree, functions: tuple[PciFunction, ...]) -> dict[tuple[str, str], str]:
    wanted = {(function.vendor, function.device) for function in functions}
    for path in ("usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids"):
        text = tree.text(path, IDS_MAX) if wanted else None
        if text:
            return pci.pci_ids_names(text, wanted)
    return {}


def _amd_names(tree: Tree, functions: tuple[PciFunction, ...]) -> dict[tuple[str, str], str]:
    if not any(function.vendor == pci.AMD for function in functions):
        return {}
    return pci.amdgpu_ids_names(tree.text("usr/share/libdrm/amdgpu.ids", IDS_MAX) or "")
