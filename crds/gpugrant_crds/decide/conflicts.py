"""Why a grant can't enter the ledger: ordered rules, each with its reason. The first that speaks decides.

Adding a rule: a function, its reason in `reasons.py`, its place in RULES, a case in tests/crds/decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from gpugrant_crds import names
from gpugrant_crds.decide.ledger import Ledger
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import GateStatus, InUse, RepoStatus
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant


@dataclass(frozen=True, slots=True)
class Refused:
    """Why not, as a word and as a clause for a person."""

    reason: Reason
    message: str

    @property
    def conflict(self) -> bool:
        return self.reason in (Reason.EXCLUSIVE_HELD, Reason.SHARED_HELD)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored grant that isn't in the ledger, and all that it is judged by."""

    grant: RepoGpuGrant
    machine: GpuMachine
    ledger: Ledger
    gate: GateStatus | None
    now: datetime
    unserved: Refused | None
    repos: Mapping[str, RepoStatus]
    """`known_repos` of the gate."""
    hardware: tuple[str, ...] = ()
    """The atoms that the device stands for now; empty: unknown."""

    @property
    def repo(self) -> RepoStatus | None:
        """The grant's repo as the gate reports it; None: unknown there, or without an id of its own."""
        return self.repos.get(self.grant.spec.repo)


def known_repos(gate: GateStatus | None) -> Mapping[str, RepoStatus]:
    """The gate's repos that have an id, by name; of two of one name the first."""
    return {repo.name: repo for repo in reversed(gate.repos if gate is not None else ()) if repo.id}


def _expired(it: Candidate) -> Refused | None:
    try:
        expiry = it.grant.spec.expiry()
    except ValueError:
        return Refused(Reason.INVALID_GRANT, f"expiresAt: {it.grant.spec.expires_at!r} is no RFC 3339 time")
    if expiry is None or it.now < expiry:
        return None
    return Refused(Reason.EXPIRED, f"the grant ended at {it.grant.spec.expires_at}")


def _invalid_device(it: Candidate) -> Refused | None:
    try:
        names.parse_device(it.grant.spec.device)
        names.check_repo(it.grant.spec.repo)
    except names.InvalidName as error:
        return Refused(Reason.INVALID_DEVICE, str(error))
    return None


def _not_detected(it: Candidate) -> Refused | None:
    if it.machine.device_names is not None:
        return None
    name = it.machine.metadata.name
    return Refused(
        Reason.MACHINE_NOT_DETECTED,
        f"the devices of machine {name} were never detected; an operator can run: rdc machine setup {name}",
    )


def _no_such_device(it: Candidate) -> Refused | None:
    devices = it.machine.device_names or ()
    device = it.grant.spec.device
    if device in devices:
        return None
    return Refused(Reason.DEVICE_NOT_FOUND, no_such_device(device, it.machine.metadata.name, devices))


def no_such_device(device: str, machine: str, devices: Iterable[str]) -> str:
    """R8's clause, with the nearest names."""
    return f"machine {machine} has no device {device}{names.did_you_mean(device, devices)}"


def _no_such_repo(it: Candidate) -> Refused | None:
    if it.gate is None:
        return it.unserved or silent(it.machine.metadata.name)
    if it.repo is not None:
        return None
    return not_served(it.grant.spec.repo, it.machine.metadata.name, it.gate.repos)


def silent(machine: str) -> Refused:
    """Nothing is heard of the machine's gate."""
    return Refused(Reason.GATE_UNREACHABLE, f"the gate of machine {machine} does not answer")


def not_served(repo: str, machine: str, reported: Iterable[RepoStatus]) -> Refused:
    """Why the gate has no repo of that name with an id: it knows none (R9), or its file keeps hardware from it."""
    found = {seen.name: seen for seen in reported}
    if repo not in found:
        return Refused(Reason.REPO_NOT_FOUND, no_such_repo(repo, machine, found))
    return Refused(Reason.DAEMON_UNFIT, no_hardware(repo, machine, found[repo].message))


def no_hardware(repo: str, machine: str, why: str = "") -> str:
    """The clause for a repo that the machine has without an id; `why`: as its gate says it, empty: not known here."""
    said = why or "its file in repos.d is broken, or gives it no id of its own: see gpugrant status"
    return f"repo {repo} on machine {machine} gets no hardware: {said}"


def no_such_repo(repo: str, machine: str, known: Iterable[str]) -> str:
    """R9's clause, with the nearest names."""
    return f"machine {machine} has no repo {repo}{names.did_you_mean(repo, known)}"


def _other_repo(it: Candidate) -> Refused | None:
    issued_for = it.grant.spec.repo_id or it.grant.status.repo_id
    if it.repo is None or issued_for is None or it.repo.id == issued_for:
        return None
    return Refused(Reason.REPO_ID_MISMATCH, other_repo(it.grant, issued_for, it.repo.id))


def other_repo(grant: RepoGpuGrant, issued_for: str, present: str) -> str:
    return (
        f"the grant was issued for the repo {grant.spec.repo} with id {issued_for}, and the repo of that name on "
        f"{grant.spec.machine} has id {present}: delete the grant and make another if that repo shall have it"
    )


def _exclusive_held(it: Candidate) -> Refused | None:
    spec = it.grant.spec
    for entry in it.ledger.holders(spec.device):
        if entry.grant.exclusive and entry.repo != spec.repo:
            return Refused(
                Reason.EXCLUSIVE_HELD,
                exclusive_held(spec.device, spec.machine, entry.repo, f"{entry.grant.namespace}/{entry.grant.name}"),
            )
    return None


def exclusive_held(device: str, machine: str, holder: str, ref: str) -> str:
    """R27's clause: who reserves it and how it would get free."""
    return (
        f"{device} on {machine} is reserved for repo {holder} (exclusive grant {ref}); to free it: "
        f"rdc repo gpu revoke {holder}@{machine} --device {device}"
    )


def _shared_held(it: Candidate) -> Refused | None:
    spec = it.grant.spec
    if not spec.exclusive:
        return None
    others = sorted({entry.repo for entry in it.ledger.holders(spec.device)} - {spec.repo})
    return Refused(Reason.SHARED_HELD, shared_held(spec.device, spec.machine, others)) if others else None


def shared_held(device: str, machine: str, others: Iterable[str]) -> str:
    """R26's clause: who holds it and how it would get free."""
    holders = list(others)
    return (
        f"{device} on {machine} can't be reserved while {_repos(holders)} it; to free it: "
        f"rdc repo gpu revoke {holders[0]}@{machine} --device {device}"
    )


def _repos(holders: list[str]) -> str:
    if len(holders) == 1:
        return f"repo {holders[0]} holds"
    return f"repos {', '.join(holders)} hold"


def _releasing(it: Candidate) -> Refused | None:
    spec = it.grant.spec
    for debt in it.ledger.owed(spec.device):
        if debt.repo != spec.repo and (spec.exclusive or debt.exclusive):
            stuck = _stuck(it.gate, debt.repo, spec.device)
            if stuck:
                return Refused(Reason.REVOKE_STUCK, f"{spec.device} on {spec.machine} can't be taken back: {stuck}")
            return Refused(
                Reason.RELEASING,
                f"{spec.device} on {spec.machine} is being taken from repo {debt.repo}; waiting for the gate's answer",
            )
    return None


def _stuck(gate: GateStatus | None, repo: str, device: str) -> str:
    """Why the device can't be taken from the repo, as its gate says; empty: it only takes a while."""
    pending = gate.pending if gate is not None else ()
    found = (entry for entry in pending if (entry.repo, entry.device) == (repo, device))
    return next((entry.message for entry in found if entry.reason == Reason.REVOKE_STUCK), "")


def in_use_by_others(device: str, repo: str, machine: str, gate: GateStatus | None) -> Refused | None:
    """R49: why an exclusive grant of the device can't take effect yet. What was not looked at may be in use."""
    if gate is None:
        return None
    others = [use for use in gate.running if use.device == device and use.repo != repo]
    if others:
        named = ", ".join(f"{_container(use)} of repo {use.repo}" for use in others[:_NAMED_MOST])
        more = f" and {len(others) - _NAMED_MOST} more" if len(others) > _NAMED_MOST else ""
        what = "container" if len(others) == 1 else "containers"
        message = f"{device} on {machine} is still in use by {what} {named}{more}; the grant takes effect without them"
        return Refused(Reason.IN_USE_BY_OTHERS, message)
    unseen = [known.name for known in gate.repos if known.unseen and known.name != repo]
    if unseen:
        waits = f"the gate has not looked at the containers of {', '.join(unseen[:_NAMED_MOST])} yet"
        return Refused(Reason.IN_USE_BY_OTHERS, f"{device} on {machine} may be in use: {waits}")
    return None


_NAMED_MOST = 8
"""Containers in one message."""


def _container(use: InUse) -> str:
    return f"{use.name} ({use.container[:12]})" if use.name else use.container[:12]


Rule = Callable[[Candidate], Refused | None]

EXCLUSION: tuple[Rule, ...] = (_exclusive_held, _shared_held, _releasing)
"""Also asked when a held grant becomes exclusive."""

RULES: tuple[Rule, ...] = (
    _expired,
    _invalid_device,
    _not_detected,
    _no_such_device,
    _no_such_repo,
    _other_repo,
    *EXCLUSION,
)


def first_refusal(candidate: Candidate, rules: tuple[Rule, ...] = RULES) -> Refused | None:
    """The first rule that speaks against the grant; None: it may enter."""
    for rule in rules:
        refused = rule(candidate)
        if refused is not None:
            return refused
    return None
