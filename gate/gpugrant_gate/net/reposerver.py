"""One repo in the process that serves it: its listening socket, its sessions, and what is known of its daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gpugrant_crds.snapshot import Case, InUse, RepoStatus
from gpugrant_gate.life import buildkit, grants
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net import facts, starting, upstream
from gpugrant_gate.net.audit import log
from gpugrant_gate.net.daemon import Daemon
from gpugrant_gate.net.link import Link
from gpugrant_gate.net.listener import BACKLOG
from gpugrant_gate.net.orders import Orders
from gpugrant_gate.net.pinning import Pins
from gpugrant_gate.net.prepared import Memo, Prepared
from gpugrant_gate.net.procfs import Process
from gpugrant_gate.net.session import Session
from gpugrant_gate.net.sweeper import Sweeper
from gpugrant_gate.net.upstream import Unreachable
from gpugrant_gate.policy.model import Fact, Facts, RepoView
from gpugrant_gate.policy.pins import Pin
from gpugrant_gate.wire import messages

if TYPE_CHECKING:
    from gpugrant_gate.net.core import Core

_LAST_ACCEPTS = 1.0
"""Seconds in which a socket that another one has taken the place of still accepts."""
_LAST_BYTES = 0.3
"""Seconds for an answer that has begun to end, when the gate ends."""
_NEXT_TRY_LEAST = 0.2
"""Seconds between two looks at a daemon at the least."""
_RUNNING = quote(json.dumps({"status": ["running", "paused", "restarting"]}))


class RepoServer:
    """One repo: its listening socket, its sessions, and what is known of its daemon."""

    def __init__(self, repo: Repo, core: Core) -> None:
        self.repo = repo
        self.policy = core.world.policy
        self.limits = core.world.limits
        self.large_bodies = asyncio.Semaphore(self.limits.large_bodies)
        self._core = core
        self._daemon = self._new_daemon()
        self._server: asyncio.AbstractServer | None = None
        self._sessions: set[Session] = set()
        self._all_closed = asyncio.Event()
        self._traffic = [0, 0]
        """Bytes from clients and to them, over connections that are closed."""
        self._idle = upstream.Idle()
        self._memo = Memo()
        self._keeper: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._keep())
        self._pins = Pins(core.world.layout, self.limits)
        self._tidier: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._pins.keep(self._pinned))
        self._view: RepoView | None = None
        self._view_ends: datetime | None = None
        self._tunnels: dict[Link, frozenset[str]] = {}
        """Open builds, with the devices that were granted before the last change."""
        self._cut: set[Link] = set()
        self.sweeper: Sweeper | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._sweep()

    @property
    def name(self) -> str:
        return self.repo.name

    @property
    def daemon_pid(self) -> int:
        """Of the process that the verdict on the daemon is about; 0 while it is unknown."""
        return self._daemon.pid

    async def listen(self, listener: socket.socket) -> None:
        """Accepts on `listener` from now on, instead of the one before."""
        before = self._server
        loop = asyncio.get_running_loop()
        # with the backlog: the loop calls listen(2) again, with 100 where none is told
        self._server = await loop.create_unix_server(lambda: Link(self._accepted), sock=listener, backlog=BACKLOG)
        if before is not None:
            # nobody reaches its path any more; whoever connected just before that is still served
            loop.call_later(_LAST_ACCEPTS, before.close)

    def pause(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    @property
    def leaving(self) -> bool:
        return self._core.leaving

    @property
    def connections(self) -> int:
        return len(self._sessions)

    def traffic(self) -> list[int]:
        """Bytes from clients and to them."""
        received, sent = self._traffic
        for session in self._sessions:
            received, sent = received + session.received, sent + session.sent
        return [received, sent]

    async def leave(self) -> None:
        self.pause()
        for session in tuple(self._sessions):
            if not session.busy:
                session.close()
        self._stop_sweep()
        await self._closed_within(None)
        self._keeper.cancel()
        self._tidier.cancel()
        self._idle.close()

    def change(self, repo: Repo) -> None:
        """Another file: requests from now on follow it, open ones go on."""
        before, self.repo = self.repo, repo
        if not repo.has_daemon_of(before):
            self._sweep()
            self._idle.close()
            self._daemon = self._new_daemon()
            self._keeper.cancel()
            self._keeper = asyncio.get_running_loop().create_task(self._keep())
        self._daemon_changed()

    async def stop(self, seconds: float) -> None:
        """Accepts no more, lets requests end for `seconds`, then cuts what is left."""
        self._keeper.cancel()
        self._tidier.cancel()
        ending = {self._keeper, self._tidier, *self._stop_sweep()}
        if self._server is not None:
            self._server.close()
        for session in tuple(self._sessions):
            if not session.busy:
                session.close()
        # logs and events never end by themselves; whoever waits for an answer gets more time
        shortly = min(seconds, _LAST_BYTES)
        await self._closed_within(shortly)
        for session in tuple(self._sessions):
            if session.answered:
                session.abort()
        await self._closed_within(seconds - shortly)
        for session in tuple(self._sessions):
            session.abort()
        await self._closed_within(None)
        self._idle.close()
        # a loop that is closed under a connection that is being made may wait for it without end
        await asyncio.wait(ending)

    async def _closed_within(self, seconds: float | None) -> None:
        """Returns when no session is left, or after `seconds`."""
        self._all_closed.clear()
        if self._sessions:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._all_closed.wait()

    def status(self) -> RepoStatus:
        """As the operator sees it."""
        fitness = self._daemon.fitness
        why = grants.no_hardware(self.repo, fitness)
        return RepoStatus(
            name=self.repo.name,
            id="" if self.repo.problem else self.repo.id,
            fit=not why,
            sealed=fitness is not None and fitness.sealed,
            reason=grants.no_hardware_reason(self.repo, fitness),
            message=why or grants.warning(self.repo),
            unseen=self.sweeper is not None and self.sweeper.unseen,
            down_since=None if self.sweeper is None else self.sweeper.down_since,
            released=self.sweeper is not None and self.sweeper.absent and self._daemon.was_sealed,
        )

    async def in_use(self) -> list[InUse]:
        """Running containers of this repo that hold CDI devices; raises Unreachable."""
        await self.known()
        version = self.view().api_version
        prefix = f"/v{version}" if version else ""
        listed = await upstream.get(self.repo.upstream, f"{prefix}/containers/json?filters={_RUNNING}", self.limits)
        if listed.status != 200 or not isinstance(listed.value, list):
            raise Unreachable(f"it answered a question of the gate with status {listed.status}")
        found: list[InUse] = []
        for container in listed.value:
            inspected = await upstream.get(
                self.repo.upstream, f"{prefix}/containers/{quote(str(container['Id']), safe='')}/json", self.limits
            )
            if inspected.status == 200 and isinstance(inspected.value, dict):
                found.extend(_devices_of(self.name, inspected.value))
        return found

    # What a session asks for.

    def view(self) -> RepoView:
        core = self._core
        if self._view is None or (self._view_ends is not None and core.world.now() >= self._view_ends):
            now = core.world.now()
            self._view_ends = core.enforced.next_expiry(now)
            self._view = grants.view(self.repo, core.enforced, self._daemon.fitness, core.world.layout, now=now)
        return self._view

    def renew(self) -> None:
        """What the view was made of is another: builds that would not be let in any more end (design 5)."""
        self._daemon.recheck_seal()
        self._view = None
        for daemon, granted in tuple(self._tunnels.items()):
            view = self.view()
            self._tunnels[daemon] = view.granted
            if daemon not in self._cut and self._ends_build(granted, view):
                self._cut.add(daemon)
                daemon.abort()

    def _ends_build(self, granted: frozenset[str], view: RepoView) -> bool:
        fitness = self._daemon.fitness
        if view.unfit or view.buildkit:
            return True
        may_hold = fitness is None or (not fitness.sealed and buildkit.has_devices(fitness.builder))
        return may_hold and not granted <= view.granted

    @property
    def is_cutting(self) -> bool:
        """A build was cut and has not ended yet."""
        return bool(self._cut)

    def tunnel(self, daemon: Link) -> Callable[[], None]:
        self._tunnels[daemon] = self.view().granted

        def end() -> None:
            self._tunnels.pop(daemon, None)
            self._cut.discard(daemon)
            self._core.ended()

        return end

    async def known(self) -> None:
        daemon = self._daemon
        if not daemon.fit:
            await daemon.known()

    async def connect(self) -> Link:
        daemon = self._daemon
        try:
            link = await upstream.connect(self.repo.upstream, self.limits)
        except Unreachable:
            daemon.forget()
            raise
        daemon.answered_by(link.peer.pid)
        return link

    def is_judged(self, daemon: Link) -> bool:
        return self._daemon.is_judged(daemon.peer.pid)

    def idle(self) -> Link | None:
        return self._idle.take(self._was_judged)

    def _was_judged(self, daemon: Link) -> bool:
        """A connection that waits ends with its daemon: who listened when it was made is enough to know."""
        return self._daemon.listener != 0 and self._daemon.listener == daemon.peer.pid

    def give_back(self, daemon: Link) -> None:
        self._idle.give(daemon)

    def recall(self, head: bytes) -> Prepared | None:
        daemon = self._daemon
        is_known = daemon.fit or (daemon.fitness is not None and daemon.fitness.api_version and not daemon.is_due())
        return self._memo.find(head, self.view()) if is_known else None

    def remember(self, head: bytes, view: RepoView, prepared: Prepared) -> None:
        self._memo.keep(head, view, prepared)

    async def facts(self, wanted: tuple[Fact, ...], view: RepoView) -> Facts:
        return await facts.gather(wanted, self.repo.upstream, view, self.limits)

    async def pin(self, wanted: tuple[Pin, ...]) -> Callable[[], None]:
        return await self._pins.hold(self.repo, wanted, await self._daemon.alive())

    def removed(self) -> None:
        self._pins.look_soon()

    def _pinned(self) -> tuple[Repo, Process | None, str]:
        version = self.view().api_version
        return self.repo, self._daemon.process, f"/v{version}" if version else ""

    def begin(self, devices: tuple[str, ...]) -> Callable[[], None]:
        return self._core.begin(self.repo, devices)

    async def admit(self, container: str, devices: tuple[str, ...]) -> Callable[[], None]:
        return _nothing if self.sweeper is None else await self.sweeper.admit(container, devices)

    # What its sweep asks for.

    async def orders(self) -> Orders:
        await self._daemon.renewed()
        version = self.view().api_version
        return Orders(self.repo.upstream, f"/v{version}" if version else "", self.limits)

    def grants(self) -> Mapping[str, str] | None:
        enforced = self._core.enforced
        if enforced.epoch < 0:
            return None
        return enforced.held(self.repo.name, self.repo.id, self._core.world.now())

    def stops(self) -> bool:
        return self._core.enforced.stops

    def suspicions(self, inspected: Any) -> tuple[str, ...]:
        return self.policy.seen(inspected, self.view())

    async def start(self, container: str) -> bool:
        return await starting.start(container, self)

    def found(self, case: Case) -> None:
        self._core.world.found(case)

    def running_changed(self) -> None:
        if self.sweeper is not None:
            self._core.world.running(self.name, self.sweeper.running)

    def seen(self) -> None:
        self._core.world.changed(self.status())

    def ended(self) -> None:
        self._core.ended()

    def _sweep(self) -> None:
        """Another sweeper, for what was seen of one daemon says nothing of another."""
        self._stop_sweep()
        world = self._core.world
        if world.sweep is not None and not self.leaving:
            self.sweeper = Sweeper(self, world.sweep, now=world.now, jitter=world.jitter)
            self._sweeping = asyncio.get_running_loop().create_task(self.sweeper.run())

    def _stop_sweep(self) -> tuple[asyncio.Task[None], ...]:
        """What ends by it, in a moment."""
        ending = () if self._sweeping is None else (self._sweeping,)
        for task in ending:
            task.cancel()
        self.sweeper = self._sweeping = None
        return ending

    def _accepted(self, link: Link) -> None:
        if len(self._sessions) >= self.limits.connections:
            message = f"repo {self.name} has {self.limits.connections} open connections: close some [gate.connections]"
            link.write(messages.error(503, message))
            link.close()
            return
        self._sessions.add(Session(link, self))

    def closed(self, session: Session, fault: BaseException | None) -> None:
        self._sessions.discard(session)
        self._traffic = [self._traffic[0] + session.received, self._traffic[1] + session.sent]
        if fault is not None:
            log.error("session failed", repo=self.name, error=repr(fault))
        if not self._sessions:
            self._all_closed.set()

    def _new_daemon(self) -> Daemon:
        world = self._core.world
        return Daemon(
            self.repo,
            world.layout,
            world.limits,
            monotonic=world.monotonic,
            jitter=world.jitter,
            changed=self._daemon_changed,
        )

    def _daemon_changed(self) -> None:
        self.renew()
        self._pins.look_soon()
        self._core.world.changed(self.status())

    async def _keep(self) -> None:
        daemon = self._daemon
        while True:
            if daemon.is_due():
                with contextlib.suppress(Unreachable):
                    await daemon.ask()
            await asyncio.sleep(max(daemon.due_in(), _NEXT_TRY_LEAST))


def _nothing() -> None:
    return None


def _devices_of(repo: str, inspected: dict[str, Any]) -> Iterable[InUse]:
    requests = (inspected.get("HostConfig") or {}).get("DeviceRequests") or []
    names = sorted({str(name) for request in requests for name in request.get("DeviceIDs") or [] if "=" in str(name)})
    container = str(inspected.get("Id", ""))
    title = str(inspected.get("Name", "")).lstrip("/")
    return [InUse(repo=repo, device=name, container=container, name=title) for name in names]
