"""One worker process as the parent sees it: started, given its repos, looked after, replaced when it dies or hangs.

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

from gpugrant_crds.snapshot import Case, InUse, RepoStatus
from gpugrant_gate.life.grants import Enforced
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net import counters, messages
from gpugrant_gate.net.audit import log
from gpugrant_gate.net.channel import Channel, ChannelClosed, Message
from gpugrant_gate.net.counters import Counters
from gpugrant_gate.net.listener import Listener
from gpugrant_gate.net.settling import Settling
from gpugrant_gate.settings import Settings

_BACK_OFF_MOST = 5.0
"""Seconds before a worker that dies at once is started again; the first time at once."""
_SETTLE_TIMEOUT = 8.0
"""Seconds for a worker to take what is enforced and to wait for older requests (5 s of them); one that hangs is
killed, and its successor takes it."""
_START_TIMEOUT = 60.0
"""Seconds for a process to start on a machine under load."""
_LISTING_TIMEOUT = 60.0
"""Seconds for all daemons of a worker to list their containers."""
_COUNT_TIMEOUT = 1.0
"""Seconds for a worker to say its numbers; without an answer the last ones count."""

DIED = "died"
HUNG = "hung"


@dataclass(frozen=True, slots=True)
class Served:
    """A repo and the socket at which it is served."""

    repo: Repo
    listener: Listener


@dataclass(slots=True)
class Containers:
    """The answer to one question for containers in use."""

    found: list[InUse] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What all members of a pool share."""

    settings: Settings
    root: Path
    changed: Callable[[], None]
    """A repo's status is another one."""
    lines: Callable[[bytes], None]
    """Gets the lines of decisions while somebody follows them."""
    found: Callable[[Case], None] = lambda case: None
    """Gets what a sweep finds."""

    def command(self, fd: int) -> list[str]:
        # -P: the folder that the gate was started in must not be able to replace a module
        start = [sys.executable, "-P", "-m", "gpugrant_gate.net.worker", "--fd", str(fd)]
        return [*start, "--parent", str(os.getpid()), "--root", str(self.root), "--machine", self.settings.machine]


class Member:
    """One worker's place: the process in it changes, its repos stay."""

    def __init__(self, outlook: Outlook, number: int) -> None:
        self.number = number
        self.repos: dict[str, Served] = {}
        self.statuses: dict[str, RepoStatus] = {}
        self.running: dict[str, list[InUse]] = {}
        """What of each repo runs with devices, as last heard: of a process that is gone too."""
        self.settling = Settling()
        self.process: Process | None = None
        self.ready = False
        self.ends = {DIED: 0, HUNG: 0}
        """How often the process in this place had to be replaced, by cause."""
        self.connections: dict[str, int] = {}
        """Open ones by repo, when they were last counted."""
        self.left = asyncio.Event()
        """No process is in this place any more, and none will be."""
        self.trouble = ""
        """Why its audit lines can't be written."""
        self._outlook = outlook
        self._channel: Channel | None = None
        self._enforced: tuple[Enforced, int] = (Enforced(outlook.settings.machine), 0)
        self._accepts = True
        self._leaves = False
        self._follows = False
        self.why = DIED
        """Why its last process had to be replaced."""
        self._hung = False
        self._pong = asyncio.Event()
        self._paused = asyncio.Event()
        self._counted: Counters = Counters()
        self._past = Counters()
        self._listings: dict[int, asyncio.Future[Containers]] = {}
        self._counts: dict[int, asyncio.Future[None]] = {}

    async def live(self, stop: asyncio.Event) -> None:
        """Keeps a process in this place until `stop`, or until the last one has left."""
        wait = 0.0
        loop = asyncio.get_running_loop()
        while not stop.is_set() and not self._leaves:
            began = loop.time()
            await self._once()
            if stop.is_set() or self._leaves:
                break
            self.why = HUNG if self._hung else DIED
            self.ends[self.why] += 1
            wait = 0.0 if loop.time() - began > _BACK_OFF_MOST else min(max(wait * 2, 0.1), _BACK_OFF_MOST)
            log.error("worker replaced", worker=self.number, why=self.why, again_in=wait, repos=sorted(self.repos))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await stop.wait()
        self.left.set()
        await self.settling.ended()

    def enforce(self, enforced: Enforced, turn: int, within: float | None = None) -> None:
        """`within`: seconds for requests of the time before to end before they are named; None: the usual ones."""
        self._enforced = (enforced, turn)
        message = {"kind": messages.ENFORCE, "enforced": messages.write_enforced(enforced), "turn": turn}
        self._send(message if within is None else message | {"within": within})

    def give(self, served: Served, *, with_socket: bool) -> None:
        before = self.repos.get(served.repo.name)
        if before is not None and not before.repo.has_daemon_of(served.repo):
            # what was said of the old daemon does not hold for the new one
            self.statuses.pop(served.repo.name, None)
        self.repos[served.repo.name] = served
        self._send(
            {"kind": messages.REPO, "repo": messages.write_repo(served.repo)},
            [served.listener.sock.fileno()] if with_socket and self._accepts else [],
        )

    def take_away(self, name: str) -> None:
        self.repos.pop(name, None)
        self.statuses.pop(name, None)
        self.running.pop(name, None)
        self._send({"kind": messages.DROP, "name": name})

    async def has_settled(self, turn: int) -> None:
        """Returns when a process here enforces what was sent in that turn or later, and says what of the time before
        is still underway; kills one that does not."""
        while not self.settling.has(turn) and not self.left.is_set():
            try:
                async with asyncio.timeout(_SETTLE_TIMEOUT if self.ready else _START_TIMEOUT):
                    await self.settling.until(lambda: self.settling.has(turn) or self.left.is_set())
            except TimeoutError:
                self._hangs()

    async def in_use(self, turn: int) -> tuple[list[InUse], list[str]]:
        answer = self._listings[turn] = asyncio.get_running_loop().create_future()
        self._send({"kind": messages.IN_USE, "turn": turn})
        try:
            async with asyncio.timeout(_LISTING_TIMEOUT):
                listed = await answer
        except (TimeoutError, ChannelClosed):
            return [], [f"the containers of {', '.join(sorted(self.repos))} can't be listed: no answer in time"]
        finally:
            self._listings.pop(turn, None)
        return listed.found, listed.problems

    async def count(self, turn: int) -> Counters:
        """All that was counted in this place, of processes that are gone too; numbers never go down."""
        if self._channel is not None and self.ready:
            answer = self._counts[turn] = asyncio.get_running_loop().create_future()
            self._send({"kind": messages.COUNT, "turn": turn})
            try:
                async with asyncio.timeout(_COUNT_TIMEOUT):
                    await answer
            except (TimeoutError, ChannelClosed):
                pass
            finally:
                self._counts.pop(turn, None)
        total = Counters()
        total.add(self._past)
        total.add(self._counted)
        return total

    def follow(self, *, wanted: bool) -> None:
        """Has the process send its lines, or no more."""
        self._follows = wanted
        self._send({"kind": messages.FOLLOW, "wanted": wanted})

    def reopen(self) -> None:
        self._send({"kind": messages.REOPEN})

    async def pause(self, seconds: float) -> None:
        """Returns when nothing here accepts connections any more; those that come wait in the sockets."""
        self._accepts = False
        self._paused.clear()
        if self._channel is None:
            return
        self._send({"kind": messages.PAUSE})
        try:
            async with asyncio.timeout(seconds):
                await self._paused.wait()
        except TimeoutError:
            self._hangs()
            if self.process is not None:
                await self.process.wait()

    def resume(self) -> None:
        """Accepts again."""
        self._accepts = True
        for served in list(self.repos.values()):
            self.give(served, with_socket=True)

    def leave(self) -> None:
        """What is open goes on, nothing new comes, and the process ends with its last connection."""
        self._leaves = True
        self._send({"kind": messages.LEAVE})

    def stop(self) -> None:
        self._send({"kind": messages.STOP})

    def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()

    def _hangs(self) -> None:
        log.error("worker hangs", worker=self.number)
        self._hung = True
        self.kill()

    def _send(self, message: Message, fds: list[int] | None = None) -> None:
        if self._channel is not None:
            self._channel.send(message, fds or [])

    async def _once(self) -> None:
        """One process from its start to its end."""
        self._hung = False
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.process = await asyncio.create_subprocess_exec(
                *self._outlook.command(theirs.fileno()), stdin=asyncio.subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
            )
        except OSError as error:
            ours.close()
            log.error("worker can't be started", worker=self.number, error=str(error))
            return
        finally:
            theirs.close()
        channel = self._channel = Channel(ours)
        beat = asyncio.get_running_loop().create_task(self._beat())
        try:
            self._welcome()
            with suppress(ChannelClosed):
                while True:
                    message, _ = await channel.receive()
                    await self._heard(message)
        finally:
            beat.cancel()
            channel.close()
            self._channel = None
            self.kill()
            await self.process.wait()
            self.process = None
            await self._forget()

    def _welcome(self) -> None:
        """Everything for a process that has just started."""
        settings = self._outlook.settings
        self._send({"kind": messages.SETTINGS, "settings": messages.write_settings(settings)})
        self.enforce(*self._enforced)
        for served in list(self.repos.values()):
            self.give(served, with_socket=True)
        if self._follows:
            self.follow(wanted=True)

    async def _beat(self) -> None:
        """Asks the process again and again whether it still does something, and kills one that hangs."""
        limits = self._outlook.settings.limits
        while True:
            self._pong.clear()
            self._send({"kind": messages.PING})
            try:
                async with asyncio.timeout(limits.ping_timeout if self.ready else _START_TIMEOUT):
                    await self._pong.wait()
            except TimeoutError:
                self._hangs()
                return
            await asyncio.sleep(limits.ping_every)

    async def _forget(self) -> None:
        """What a dead process had underway has ended: its connections are closed."""
        self.ready = False
        self.statuses.clear()
        self.connections.clear()
        self.trouble = ""
        self._past.add(self._counted)
        self._counted = Counters()
        self._paused.set()
        for listing in self._listings.values():
            if not listing.done():
                listing.set_exception(ChannelClosed())
        for count in self._counts.values():
            if not count.done():
                count.set_exception(ChannelClosed())
        await self.settling.ended()

    async def _heard(self, message: Message) -> None:
        match message["kind"]:
            case messages.STATUS:
                status = RepoStatus.model_validate(message["status"])
                if status.name in self.repos:
                    self.statuses[status.name] = status
                    self._outlook.changed()
            case messages.CONTAINERS:
                listing = self._listings.get(message["turn"])
                if listing is not None and not listing.done():
                    found = [InUse.model_validate(entry) for entry in message["found"]]
                    listing.set_result(Containers(found, message["problems"]))
            case messages.RUNNING:
                if message["repo"] in self.repos:
                    self.running[message["repo"]] = [InUse.model_validate(entry) for entry in message["found"]]
            case messages.FOUND:
                self._outlook.found(Case.model_validate(message["case"]))
            case messages.COUNTED:
                self._counted = counters.read(message["counters"])
                self.connections = message["connections"]
                count = self._counts.get(message["turn"])
                if count is not None and not count.done():
                    count.set_result(None)
            case messages.LINES:
                self._outlook.lines(message["text"].encode())
            case messages.PONG:
                self.trouble = message["trouble"]
                self._pong.set()
            case messages.PAUSED:
                self._paused.set()
            case messages.READY:
                self.ready = True
            case messages.SETTLED:
                await self.settling.heard(message)
