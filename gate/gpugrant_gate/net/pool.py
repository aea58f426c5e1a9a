"""All workers of one gate, and the older gate that still finishes beside them: what is enforced is enforced by all."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gpugrant_crds.snapshot import Case, InUse, Pending, RepoStatus, WorkerStatus
from gpugrant_gate.life.grants import Enforced
from gpugrant_gate.net.counters import Counters
from gpugrant_gate.net.elder import Elder
from gpugrant_gate.net.member import DIED, HUNG, Member, Outlook, Served
from gpugrant_gate.settings import Settings

CASES_MOST = 64
_PAUSE_TIMEOUT = 5.0
"""Seconds for a worker to stop accepting."""


class Pool:
    """The workers."""

    def __init__(self, settings: Settings, root: Path, lines: Callable[[bytes], None]) -> None:
        self.cases: deque[Case] = deque(maxlen=CASES_MOST)
        """The latest that sweeps found."""
        outlook = Outlook(settings, root, lambda: None, lines, self.cases.append)
        self.members = [Member(outlook, number) for number in range(settings.workers)]
        self.elder: Elder | None = None
        self._elder_lives: asyncio.Task[None] | None = None
        self._turn = 0

    async def live(self, stop: asyncio.Event) -> None:
        """Keeps the workers running until `stop`, or until the last one has left."""
        await asyncio.gather(*(member.live(stop) for member in self.members))

    async def started(self) -> None:
        """Returns when every worker has started and says so; one that can't start is tried for a minute."""
        await asyncio.gather(*(member.has_settled(0) for member in self.members))

    def adopt(self, elder: Elder) -> None:
        """From now on the older gate follows what is enforced here."""
        self.elder = elder
        self._elder_lives = asyncio.get_running_loop().create_task(elder.live())

    def announce(self, enforced: Enforced, *, within: float | None = None) -> int:
        """From here on all decide by `enforced`, before anything else that they are sent; the turn to wait for."""
        self._turn += 1
        for one in self._all():
            one.enforce(enforced, self._turn, within)
        return self._turn

    async def settled(self, turn: int) -> None:
        """Returns when all decide by what was announced and say what of the older one is still underway."""
        await asyncio.gather(*(one.has_settled(turn) for one in self._all()))

    async def enforce(self, enforced: Enforced) -> None:
        await self.settled(self.announce(enforced))

    def give(self, served: Served, *, with_socket: bool) -> None:
        """To the worker that has it, else to the one with the fewest repos."""
        holder = self._holder(served.repo.name) or min(self.members, key=lambda member: len(member.repos))
        holder.give(served, with_socket=with_socket)

    def take_away(self, name: str) -> None:
        holder = self._holder(name)
        if holder is not None:
            holder.take_away(name)

    def status(self, name: str) -> RepoStatus | None:
        holder = self._holder(name)
        return holder.statuses.get(name) if holder is not None else None

    @property
    def pending(self) -> list[Pending]:
        return [pending for one in self._all() for pending in one.settling.pending]

    @property
    def running(self) -> list[InUse]:
        """What runs with devices, as the daemons were last looked at."""
        return [entry for member in self.members for _, found in sorted(member.running.items()) for entry in found]

    @property
    def problems(self) -> list[str]:
        """What is wrong with the workers now, in sentences."""
        starting = [
            f"worker {member.number} {member.why} and is being started again: {', '.join(sorted(member.repos))} wait"
            for member in self.members
            if member.repos and not member.ready and sum(member.ends.values())
        ]
        troubles = sorted({member.trouble for member in self.members if member.trouble})
        return [*starting, *(f"audit lines wait, and are lost when there are too many: {text}" for text in troubles)]

    @property
    def workers(self) -> list[WorkerStatus]:
        return [
            WorkerStatus(
                number=member.number,
                pid=member.process.pid if member.process is not None else 0,
                repos=tuple(sorted(member.repos)),
                died=member.ends[DIED],
                hung=member.ends[HUNG],
            )
            for member in self.members
        ]

    async def in_use(self) -> tuple[list[InUse], list[str]]:
        self._turn += 1
        answers = await asyncio.gather(*(member.in_use(self._turn) for member in self.members if member.repos))
        return [entry for found, _ in answers for entry in found], [text for _, said in answers for text in said]

    async def count(self) -> Counters:
        """The sum over all workers."""
        self._turn += 1
        total = Counters()
        for part in await asyncio.gather(*(member.count(self._turn) for member in self.members)):
            total.add(part)
        return total

    def connections(self) -> dict[str, int]:
        """Open ones by repo, as last counted."""
        return {name: count for member in self.members for name, count in member.connections.items()}

    def follow(self, *, wanted: bool) -> None:
        for member in self.members:
            member.follow(wanted=wanted)

    def reopen(self) -> None:
        """The audit file was put aside."""
        for member in self.members:
            member.reopen()

    # The end.

    async def pause(self) -> None:
        """Returns when no worker accepts connections any more."""
        await asyncio.gather(*(member.pause(_PAUSE_TIMEOUT) for member in self.members))

    def resume(self) -> None:
        for member in self.members:
            member.resume()

    def leave(self) -> None:
        """What is open goes on, and each worker ends with its last connection."""
        for member in self.members:
            member.leave()

    async def emptied(self) -> None:
        """Returns when every worker has left, and the older gate has ended."""
        await asyncio.gather(*(member.left.wait() for member in self.members))
        if self.elder is not None:
            await self.elder.ended.wait()

    async def nothing_pending(self) -> None:
        await asyncio.gather(*(one.settling.until(_nothing_pending(one)) for one in self._all()))

    async def abandon(self, machine: str) -> None:
        """No hardware any more, at once: a worker that still has some underway is killed."""
        await self.settled(self.announce(Enforced(machine), within=0))
        for member in self.members:
            if member.settling.pending:
                member.kill()

    async def stop(self, seconds: float) -> None:
        """Ends all workers, within `seconds`."""
        for member in self.members:
            member.stop()
        running = [member.process for member in self.members if member.process is not None]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(process.wait() for process in running))
        for member in self.members:
            member.kill()
        if self._elder_lives is not None:
            self._elder_lives.cancel()

    def _elder(self) -> Elder | None:
        if self.elder is not None and self.elder.gone:
            self.elder = None
        return self.elder

    def _all(self) -> list[Member | Elder]:
        elder = self._elder()
        return [*self.members, *([] if elder is None else [elder])]

    def _holder(self, name: str) -> Member | None:
        return next((member for member in self.members if name in member.repos), None)


def _nothing_pending(one: Member | Elder) -> Callable[[], bool]:
    return lambda: not one.settling.pending
