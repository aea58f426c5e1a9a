"""An inventory in a few lines that a person can check: cards, render nodes, CDI devices with their atoms, problems."""

from __future__ import annotations

from gpugrant_crds.inventory import Gpu, Inventory, RenderNode

MIB = 1024 * 1024

_SETUP = frozenset(("ToolkitMissing", "GenerationFailed", "SpecUnseen"))
"""Problems of installing and generating, which are no part of what a machine is."""


def summary(found: Inventory, root: str = "") -> str:
    """One line each, in the inventory's order; `root` is written as $ROOT."""
    lines = [f"{found.hostname} {found.platform} module {found.nvidia.module_version or '-'}"]
    lines += map(_gpu, found.gpus)
    lines += [
        f"part   {part.id} of {gpu.id}: {part.index} {part.name or '-'} {part.render_node or '-'}"
        for gpu in found.gpus
        for part in gpu.partitions
    ]
    lines += map(_render, found.render_nodes)
    lines += [
        f"device {device.name}{'' if device.usable else f' UNUSABLE {device.reason}'} = {' '.join(device.atoms) or '-'}"
        for device in found.cdi.devices
    ]
    lines += [
        f"problem {problem.reason}: {problem.message}" for problem in found.problems if problem.reason not in _SETUP
    ]
    text = "\n".join(lines) + "\n"
    return text.replace(root, "$ROOT") if root else text


def _gpu(gpu: Gpu) -> str:
    memory = "-" if gpu.memory_bytes is None else f"{gpu.memory_bytes // MIB}MiB({gpu.memory_source})"
    place = f"{gpu.pci_address or '-'} index {_or(gpu.index)} minor {_or(gpu.minor)} mig {gpu.mig_mode or '-'}"
    driver = f"{gpu.driver or '-'} {gpu.driver_version or '-'}"
    nodes = ",".join([gpu.card_node or "-", *gpu.render_nodes])
    health = f"{gpu.health.state} {gpu.health.reason}" + (f" ({gpu.health.text})" if gpu.health.text else "")
    named = f'"{gpu.name}"({gpu.name_source})'
    return f"gpu    {gpu.id} {gpu.vendor} {named} {place} {driver} {memory} {nodes} numa {_or(gpu.numa_node)} {health}"


def _or(number: int | None) -> str:
    return "-" if number is None else str(number)


def _render(node: RenderNode) -> str:
    place = node.pci_address or node.platform_path or "-"
    virtual = " virtual" if node.virtual else ""
    return f"render {node.path} {node.driver or '-'} {place} {node.by_path or '-'} of {node.gpu_id or '-'}{virtual}"
