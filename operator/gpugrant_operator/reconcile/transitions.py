"""Which Events a status write is worth: transitions only, since floods of Events harm the API (reference 5.5)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from gpugrant_crds import conditions
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import GateStatus
from gpugrant_crds.v1alpha1 import Condition, GpuMachine, GpuMachineStatus, RepoGpuGrant, RepoGpuGrantStatus

_PASSING = frozenset({Reason.PENDING, Reason.GATE_PENDING, Reason.DETECTING})
"""What is over in a moment."""

_NORMAL_CASES = frozenset({Reason.RESTART_POLICY_REMOVED, Reason.CONTAINER_STARTED})
"""What a revocation and a boot bring along."""

_JUST = timedelta(minutes=10)

_NORMAL = frozenset({Reason.RELEASING})
"""Not ready, and nothing is wrong."""

_UNSURE = frozenset({Reason.RELEASE_UNVERIFIED})
"""Ready, and somebody should look."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One Event to be: about what, and why."""

    kind: str
    namespace: str
    """Empty for a cluster-scoped object, whose Events lie in `default`."""
    name: str
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str

    @property
    def event_name(self) -> str:
        """The same occurrence has the same name, so that a repetition counts up instead of flooding."""
        text = f"{self.uid}\0{self.type}\0{self.reason}\0{self.message}"
        return f"{self.name[:200]}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def of_grant(grant: RepoGpuGrant, after: RepoGpuGrantStatus) -> tuple[Occurrence, ...]:
    """The Events of a grant: its Ready changed its status or reason; other hardware stands behind its name (R47)."""
    changes = (
        _changed(grant.status.conditions, after.conditions, conditions.READY),
        _moved(grant.status.conditions, after.conditions),
    )
    meta = grant.metadata
    return tuple(
        _occurrence("RepoGpuGrant", meta.namespace, meta.name, meta.uid, change)
        for change in changes
        if change is not None
    )


def _moved(before: Iterable[Condition], after: Iterable[Condition]) -> Condition | None:
    """Each place that the name moves to is said once."""
    old, new = conditions.find(before, conditions.MOVED), conditions.find(after, conditions.MOVED)
    return None if new is None or (old is not None and old.message == new.message) else new


def of_machine(machine: GpuMachine, after: GpuMachineStatus) -> tuple[Occurrence, ...]:
    """The Events of a machine: Ready, and a detection or specs that went wrong, each said once."""
    changes = [
        _changed(machine.status.conditions, after.conditions, kind)
        for kind in (conditions.READY, conditions.DETECTED, conditions.SPECS_CURRENT)
    ]
    meta = machine.metadata
    found = [
        _occurrence("GpuMachine", "", meta.name, meta.uid, change)
        for change in changes
        if change is not None and (change.type == conditions.READY or change.status == "False")
    ]
    return tuple({occurrence.event_name: occurrence for occurrence in found}.values())


def of_cases(
    machine: GpuMachine, before: GateStatus | None, after: GateStatus, now: datetime
) -> tuple[Occurrence, ...]:
    """The Events of what the gate found among containers since its report before; of a first report only what has just
    been."""
    known = () if before is None else before.cases
    meta = machine.metadata
    return tuple(
        Occurrence(
            kind="GpuMachine",
            namespace="",
            name=meta.name,
            uid=meta.uid,
            type="Normal" if case.reason in _NORMAL_CASES else "Warning",
            reason=case.reason,
            message=case.message,
        )
        for case in after.cases
        if case not in known and (before is not None or now - case.time < _JUST)
    )


def _changed(before: Iterable[Condition], after: Iterable[Condition], kind: str) -> Condition | None:
    old, new = conditions.find(before, kind), conditions.find(after, kind)
    if new is None or new.reason in _PASSING:
        return None
    if old is not None and (old.status, old.reason) == (new.status, new.reason):
        return None
    return new


def _occurrence(kind: str, namespace: str, name: str, uid: str, condition: Condition) -> Occurrence:
    good = condition.status == "True" and condition.type != conditions.MOVED and condition.reason not in _UNSURE
    normal = good or condition.reason in _NORMAL
    return Occurrence(
        kind=kind,
        namespace=namespace,
        name=name,
        uid=uid,
        type="Normal" if normal else "Warning",
        reason=condition.reason,
        message=condition.message,
    )
