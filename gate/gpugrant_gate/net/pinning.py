"""The pinned bind sources of one repo: held while a request needs them, kept while a container has them, then gone.

A request's places are made in the daemon's mount namespace before it is sent. What no container has any more goes at
the next look: when one was removed, and once a minute.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpugrant_crds.layout import Layout
from gpugrant_gate.life import pins
from gpugrant_gate.life.pins import Unpinned
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net import procfs, upstream
from gpugrant_gate.net.audit import log
from gpugrant_gate.net.procfs import Process
from gpugrant_gate.net.upstream import Unreachable
from gpugrant_gate.policy.model import Admission, Decision, Refusal, Violation
from gpugrant_gate.policy.pins import Pin, source
from gpugrant_gate.settings import Limits

LOOK_EVERY = 60.0
"""Seconds; containers with --rm go without a request."""


def allowed(repo: Repo, layout: Layout) -> pins.Allowed:
    """What the repo may have pinned for a daemon that comes up."""
    socket = repo.listen if "host.docker-socket" in repo.open else None
    return pins.Allowed(layout.pins / repo.id, repo.binds, socket)


class Pins:
    """All places of one repo."""

    def __init__(self, layout: Layout, limits: Limits) -> None:
        self._layout = layout
        self._limits = limits
        self._lock = asyncio.Lock()
        self._held: Counter[str] = Counter()
        """How many requests need each place."""
        self._wanted: set[str] = set()
        """Places that were held at some time since the last look began."""
        self._removed = asyncio.Event()

    async def hold(self, repo: Repo, wanted: Sequence[Pin], process: Process | None) -> Callable[[], None]:
        """Puts all of them into their places, as the daemon's process sees them; what comes back lets go.

        Raises Unpinned.
        """
        if process is None:
            raise Unpinned("bind sources can't be pinned: it is not known which process the repo's daemon is")
        places = [pin.place for pin in wanted]
        self._held.update(places)
        self._wanted.update(places)
        try:
            async with self._lock:
                await asyncio.to_thread(self._make, repo, wanted, process)
        except BaseException:
            self._held.subtract(places)
            raise
        return lambda: self._held.subtract(places)

    def _make(self, repo: Repo, wanted: Sequence[Pin], process: Process) -> None:
        file = self._layout.pin_notes(repo.id)
        noted = pins.noted(file)
        if (grown := noted.with_pins(wanted)) != noted:
            try:
                pins.note(file, grown)
            except OSError as error:
                raise Unpinned(f"bind sources can't be pinned: {file}: {error.strerror}") from error
        pins.make(wanted, process.pid)
        if procfs.find(process.pid) != process:
            raise Unpinned("the repo's daemon was replaced while bind sources were pinned for it: try again")

    async def _restore(self, repo: Repo, process: Process) -> None:
        """All noted places for a daemon that has just come up: its containers may be started by itself later."""
        noted = await asyncio.to_thread(pins.noted, self._layout.pin_notes(repo.id))
        for pin in allowed(repo, self._layout).pins(noted):
            try:
                (await self.hold(repo, [pin], process))()
            except Unpinned as fault:
                log.warning("bind source not pinned", repo=repo.name, source=pin.source, message=str(fault))

    async def keep(self, known: Callable[[], tuple[Repo, Process | None, str]]) -> None:
        """Makes places for each daemon that comes up, and takes them away after its containers; never ends.

        `known`: the repo as it is now, its daemon's process and the prefix of requests to it.
        """
        made_for: Process | None = None
        while True:
            await self._looked()
            repo, process, prefix = known()
            if not repo.id or process is None:
                continue
            if process != made_for:
                made_for = process
                await self._restore(repo, process)
            with suppress(Unreachable):
                await self._tidy(repo, prefix, process)

    def look_soon(self) -> None:
        """A container was removed, or a daemon came."""
        self._removed.set()

    async def _looked(self) -> None:
        """Returns when it is time for another look."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY):
                await self._removed.wait()
        self._removed.clear()

    async def _tidy(self, repo: Repo, prefix: str, process: Process) -> None:
        """Takes away what no container of the daemon has; raises Unreachable."""
        folder = self._layout.pins / repo.id
        self._wanted = {name for name, count in self._held.items() if count > 0}
        there = await asyncio.to_thread(pins.placed, folder, process.pid)
        noted = await asyncio.to_thread(pins.noted, self._layout.pin_notes(repo.id))
        if not there and noted == pins.Noted():
            return
        listed = await upstream.get(repo.upstream, f"{prefix}/containers/json?all=1", self._limits)
        if listed.status != 200 or not isinstance(listed.value, list):
            raise Unreachable(f"it answered a question of the gate with status {listed.status}")
        used = frozenset(_sources(listed.value))
        async with self._lock:
            kept = used | self._wanted
            await asyncio.to_thread(self._drop, repo, folder, there - kept, kept, process)

    def _drop(self, repo: Repo, folder: Path, places: Iterable[str], kept: frozenset[str], process: Process) -> None:
        try:
            pins.clear(tuple(places), process.pid)
            file = self._layout.pin_notes(repo.id)
            noted = pins.noted(file)
            left = noted.only({found for name in kept if (found := source(str(folder), name)) is not None})
            if left != noted:
                pins.note(file, left)
        except OSError as error:
            log.error("pinned bind sources stay", repo=repo.name, message=str(error))


async def judged(
    judge: Callable[[], Awaitable[Decision]], pin: Callable[[tuple[Pin, ...]], Awaitable[Callable[[], None]]]
) -> tuple[Decision, Callable[[], None]]:
    """The decision, and what lets go of the bind sources that it wants pinned; they are, when this returns."""
    decision = await judge()
    if isinstance(decision, Refusal) or not decision.pins:
        return decision, _nothing
    pinned = frozenset(decision.pins)
    try:
        let_go = await pin(decision.pins)
    except Unpinned as fault:
        return _refused(decision.route, str(fault)), _nothing
    try:
        # the pinning took its time: what was judged before it may be another thing now
        decision = await judge()
        if isinstance(decision, Admission) and not pinned.issuperset(decision.pins):
            decision = _refused(decision.route, "the bind sources changed while they were judged: try again")
    except BaseException:
        let_go()
        raise
    if isinstance(decision, Refusal):
        let_go()
        return decision, _nothing
    return decision, let_go


def _refused(route: str, message: str) -> Refusal:
    return Refusal(403, (Violation("host.binds", message),), route)


def _nothing() -> None:
    return None


def _sources(listed: list[Any]) -> Iterator[str]:
    for container in listed:
        for mount in (container.get("Mounts") if isinstance(container, dict) else None) or ():
            if isinstance(mount, dict):
                yield str(mount.get("Source", ""))
