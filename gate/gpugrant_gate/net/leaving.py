"""The life of a gate after its successor has taken over: it finishes what is open and follows the successor in all that
is enforced; without the successor it gives all hardware up at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from gpugrant_crds.layout import Layout
from gpugrant_gate.life import lock
from gpugrant_gate.net import messages, process
from gpugrant_gate.net.audit import log
from gpugrant_gate.net.channel import Channel, ChannelClosed
from gpugrant_gate.net.pool import Pool
from gpugrant_gate.settings import Settings

TITLE = "gpugrant-leaves"
"""What the process calls itself from now on, for whoever looks at the machine's processes."""


async def finish(pool: Pool, successor: Channel, settings: Settings, layout: Layout, stop: asyncio.Event) -> None:
    """Returns when what was open has ended, after `drain`, or at `stop`; the caller ends the workers."""
    process.rename(TITLE)
    with lock.shared(layout.leaving("gate")):
        await _finish(pool, successor, settings, stop)


async def _finish(pool: Pool, successor: Channel, settings: Settings, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    pool.leave()
    tasks = {
        loop.create_task(pool.emptied()),
        loop.create_task(_ended(stop)),
        loop.create_task(asyncio.sleep(settings.limits.drain)),
    }
    follows = loop.create_task(_follow(pool, successor, settings.machine))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*tasks, follows):
            task.cancel()


async def _ended(stop: asyncio.Event) -> None:
    await stop.wait()


async def _follow(pool: Pool, successor: Channel, machine: str) -> None:
    """What the successor enforces counts here too, and it hears of what is still underway."""
    waiting: asyncio.Task[None] | None = None
    try:
        while True:
            message, _ = await successor.receive()
            if message["kind"] != messages.ENFORCE:
                continue
            if waiting is not None:
                waiting.cancel()
            await pool.enforce(messages.read_enforced(message["enforced"]))
            _say(pool, successor, message["turn"])
            waiting = asyncio.get_running_loop().create_task(_say_nothing_pending(pool, successor, message["turn"]))
    except ChannelClosed:
        log.warning("successor gone", message="hardware requests that were underway are cut")
    except (KeyError, TypeError, ValueError) as error:
        log.error("successor not understood", error=repr(error))
        successor.close()
    finally:
        if waiting is not None:
            waiting.cancel()
    await pool.abandon(machine)


async def _say_nothing_pending(pool: Pool, successor: Channel, turn: int) -> None:
    if pool.pending:
        await pool.nothing_pending()
        _say(pool, successor, turn)


def _say(pool: Pool, successor: Channel, turn: int) -> None:
    with suppress(ChannelClosed):
        pending = [pending.to_json() for pending in pool.pending]
        successor.send({"kind": messages.SETTLED, "turn": turn, "pending": pending})
