"""The repos that one process serves, under one enforced snapshot.

A snapshot is swapped in between two decisions, never during one. What was judged under the older one is known by name
until it has ended.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from gpugrant_crds.layout import Layout
from gpugrant_crds.snapshot import Case, InUse, Pending, RepoStatus
from gpugrant_gate.life.grants import Enforced
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net.reposerver import RepoServer
from gpugrant_gate.net.session import Policy
from gpugrant_gate.net.upstream import Unreachable
from gpugrant_gate.net.watched import Means
from gpugrant_gate.settings import Limits


@dataclass(frozen=True, slots=True)
class World:
    """What a core gets from outside: time, chance, paths and the policy."""

    layout: Layout
    limits: Limits
    policy: Policy
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    jitter: Callable[[], float]
    changed: Callable[[RepoStatus], None]
    """Told when a repo's status is another one."""
    sweep: Means | None = None
    """None: containers are not looked at."""
    found: Callable[[Case], None] = lambda case: None
    """Told what the sweep finds."""
    running: Callable[[str, list[InUse]], None] = lambda repo, found: None
    """Told what of a repo runs with devices when that is another."""


@dataclass(frozen=True, slots=True)
class Underway:
    """A hardware request that was admitted and has not ended."""

    repo: str
    repo_id: str
    devices: tuple[str, ...]
    epoch: int
    since: datetime


class Core:
    """All repos of this process."""

    def __init__(self, world: World, machine: str) -> None:
        self.world = world
        self.enforced = Enforced(machine)
        self.repos: dict[str, RepoServer] = {}
        self.underway: dict[int, Underway] = {}
        self.leaving = False
        """Another process serves what comes from now on; what is open here ends by itself."""
        self._tokens = 0
        self._ended = asyncio.Event()

    def apply(self, enforced: Enforced) -> None:
        """From the next decision on `enforced` counts."""
        self.enforced = enforced
        for server in self.repos.values():
            server.renew()
            if server.sweeper is not None:
                server.sweeper.renew()
        self._ended.set()

    async def serve(self, repo: Repo, listener: socket.socket | None) -> None:
        """Serves the repo, or changes how it is served; None keeps the socket that is there."""
        server = self.repos.get(repo.name)
        if server is None:
            server = self.repos[repo.name] = RepoServer(repo, self)
        else:
            server.change(repo)
        if listener is not None:
            await server.listen(listener)

    async def drop(self, name: str) -> None:
        """The repo is no longer behind this gate: its connections end."""
        server = self.repos.pop(name, None)
        if server is not None:
            await server.stop(0)

    def pause(self) -> None:
        """Accepts no more for now: connections wait in the sockets, which other processes hold open."""
        for server in self.repos.values():
            server.pause()

    async def leave(self) -> None:
        """Takes no new connection and no new request; returns when all that was open has ended."""
        self.leaving = True
        await asyncio.gather(*(server.leave() for server in self.repos.values()))

    def connections(self) -> dict[str, int]:
        """Open ones by repo."""
        return {name: server.connections for name, server in self.repos.items()}

    def traffic(self) -> dict[str, list[int]]:
        """Bytes from clients and to them, by repo."""
        return {name: server.traffic() for name, server in self.repos.items()}

    async def stop(self, seconds: float) -> None:
        """Accepts no more; what is underway has `seconds` to end."""
        servers = list(self.repos.values())
        self.repos.clear()
        await asyncio.gather(*(server.stop(seconds) for server in servers))

    def begin(self, repo: Repo, devices: tuple[str, ...]) -> Callable[[], None]:
        """Notes an admitted hardware request under the epoch of now; what comes back ends it, also twice."""
        if not devices:
            return _nothing
        self._tokens += 1
        token = self._tokens
        epoch = self.enforced.epoch
        self.underway[token] = Underway(repo.name, repo.id, devices, epoch, self.world.now())

        def end() -> None:
            if self.underway.pop(token, None) is not None:
                self._ended.set()

        return end

    def outdated(self) -> list[Underway]:
        """Requests underway that the snapshot of now would not admit."""
        now = self.world.now()
        return [
            request
            for request in self.underway.values()
            if request.epoch != self.enforced.epoch
            and not set(request.devices) <= self.enforced.granted(request.repo, request.repo_id, now)
        ]

    async def settled(self) -> None:
        """Returns when no request of an older snapshot is underway that the present one would not admit, no build
        that was cut, and a look after that has found nothing that has to end."""
        await self._until(lambda: not self.outdated() and not any(server.is_cutting for server in self.repos.values()))
        owing = [server.sweeper for server in self.repos.values() if server.sweeper and server.sweeper.owes]
        awaited = [(sweeper, sweeper.look(), sweeper.owed()) for sweeper in owing]
        await self._until(lambda: all(sweeper.paid(turn, owed) for sweeper, turn, owed in awaited))

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._ended.clear()
            await self._ended.wait()

    def pending(self) -> list[Pending]:
        """What the answer to the snapshot of now waits for, each device of a repo once."""
        requests = [
            Pending(repo=request.repo, device=device, since=request.since)
            for request in self.outdated()
            for device in request.devices
        ]
        sweepers = [server.sweeper for server in self.repos.values() if server.sweeper is not None]
        found = [*requests, *(entry for sweeper in sweepers for entry in sweeper.pending())]
        # the sweep's own comes last and counts: it may say why it takes so long
        return list({(entry.repo, entry.device): entry for entry in found}.values())

    def ended(self) -> None:
        """Something ended that `settled` may wait for."""
        self._ended.set()

    def daemon_pid(self, name: str) -> int:
        """Of the process behind the repo that was judged; 0: it is not known."""
        server = self.repos.get(name)
        return server.daemon_pid if server is not None else 0

    def statuses(self) -> list[RepoStatus]:
        return [server.status() for server in self.repos.values()]

    async def in_use(self) -> tuple[list[InUse], list[str]]:
        """Running containers that hold CDI devices, and a sentence for each daemon that could not be asked."""
        found: list[InUse] = []
        problems: list[str] = []
        for server in list(self.repos.values()):
            try:
                found.extend(await server.in_use())
            except Unreachable as error:
                problems.append(f"the containers of repo {server.name} can't be listed: {error}")
        return found, problems


def _nothing() -> None:
    return None
