"""NVIDIA's cards: PCI, procfs and NVML or nvidia-smi joined (reference cdi-gpu 3.2, 3.5, 3.7, 7.2). Pure."""

from __future__ import annotations

from collections.abc import Collection

from gpugrant_crds.inventory import Gpu, Health, Partition
from gpugrant_operator.node import card
from gpugrant_operator.node.observed import Observed, PciFunction, ToolRun
from gpugrant_operator.node.vendors import nvidia
from gpugrant_operator.node.vendors.nvidia import ProcCard, ToolCard

Problems = tuple[tuple[str, str], ...]

WSL_ID = "wsl:dxg"


def of_function(function: PciFunction, seen: Observed) -> Gpu:
    told = _told(seen.tool, function.address)
    proc = next((one for one in seen.proc_cards if one.address == function.address), None)
    gpu = card.base(function, seen, "nvidia", f"pci:{function.address}", _health(function, told, proc, seen))
    return _with(gpu, told, proc, seen)


def without_pci(known: Collection[str], seen: Observed) -> list[Gpu]:
    """Cards that have no PCI function: all on WSL, a Jetson's own, one that fell off the bus."""
    answer = seen.tool.answer if seen.tool is not None else None
    gpus = [_by_tool(one, seen) for one in (answer.cards if answer else ()) if one.address not in known]
    listed = {one.address for one in (answer.cards if answer else ())}
    gpus += [_lost(one, seen) for one in seen.proc_cards if one.address not in known and one.address not in listed]
    if seen.wsl_driver and not gpus:
        gpus.append(_wsl_unknown(seen))
    return gpus


def problems(seen: Observed) -> Problems:
    """What the tool that was asked did wrong."""
    run = seen.tool
    if run is None:
        return ()
    notes = tuple(("ProbeFailed", note) for note in run.notes)
    if run.answer is not None:
        return (*notes, *(("ProbeFailed", f"{run.source} says: {remark}") for remark in run.answer.remarks))
    failure = run.failure or f"{run.source} failed"
    if run.timed_out:
        return (*notes, ("DetectionTimeout", failure))
    if nvidia.is_version_mismatch(failure):
        return (*notes, ("RebootRequired", f"{failure}: reboot the machine so that the new driver is loaded"))
    return (*notes, ("ProbeFailed", failure))


def is_blocked(seen: Observed) -> bool:
    """Whether the driver does not answer and nothing but time or a reboot mends it."""
    run = seen.tool
    if run is None or run.answer is not None:
        return False
    return run.timed_out or nvidia.is_version_mismatch(run.failure or "")


def _told(run: ToolRun | None, address: str) -> ToolCard | None:
    cards = run.answer.cards if run is not None and run.answer is not None else ()
    return next((one for one in cards if one.address == address), None)


def _with(gpu: Gpu, told: ToolCard | None, proc: ProcCard | None, seen: Observed) -> Gpu:
    uuid = (told.uuid if told else None) or (proc.uuid if proc else None)
    changes: dict[str, object] = {"uuid": uuid, "minor": proc.minor if proc else None}
    if uuid:
        changes["id"] = f"nvidia:{uuid}"
    if seen.nvidia_module and gpu.driver == "nvidia":
        changes["driver_version"] = seen.nvidia_module
    if proc and proc.model:
        changes |= {"name": proc.model, "name_source": "procfs"}
    if told is not None:
        changes |= _of_tool(told, changes, "nvml" if seen.tool and seen.tool.source == "NVML" else "nvidia-smi")
    made = gpu.model_copy(update={key: value for key, value in changes.items() if value is not None})
    return made.model_copy(update={"partitions": _instances(made, told, seen)})


def _of_tool(told: ToolCard, before: dict[str, object], source: str) -> dict[str, object]:
    changes: dict[str, object] = {"index": told.index, "serial": told.serial, "mig_mode": told.mig_mode}
    changes["driver_version"] = told.driver_version or before.get("driver_version")
    if told.minor is not None:
        changes["minor"] = told.minor
    if told.name:
        changes |= {"name": told.name, "name_source": source}
    if told.memory_bytes is not None:
        changes |= {"memory_bytes": told.memory_bytes, "memory_source": source}
    return changes


def _instances(gpu: Gpu, told: ToolCard | None, seen: Observed) -> tuple[Partition, ...]:
    """Its MIG devices: as NVML knows them, else as procfs does, without UUIDs."""
    if told is not None and told.instances:
        ordered = sorted(told.instances, key=lambda one: (one.gi, one.ci))
        return tuple(
            Partition(
                id=f"nvidia:{one.uuid}" if one.uuid else f"{gpu.id}/gi{one.gi}/ci{one.ci}",
                index=index,
                # NVML names it with its card
                name=(one.name or "").removeprefix(gpu.name).strip() or None,
                gi=one.gi,
                ci=one.ci,
            )
            for index, one in enumerate(ordered)
        )
    pairs = seen.instances.get(gpu.minor, ()) if gpu.minor is not None else ()
    return tuple(
        Partition(id=f"{gpu.id}/gi{gi}/ci{ci}", index=index, gi=gi, ci=ci) for index, (gi, ci) in enumerate(pairs)
    )


def _health(function: PciFunction, told: ToolCard | None, proc: ProcCard | None, seen: Observed) -> Health:
    unbound = card.unbound(function)
    if unbound is not None:
        return unbound
    if function.driver != "nvidia":
        return Health(state="unusable", reason="NouveauDriver", text=f"its driver is {function.driver}, not NVIDIA's")
    if proc is not None and proc.excluded:
        return Health(state="unusable", reason="Excluded", text="the driver was told to leave it out")
    minor = told.minor if told is not None and told.minor is not None else proc.minor if proc is not None else None
    if minor is not None and f"nvidia{minor}" not in seen.device_nodes:
        return Health(state="unusable", reason="NoDeviceNode", text=f"/dev/nvidia{minor} is not there")
    return _tool_health(told, seen.tool)


def _tool_health(told: ToolCard | None, run: ToolRun | None) -> Health:
    if run is None:
        return Health(state="unknown", reason="Unknown", text="there is neither NVML nor nvidia-smi to ask")
    if run.answer is None:
        failure = run.failure or ""
        mismatch = nvidia.is_version_mismatch(failure)
        reason = "NvmlMismatch" if mismatch else "Unknown"
        return Health(state="unusable" if mismatch else "unknown", reason=reason, text=failure)
    if told is None:
        return Health(state="unusable", reason="FellOffBus", text=f"{run.source} does not list it")
    if told.trouble:
        return Health(state="unusable", reason=_trouble(told.trouble), text=f"{run.source} says {told.trouble}")
    return card.OK


def _trouble(said: str) -> str:
    lower = said.lower()
    if "lost" in lower or "fallen off" in lower:
        return "FellOffBus"
    return "NeedsReset" if "reset" in lower or "reboot" in lower else "Unknown"


def _by_tool(told: ToolCard, seen: Observed) -> Gpu:
    wsl = seen.platform == "wsl"
    gpu = Gpu(
        id=f"nvidia:{told.uuid or told.address or told.index}",
        vendor="nvidia",
        name=told.name or "NVIDIA GPU",
        name_source="fallback",
        pci_address=None if wsl else told.address,
        driver="dxgkrnl" if wsl else "nvidia",
        health=_tool_health(told, seen.tool),
    )
    proc = next((one for one in seen.proc_cards if one.address == told.address), None)
    return _with(gpu, told, proc, seen)


def _lost(proc: ProcCard, seen: Observed) -> Gpu:
    """The driver still knows it, and the bus has it no more."""
    gpu = Gpu(
        id=f"pci:{proc.address}",
        vendor="nvidia",
        name=proc.model or "NVIDIA GPU",
        name_source="fallback",
        pci_address=proc.address,
        driver="nvidia",
        health=Health(state="unusable", reason="FellOffBus", text="its PCI function is gone"),
    )
    return _with(gpu, None, proc, seen)


def _wsl_unknown(seen: Observed) -> Gpu:
    """The Windows driver is there, and nothing told of its cards."""
    return Gpu(
        id=WSL_ID,
        vendor="nvidia",
        name="NVIDIA GPU",
        name_source="fallback",
        driver="dxgkrnl",
        health=_tool_health(None, seen.tool if seen.tool is None or seen.tool.answer is None else None),
    )
