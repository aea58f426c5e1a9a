"""The inventory as a machine's status shows it. Only copies and counts; nothing is judged here."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath
from typing import Any

from gpugrant_crds.inventory import Gpu, Inventory
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import GateStatus
from gpugrant_crds.v1alpha1 import (
    DetectionStatus,
    DeviceStatus,
    GateRepo,
    GateSync,
    GpuMachine,
    GpuMachineStatus,
    GpuStatus,
    Problem,
    SpecStatus,
)

_TEXT_MAX = 4096
"""As the CRD's texts."""


def laid_over(machine: GpuMachine, inventory: Inventory | None, gate: GateStatus | None) -> GpuMachine:
    """The machine with what is known of it now; without an inventory the last known one stays."""
    update = {} if inventory is None else _inventory(inventory)
    problems = (*_kept_problems(machine, inventory), *_gate_problems(machine, gate))
    if problems or machine.status.problems is not None or inventory is not None:
        update["problems"] = problems
    return machine.model_copy(update={"status": machine.status.model_copy(update=update)})


def gate_sync(status: GpuMachineStatus, machine_uid: str, gate: GateStatus | None) -> GateSync | None:
    """The gate's part of the status; while the gate is silent the last known stays."""
    if gate is None:
        return status.gate
    return GateSync(
        epoch=gate.epoch if gate.machine_uid == machine_uid and gate.epoch >= 0 else None,
        repos=tuple(
            GateRepo(
                name=repo.name,
                id=repo.id or None,
                fit=repo.fit,
                sealed=repo.sealed,
                reason=repo.reason or None,
            )
            for repo in sorted(gate.repos, key=lambda repo: repo.name)
        ),
    )


def detection(status: GpuMachineStatus, *, request: str | None, succeeded: bool) -> DetectionStatus:
    """The last detection that ended; one that nobody asked for keeps the last request's answer."""
    answered = None if status.detection is None else status.detection.request
    return DetectionStatus(request=request or answered, succeeded=succeeded)


def model(gpus: tuple[Gpu, ...]) -> str | None:
    """`2 x NVIDIA L40S, AMD Radeon Pro W7900`; None without a card."""
    counts = Counter(gpu.name for gpu in gpus)
    text = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())
    return text[:_TEXT_MAX] or None


def driver_version(gpus: tuple[Gpu, ...]) -> str | None:
    """NVIDIA's where there is one, since the others come with the kernel; else the first card's that is known."""
    ranked = sorted(gpus, key=lambda gpu: gpu.vendor != "nvidia")
    return next((gpu.driver_version for gpu in ranked if gpu.driver_version), None)


def _inventory(inventory: Inventory) -> dict[str, Any]:
    devices = tuple(DeviceStatus(name=name, hardware=found) for name, found in inventory.hardware.items())
    return {
        "platform": inventory.platform,
        "model": model(inventory.gpus),
        "driver_version": driver_version(inventory.gpus),
        "gpu_count": len(inventory.gpus),
        "device_count": len(devices),
        "gpus": tuple(_gpu(gpu) for gpu in inventory.gpus),
        "devices": devices,
        "specs": tuple(
            SpecStatus(file=PurePosixPath(file.path).name, kind=file.kind, hash=file.sha256 or None)
            for file in inventory.cdi.files
        ),
        "inventory_time": inventory.generated_at,
        "inventory_hash": inventory.content_hash,
        "boot_id": inventory.boot_id,
    }


def _gpu(gpu: Gpu) -> GpuStatus:
    return GpuStatus(
        id=gpu.id,
        vendor=gpu.vendor,
        name=gpu.name,
        pci_address=gpu.pci_address,
        driver=gpu.driver,
        driver_version=gpu.driver_version,
        memory_bytes=gpu.memory_bytes,
    )


def _kept_problems(machine: GpuMachine, inventory: Inventory | None) -> tuple[Problem, ...]:
    if inventory is None:
        return tuple(problem for problem in machine.status.problems or () if problem.reason != Reason.GATE_PROBLEM)
    return tuple(
        Problem(reason=problem.reason[:_TEXT_MAX], message=problem.message[:_TEXT_MAX])
        for problem in inventory.problems
    )


def _gate_problems(machine: GpuMachine, gate: GateStatus | None) -> tuple[Problem, ...]:
    if gate is None:
        return tuple(problem for problem in machine.status.problems or () if problem.reason == Reason.GATE_PROBLEM)
    return tuple(Problem(reason=Reason.GATE_PROBLEM, message=sentence[:_TEXT_MAX]) for sentence in gate.problems)
