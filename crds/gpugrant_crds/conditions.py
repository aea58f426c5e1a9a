"""Conditions by the rules of kstatus and of the Kubernetes API conventions.

A condition without times is a claim of `decide`; `merge` turns claims into what is stored. `lastTransitionTime`
moves only when the status flips, so that an unchanged claim writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gpugrant_crds.reasons import Reason
from gpugrant_crds.v1alpha1 import Condition

Status = Literal["True", "False", "Unknown"]

READY = "Ready"
ACCEPTED = "Accepted"
PROGRAMMED = "Programmed"
CONFLICTED = "Conflicted"
MOVED = "Moved"
"""Only while it is true: other hardware stands behind a grant's name than when it was accepted (R47)."""
RECONCILING = "Reconciling"
STALLED = "Stalled"
DETECTED = "Detected"
SPECS_CURRENT = "SpecsCurrent"
GATE_SYNCED = "GateSynced"

_MESSAGE_MAX = 32768
"""metav1.Condition's limit."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What is true of a condition now."""

    type: str
    status: Status
    reason: Reason
    message: str = ""


def merge(stored: Iterable[Condition], claims: Iterable[Claim], *, generation: int, now: str) -> tuple[Condition, ...]:
    """The conditions to store, sorted by type; a type that isn't claimed any more is dropped. `now` is RFC 3339."""
    before = {condition.type: condition for condition in stored}
    return tuple(
        _merged(before.get(claim.type), claim, generation, now)
        for claim in sorted(claims, key=lambda claim: claim.type)
    )


def _merged(before: Condition | None, claim: Claim, generation: int, now: str) -> Condition:
    message = claim.message[:_MESSAGE_MAX]
    if before is not None and (before.status, before.reason, before.message, before.observed_generation) == (
        claim.status,
        claim.reason,
        message,
        generation,
    ):
        return before
    flipped = before is None or before.status != claim.status
    return Condition(
        type=claim.type,
        status=claim.status,
        reason=str(claim.reason),
        message=message,
        observed_generation=generation,
        last_transition_time=now if before is None or flipped else before.last_transition_time,
    )


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of that type, or None."""
    return next((condition for condition in conditions if condition.type == kind), None)


__all__ = [
    "ACCEPTED",
    "CONFLICTED",
    "DETECTED",
    "GATE_SYNCED",
    "MOVED",
    "PROGRAMMED",
    "READY",
    "RECONCILING",
    "SPECS_CURRENT",
    "STALLED",
    "Claim",
    "Status",
    "find",
    "merge",
]
