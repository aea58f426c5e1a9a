"""Which devices a repo may use at one moment, as the policy sees it: pure, and empty wherever something is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpugrant_crds.layout import Layout
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import Snapshot, SnapshotGrant
from gpugrant_gate.life import buildkit
from gpugrant_gate.life.buildkit import Builder, Question
from gpugrant_gate.life.fitness import Fitness
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.policy.model import RepoView
from gpugrant_gate.wire import versions


@dataclass(frozen=True, slots=True)
class Grant:
    """One line of the snapshot, as workers need it."""

    repo: str
    repo_id: str
    device: str
    expires_at: datetime | None = None
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Enforced:
    """What a gate enforces: swapped whole, never changed. `epoch` -1: there is no snapshot."""

    machine: str
    epoch: int = -1
    grants: tuple[Grant, ...] = ()
    devices: tuple[str, ...] = ()
    """Every usable name of the machine's CDI folder now, for hints."""
    auto_allowed: tuple[str, ...] = ()
    """Its spec files that may give a device to any build."""
    stops: bool = False
    """Running containers whose device is taken away are stopped."""
    too_old_at: datetime | None = None
    """When the snapshot gives no hardware any more; None: never."""
    at: datetime | None = None
    """When this was said; no clock that hears it says an earlier time."""

    def is_too_old(self, now: datetime) -> bool:
        return self.too_old_at is not None and now >= self.too_old_at

    def granted(self, repo: str, repo_id: str, now: datetime) -> frozenset[str]:
        """Names in force for the repo of that name and id (R9); none for a repo without an id."""
        return frozenset() if self.is_too_old(now) else frozenset(self.held(repo, repo_id, now))

    def held(self, repo: str, repo_id: str, now: datetime) -> dict[str, str]:
        """The same, each with the uid of a grant, also by a snapshot that is too old: what runs with it goes on."""
        if not repo_id:
            return {}
        return {
            grant.device: grant.uid
            for grant in self.grants
            if grant.repo == repo and grant.repo_id == repo_id and _in_force(grant, now)
        }

    def next_expiry(self, now: datetime) -> datetime | None:
        """When a grant that is in force now ends first, or all do."""
        times = (self.too_old_at, *(grant.expires_at for grant in self.grants))
        return min((moment for moment in times if moment is not None and now < moment), default=None)


def of_snapshot(
    snapshot: Snapshot | None,
    machine: str,
    devices: tuple[str, ...],
    auto_allowed: tuple[str, ...] = (),
    *,
    too_old_at: datetime | None = None,
    at: datetime | None = None,
) -> Enforced:
    if snapshot is None:
        return Enforced(machine, devices=devices, auto_allowed=auto_allowed)
    held = tuple(map(_grant, snapshot.grants))
    return Enforced(machine, snapshot.epoch, held, devices, auto_allowed, snapshot.stops, too_old_at, at)


def view(
    repo: Repo,
    enforced: Enforced,
    fitness: Fitness | None,
    layout: Layout,
    *,
    now: datetime,
    hidden: Iterable[str] = (),
) -> RepoView:
    """The repo as the policy sees it. Hardware needs a snapshot, a fit daemon and a repo without problems."""
    unfit = _unfit(repo, fitness)
    withheld = _withheld(repo, enforced, now)
    return RepoView(
        name=repo.name,
        machine=enforced.machine,
        granted=frozenset() if unfit or withheld else enforced.granted(repo.name, repo.id, now),
        devices=enforced.devices,
        unfit=unfit,
        withheld=withheld,
        binds=tuple(str(folder) for folder in repo.binds),
        above=tuple(str(folder) for folder in repo.above),
        pins=str(layout.pins / repo.id) if repo.id else "",
        as_named=not repo.binds_pinned,
        socket=str(repo.listen),
        open=repo.open,
        hidden=tuple(sorted({*_hidden(repo, fitness, layout), *hidden})),
        api_version=(fitness.api_version if fitness is not None else "") or versions.EVERYWHERE,
        buildkit=_buildkit(repo, enforced, fitness),
    )


def _buildkit(repo: Repo, enforced: Enforced, fitness: Fitness | None) -> str:
    builder = fitness.builder if fitness is not None else Builder()
    sealed = fitness is not None and fitness.sealed
    return buildkit.refusal(Question(builder, sealed, enforced.auto_allowed, "host.network" in repo.open))


def no_hardware(repo: Repo, fitness: Fitness | None) -> str:
    """Why the repo gets no hardware, whatever was granted; empty: it may."""
    return repo.problem or _unfit(repo, fitness)


RAW_SOCKET_REACHABLE = (
    "its bind sources are not pinned (bindsPinned: false), so its users can reach the daemon's raw socket, past the "
    "gate, by a source that they swap for a link"
)


def warning(repo: Repo) -> str:
    """What is wrong with a repo that gets hardware all the same."""
    return RAW_SOCKET_REACHABLE if repo.binds and not repo.binds_pinned else ""


def no_hardware_reason(repo: Repo, fitness: Fitness | None) -> str:
    """The Reason that goes with it, or with the warning."""
    if not no_hardware(repo, fitness):
        return Reason.RAW_SOCKET_REACHABLE if warning(repo) else ""
    if repo.problem or fitness is None:
        return Reason.DAEMON_UNFIT
    return fitness.reason


def _unfit(repo: Repo, fitness: Fitness | None) -> str:
    if fitness is None:
        return f"the repo's Docker daemon at {repo.upstream} was not reached yet"
    return "" if fitness.fit else fitness.message


def _withheld(repo: Repo, enforced: Enforced, now: datetime) -> str:
    if repo.problem:
        return repo.problem
    if enforced.epoch < 0:
        return "this machine's gate has no grant snapshot yet"
    return TOO_OLD if enforced.is_too_old(now) else ""


TOO_OLD = (
    "this machine's grant snapshot is older than its maxSnapshotAge allows, since the operator has sent no new one: "
    "see gpugrant status"
)


def _hidden(repo: Repo, fitness: Fitness | None, layout: Layout) -> Iterable[str]:
    """Trees of this installation that no container may see, whatever `binds` says."""
    folders: list[Path] = [layout.etc, layout.state, layout.run, layout.cdi, repo.upstream, repo.listen]
    yield from (str(folder) for folder in folders)
    if fitness is not None and fitness.data_root.startswith("/"):
        yield fitness.data_root


def _in_force(grant: Grant, now: datetime) -> bool:
    return grant.expires_at is None or now < grant.expires_at


def _grant(grant: SnapshotGrant) -> Grant:
    return Grant(grant.repo, grant.repo_id, grant.device, grant.expires_at, grant.grant.uid)
