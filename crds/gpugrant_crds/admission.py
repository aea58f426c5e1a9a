"""The check before a grant or machine is stored (design 2.1): pure; the same sentences as the reconciler's.

It refuses what can never become right and what certainly conflicts, and warns about what may still come. It is the
friendly door, not the lock: two grants that both pass here are still told apart by the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from gpugrant_crds import names
from gpugrant_crds.decide import conflicts
from gpugrant_crds.reasons import Reason
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant, RepoGpuGrantSpec


@dataclass(frozen=True, slots=True)
class Request:
    """A create or an update of a RepoGpuGrant, and the world that it is judged in."""

    grant: RepoGpuGrant
    old: RepoGpuGrant | None
    """None: it is created."""
    machine: GpuMachine | None
    """The machine that the grant names; None: there is none."""
    stored: Iterable[RepoGpuGrant]
    """All stored grants, of any namespace and machine."""
    live_devices: tuple[str, ...] | None
    """What the machine's gate reads in the specs now; None: it didn't answer, the last detection counts."""
    now: datetime


@dataclass(frozen=True, slots=True)
class Review:
    """The answer. `message` is one sentence that says what to write instead."""

    allowed: bool
    reason: Reason | None = None
    message: str = ""
    warnings: tuple[str, ...] = ()


def review(request: Request) -> Review:
    """Whether the grant may be stored."""
    if request.old is not None and request.old.spec == request.grant.spec:
        return Review(True)
    for rule in REFUSALS:
        refused = rule(request)
        if refused is not None:
            return Review(False, refused.reason, refused.message)
    warnings = (rule(request) for rule in WARNINGS)
    return Review(True, warnings=tuple(warning for warning in warnings if warning is not None))


def _malformed(request: Request) -> conflicts.Refused | None:
    spec = request.grant.spec
    checks: tuple[tuple[Callable[[str], object], str, Reason], ...] = (
        (names.parse_device, spec.device, Reason.INVALID_DEVICE),
        (names.check_repo, spec.repo, Reason.INVALID_GRANT),
        (names.check_machine, spec.machine, Reason.INVALID_GRANT),
    )
    for check, value, reason in checks:
        try:
            check(value)
        except names.InvalidName as error:
            return conflicts.Refused(reason, str(error))
    return None


def _changed(request: Request) -> conflicts.Refused | None:
    if request.old is None:
        return None
    for field in ("machine", "repo", "device", "repo_id"):
        if getattr(request.old.spec, field) != getattr(request.grant.spec, field):
            alias = RepoGpuGrantSpec.model_fields[field].alias or field
            return conflicts.Refused(
                Reason.IMMUTABLE, f"spec.{alias} can't be changed: delete the grant and make another"
            )
    return None


def _already_over(request: Request) -> conflicts.Refused | None:
    text = request.grant.spec.expires_at
    if request.old is not None and request.old.spec.expires_at == text:
        return None
    try:
        expiry = request.grant.spec.expiry()
    except ValueError:
        return conflicts.Refused(
            Reason.INVALID_GRANT, f"spec.expiresAt: {text!r} is no RFC 3339 time such as 2026-03-01T12:00:00Z"
        )
    if expiry is None or expiry > request.now:
        return None
    return conflicts.Refused(Reason.EXPIRED, f"spec.expiresAt: {text} is in the past: give a later time or none")


def _no_such_device(request: Request) -> conflicts.Refused | None:
    machine, device = request.machine, request.grant.spec.device
    if request.old is not None or machine is None or machine.device_names is None:
        return None
    present = machine.device_names if request.live_devices is None else request.live_devices
    if device in present:
        return None
    return conflicts.Refused(Reason.DEVICE_NOT_FOUND, conflicts.no_such_device(device, machine.metadata.name, present))


def _rivals(request: Request) -> tuple[RepoGpuGrant, ...]:
    """Stored grants of the same name on the same machine for other repos; ended ones don't count."""
    spec = request.grant.spec
    return tuple(
        other
        for other in request.stored
        if (other.spec.machine, other.spec.device) == (spec.machine, spec.device)
        and other.spec.repo != spec.repo
        and other.metadata.deletion_timestamp is None
        and not _over(other, request.now)
    )


def _over(grant: RepoGpuGrant, now: datetime) -> bool:
    try:
        expiry = grant.spec.expiry()
    except ValueError:
        return True
    return expiry is not None and expiry <= now


def _exclusive_held(request: Request) -> conflicts.Refused | None:
    spec = request.grant.spec
    for rival in _rivals(request):
        if rival.spec.exclusive:
            return conflicts.Refused(
                Reason.EXCLUSIVE_HELD,
                conflicts.exclusive_held(spec.device, spec.machine, rival.spec.repo, rival.ref),
            )
    return None


def _shared_held(request: Request) -> conflicts.Refused | None:
    spec = request.grant.spec
    if not spec.exclusive:
        return None
    others = sorted({rival.spec.repo for rival in _rivals(request)})
    if not others:
        return None
    return conflicts.Refused(Reason.SHARED_HELD, conflicts.shared_held(spec.device, spec.machine, others))


REFUSALS: tuple[Callable[[Request], conflicts.Refused | None], ...] = (
    _malformed,
    _changed,
    _already_over,
    _no_such_device,
    _exclusive_held,
    _shared_held,
)


def _machine_missing(request: Request) -> str | None:
    name = request.grant.spec.machine
    if request.machine is None:
        return f"there is no machine {name} yet: the grant waits for it ({Reason.MACHINE_NOT_FOUND})"
    if request.machine.device_names is None:
        return (
            f"the devices of machine {name} were never detected: the grant waits for it "
            f"({Reason.MACHINE_NOT_DETECTED}); an operator can run: rdc machine setup {name}"
        )
    return None


def _repo_missing(request: Request) -> str | None:
    machine, repo = request.machine, request.grant.spec.repo
    if machine is None or machine.status.gate is None:
        return None
    known = {known.name: known.id for known in machine.status.gate.repos}
    if known.get(repo):
        return None
    name = machine.metadata.name
    if repo in known:
        return f"{conflicts.no_hardware(repo, name)}; the grant waits for it ({Reason.DAEMON_UNFIT})"
    return f"{conflicts.no_such_repo(repo, name, known)}: the grant waits for it ({Reason.REPO_NOT_FOUND})"


def _other_repo(request: Request) -> str | None:
    machine, spec = request.machine, request.grant.spec
    if machine is None or machine.status.gate is None or spec.repo_id is None:
        return None
    present = next((repo.id for repo in machine.status.gate.repos if repo.name == spec.repo), None)
    if present is None or present == spec.repo_id:
        return None
    said = conflicts.other_repo(request.grant, spec.repo_id, present)
    return f"{said} ({Reason.REPO_ID_MISMATCH})"


WARNINGS: tuple[Callable[[Request], str | None], ...] = (_machine_missing, _repo_missing, _other_repo)
