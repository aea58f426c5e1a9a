"""The worker processes as the parent sees them: started, given their repos, restarted when they die.

A worker that starts again gets everything again, what is enforced first, so that it never serves a repo under less.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpugrant_crds.snapshot import InUse, Pending, RepoStatus
from gpugrant_gate.life.grants import Enforced
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net import messages
from gpugrant_gate.net.audit import log
from gpugrant_gate.net.channel import Channel, ChannelClosed, Message
from gpugrant_gate.net.listener import Listener

_BACK_OFF_MOST = 5.0
"""Seconds before a worker that dies at once is started again; the first time at once."""
_SETTLE_TIMEOUT = 8.0
"""Seconds for a worker to take what is enforced and to wait for older requests (5 s of them); one that hangs is
killed, and its successor takes it."""
_START_TIMEOUT = 60.0
"""Seconds for a process to start on a machine under load."""
_LISTING_TIMEOUT = 60.0
"""Seconds for all daemons of a worker to list their containers."""


@dataclass(frozen=True, slots=True)
class Served:
    """A repo and the socket at which it is served."""

    repo: Repo
    listener: Listener


@dataclass(slots=True)
class _Containers:
    """The answer to one question for containers in use."""

    found: list[InUse] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Member:
    """One worker's place: the process in it changes, its repos stay."""

    def __init__(self, pool: Pool, number: int) -> None:
        self.number = number
        self.repos: dict[str, Served] = {}
        self.statuses: dict[str, RepoStatus] = {}
        self.pending: list[Pending] = []
        self.process: Process | None = None
        self._pool = pool
        self._channel: Channel | None = None
        self._ready = False
        self._settled = 0
        self._news = asyncio.Condition()
        self._answers: dict[int, asyncio.Future[_Containers]] = {}

    async def live(self, stop: asyncio.Event) -> None:
        """Keeps a process in this place until `stop`."""
        wait = 0.0
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            began = loop.time()
            await self._once()
            if stop.is_set():
                return
            wait = 0.0 if loop.time() - began > _BACK_OFF_MOST else min(max(wait * 2, 0.1), _BACK_OFF_MOST)
            log.error("worker died", worker=self.number, again_in=wait)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await stop.wait()

    def enforce(self, enforced: Enforced, turn: int) -> None:
        self._send({"kind": messages.ENFORCE, "enforced": messages.write_enforced(enforced), "turn": turn})

    def give(self, served: Served, *, with_socket: bool) -> None:
        before = self.repos.get(served.repo.name)
        if before is not None and not before.repo.has_daemon_of(served.repo):
            # what was said of the old daemon does not hold for the new one
            self.statuses.pop(served.repo.name, None)
        self.repos[served.repo.name] = served
        self._send(
            {"kind": messages.REPO, "repo": messages.write_repo(served.repo)},
            [served.listener.sock] if with_socket else [],
        )

    def take_away(self, name: str) -> None:
        self.repos.pop(name, None)
        self.statuses.pop(name, None)
        self._send({"kind": messages.DROP, "name": name})

    async def has_settled(self, turn: int) -> None:
        """Returns when a process here enforces what was sent in that turn or later, and says what of the time before
        is still underway; kills one that does not."""
        while self._settled < turn:
            try:
                async with asyncio.timeout(_SETTLE_TIMEOUT if self._ready else _START_TIMEOUT):
                    await self._until(lambda: self._settled >= turn)
            except TimeoutError:
                log.error("worker hangs", worker=self.number)
                self.kill()

    async def in_use(self, turn: int) -> tuple[list[InUse], list[str]]:
        answer = self._answers[turn] = asyncio.get_running_loop().create_future()
        self._send({"kind": messages.IN_USE, "turn": turn})
        try:
            async with asyncio.timeout(_LISTING_TIMEOUT):
                listed = await answer
        except (TimeoutError, ChannelClosed):
            return [], [f"the containers of {', '.join(sorted(self.repos))} can't be listed: no answer in time"]
        finally:
            self._answers.pop(turn, None)
        return listed.found, listed.problems

    def stop(self) -> None:
        self._send({"kind": messages.STOP})

    def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()

    def _send(self, message: Message, sockets: list[socket.socket] | None = None) -> None:
        if self._channel is not None:
            self._channel.send(message, sockets or [])

    async def _once(self) -> None:
        """One process from its start to its end."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.process = await asyncio.create_subprocess_exec(
                *self._pool.command(theirs.fileno()), stdin=asyncio.subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
            )
        except OSError as error:
            ours.close()
            log.error("worker can't be started", worker=self.number, error=str(error))
            return
        finally:
            theirs.close()
        self._channel = Channel(ours)
        try:
            self._pool.welcome(self)
            with suppress(ChannelClosed):
                while True:
                    message, _ = await self._channel.receive()
                    await self._heard(message)
        finally:
            self._channel.close()
            self._channel = None
            self.kill()
            await self.process.wait()
            await self._forget()

    async def _forget(self) -> None:
        """What a dead process had underway has ended: its connections are closed."""
        self._ready = False
        self.statuses.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ChannelClosed())
        async with self._news:
            self.pending = []
            self._news.notify_all()

    async def _heard(self, message: Message) -> None:
        match message["kind"]:
            case messages.STATUS:
                status = RepoStatus.model_validate(message["status"])
                if status.name in self.repos:
                    self.statuses[status.name] = status
                    self._pool.changed()
            case messages.CONTAINERS:
                answer = self._answers.get(message["turn"])
                if answer is not None and not answer.done():
                    found = [InUse.model_validate(entry) for entry in message["found"]]
                    answer.set_result(_Containers(found, message["problems"]))
            case messages.READY:
                self._ready = True
            case messages.SETTLED if message["turn"] >= self._settled:
                async with self._news:
                    self._settled = message["turn"]
                    self.pending = [Pending.model_validate(entry) for entry in message["pending"]]
                    self._news.notify_all()

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with self._news:
            await self._news.wait_for(reached)


class Pool:
    """All workers of one gate."""

    def __init__(self, count: int, root: Path, machine: str, changed: Callable[[], None]) -> None:
        self.members = [Member(self, number) for number in range(count)]
        self.changed = changed
        self._root = root
        self._machine = machine
        self._enforced = Enforced(machine)
        self._turn = 1

    def command(self, fd: int) -> list[str]:
        # -P: the folder that the gate was started in must not be able to replace a module
        start = [sys.executable, "-P", "-m", "gpugrant_gate.net.worker", "--fd", str(fd)]
        return [*start, "--parent", str(os.getpid()), "--root", str(self._root), "--machine", self._machine]

    def welcome(self, member: Member) -> None:
        """Everything for a process that has just started."""
        member.enforce(self._enforced, self._turn)
        for served in list(member.repos.values()):
            member.give(served, with_socket=True)

    async def enforce(self, enforced: Enforced) -> None:
        """Returns when every worker decides by `enforced` and says what of the older one is still underway."""
        self._enforced = enforced
        self._turn += 1
        turn = self._turn
        for member in self.members:
            member.enforce(enforced, turn)
        await asyncio.gather(*(member.has_settled(turn) for member in self.members))

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
        return [pending for member in self.members for pending in member.pending]

    async def in_use(self) -> tuple[list[InUse], list[str]]:
        self._turn += 1
        turn = self._turn
        answers: list[Any] = await asyncio.gather(*(member.in_use(turn) for member in self.members if member.repos))
        return [entry for found, _ in answers for entry in found], [text for _, said in answers for text in said]

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

    def _holder(self, name: str) -> Member | None:
        return next((member for member in self.members if name in member.repos), None)
