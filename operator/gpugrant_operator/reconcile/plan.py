"""`plan`: what has to be written, in the order in which it has to happen (design 2, 4).

1. finalizers, on every grant before it enters the ledger; 2. the ledger; 3. the snapshot; and only when nothing of
these is left to do: 4. statuses; 5. finalizers that may go. An empty plan is a machine at rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gpugrant_crds import conditions, durations, timestamps
from gpugrant_crds.decide import Decision, Verdict, decide, verdicts, without_machine
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import Snapshot
from gpugrant_crds.v1alpha1 import (
    FINALIZER,
    TAKE_OVER_ANNOTATION,
    GpuMachine,
    GpuMachineStatus,
    RepoGpuGrant,
    RepoGpuGrantStatus,
)
from gpugrant_operator.reconcile import facts, standing
from gpugrant_operator.reconcile.observed import Observed

_THE_GATES = frozenset(
    {
        Reason.REPO_NOT_FOUND,
        Reason.REPO_ID_MISMATCH,
        Reason.DAEMON_UNFIT,
        Reason.ROOTLESS_DAEMON,
        Reason.IN_USE_BY_OTHERS,
    }
)
"""What comes right on the node, and is seen in the gate's report."""


_NEVER = datetime.max.replace(tzinfo=UTC)
_LONGEST = timedelta(days=365)
"""Beyond it nobody waits for a renewal."""


@dataclass(frozen=True, slots=True)
class GrantWrite:
    """A grant's status that differs from what is stored."""

    grant: RepoGpuGrant
    status: RepoGpuGrantStatus


@dataclass(frozen=True, slots=True)
class Plan:
    """What differs between what is and what shall be."""

    guard: tuple[RepoGpuGrant, ...] = ()
    """Grants that enter the ledger and lack our finalizer."""
    guard_machine: bool = False
    ledger: GpuMachineStatus | None = None
    """The status with a new epoch's ledger; stored before its snapshot is sent."""
    push: Snapshot | None = None
    """The gate does not hold this yet."""
    machine: GpuMachineStatus | None = None
    grants: tuple[GrantWrite, ...] = ()
    release: tuple[RepoGpuGrant, ...] = ()
    """Deleted grants that nothing waits for: our finalizer goes."""
    release_machine: bool = False
    recheck_at: datetime | None = None
    """When time alone changes the plan."""
    owed: bool = False
    """The gate has taken the snapshot and still has older requests open: ask it again soon."""
    watched: bool = False
    """A grant waits for something that only the gate's report can tell: ask it more often."""

    @property
    def before_answer(self) -> bool:
        """Something has to happen before statuses can be told."""
        return bool(self.guard or self.guard_machine or self.ledger is not None or self.push is not None)


def plan(seen: Observed, now: datetime) -> Plan:
    """The plan of one machine that exists.

    As long as something has to happen before the gate's answer, only that is planned: what the statuses will say
    depends on the answer.
    """
    machine = facts.laid_over(seen.machine, seen.inventory, seen.gate)
    gate = seen.gate if seen.unserved is None else None
    decision = decide(
        machine,
        seen.grants,
        gate,
        now,
        terminating=seen.terminating,
        unserved=seen.unserved,
        api_id=seen.api_id,
    )
    snapshot = decision.snapshot(machine, api_id=seen.api_id, issued_at=now, supersedes=_supersedes(seen))
    synced = _holds(seen, snapshot)
    before = Plan(
        guard=_unguarded(seen, decision),
        guard_machine=_machine_unguarded(seen),
        ledger=_ledger(machine, decision) if decision.epoch != machine.status.ledger_epoch else None,
        push=snapshot if seen.may_push and (not synced or _renewal(seen, decision, now) <= now) else None,
    )
    if before.before_answer:
        return before
    return Plan(
        machine=_changed(seen.machine.status, _machine_status(seen, machine, decision, synced, now)),
        grants=_grant_writes(seen.grants, decision.verdicts, now),
        release=_releasable(seen.grants, decision.verdicts),
        release_machine=decision.machine_released and FINALIZER in machine.metadata.finalizers,
        recheck_at=_sooner(decision.recheck_at, _renewal(seen, decision, now), now),
        owed=synced and any(allocation.releasing for allocation in decision.allocations),
        watched=any(verdict.ready.reason in _THE_GATES for verdict in decision.verdicts.values()),
    )


def plan_without_machine(grants: Iterable[RepoGpuGrant], now: datetime) -> Plan:
    """The plan of grants whose machine does not exist: they wait, or go."""
    stored = tuple(grants)
    judged = {grant.metadata.uid: without_machine(grant, now) for grant in stored}
    waiting = any(claim.type == conditions.RECONCILING for verdict in judged.values() for claim in verdict.claims)
    return Plan(
        grants=_grant_writes(stored, judged, now),
        release=_releasable(stored, judged),
        recheck_at=now + verdicts.GRACE if waiting else None,
    )


def _supersedes(seen: Observed) -> str | None:
    """Whose place at the gate this machine takes: that of one that is gone from the same API, or that it was told to
    take (design 4)."""
    gate, meta = seen.gate, seen.machine.metadata
    if gate is None or not gate.machine_uid or (gate.machine_uid, gate.api_id) == (meta.uid, seen.api_id):
        return None
    told = meta.annotations.get(TAKE_OVER_ANNOTATION) == gate.machine_uid
    gone = gate.api_id == seen.api_id and gate.machine_uid not in seen.machines
    return gate.machine_uid if told or gone else None


def _holds(seen: Observed, snapshot: Snapshot) -> bool:
    """The gate has exactly this snapshot."""
    gate = seen.gate
    return gate is not None and (gate.api_id, gate.machine_uid, gate.epoch, gate.digest) == (
        snapshot.api_id,
        snapshot.machine_uid,
        snapshot.epoch,
        snapshot.digest,
    )


def _renewal(seen: Observed, decision: Decision, now: datetime) -> datetime:
    """When the gate has to hear the same again, a third of the age that its snapshot may reach; the end of time: never.

    What this process has not sent itself is sent at once.
    """
    age = durations.read(decision.max_snapshot_age)
    if age is None:
        return _NEVER
    return now if seen.pushed_at is None else seen.pushed_at + min(age, _LONGEST) / 3


def _sooner(recheck: datetime | None, renewal: datetime, now: datetime) -> datetime | None:
    """A renewal that could not be sent is tried with the next news of the gate."""
    moments = [moment for moment in (recheck, renewal) if moment is not None and now < moment < _NEVER]
    return min(moments, default=None)


def _unguarded(seen: Observed, decision: Decision) -> tuple[RepoGpuGrant, ...]:
    held = {grant.grant.uid for grant in decision.grants}
    return tuple(
        grant
        for grant in seen.grants
        if grant.metadata.uid in held
        and grant.metadata.deletion_timestamp is None
        and FINALIZER not in grant.metadata.finalizers
    )


def _machine_unguarded(seen: Observed) -> bool:
    metadata = seen.machine.metadata
    return seen.unserved is None and metadata.deletion_timestamp is None and FINALIZER not in metadata.finalizers


def _ledger(machine: GpuMachine, decision: Decision) -> GpuMachineStatus:
    """The stored status with facts and ledger; the conditions wait for the gate's answer."""
    return machine.status.model_copy(
        update={
            "allocations": decision.allocations,
            "ledger_epoch": decision.epoch,
            "revocation": decision.revocation,
            "max_snapshot_age": decision.max_snapshot_age,
            "grant_count": len(decision.grants),
        }
    )


def _machine_status(
    seen: Observed, machine: GpuMachine, decision: Decision, synced: bool, now: datetime
) -> GpuMachineStatus:
    status = _ledger(machine, decision)
    generation = machine.metadata.generation
    claimed = standing.claims(standing.Scene(seen, machine, synced))
    update: dict[str, object] = {
        "observed_generation": generation,
        "gate": facts.gate_sync(status, machine.metadata.uid, seen.gate) if seen.unserved is None else None,
        "conditions": conditions.merge(status.conditions, claimed, generation=generation, now=timestamps.write(now)),
    }
    if seen.outcome is not None:
        request, succeeded = seen.outcome.request, seen.outcome.succeeded
        update["detection"] = facts.detection(status, request=request, succeeded=succeeded)
    return status.model_copy(update=update)


def _changed(stored: GpuMachineStatus, wanted: GpuMachineStatus) -> GpuMachineStatus | None:
    return None if stored == wanted else wanted


def _grant_writes(
    grants: tuple[RepoGpuGrant, ...], judged: Mapping[str, Verdict], now: datetime
) -> tuple[GrantWrite, ...]:
    writes = (
        GrantWrite(grant, _grant_status(grant, judged[grant.metadata.uid], now))
        for grant in grants
        if not judged[grant.metadata.uid].release
    )
    return tuple(write for write in writes if write.status != write.grant.status)


def _grant_status(grant: RepoGpuGrant, verdict: Verdict, now: datetime) -> RepoGpuGrantStatus:
    generation, moment = grant.metadata.generation, timestamps.write(now)
    return RepoGpuGrantStatus(
        observed_generation=generation,
        accepted_at=_accepted_at(grant, verdict, moment),
        repo_id=verdict.repo_id,
        hardware=verdict.hardware,
        conditions=conditions.merge(grant.status.conditions, verdict.claims, generation=generation, now=moment),
    )


def _accepted_at(grant: RepoGpuGrant, verdict: Verdict, moment: str) -> str | None:
    """When the ledger took it in; gone with its place there, though not while it is being released."""
    if verdict.accepted:
        return grant.status.accepted_at or moment
    return grant.status.accepted_at if grant.metadata.deletion_timestamp is not None else None


def _releasable(grants: tuple[RepoGpuGrant, ...], judged: Mapping[str, Verdict]) -> tuple[RepoGpuGrant, ...]:
    return tuple(
        grant for grant in grants if judged[grant.metadata.uid].release and FINALIZER in grant.metadata.finalizers
    )
