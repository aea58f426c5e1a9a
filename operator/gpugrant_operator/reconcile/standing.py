"""A machine's conditions by the rules of kstatus: ordered observations, of which the first that is amiss decides Ready.

Claims without times; nothing in them ticks, so that a machine at rest is never written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpugrant_crds import conditions
from gpugrant_crds.conditions import Claim
from gpugrant_crds.reasons import Reason
from gpugrant_crds.v1alpha1 import GpuMachine, GpuMachineStatus
from gpugrant_operator.reconcile import detection
from gpugrant_operator.reconcile.observed import Observed

_HOPELESS = frozenset(
    {
        Reason.NODE_CLAIMED,
        Reason.NODE_UNREACHABLE,
        Reason.DETECTION_FAILED,
        Reason.OTHER_MACHINE,
        Reason.STALE_EPOCH,
        Reason.EPOCH_REUSED,
        Reason.GATE_UNREACHABLE,
    }
)
"""What somebody has to mend: Stalled rather than Reconciling."""

_SPEC_REASONS = frozenset({"AmbiguousSpec", "DuplicateSpecFile", "SpecConflict", "SpecInvalid", "SpecStale"})
"""Problems of the inventory that are about CDI specs (reference/cdi-gpu.md 7.1)."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What the claims are read from: the observation, the machine with its facts, and the gate's standing."""

    seen: Observed
    machine: GpuMachine
    """With what is known now laid over its status."""
    synced: bool
    """The gate enforces exactly the current snapshot."""

    @property
    def status(self) -> GpuMachineStatus:
        return self.machine.status


def claims(scene: Scene) -> tuple[Claim, ...]:
    """All conditions of the machine."""
    ready = _ready(scene)
    observed = (_detected(scene), _specs_current(scene), _gate_synced(scene))
    return (*observed, ready, *_progress(scene, ready))


def _ready(scene: Scene) -> Claim:
    for rule in READINESS:
        claim = rule(scene)
        if claim.status != "True":
            return Claim(conditions.READY, claim.status, claim.reason, claim.message)
    if not scene.status.gpu_count:
        return Claim(conditions.READY, "True", Reason.NO_GPU, "there is no GPU on this machine")
    return Claim(conditions.READY, "True", Reason.SYNCED, _summary(scene))


def _progress(scene: Scene, ready: Claim) -> tuple[Claim, ...]:
    if ready.status != "True":
        kind = conditions.STALLED if ready.reason in _HOPELESS else conditions.RECONCILING
        return (Claim(kind, "True", ready.reason, ready.message),)
    if scene.seen.detecting and detection.requested(scene.seen.machine, scene.seen.outcome) is not None:
        return (Claim(conditions.RECONCILING, "True", Reason.DETECTING, "looking for GPUs, as was asked for"),)
    return ()


def _staying(scene: Scene) -> Claim:
    """Not a condition of its own: a machine that is being deleted is not ready."""
    if scene.machine.metadata.deletion_timestamp is None:
        return Claim(conditions.READY, "True", Reason.SYNCED)
    message = "being deleted; waiting for the gate to enforce an empty snapshot"
    return Claim(conditions.READY, "False", Reason.RELEASING, message)


def _served(scene: Scene) -> Claim:
    """Not a condition of its own: the machine has a gate."""
    unserved = scene.seen.unserved
    if unserved is None:
        return Claim(conditions.READY, "True", Reason.SYNCED)
    return Claim(conditions.READY, "False", unserved.reason, unserved.message)


def _detected(scene: Scene) -> Claim:
    failure = _failure(scene)
    if failure is not None:
        return Claim(conditions.DETECTED, "False", Reason.DETECTION_FAILED, failure)
    if scene.status.devices is not None:
        return Claim(conditions.DETECTED, "True", Reason.DETECTED, _summary(scene))
    if scene.seen.unserved is not None:
        return Claim(conditions.DETECTED, "Unknown", scene.seen.unserved.reason, scene.seen.unserved.message)
    return Claim(conditions.DETECTED, "Unknown", Reason.DETECTING, "looking for GPUs")


def _failure(scene: Scene) -> str | None:
    """Why the last detection failed; of one before this process started the stored sentence stays."""
    outcome = scene.seen.outcome
    if outcome is not None:
        return None if outcome.succeeded else outcome.message
    stored = conditions.find(scene.status.conditions, conditions.DETECTED)
    if stored is not None and stored.reason == Reason.DETECTION_FAILED:
        return stored.message
    return None


def _specs_current(scene: Scene) -> Claim:
    status = scene.status
    if status.devices is None:
        detected = _detected(scene)
        return Claim(conditions.SPECS_CURRENT, "Unknown", detected.reason, detected.message)
    broken = [f"{spec.file} can't be read" for spec in status.specs or () if spec.kind is None]
    amiss = [problem.message for problem in status.problems or () if problem.reason in _SPEC_REASONS] or broken
    if amiss:
        return Claim(conditions.SPECS_CURRENT, "False", Reason.SPECS_STALE, "; ".join(amiss))
    return Claim(conditions.SPECS_CURRENT, "True", Reason.SPECS_CURRENT, "")


def _gate_synced(scene: Scene) -> Claim:
    seen = scene.seen
    name = scene.machine.metadata.name
    if seen.unserved is not None:
        return Claim(conditions.GATE_SYNCED, "False", seen.unserved.reason, seen.unserved.message)
    if seen.gate is None:
        message = f"the gate of machine {name} does not answer"
        return Claim(conditions.GATE_SYNCED, "Unknown", Reason.GATE_UNREACHABLE, message)
    if scene.synced:
        return Claim(conditions.GATE_SYNCED, "True", Reason.SYNCED, "")
    if seen.refusal is not None:
        return Claim(conditions.GATE_SYNCED, "False", seen.refusal.reason, seen.refusal.message)
    message = f"waiting for the gate of machine {name} to enforce the current snapshot"
    return Claim(conditions.GATE_SYNCED, "False", Reason.GATE_PENDING, message)


def _summary(scene: Scene) -> str:
    status = scene.status
    parts = [_count(status.gpu_count or 0, "GPU"), _count(status.device_count or 0, "device name")]
    if status.problems:
        parts.append(_count(len(status.problems), "problem") + ", see status.problems")
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


READINESS: tuple[Callable[[Scene], Claim], ...] = (_staying, _served, _detected, _gate_synced)
"""The first that is not True is the machine's Ready. A broken spec file takes away only its own names."""
