"""`decide`: from stored grants, ledger and gate report to the next ledger, the verdicts and the snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from gpugrant_crds import snapshot, timestamps
from gpugrant_crds.decide import conflicts, ledger, silence, verdicts
from gpugrant_crds.decide.conflicts import Candidate, Refused
from gpugrant_crds.decide.ledger import Entry, Ledger
from gpugrant_crds.decide.verdicts import Standing, Verdict
from gpugrant_crds.snapshot import GateStatus, RepoStatus, Snapshot, SnapshotGrant
from gpugrant_crds.v1alpha1 import FORCE_RELEASE_ANNOTATION, Allocation, GpuMachine, RepoGpuGrant


@dataclass(frozen=True, slots=True)
class Decision:
    """What shall be. Deciding again on it changes nothing."""

    allocations: tuple[Allocation, ...]
    """The next ledger, to be stored by compare-and-swap."""
    epoch: int
    """The old epoch, or one more when what the gate enforces changes."""
    revocation: Literal["Stop"] | None
    """What it does with running containers whose device is taken away; None: nothing."""
    max_snapshot_age: str | None
    """How old what the gate enforces may get; None: as old as it will."""
    grants: tuple[SnapshotGrant, ...]
    verdicts: Mapping[str, Verdict]
    """By the grant's uid."""
    machine_released: bool
    """The machine is being deleted and its gate enforces nothing of it any more: its finalizer may go."""
    recheck_at: datetime | None
    """When time alone changes the decision; None: never."""

    def snapshot(
        self, machine: GpuMachine, *, api_id: str, issued_at: datetime, supersedes: str | None = None
    ) -> Snapshot:
        """The snapshot that the machine's gate has to enforce."""
        return snapshot.build(
            api_id=api_id,
            machine=machine.metadata.name,
            machine_uid=machine.metadata.uid,
            epoch=self.epoch,
            supersedes=supersedes,
            issued_at=issued_at,
            grants=self.grants,
            policy=verdicts.policy(self.revocation, self.max_snapshot_age),
        )


def decide(
    machine: GpuMachine,
    grants: Iterable[RepoGpuGrant],
    gate: GateStatus | None,
    now: datetime,
    *,
    terminating: frozenset[str] = frozenset(),
    unserved: Refused | None = None,
    api_id: str | None = None,
) -> Decision:
    """The decision on one machine.

    `grants` are all stored grants, also other machines' and those being deleted. `gate` is the gate's last report;
    None: it does not answer, and `unserved` may say why none can. `terminating` are namespaces being deleted: nothing
    in them waits for a gate. `api_id` is the API's own: a gate that holds newer snapshots of it than the ledger makes
    the decision begin above the gate's epoch.
    """
    stored = {grant.metadata.uid: grant for grant in grants if grant.spec.machine == machine.metadata.name}
    before = ledger.read(machine.status)
    waited = silence.waited(gate, machine, before.given_up, now)
    gate = waited.gate
    answered = verdicts.answer(machine, gate)
    ledger_now = replace(before.settled(answered), given_up=waited.given_up)
    next_epoch = machine.status.ledger_epoch + 1
    ahead = gate is not None and answered is None and gate.api_id == api_id and verdicts.is_of(machine, gate)
    if ahead and gate is not None:
        next_epoch = max(gate.epoch, machine.status.ledger_epoch) + 1
        ledger_now = ledger_now.begun_again(((use.device, use.repo) for use in gate.grants), epoch=next_epoch)
    ended = [uid for uid, entry in ledger_now.entries.items() if not _continues(machine, stored.get(uid), entry, now)]
    ledger_now = ledger_now.without(ended, epoch=next_epoch)
    repos = conflicts.known_repos(gate)
    hardware = machine.hardware
    ledger_now, refused = _admit_all(machine, stored.values(), ledger_now, gate, now, unserved, repos, hardware)
    enforced = ledger_now.snapshot_grants()
    revocation: Literal["Stop"] | None = "Stop" if machine.spec.revocation == "Stop" else None
    age = verdicts.max_snapshot_age(machine)
    # most decisions change nothing, and then a thousand grants need not be written down twice
    kept = enforced if ledger_now.entries == before.entries else before.snapshot_grants()
    told = (kept, machine.status.revocation, machine.status.max_snapshot_age)
    changed = (enforced, revocation, age) != told
    epoch = next_epoch if changed or ahead else machine.status.ledger_epoch
    standing = Standing(
        machine=machine,
        ledger=ledger_now,
        epoch=epoch,
        gate=gate,
        now=now,
        terminating=terminating,
        synced=answered is not None and answered.epoch == epoch,
        unserved=unserved,
        repos=repos,
        devices=frozenset(machine.device_names or ()),
        hardware=hardware,
        owed=ledger_now.owed_uids(),
        doubts=waited.doubts,
    )
    return Decision(
        allocations=ledger_now.allocations(),
        epoch=epoch,
        revocation=revocation,
        max_snapshot_age=age,
        grants=enforced,
        verdicts={uid: verdicts.judge(standing, grant, refused.get(uid)) for uid, grant in stored.items()},
        machine_released=_machine_released(standing),
        recheck_at=_recheck(standing, stored.values(), waited.recheck),
    )


def _continues(machine: GpuMachine, grant: RepoGpuGrant | None, entry: Entry, now: datetime) -> bool:
    """Whether a held grant stays: it is stored, for this device and repo, not being deleted, not expired."""
    if machine.metadata.deletion_timestamp is not None or grant is None:
        return False
    if grant.metadata.deletion_timestamp is not None:
        return False
    if (grant.spec.device, grant.spec.repo) != (entry.device, entry.repo):
        return False
    return not _is_over(grant, now)


def _is_over(grant: RepoGpuGrant, now: datetime) -> bool:
    try:
        expiry = grant.spec.expiry()
    except ValueError:
        return True
    return expiry is not None and expiry <= now


def _admit_all(
    machine: GpuMachine,
    grants: Iterable[RepoGpuGrant],
    ledger_now: Ledger,
    gate: GateStatus | None,
    now: datetime,
    unserved: Refused | None,
    repos: Mapping[str, RepoStatus],
    hardware: Mapping[str, tuple[str, ...]],
) -> tuple[Ledger, dict[str, Refused]]:
    """The ledger with all that may enter, and why the others may not.

    Holders first, so that what they give up is free in the same pass; then newcomers, oldest first.
    """
    refused: dict[str, Refused] = {}
    held = ledger_now.entries
    for grant in sorted(grants, key=lambda grant: (grant.metadata.uid not in held, *_seniority(grant))):
        if machine.metadata.deletion_timestamp is not None or grant.metadata.deletion_timestamp is not None:
            continue
        stands_for = hardware.get(grant.spec.device, ())
        candidate = Candidate(grant, machine, ledger_now, gate, now, unserved, repos, stands_for)
        entry, why = _admit(candidate)
        if why is not None:
            refused[grant.metadata.uid] = why
        if entry is not None and entry is not held.get(grant.metadata.uid):
            ledger_now = ledger_now.with_entry(entry)
    return ledger_now, refused


def _seniority(grant: RepoGpuGrant) -> tuple[str, str, str]:
    return (grant.metadata.creation_timestamp, grant.ref, grant.metadata.uid)


def _admit(candidate: Candidate) -> tuple[Entry | None, Refused | None]:
    """The entry to hold, and what speaks against the grant as it is now."""
    grant = candidate.grant
    present = candidate.ledger.entries.get(grant.metadata.uid)
    if present is not None:
        return _renewed(candidate, present)
    why = conflicts.first_refusal(candidate)
    if why is not None or candidate.repo is None:
        return None, why
    exclusive = bool(grant.spec.exclusive)
    waits = exclusive and _used_by_others(candidate) is not None
    held = ledger.held(grant, exclusive=exclusive, waits=waits, hardware=candidate.hardware)
    return Entry(grant.spec.device, grant.spec.repo, candidate.repo.id, held), None


def _renewed(candidate: Candidate, present: Entry) -> tuple[Entry, Refused | None]:
    """A held grant follows its spec; becoming exclusive is judged like a newcomer's wish, and never loses the hold."""
    exclusive = bool(candidate.grant.spec.exclusive)
    why = None
    if exclusive and not present.grant.exclusive:
        why = conflicts.first_refusal(candidate, conflicts.EXCLUSION)
    # once in force it stays so: nobody takes it away by starting a container (R49)
    waits = exclusive and present.grant.waits and not _is_free(candidate)
    held = ledger.held(
        candidate.grant,
        exclusive=exclusive and why is None,
        waits=waits,
        hardware=candidate.hardware,
        before=present.grant,
    )
    return present if held is present.grant else replace(present, grant=held), why


def _is_free(candidate: Candidate) -> bool:
    """Whether the gate answers, no other repo's container has the device, and none owes it."""
    spec = candidate.grant.spec
    owed = any(debt.repo != spec.repo for debt in candidate.ledger.owed(spec.device))
    return candidate.gate is not None and not owed and _used_by_others(candidate) is None


def _used_by_others(candidate: Candidate) -> Refused | None:
    spec = candidate.grant.spec
    return conflicts.in_use_by_others(spec.device, spec.repo, spec.machine, candidate.gate)


def _machine_released(standing: Standing) -> bool:
    machine = standing.machine
    if machine.metadata.deletion_timestamp is None:
        return False
    if machine.metadata.annotations.get(FORCE_RELEASE_ANNOTATION) == machine.metadata.uid:
        return True
    return not standing.ledger.entries and not standing.ledger.debts and (standing.synced or not standing.epoch)


def _recheck(standing: Standing, grants: Iterable[RepoGpuGrant], others: Iterable[datetime]) -> datetime | None:
    moments = [
        *others,
        *(
            timestamps.read(entry.grant.expires_at)
            for entry in standing.ledger.entries.values()
            if entry.grant.expires_at is not None
        ),
    ]
    for grant in grants:
        moments += verdicts.moments(standing, grant)
    return min((moment for moment in moments if moment > standing.now), default=None)


__all__ = ["Decision", "decide"]
