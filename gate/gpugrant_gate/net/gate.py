"""The gate's parent: keeper of the snapshot, the repo files, the sealed folders and the workers.

One change at a time. The order of a new snapshot: on disk, in the sealed folders, in every worker, then answered: what
was answered is enforced, also after a power cut.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from gpugrant_crds import cdi
from gpugrant_crds.layout import Layout
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import (
    DevicesAnswer,
    GateStatus,
    GrantInForce,
    RepoStatus,
    Snapshot,
    SnapshotAnswer,
    StoredSnapshot,
    fence,
)
from gpugrant_crds.v1alpha1 import TAKE_OVER_ANNOTATION
from gpugrant_gate.life import admitted, buildkit, grants, repo, sealed, stored
from gpugrant_gate.life import clock as clocks
from gpugrant_gate.life.clock import Clock
from gpugrant_gate.life.fingerprint import Fingerprint
from gpugrant_gate.life.grants import Enforced
from gpugrant_gate.life.repo import Folder, Repo
from gpugrant_gate.net import folders, handover, listener
from gpugrant_gate.net.audit import log
from gpugrant_gate.net.channel import Channel
from gpugrant_gate.net.fdstore import Store
from gpugrant_gate.net.handover import Bequest
from gpugrant_gate.net.listener import Inherited, Listener
from gpugrant_gate.net.member import Served
from gpugrant_gate.net.pool import Pool
from gpugrant_gate.settings import Settings

_EXPIRY_SLACK = 0.05
"""Seconds after a grant's end at which the sealed folders follow; requests are judged by the clock itself."""


class Refused(Exception):
    """A snapshot that is not taken; `reason` is one of the fencing reasons."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NotStored(Exception):
    """A snapshot could not be made durable; the message says why."""


@dataclass(frozen=True, slots=True)
class Health:
    ok: bool
    message: str


class Gate:
    """The state of one gate; its shells (control socket, watches, signals) call in."""

    def __init__(
        self, settings: Settings, layout: Layout, clock: Clock, pool: Pool, store: Store, inherited: Inherited
    ) -> None:
        self.settings = settings
        self.layout = layout
        self.clock = clock
        self.pool = pool
        self.store = store
        self.notes: list[str] = []
        """Problems that its shells have, in sentences."""
        self._inherited = inherited
        self._left = False
        self._change = asyncio.Lock()
        self._news = asyncio.Event()
        self._boot_id = clocks.boot_id()
        self._stored: StoredSnapshot | None = None
        self._applied_at: datetime | None = None
        self._problem = ""
        self._sealed_problem = ""
        self._specs: sealed.Specs = {}
        self._devices = cdi.merge({})
        self._auto_allowed: tuple[str, ...] = ()
        self._folder = Folder()
        self._served: dict[str, Served] = {}
        self._socket_problems: dict[str, str] = {}
        self._fingerprint = Fingerprint(settings.hardware, time.monotonic)

    # Life.

    async def start(self) -> None:
        """Takes up the stored snapshot and the repos; nothing is served before the sealed folders are right."""
        loaded = stored.load(self.layout.snapshot)
        self._stored, self._applied_at, self._problem = loaded.stored, loaded.written, loaded.problem
        if loaded.written is not None:
            self.clock.not_before(loaded.written)
        if loaded.stored is not None and loaded.stored.clock is not None:
            self.clock.go_on(loaded.stored.clock, self._boot_id)
        if loaded.problem:
            log.error("snapshot damaged", message=loaded.problem)
        for folder in (self.layout.repos, self.layout.cdi):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._read_specs()
        self._read_repos()
        served = {name: its.id for name, its in self._folder.repos.items()}
        admitted.begin(self.layout.admitted, served, enforce=self.settings.enforce_at_once)
        self._seal()

    async def serve(self) -> None:
        """Serves every repo; returns when all workers enforce what is stored."""
        async with self._change:
            turn = self.pool.announce(self._enforced())
            self._serve()
            for opened in self._inherited.close():
                self.store.forget(opened)
        await self.pool.settled(turn)

    async def hand_over(self, successor: Channel, lock: int, control: Listener, metrics: socket.socket | None) -> bool:
        """Gives everything to the successor; False: it did not take it, and nothing has changed."""
        async with self._change:
            await self.pool.pause()
            listeners = [served.listener for served in self._served.values()]
            bequest = Bequest(lock, control, metrics, listeners, self.store.address, self.clock())
            self._left = await handover.give(successor, bequest)
            if not self._left:
                self.pool.resume()
                return False
            for opened in listeners:
                opened.let_go()
            return True

    def close(self) -> None:
        """Accepts no more. Sockets that somebody keeps for the next gate stay at their paths."""
        for served in self._served.values():
            if self.store.has(served.listener):
                served.listener.let_go()
            else:
                served.listener.close()

    async def repos_changed(self) -> None:
        """`repos.d` was changed: whatever it says now counts, and only for the repos that it says it of."""
        async with self._change:
            if not self._left:
                self._read_repos()
                self._seal()
                self._serve()

    async def specs_changed(self) -> None:
        """The CDI folder was changed."""
        async with self._change:
            if not self._left:
                self._read_specs()
                self._seal()
                await self.pool.enforce(self._enforced())

    async def enforce(self) -> None:
        """Workers and sealed folders follow the snapshot as it is at this moment."""
        async with self._change:
            if not self._left:
                self._seal()
                await self.pool.enforce(self._enforced())

    # The control socket's questions.

    async def put(self, snapshot: Snapshot) -> SnapshotAnswer:
        """Enforces the snapshot; raises Refused or NotStored, both with nothing changed, or OSError when the sealed
        folders could not follow (then it is enforced by the workers, and the operator asks again)."""
        async with self._change:
            if self._left:
                raise NotStored("another gate has just taken over here: ask again")
            current = self._stored.snapshot if self._stored else None
            retired = self._stored.retired if self._stored else ()
            reason = fence(current, retired, snapshot)
            if reason is not None:
                raise Refused(reason, _why_refused(reason, current, retired, snapshot))
            following = stored.successor(self._stored, snapshot, self.clock.mark(self._boot_id))
            try:
                stored.save(self.layout.snapshot, following)
            except OSError as error:
                message = f"the snapshot can't be stored in {self.layout.snapshot}: {error.strerror}"
                raise NotStored(message) from error
            self._stored, self._applied_at, self._problem = following, self.clock(), ""
            self._news.set()
            self._seal()
            await self.pool.enforce(self._enforced())
            if self._sealed_problem:
                raise OSError(self._sealed_problem)
            return SnapshotAnswer(
                epoch=snapshot.epoch,
                applied_at=self._applied_at,
                repos=tuple(self.statuses()),
                pending=tuple(self.pool.pending),
                running=tuple(self.pool.running),
            )

    def health(self) -> Health:
        problems = self.problems()
        if self._problem or self._sealed_problem:
            return Health(False, "; ".join(problems))
        if self._stored is None:
            problems.insert(0, "no snapshot was ever sent here: all hardware is refused until the operator sends one")
        elder = self.pool.elder
        if elder is not None and not elder.gone:
            problems.append(f"process {elder.pid}, the gate before this one, finishes what is open there")
        return Health(True, "; ".join(problems) or f"enforcing epoch {self._epoch}")

    def problems(self) -> list[str]:
        """What an operator should mend, in sentences."""
        too_old = grants.TOO_OLD if self._enforced().is_too_old(self.clock()) else ""
        found = [self._problem, self._sealed_problem, too_old, *self._folder.problems, *self._socket_problems.values()]
        return [problem for problem in (*found, *self.notes, *self.pool.problems) if problem]

    def statuses(self) -> list[RepoStatus]:
        return [self._status(served.repo) for _, served in sorted(self._served.items())]

    async def status(self, *, in_use: bool) -> GateStatus:
        """All that this gate knows; `in_use` asks every daemon for its containers."""
        found, problems = await self.pool.in_use() if in_use else ([], [])
        inventory_hash = self._inventory_hash()
        fingerprint = await self._fingerprint.current(inventory_hash)
        status = GateStatus(
            machine=self.settings.machine,
            epoch=self._epoch,
            grants=tuple(self._in_force()),
            repos=tuple(self.statuses()),
            pending=tuple(self.pool.pending),
            in_use=tuple(found) if in_use else None,
            running=tuple(self.pool.running),
            cases=tuple(self.pool.cases),
            inventory_hash=inventory_hash,
            fingerprint=fingerprint,
            workers=tuple(self.pool.workers),
            problems=(*self.problems(), *problems),
        )
        if self._stored is None:
            return status
        snapshot = self._stored.snapshot
        return status.model_copy(
            update={
                "machine_uid": snapshot.machine_uid,
                "api_id": snapshot.api_id,
                "digest": snapshot.digest,
                "applied_at": self._applied_at,
            }
        )

    def devices(self) -> DevicesAnswer:
        """The CDI folder as it is at this moment."""
        found = cdi.merge(sealed.read_specs(self.layout.cdi))
        return DevicesAnswer(devices=tuple(found.names), problems=tuple(str(problem) for problem in found.problems))

    def inventory(self) -> bytes | None:
        """The file's own bytes; None when there is none."""
        try:
            return self.layout.inventory.read_bytes()
        except FileNotFoundError:
            return None

    # What lies behind.

    @property
    def _epoch(self) -> int:
        return self._stored.snapshot.epoch if self._stored else -1

    @property
    def _machine(self) -> str:
        """The GpuMachine's name where one was told, since that is the name to write in commands."""
        return self._stored.snapshot.machine if self._stored else self.settings.machine

    def _enforced(self) -> Enforced:
        snapshot = self._stored.snapshot if self._stored else None
        return grants.of_snapshot(
            snapshot,
            self._machine,
            tuple(self._devices.names),
            self._auto_allowed,
            too_old_at=stored.too_old_at(self._stored),
            at=self.clock(),
        )

    def _in_force(self) -> list[GrantInForce]:
        """What a request would get now: nothing where the repo has a problem or its daemon is unfit or not known."""
        enforced, now = self._enforced(), self.clock()
        return [
            GrantInForce(repo=served.repo.name, device=device)
            for _, served in sorted(self._served.items())
            if self._status(served.repo).fit
            for device in sorted(enforced.granted(served.repo.name, served.repo.id, now))
        ]

    def _status(self, its: Repo) -> RepoStatus:
        """As its worker last said it, unless the repo is another one since."""
        known = self.pool.status(its.name)
        if known is not None and not its.problem and known.id == its.id:
            return known
        return RepoStatus(
            name=its.name,
            id="" if its.problem else its.id,
            sealed=known is not None and known.sealed,
            reason=grants.no_hardware_reason(its, None),
            message=grants.no_hardware(its, None),
            unseen=True,
        )

    def _inventory_hash(self) -> str:
        data = self.inventory()
        return "" if data is None else "sha256:" + hashlib.sha256(data).hexdigest()

    def _read_specs(self) -> None:
        self._specs = sealed.read_specs(self.layout.cdi)
        self._devices = cdi.merge(self._specs)
        self._auto_allowed = buildkit.auto_allowed(self._specs)

    def _read_repos(self) -> None:
        before = self._folder
        self._folder = repo.assemble(folders.read_repos(self.layout), before, self.layout)
        for problem in self._folder.problems:
            if problem not in before.problems:
                log.warning("repo file", message=problem)

    def _serve(self) -> None:
        """Makes what is served what the folder says; a repo that did not change is not touched."""
        wanted = self._folder.repos
        for name in [name for name in self._served if name not in wanted]:
            self.pool.take_away(name)
            self._close(self._served.pop(name).listener)
            log.info("repo removed", repo=name)
        self._socket_problems = {name: text for name, text in self._socket_problems.items() if name in wanted}
        for name, its in wanted.items():
            if name not in self._served or self._served[name].repo != its or name in self._socket_problems:
                self._serve_one(its)

    def _serve_one(self, its: Repo) -> None:
        before = self._served.get(its.name)
        if before is not None and _same_socket(before.repo, its):
            served = Served(its, before.listener)
            self._served[its.name] = served
            self.pool.give(served, with_socket=False)
            return
        try:
            opened = self._inherited.take(its.listen, uid=its.uid, gid=its.gid, mode=its.mode) or listener.listen(
                its.listen, uid=its.uid, gid=its.gid, mode=its.mode
            )
        except OSError as error:
            problem = f"repo {its.name} can't be served at {its.listen}: {error.strerror or error}"
            self._socket_problems[its.name] = problem
            log.error("repo socket", message=problem)
            if before is not None:
                self._keep_socket(before, problem)
            return
        self._socket_problems.pop(its.name, None)
        served = Served(its, opened)
        self._served[its.name] = served
        self.pool.give(served, with_socket=True)
        self.store.keep(opened)
        if before is not None:
            self._close(before.listener)
        log.info("repo served", repo=its.name, listen=str(its.listen))

    def _keep_socket(self, before: Served, problem: str) -> None:
        """Goes on at the old path, without hardware: the new file may mean another repo."""
        kept = Served(replace(before.repo, problem=problem), before.listener)
        self._served[kept.repo.name] = kept
        self.pool.give(kept, with_socket=False)

    def _close(self, opened: Listener) -> None:
        self.store.forget(opened)
        opened.close()

    def _seal(self) -> None:
        """Rewrites the sealed folders; a failure is kept as a problem until it is mended."""
        enforced, now = self._enforced(), self.clock()
        folders: dict[str, Mapping[str, bytes]] = {}
        for its in self._folder.repos.values():
            if its.id and its.id not in folders:
                granted = frozenset() if its.problem else enforced.granted(its.name, its.id, now)
                folders[its.id] = sealed.wanted(self._specs, granted)
        try:
            sealed.rewrite(self.layout.sealed, folders)
        except OSError as error:
            self._sealed_problem = f"the sealed folders below {self.layout.sealed} can't be written: {error}"
            log.error("sealed folders", message=self._sealed_problem)
        else:
            self._sealed_problem = ""

    async def expire(self) -> None:
        """The end of a grant's time is a revocation. Never returns."""
        await self._latch()
        while True:
            self._news.clear()
            ends = self._enforced().next_expiry(self.clock())
            pause = None if ends is None else self.clock.until(ends).total_seconds() + _EXPIRY_SLACK
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()
                continue
            await self.enforce()
            await self._latch()

    async def _latch(self) -> None:
        """What has ended by now has ended also for a gate that starts later with its clock set back."""
        async with self._change:
            if self._left or self._stored is None:
                return
            reached = self._stored.model_copy(update={"clock": self.clock.mark(self._boot_id)})
            try:
                stored.save(self.layout.snapshot, reached)
            except OSError as error:
                log.error("snapshot not stored", message=f"{self.layout.snapshot}: {error.strerror}")
            else:
                self._stored = reached


def _same_socket(before: Repo, after: Repo) -> bool:
    return (before.listen, before.uid, before.gid, before.mode) == (after.listen, after.uid, after.gid, after.mode)


def _why_refused(reason: Reason, current: Snapshot | None, retired: tuple[str, ...], incoming: Snapshot) -> str:
    held = f"this gate holds epoch {current.epoch} of {current.machine} ({current.machine_uid})" if current else "none"
    match reason:
        case Reason.STALE_EPOCH:
            return f"{held}: epoch {incoming.epoch} is older"
        case Reason.EPOCH_REUSED:
            return f"{held} with another content: epoch {incoming.epoch} was given twice"
        case _:
            said = f"{held}: a snapshot of {incoming.machine} ({incoming.machine_uid}) is not taken"
            if incoming.machine_uid in retired:
                return (
                    f"{said}, since this gate has left that machine; if it shall have the gate again: start the gate "
                    "without its snapshot.json"
                )
            # another machine is refused only where there is one
            return (
                f"{said}; if that machine shall have this gate: kubectl annotate gpumachine {incoming.machine} "
                f"{TAKE_OVER_ANNOTATION}={current.machine_uid if current else '-'}"
            )
