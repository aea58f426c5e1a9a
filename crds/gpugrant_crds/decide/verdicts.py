"""What a grant's status shall say, and whether its finalizer may go. Claims without times; kstatus rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpugrant_crds import atoms, conditions, durations, snapshot, timestamps
from gpugrant_crds.conditions import Claim, Status
from gpugrant_crds.decide import conflicts, ledger, silence
from gpugrant_crds.decide.conflicts import Refused
from gpugrant_crds.decide.ledger import Entry, Ledger
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import GateStatus, RepoStatus, SnapshotPolicy
from gpugrant_crds.v1alpha1 import REBIND_ANNOTATION, GpuMachine, RepoGpuGrant

GRACE = timedelta(minutes=10)
"""How long something that isn't there may still be on its way before the grant counts as stalled."""

RELEASE_PATIENCE = timedelta(minutes=2)
"""How long a grant's deletion waits for the gate; the ledger remembers the debt beyond it (design 2.5)."""

_HOPELESS = frozenset(
    {
        Reason.EXCLUSIVE_HELD,
        Reason.SHARED_HELD,
        Reason.EXPIRED,
        Reason.INVALID_DEVICE,
        Reason.INVALID_GRANT,
        Reason.REPO_ID_MISMATCH,
    }
)
"""What doesn't come right by itself soon: stalled at once."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One grant's status as it shall be."""

    accepted: bool
    repo_id: str | None
    claims: tuple[Claim, ...]
    release: bool = False
    """The grant is being deleted and nothing waits for it: its finalizer may go."""
    hardware: tuple[str, ...] | None = None
    """What its name stood for when it was accepted, or bound again."""

    @property
    def ready(self) -> Claim:
        return next(claim for claim in self.claims if claim.type == conditions.READY)


@dataclass(frozen=True, slots=True)
class Standing:
    """The decided state that verdicts are read from."""

    machine: GpuMachine
    ledger: Ledger
    epoch: int
    gate: GateStatus | None
    now: datetime
    terminating: frozenset[str]
    synced: bool
    """The gate enforces this machine's current snapshot."""
    unserved: Refused | None
    """Why no gate can answer for this machine."""
    repos: Mapping[str, RepoStatus]
    """`conflicts.known_repos` of the gate."""
    devices: frozenset[str]
    """The names that can be granted now."""
    hardware: Mapping[str, tuple[str, ...]]
    """What each of them stands for now, where it is known."""
    owed: frozenset[str]
    """Grants from which something was taken that the gate has not answered for yet."""
    doubts: silence.Held = frozenset()
    """Which repos may still hold which device, though nobody waits for them any more."""


def answer(machine: GpuMachine, gate: GateStatus | None) -> GateStatus | None:
    """The report as far as it answers for this ledger; None: not at all.

    An epoch that the ledger has not reached, or the ledger's own epoch with other contents, is of another history
    (a restored backup): it pays no debt and enforces nothing.
    """
    if gate is None or gate.machine_uid != machine.metadata.uid or gate.epoch > machine.status.ledger_epoch:
        return None
    if gate.epoch == machine.status.ledger_epoch and gate.digest != _digest(machine, gate.api_id):
        return None
    return gate


def is_of(machine: GpuMachine, gate: GateStatus) -> bool:
    """Whether the gate serves this machine, of whatever history. One that is of it and answers for nothing is ahead: it
    enforces the machine's grants by another history than the ledger's, as after a restored backup."""
    return gate.machine_uid == machine.metadata.uid


def _digest(machine: GpuMachine, api_id: str) -> str:
    status = machine.status
    grants, told = ledger.read(status).snapshot_grants(), policy(status.revocation, status.max_snapshot_age)
    return snapshot.digest(api_id, machine.metadata.name, machine.metadata.uid, grants, told)


def policy(revocation: str | None, age: str | None) -> SnapshotPolicy | None:
    """What a snapshot says of it."""
    span = durations.read(age)
    seconds = None if span is None else int(span.total_seconds())
    if revocation != "Stop" and seconds is None:
        return None
    return SnapshotPolicy(revocation="Stop" if revocation == "Stop" else "Retain", max_snapshot_age=seconds)


def max_snapshot_age(machine: GpuMachine) -> str | None:
    """What the machine's spec says of it; None also for a text that is no duration, or zero."""
    text = None if machine.spec.gate is None else machine.spec.gate.max_snapshot_age
    return text if durations.read(text) is not None else None


def judge(standing: Standing, grant: RepoGpuGrant, refused: Refused | None) -> Verdict:
    """The verdict on one stored grant."""
    uid = grant.metadata.uid
    entry = standing.ledger.entries.get(uid)
    if grant.metadata.deletion_timestamp is not None:
        return _leaving(standing, grant)
    if entry is not None:
        return _held(standing, grant, entry, refused)
    if refused is None:
        refused = Refused(Reason.MACHINE_NOT_FOUND, f"machine {standing.machine.metadata.name} is being deleted")
    return _waiting(grant, refused, standing.now)


def without_machine(grant: RepoGpuGrant, now: datetime) -> Verdict:
    """The verdict on a grant whose machine does not exist."""
    name = grant.spec.machine
    message = f"there is no machine {name}; an operator can run: rdc machine setup {name}"
    verdict = _waiting(grant, Refused(Reason.MACHINE_NOT_FOUND, message), now)
    return Verdict(
        verdict.accepted,
        verdict.repo_id,
        verdict.claims,
        release=grant.metadata.deletion_timestamp is not None,
    )


def moments(standing: Standing, grant: RepoGpuGrant) -> list[datetime]:
    """When time alone changes this grant's verdict."""
    deletion = grant.metadata.deletion_timestamp
    if deletion is not None:
        return [timestamps.read(deletion) + RELEASE_PATIENCE]
    found = [_since(grant, standing.now) + GRACE]
    if grant.spec.expires_at is not None:
        try:
            found.append(timestamps.read(grant.spec.expires_at))
        except ValueError:
            return found
    return found


def _leaving(standing: Standing, grant: RepoGpuGrant) -> Verdict:
    owed = grant.metadata.uid in standing.owed
    deleted = timestamps.read(grant.metadata.deletion_timestamp or timestamps.write(standing.now))
    patience_over = standing.now >= deleted + RELEASE_PATIENCE
    gone = not owed or patience_over or grant.metadata.namespace in standing.terminating
    message = "taken away; waiting for the gate to say that it is enforced"
    claims = (
        *_claims(accepted="True", programmed="True", reason=Reason.RELEASING, message=message),
        Claim(conditions.READY, "False", Reason.RELEASING, message),
        Claim(conditions.RECONCILING, "True", Reason.RELEASING, message),
    )
    return Verdict(False, grant.status.repo_id, claims, release=gone, hardware=grant.status.hardware)


def _held(standing: Standing, grant: RepoGpuGrant, entry: Entry, refused: Refused | None) -> Verdict:
    programmed, problem = _enforcement(standing, grant, entry)
    problem = refused or problem
    moved = _moved(standing, grant, entry)
    bound = _bound_to(standing, grant, entry)
    if problem is None:
        reason, doubt = Reason.ENFORCED, _doubt(standing, entry)
        message = _enforced_message(standing, grant)
        if doubt:
            reason, message = Reason.RELEASE_UNVERIFIED, f"{message}; {doubt}"
        enforced = (
            *_claims(accepted="True", programmed="True", reason=Reason.ENFORCED, message=""),
            Claim(conditions.READY, "True", reason, message),
        )
        return Verdict(True, entry.repo_id, (*enforced, *moved), hardware=bound)
    claims = (
        Claim(conditions.ACCEPTED, "True", Reason.ENFORCED, ""),
        Claim(conditions.PROGRAMMED, programmed, problem.reason, problem.message),
        *_troubled(grant, problem, standing.now),
    )
    return Verdict(True, entry.repo_id, (*claims, *moved), hardware=bound)


def _doubt(standing: Standing, entry: Entry) -> str:
    """Who may still hold a device that is exclusive here, as a clause; empty: nobody."""
    device, repo = entry.device, entry.repo
    others = [other for held, other in standing.doubts if held == device and other != repo]
    return silence.why(device, others, standing.gate) if others and entry.grant.exclusive else ""


def _bound_to(standing: Standing, grant: RepoGpuGrant, entry: Entry) -> tuple[str, ...] | None:
    """As the ledger has it; of a name for a set, which the ledger does not follow, as it was at acceptance."""
    if entry.grant.hardware is not None:
        return (entry.grant.hardware,)
    return grant.status.hardware or standing.hardware.get(entry.device)


def _moved(standing: Standing, grant: RepoGpuGrant, entry: Entry) -> tuple[Claim, ...]:
    """R47: the grant is of the name and stays in force, whatever stands behind it; other hardware is said."""
    before, now = entry.grant.hardware, standing.hardware.get(entry.device, ())
    if before is None or not atoms.moved(entry.device, (before,), now):
        return ()
    meta = grant.metadata
    message = (
        f"{entry.device} on {standing.machine.metadata.name} stands for {_shown(now)} now and stood for "
        f"{_shown((before,))} when it was granted; the grant stays in force: revoke it if that is not meant, else "
        f"say so: kubectl annotate -n {meta.namespace} repogpugrant {meta.name} {REBIND_ANNOTATION}=WHEN --overwrite"
    )
    return (Claim(conditions.MOVED, "True", Reason.DEVICE_MOVED, message),)


def _shown(hardware: tuple[str, ...]) -> str:
    return " and ".join(atom.removeprefix("gpu/") for atom in hardware)


def _enforcement(standing: Standing, grant: RepoGpuGrant, entry: Entry) -> tuple[Status, Refused | None]:
    """Whether the gate lets this repo use the device now, and if not, why."""
    gate, machine = standing.gate, standing.machine
    name = machine.metadata.name
    if gate is None:
        return "Unknown", standing.unserved or conflicts.silent(name)
    repo = standing.repos.get(entry.repo)
    if repo is None:
        return "False", conflicts.not_served(entry.repo, name, gate.repos)
    if repo.id != entry.repo_id:
        return "False", Refused(Reason.REPO_ID_MISMATCH, conflicts.other_repo(grant, entry.repo_id, repo.id))
    if not standing.synced:
        return "False", Refused(Reason.GATE_PENDING, f"accepted; waiting for the gate of machine {name} to enforce it")
    if not repo.fit:
        reason = Reason.ROOTLESS_DAEMON if repo.reason == Reason.ROOTLESS_DAEMON else Reason.DAEMON_UNFIT
        return "False", Refused(reason, repo.message or f"the daemon of repo {entry.repo} can't take CDI devices")
    if entry.device not in standing.devices:
        missing = conflicts.no_such_device(entry.device, name, machine.device_names or ())
        return "True", Refused(Reason.DEVICE_GONE, f"{missing}; the name stays held for repo {entry.repo}")
    if entry.grant.exclusive:
        in_use = conflicts.in_use_by_others(entry.device, entry.repo, name, gate)
        if entry.grant.waits or (in_use is not None and not _was_ready(grant)):
            waiting = in_use or Refused(Reason.GATE_PENDING, "accepted; waiting for the next answer of the gate")
            return ("False" if entry.grant.waits else "True"), waiting
    return "True", None


def _was_ready(grant: RepoGpuGrant) -> bool:
    ready = conditions.find(grant.status.conditions, conditions.READY)
    current = ready is not None and ready.observed_generation == grant.metadata.generation
    return current and ready is not None and ready.status == "True"


def _enforced_message(standing: Standing, grant: RepoGpuGrant) -> str:
    spec = grant.spec
    said = f"repo {spec.repo} may use {spec.device} on {spec.machine}"
    repo = standing.repos.get(spec.repo)
    if repo is not None and not repo.sealed:
        said += (
            f"; repo {spec.repo} is not sealed: at its own start its daemon sees the devices of all repos; "
            f"to mend it: gpugrant repo seal {spec.repo}"
        )
    return said


def _waiting(grant: RepoGpuGrant, refused: Refused, now: datetime) -> Verdict:
    claims = (
        *_claims(accepted="False", programmed="False", reason=refused.reason, message=refused.message),
        *_troubled(grant, refused, now),
    )
    return Verdict(accepted=False, repo_id=grant.status.repo_id, claims=claims)


def _claims(*, accepted: Status, programmed: Status, reason: Reason, message: str) -> tuple[Claim, Claim]:
    return (
        Claim(conditions.ACCEPTED, accepted, reason, message),
        Claim(conditions.PROGRAMMED, programmed, reason, message),
    )


def _troubled(grant: RepoGpuGrant, refused: Refused, now: datetime) -> tuple[Claim, ...]:
    """Ready=False with its companions: Conflicted for a conflict, then Stalled or Reconciling."""
    stalled = refused.reason in _HOPELESS or now - _since(grant, now) >= GRACE
    kind = conditions.STALLED if stalled else conditions.RECONCILING
    conflict = (Claim(conditions.CONFLICTED, "True", refused.reason, refused.message),)
    return (
        Claim(conditions.READY, "False", refused.reason, refused.message),
        *(conflict if refused.conflict else ()),
        Claim(kind, "True", refused.reason, refused.message),
    )


def _since(grant: RepoGpuGrant, now: datetime) -> datetime:
    """Since when the grant has not been ready, as its status says; `now` when it was."""
    ready = conditions.find(grant.status.conditions, conditions.READY)
    if ready is None or ready.status != "False":
        return now
    return timestamps.read(ready.last_transition_time)
