"""The time in which a process is the gate of its root: from getting the lock to the end, or to a successor."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpugrant_crds.layout import Layout
from gpugrant_gate.life import lock
from gpugrant_gate.life.clock import Clock
from gpugrant_gate.net import audit, doors, folders, handover
from gpugrant_gate.net.channel import Channel
from gpugrant_gate.net.control import Control
from gpugrant_gate.net.doors import Doors
from gpugrant_gate.net.fdstore import Store
from gpugrant_gate.net.feed import Feed
from gpugrant_gate.net.gate import Gate
from gpugrant_gate.net.handover import Estate, NotGiven
from gpugrant_gate.net.listener import Found, Inherited
from gpugrant_gate.net.pool import Pool
from gpugrant_gate.settings import Settings

_READY_TIMEOUT = 75.0
"""Seconds for a successor to start its workers."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Means:
    """What the process was started with: sockets of an earlier gate, and where to have them kept."""

    kept: Sequence[Found]
    notify: str


async def begin(
    settings: Settings, layout: Layout, pool: Pool, feed: Feed, clock: Clock, means: Means, stop: asyncio.Event
) -> Channel | None:
    """Serves until `stop` (None), or until another gate has taken over, to which the channel leads.

    Raises lock.Held with a sentence, OSError.
    """
    estate = await _obtain(layout, pool, clock)
    try:
        if estate.not_before is not None:
            clock.not_before(estate.not_before)
        store = Store(means.notify or estate.notify)
        gate = Gate(settings, layout, clock, pool, store, Inherited([*means.kept, *estate.listeners]))
        await gate.start()
        control = Control(gate, feed, clock())
        feed.follow = lambda wanted: pool.follow(wanted=wanted)
        _reopen_on_hangup(pool, stop)
        if estate.elder is not None:
            pool.adopt(estate.elder)
        async with doors.opened(gate, control, estate) as entrances, asyncio.TaskGroup() as group:
            over = asyncio.Event()  # not `stop`: a watch that is cancelled sets its event
            serving = group.create_task(gate.serve())
            tasks = [
                serving,
                group.create_task(gate.expire()),
                group.create_task(folders.watch(layout.repos, gate.repos_changed, over)),
                group.create_task(folders.watch(layout.cdi, gate.specs_changed, over)),
            ]
            store.say_ready()
            audit.log.info("gate started", machine=settings.machine, workers=settings.workers, root=str(layout.root))
            await _first(serving, stop)
            successor = await _until_succeeded(gate, control, entrances, estate.lock, stop)
            for task in tasks:
                task.cancel()
            feed.close()
            if successor is None:
                gate.close()
            return successor
    finally:
        os.close(estate.lock)


async def _obtain(layout: Layout, pool: Pool, clock: Clock) -> Estate:
    """The lock, and from a gate that has it all the rest; raises lock.Held, OSError."""
    path = layout.lock("gate")
    try:
        return Estate(lock.take(path, clock()))
    except lock.Held as held:
        try:
            channel = await handover.ask(layout.control("gate"))
            older = handover.peer_pid(channel)
            # its clients wait while nobody serves: everything that takes time comes first
            await pool.started()
            estate = await handover.receive(channel, older)
        except NotGiven as refused:
            raise lock.Held(f"{held}, and {refused}") from refused
    lock.sign(estate.lock, clock())
    audit.log.info("gate taken over", older=older)
    return estate


async def _until_succeeded(
    gate: Gate, control: Control, entrances: Doors, held: int, stop: asyncio.Event
) -> Channel | None:
    while True:
        channel = await _first(control.successors.get(), stop)
        if channel is None:
            return None
        if await _hands_over(gate, channel, entrances, held, stop):
            audit.log.info("gate handed over", message="what is open here is finished")
            return channel
        channel.close()
        audit.log.warning("gate not handed over", message="the gate that asked for it has gone")


async def _hands_over(gate: Gate, channel: Channel, entrances: Doors, held: int, stop: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(_READY_TIMEOUT):
            if not await _first(handover.ready(channel), stop):
                return False
    except TimeoutError:
        return False
    await entrances.shut()
    if await gate.hand_over(channel, held, entrances.control, entrances.port):
        entrances.give_away()
        return True
    await entrances.open()
    return False


async def _first(awaited: Awaitable[T], stop: asyncio.Event) -> T | None:
    """What is awaited, or None at `stop`."""
    wanted = asyncio.ensure_future(awaited)
    told = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((wanted, told), return_when=asyncio.FIRST_COMPLETED)
        return wanted.result() if wanted.done() else None
    finally:
        told.cancel()
        if not wanted.done():
            wanted.cancel()


def _reopen_on_hangup(pool: Pool, stop: asyncio.Event) -> None:
    """SIGHUP: the audit file was put aside; from the terminal that the gate runs in it is the end, as ever."""
    act = stop.set if os.isatty(2) else pool.reopen
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, act)
