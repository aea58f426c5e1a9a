"""The sweep of one repo: looks at the containers that hold hardware and brings those to an end that may not (design 5).

Events are hints, for a daemon drops them for a slow reader: they say what to look at. Lists say what there is: when the
daemon is back, when a grant goes, and every minute. What to do is decided by `life.sweep`, on what was just seen.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import Case, InUse, Pending
from gpugrant_gate.life import sweep
from gpugrant_gate.life.admitted import Book, Ledger, Unwritable
from gpugrant_gate.life.sweep import Seen, Standing, Step, Why
from gpugrant_gate.net import procfs
from gpugrant_gate.net.audit import log
from gpugrant_gate.net.orders import Orders
from gpugrant_gate.net.upstream import Unreachable
from gpugrant_gate.net.watched import Means, Watched

_RETRY = 0.4
"""Seconds until a silent daemon is tried again: what it starts at its boot has to be found within 2 s of its answer."""
_LIST_EVERY = 60.0
_SURVIVORS_EVERY = 2.0
"""Seconds between two looks for processes of containers whose daemon is gone."""
_AGAIN = 1.0
"""Seconds until what could not be done is tried again."""
_STUCK_EVERY = 5.0
"""Seconds between two tries to end a container that survives being killed."""
_GRACE = 10
"""Seconds for a container whose grant was taken away to end by itself; Docker's own default."""
_TRIES = 6
"""Looks at a container that is changed by somebody else all the time, before it comes up again later."""


@dataclass(slots=True)
class _End:
    """A container on its way to its end."""

    devices: tuple[str, ...]
    since: datetime
    stuck: str = ""


@dataclass(slots=True)
class _Wanted:
    """What is to be looked at next. `turn` counts whole lists."""

    asked: int = 0
    done: int = 0
    ids: set[str] = field(default_factory=set)


class Sweeper:
    """One repo's. `run` it as long as the repo is served."""

    def __init__(
        self, watched: Watched, means: Means, *, now: Callable[[], datetime], jitter: Callable[[], float]
    ) -> None:
        self.running: list[InUse] = []
        """Containers that hold devices, as last seen."""
        self.unseen = True
        self.down_since: datetime | None = None
        """Its daemon has not answered since then; None: it does, or was not asked yet."""
        self.absent = False
        """Nobody listens for it and none of its containers has a process; else what it runs is not known."""
        self._survivors_due = 0.0
        self.starting: dict[str, int] = {}
        """Containers whose start is on its way, with how many times."""
        self._watched = watched
        self._means = means
        self._now = now
        self._jitter = jitter
        self._book = Book(means.folder, watched.repo.name, watched.repo.id, means.enforced)
        self._ledger = self._book.read()
        self._write = asyncio.Lock()
        self._wanted = _Wanted()
        self._news = asyncio.Event()
        self._plain: set[str] = set()
        """Containers without any hardware; that never changes."""
        self._held: dict[str, Seen] = {}
        self._ends: dict[str, _End] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: set[tuple[str, ...]] = set()
        self._owed: dict[str, datetime] = {}
        self._before = watched.grants()
        self._stopped = watched.stops()
        self._inspects = asyncio.Semaphore(4)

    # What the repo's server asks.

    async def run(self) -> None:
        """Never returns."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen())
                group.create_task(self._work())
        finally:
            tasks = tuple(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def renew(self) -> None:
        """What is granted may be less: what was lost is owed, until a look has found it gone or allowed."""
        granted, stops = self._watched.grants(), self._watched.stops()
        lost = set(self._before or ()) - set(granted or ())
        for device in sorted(lost):
            self._owed.setdefault(device, self._now())
        first = self._before is None and granted is not None
        # what ran without a grant and has one now is taken into the ledger
        gained = set(granted or ()) - set(self._before or ())
        adopted = any(gained.intersection(seen.devices) for seen in self._held.values())
        if lost or first or adopted or stops != self._stopped:
            self.look()
        self._before, self._stopped = granted, stops

    def look(self, container: str = "") -> int:
        """Has all looked at, or one; the turn of the list that answers."""
        if container:
            self._wanted.ids.add(container)
        else:
            self._wanted.asked += 1
        self._news.set()
        return self._wanted.asked

    @property
    def owes(self) -> bool:
        return bool(self._owed)

    def owed(self) -> frozenset[str]:
        return frozenset(self._owed)

    def paid(self, turn: int, devices: frozenset[str]) -> bool:
        """Whether the look of that turn has ended and with it what it found; then the devices are owed no more."""
        if self._wanted.done < turn or any(set(end.devices) & devices for end in self._ends.values()):
            return False
        for device in devices:
            self._owed.pop(device, None)
        return True

    def pending(self) -> list[Pending]:
        """What stands against the answer to the snapshot that took it away."""
        repo = self._watched.repo.name
        found = {device: Pending(repo=repo, device=device, since=since) for device, since in sorted(self._owed.items())}
        for end in self._ends.values():
            reason = str(Reason.REVOKE_STUCK) if end.stuck else ""
            for device in end.devices:
                if reason or device not in found:
                    found[device] = Pending(repo=repo, device=device, since=end.since, reason=reason, message=end.stuck)
        return list(found.values())

    async def admit(self, container: str, devices: tuple[str, ...]) -> Callable[[], None]:
        """Notes a start before it goes on; what comes back says that it has ended. Raises Unwritable."""
        grants = self._watched.grants() or {}
        held = {device: grants.get(device, "") for device in devices}
        self.starting[container] = self.starting.get(container, 0) + 1

        def ended() -> None:
            left = self.starting.pop(container, 0) - 1
            if left > 0:
                self.starting[container] = left
            self.look(container)

        try:
            await self._change(lambda ledger: ledger.admit(container, held))
        except BaseException:
            ended()
            raise
        return ended

    # The two halves: what is heard, and what is done.

    async def _listen(self) -> None:
        """Subscribes, then lists: nothing that happens between the two is missed."""
        while True:
            try:
                orders = await self._watched.orders()
                async with contextlib.aclosing(orders.events()) as heard:
                    async for container in heard:
                        self._answered()
                        if container not in self._plain:
                            self.look(container)
            except Unreachable as error:
                await self._silent(error)
            if self.unseen:
                self.look()  # a daemon that is not there has nothing that runs, and that is known then
            await asyncio.sleep(_RETRY * (0.75 + self._jitter() / 2))

    async def _work(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LIST_EVERY * (0.9 + self._jitter() / 5)):
                    await self._news.wait()
            if not self._news.is_set():
                self._wanted.asked += 1
            self._news.clear()
            turn, ids = self._wanted.asked, self._wanted.ids
            self._wanted.ids = set()
            known = self._watched.grants() is not None
            try:
                if known:
                    await self._look_at(None if turn > self._wanted.done else ids)
                    self._answered()
            except Unreachable as error:
                await self._silent(error)
                if isinstance(error.__cause__, TimeoutError):
                    # it is there and does not answer: what it runs is not known
                    asyncio.get_running_loop().call_later(_AGAIN, self.look)
                    continue
            except Unwritable as error:
                log.error("admitted ledger", repo=self._watched.repo.name, message=str(error))
            self._wanted.done = max(self._wanted.done, turn)
            if known:
                self._seen_all()
            self._watched.ended()

    def _answered(self) -> None:
        if self.down_since is not None:
            self.down_since, self.absent = None, False
            self._watched.seen()

    async def _silent(self, error: Unreachable) -> None:
        absent = isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError)
        if absent and not self.absent:
            absent = not await self._survivors()
        if self.down_since is None or absent != self.absent:
            self.down_since, self.absent = self.down_since or self._now(), absent
            self._watched.seen()

    async def _survivors(self) -> bool:
        """Whether containers run on without their daemon, as after a kill; those that this process never saw are told
        of too."""
        now = asyncio.get_running_loop().time()
        if now < self._survivors_due:
            return True
        self._survivors_due = now + _SURVIVORS_EVERY
        noted = self._ledger.of(self._watched.repo.id).containers
        known = {use.container for use in self.running} | set(noted)
        found = await asyncio.to_thread(procfs.survivors, known)
        repo, seen = self._watched.repo.name, {use.container for use in self.running}
        unseen = [
            InUse(repo=repo, device=device, container=container)
            for container in sorted(found - seen)
            for device in sorted(noted[container].devices)
        ]
        if unseen:
            self.running = [*self.running, *unseen]
            self._watched.running_changed()
        return bool(found)

    def _seen_all(self) -> None:
        if self.unseen:
            self.unseen = False
            self._watched.seen()

    async def _look_at(self, ids: set[str] | None) -> None:
        """Looks at these containers, None: at all, and does what has to be done."""
        orders = await self._watched.orders()
        present = None if ids is not None else set(await orders.ids())
        if present is not None:
            self._plain &= present
            self._told = {mark for mark in self._told if mark[1] in present}
            for gone in set(self._held) - present:
                del self._held[gone]
        wanted = sorted((present if present is not None else ids or set()) - self._plain)
        found = [seen for seen in await asyncio.gather(*(self._inspect(orders, id_) for id_ in wanted)) if seen]
        await self._baseline(found, whole=present is not None)
        await asyncio.gather(*(self._deal_with(orders, seen) for seen in found))
        grants = self._watched.grants() or {}
        held = [self._held[seen.id] for seen in found if seen.id in self._held]
        await self._change(lambda ledger: sweep.followed(ledger, held, present, grants, self.starting))
        self._note_running()

    async def _inspect(self, orders: Orders, container: str) -> Seen | None:
        """None: it is gone, or has no hardware."""
        async with self._inspects, self._means.inspects:
            inspected = await orders.inspect(container)
        if inspected is None:
            self._held.pop(container, None)
            return None
        seen = sweep.read(inspected, self._watched.suspicions(inspected))
        if seen is None or not seen.holds:
            self._plain.add(container)
            self._held.pop(container, None)
            return None
        self._held[container] = seen
        return seen

    async def _baseline(self, found: list[Seen], *, whole: bool) -> None:
        """A repo in which nothing runs that was not granted has no past to be spared any more."""
        if whole and not self._ledger.enforced and self._means.enforces:
            granted = self._watched.grants() or {}
            if sweep.clean(found, granted):
                await self._change(lambda ledger: Ledger(ledger.repo_id, enforced=True, containers=ledger.containers))

    async def _deal_with(self, orders: Orders, seen: Seen) -> None:
        """One container, until nothing is left to be done or it is on its way to its end."""
        for _ in range(_TRIES):
            step = sweep.decide(seen, self._standing())
            self._tell(seen, step)
            if step.start:
                self._in_background(self._start_left(seen))
            if not step.acts or seen.id in self._ends:
                return
            if step.calm:
                await orders.stop(seen.id, 0)
            if step.disarm:
                await orders.no_restarts(seen.id)
            if step.end:
                self._ends[seen.id] = _End(step.lacking, self._now())
                self._in_background(self._end(orders, seen, step))
            again = await self._inspect(orders, seen.id)
            if step.disarm and (again is None or again.policy != seen.policy):
                self._case(Reason.RESTART_POLICY_REMOVED, seen, step, f"its restart policy {seen.policy} is gone")
            if again is None or step.end:
                return
            if step.why is Why.REVOKED and again.started_at != seen.started_at and seen.state != sweep.RESTARTING:
                await self._bind(seen)
            seen = again
        asyncio.get_running_loop().call_later(_STUCK_EVERY, self.look, seen.id)

    async def _bind(self, seen: Seen) -> None:
        """The run that was seen is the one that may outlive its grant, and no later one."""
        grants = self._watched.grants() or {}
        await self._change(lambda ledger: sweep.followed(ledger, [seen], None, grants, ()))

    async def _end(self, orders: Orders, seen: Seen, step: Step) -> None:
        """Stops it, by force where it must be, and goes on until it is gone."""
        end = self._ends[seen.id]
        try:
            while True:
                with contextlib.suppress(Unreachable):
                    await orders.stop(seen.id, _GRACE if step.why is Why.REVOKED and not end.stuck else 0)
                    if (again := await self._inspect(orders, seen.id)) is not None and again.alive:
                        await orders.kill(seen.id)
                        again = await self._inspect(orders, seen.id)
                    if again is None or not again.alive:
                        self._case(Reason.CONTAINER_STOPPED, seen, step, "it was stopped")
                        return
                    if not end.stuck:
                        end.stuck = f"container {_shown(seen)} of repo {self._watched.repo.name} survives being killed"
                        self._case(Reason.REVOKE_STUCK, seen, step, "it survives being killed")
                        self._watched.ended()
                if not self._may_not(seen):
                    return
                await asyncio.sleep(_STUCK_EVERY if end.stuck else _AGAIN)
                if await self._is_gone(seen.id):
                    return
        finally:
            self._ends.pop(seen.id, None)
            self.look(seen.id)
            self._watched.ended()

    async def _is_gone(self, container: str) -> bool:
        """Whether there is no such container, or no daemon that could tell of one."""
        try:
            return await self._inspect(await self._watched.orders(), container) is None
        except Unreachable as error:
            return not isinstance(error.__cause__, TimeoutError)

    def _may_not(self, seen: Seen) -> bool:
        return sweep.decide(self._held.get(seen.id, seen), self._standing()).end

    async def _start_left(self, seen: Seen) -> None:
        """Once for each time that its daemon could not."""
        mark = ("start", seen.id, seen.started_at, seen.error)
        if mark in self._told:
            return
        self._told.add(mark)
        with contextlib.suppress(Unreachable):
            if await self._watched.start(seen.id):
                self._case(Reason.CONTAINER_STARTED, seen, Step(), "its daemon could not start it at boot")

    # Small things.

    def _standing(self) -> Standing:
        granted = frozenset(self._watched.grants() or ())
        return Standing(granted, self._ledger, self._watched.stops(), self._means.enforces)

    async def _change(self, how: Callable[[Ledger], Ledger]) -> None:
        """The ledger in memory and on disk."""
        async with self._write:
            if how(self._ledger) != self._ledger:
                self._ledger = await asyncio.to_thread(self._book.change, how, self._ledger)

    def _note_running(self) -> None:
        running = [
            InUse(repo=self._watched.repo.name, device=device, container=seen.id, name=seen.name)
            for seen in sorted(self._held.values(), key=lambda seen: seen.id)
            if seen.alive
            for device in seen.devices
        ]
        if running != self.running:
            self.running = running
            self._watched.running_changed()

    def _tell(self, seen: Seen, step: Step) -> None:
        """Each run of a container is told of once."""
        mark = ("tell", seen.id, seen.started_at, *step.lacking)
        if not step.tell or mark in self._told:
            return
        self._told.add(mark)
        what = "; ".join((*(f"{name} is not granted" for name in step.lacking), *seen.foreign, *seen.suspect))
        self._case(Reason.UNGRANTED_DEVICE_IN_USE, seen, step, f"it runs with hardware that it may not have: {what}")

    def _case(self, reason: Reason, seen: Seen, step: Step, what: str) -> None:
        repo = self._watched.repo.name
        why = f"; {', '.join(step.lacking) or 'hardware'}: {step.why.value}" if step.why is not None else ""
        self._watched.found(
            Case(
                reason=str(reason),
                repo=repo,
                container=seen.id,
                name=seen.name,
                devices=step.lacking or seen.devices,
                message=f"container {_shown(seen)} of repo {repo}: {what}{why}",
                time=self._now(),
            )
        )

    def _in_background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _shown(seen: Seen) -> str:
    return f"{seen.name} ({seen.id[:12]})" if seen.name else seen.id[:12]
