"""Which cards a machine has, who they are and whether they can be used: sources joined by PCI address, then by UUID.

Pure. PCI says what is present, nvidia-smi and procfs add what they know; a card that a tool does not list is still
there, and its health says so. Virtual GPUs and the chips of management controllers are no cards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpugrant_crds.inventory import Gpu, Health, Partition, PciIds, RenderNode
from gpugrant_operator.node.observed import DrmNode, Observed, PciFunction, SmiRun
from gpugrant_operator.node.vendors import nvidia, pci
from gpugrant_operator.node.vendors.amd import KfdNode
from gpugrant_operator.node.vendors.nvidia import ProcCard, SmiCard

Problems = tuple[tuple[str, str], ...]

_OK = Health(state="ok", reason="Ok")
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class AmdDevice:
    """A KFD node that can be granted: `gpu<N>`, its render node, the card it belongs to."""

    name: str
    render_node: str
    address: str


@dataclass(frozen=True, slots=True)
class Cards:
    gpus: tuple[Gpu, ...]
    render_nodes: tuple[RenderNode, ...]
    amd_devices: tuple[AmdDevice, ...]
    nvidia_present: bool
    """An NVIDIA card that this machine itself can use: one passed through to a guest does not count (design 7)."""
    nvidia_seen: bool
    """Any NVIDIA card, also one passed through: while there is one, nvidia.yaml is not removed."""
    nvidia_minors: frozenset[int]
    """N of the /dev/nvidia<N> that a whole spec must hold."""
    problems: Problems


def join(seen: Observed) -> Cards:
    """All cards of the machine, sorted by place."""
    functions = tuple(function for function in seen.pci if pci.is_gpu(function.vendor, function.class_code))
    gpus = [_from_pci(function, seen) for function in functions]
    gpus += _nvidia_without_pci(functions, seen)
    gpus += _platform_gpus(seen)
    gpus.sort(key=lambda gpu: (gpu.pci_address or "~", gpu.index or 0, gpu.id))
    owners = {name: gpu.id for gpu in gpus for name in gpu.render_nodes}
    passed = [gpu for gpu in gpus if gpu.vendor == "nvidia" and gpu.health.reason == "PassedThrough"]
    cards = [gpu for gpu in gpus if gpu.vendor == "nvidia" and gpu.health.reason != "PassedThrough"]
    return Cards(
        gpus=tuple(gpus),
        render_nodes=_render_nodes(seen, owners),
        amd_devices=amd_devices(seen),
        nvidia_present=bool(cards) or seen.wsl_driver,
        nvidia_seen=bool(cards or passed) or seen.wsl_driver,
        nvidia_minors=frozenset(g.minor for g in cards if g.minor is not None and g.health.state == "ok"),
        problems=(*seen.problems, *_smi_problems(seen.smi)),
    )


def amd_devices(seen: Observed) -> tuple[AmdDevice, ...]:
    """KFD nodes whose device files are there, numbered in the order of their places (reference cdi-gpu 7.4)."""
    if "kfd" not in seen.device_nodes:
        return ()
    usable = [node for node in seen.kfd if f"dri/{node.render_name}" in seen.device_nodes]
    return tuple(AmdDevice(f"gpu{n}", node.render_name, node.card_address) for n, node in enumerate(usable))


def _from_pci(function: PciFunction, seen: Observed) -> Gpu:
    match pci.VENDORS.get(function.vendor, "other"):
        case "nvidia":
            return _nvidia(function, seen)
        case "amd":
            return _amd(function, seen)
        case vendor:
            return _base(function, seen, vendor, f"pci:{function.address}", _health(function, seen))


def _base(function: PciFunction, seen: Observed, vendor: pci.Vendor, identity: str, health: Health) -> Gpu:
    name, source = _name(function, seen)
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
        driver_version=_driver_version(function.driver, seen),
        memory_bytes=function.vram_bytes,
        memory_source="sysfs" if function.vram_bytes is not None else None,
        serial=function.serial,
        card_node=next((name for name in _drm_names(function, seen) if name.startswith("card")), None),
        render_nodes=tuple(name for name in _drm_names(function, seen) if name.startswith("renderD")),
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


def _driver_version(driver: str | None, seen: Observed) -> str | None:
    if driver is None:
        return None
    # a driver of the kernel tree has no version of its own: it is the kernel's
    return seen.module_versions.get(driver) or seen.kernel


def _drm_names(function: PciFunction, seen: Observed) -> tuple[str, ...]:
    names = set(function.drm) | {node.name for node in seen.drm if node.parent == function.address}
    return tuple(sorted(names, key=_by_number))


def _by_number(name: str) -> tuple[str, int]:
    digits = re.sub(r"\D", "", name)
    return (re.sub(r"\d", "", name), int(digits or 0))


def _health(function: PciFunction, seen: Observed) -> Health:
    unbound = _unbound(function)
    if unbound is not None:
        return unbound
    renders = [name for name in _drm_names(function, seen) if name.startswith("renderD")]
    if not any(f"dri/{name}" in seen.device_nodes for name in renders):
        return Health(state="unusable", reason="NoDeviceNode", text="it has no render node in /dev/dri")
    return _OK


def _unbound(function: PciFunction) -> Health | None:
    if function.driver is None:
        return Health(state="unusable", reason="NoDriver", text="no driver is bound to it")
    if function.driver == "vfio-pci":
        return Health(state="unusable", reason="PassedThrough", text="it is passed through to a virtual machine")
    return None


# --- AMD --------------------------------------------------------------------------------------------------------


def _amd(function: PciFunction, seen: Observed) -> Gpu:
    nodes = [node for node in seen.kfd if node.card_address == function.address]
    identity = _amd_identity(function, nodes)
    gpu = _base(function, seen, "amd", identity, _health(function, seen))
    changes: dict[str, object] = {}
    if gpu.memory_bytes is None and (total := sum(node.memory_bytes or 0 for node in nodes)):
        changes |= {"memory_bytes": total, "memory_source": "kfd"}
    if len(nodes) > 1:
        changes["partitions"] = tuple(
            Partition(id=f"{identity}/p{node.partition}", index=node.partition, render_node=node.render_name)
            for node in nodes
        )
    renders = {*gpu.render_nodes, *(node.render_name for node in nodes)}
    changes["render_nodes"] = tuple(sorted(renders, key=_by_number))
    return gpu.model_copy(update=changes)


def _amd_identity(function: PciFunction, nodes: list[KfdNode]) -> str:
    if function.unique_id:
        return f"amd:{function.unique_id}"
    unique = next((node.unique_id for node in nodes if node.unique_id), 0)
    return f"amd:{unique:016x}" if unique else f"pci:{function.address}"


# --- NVIDIA -----------------------------------------------------------------------------------------------------


def _nvidia(function: PciFunction, seen: Observed) -> Gpu:
    smi = _smi_cards(seen.smi).get(function.address)
    proc = next((card for card in seen.proc_cards if card.address == function.address), None)
    gpu = _base(function, seen, "nvidia", f"pci:{function.address}", _nvidia_health(function, smi, proc, seen))
    return _with_nvidia(gpu, smi, proc, seen)


def _with_nvidia(gpu: Gpu, smi: SmiCard | None, proc: ProcCard | None, seen: Observed) -> Gpu:
    uuid = (smi.uuid if smi else None) or (proc.uuid if proc else None)
    changes: dict[str, object] = {"uuid": uuid, "minor": proc.minor if proc else None}
    if uuid:
        changes["id"] = f"nvidia:{uuid}"
    if seen.nvidia_module and gpu.driver == "nvidia":
        changes["driver_version"] = seen.nvidia_module
    if proc and proc.model:
        changes |= {"name": proc.model, "name_source": "procfs"}
    if smi is not None:
        changes |= {"index": smi.index, "serial": smi.serial, "mig_mode": smi.mig_mode}
        changes["driver_version"] = smi.driver_version or changes.get("driver_version", gpu.driver_version)
        if smi.name:
            changes |= {"name": smi.name, "name_source": "nvidia-smi"}
        if smi.memory_mib is not None:
            changes |= {"memory_bytes": smi.memory_mib * _MIB, "memory_source": "nvidia-smi"}
    return gpu.model_copy(update=changes)


def _smi_cards(smi: SmiRun | None) -> Mapping[str, SmiCard]:
    answer = smi.answer if smi is not None else None
    return {card.address: card for card in answer.cards if card.address} if answer else {}


def _nvidia_health(function: PciFunction, smi: SmiCard | None, proc: ProcCard | None, seen: Observed) -> Health:
    unbound = _unbound(function)
    if unbound is not None:
        return unbound
    if function.driver != "nvidia":
        return Health(state="unusable", reason="NouveauDriver", text=f"its driver is {function.driver}, not NVIDIA's")
    if proc is not None and proc.excluded:
        return Health(state="unusable", reason="Excluded", text="the driver was told to leave it out")
    if proc is not None and proc.minor is not None and f"nvidia{proc.minor}" not in seen.device_nodes:
        return Health(state="unusable", reason="NoDeviceNode", text=f"/dev/nvidia{proc.minor} is not there")
    return _smi_health(smi, seen.smi)


def _smi_health(card: SmiCard | None, run: SmiRun | None) -> Health:
    if run is None:
        return Health(state="unknown", reason="Unknown", text="there is no nvidia-smi to ask")
    if run.answer is None:
        failure = run.failure or ""
        reason = "NvmlMismatch" if nvidia.is_version_mismatch(failure) else "Unknown"
        return Health(state="unusable" if reason == "NvmlMismatch" else "unknown", reason=reason, text=failure)
    if card is None:
        return Health(state="unusable", reason="FellOffBus", text="nvidia-smi does not list it")
    if card.trouble:
        reason = "NeedsReset" if "reset" in card.trouble.lower() else "Unknown"
        return Health(state="unusable", reason=reason, text=f"nvidia-smi says {card.trouble}")
    return _OK


def _nvidia_without_pci(functions: tuple[PciFunction, ...], seen: Observed) -> list[Gpu]:
    """Cards that only nvidia-smi knows: all of them on WSL, where no PCI function is shown."""
    known = {function.address for function in functions}
    answer = seen.smi.answer if seen.smi is not None else None
    gpus = []
    for card in answer.cards if answer else ():
        if card.address in known:
            continue
        identity = card.uuid or card.address or str(card.index)
        gpu = Gpu(
            id=f"nvidia:{identity}",
            vendor="nvidia",
            name=card.name or "NVIDIA GPU",
            name_source="nvidia-smi",
            pci_address=None if seen.platform == "wsl" else card.address,
            driver="dxgkrnl" if seen.platform == "wsl" else "nvidia",
            health=_smi_health(card, seen.smi),
        )
        proc = next((proc for proc in seen.proc_cards if proc.address == card.address), None)
        gpus.append(_with_nvidia(gpu, card, proc, seen))
    return gpus


def _smi_problems(smi: SmiRun | None) -> Problems:
    if smi is None:
        return ()
    if smi.answer is not None:
        return tuple(("ProbeFailed", f"nvidia-smi says: {remark}") for remark in smi.answer.remarks)
    failure = smi.failure or "nvidia-smi failed"
    if smi.timed_out:
        return (("DetectionTimeout", failure),)
    if nvidia.is_version_mismatch(failure):
        return (("RebootRequired", f"{failure}: reboot the machine so that the new driver is loaded"),)
    return (("ProbeFailed", failure),)


# --- DRM --------------------------------------------------------------------------------------------------------


def _platform_gpus(seen: Observed) -> list[Gpu]:
    """GPUs of a system on a chip: a render node whose device is no PCI function."""
    by_parent: dict[str, list[DrmNode]] = {}
    for node in seen.drm:
        if node.parent and pci.address(node.parent) is None:
            by_parent.setdefault(node.parent, []).append(node)
    gpus = []
    for parent, nodes in sorted(by_parent.items()):
        renders = tuple(sorted((n.name for n in nodes if n.name.startswith("renderD")), key=_by_number))
        driver = nodes[0].driver
        # amdgpu_xcp: a partition of a PCI card, which KFD tells
        if not renders or pci.is_virtual(None, driver) or parent.startswith(("amdgpu_xcp", "vgem", "vkms")):
            continue
        present = any(f"dri/{name}" in seen.device_nodes for name in renders)
        missing = Health(state="unusable", reason="NoDeviceNode", text="it has no render node in /dev/dri")
        gpus.append(
            Gpu(
                id=f"platform:{parent}",
                vendor="other",
                name=f"{driver or 'GPU'} ({parent})",
                name_source="fallback",
                driver=driver,
                driver_version=_driver_version(driver, seen),
                card_node=next((n.name for n in nodes if n.name.startswith("card")), None),
                render_nodes=renders,
                health=_OK if present else missing,
            )
        )
    return gpus


def _render_nodes(seen: Observed, owners: Mapping[str, str]) -> tuple[RenderNode, ...]:
    drm = {node.name: node for node in seen.drm}
    vendors = {function.address: function.vendor for function in seen.pci}
    drivers = {function.address: function.driver for function in seen.pci}
    parents = {name: function.address for function in seen.pci for name in function.drm}
    names = {path.removeprefix("dri/") for path in seen.device_nodes if path.startswith("dri/renderD")}
    names |= {name for name in (*drm, *parents) if name.startswith("renderD")}
    nodes = []
    for name in sorted(names, key=_by_number):
        parent = (drm[name].parent if name in drm else None) or parents.get(name)
        driver = (drm[name].driver if name in drm else None) or drivers.get(parent or "")
        address = pci.address(parent or "")
        virtual = pci.is_virtual(vendors.get(parent or ""), driver) or (parent or "").startswith(("vgem", "vkms"))
        nodes.append(
            RenderNode(
                path=f"/dev/dri/{name}",
                driver=driver,
                pci_address=address,
                platform_path=parent if address is None else None,
                by_path=seen.by_path.get(name),
                gpu_id=owners.get(name),
                virtual=virtual,
            )
        )
    return tuple(nodes)
