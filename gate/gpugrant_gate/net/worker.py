"""A worker process: the repos that its parent gives it. It holds no file and decides nothing but requests.

When the parent is gone, so is the worker: a gate without its snapshot's keeper must not go on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path

import uvloop

from gpugrant_crds.layout import Layout
from gpugrant_crds.snapshot import Case, InUse, RepoStatus
from gpugrant_gate.life.clock import Clock
from gpugrant_gate.net import audit, messages, process
from gpugrant_gate.net.channel import Channel, ChannelClosed, Message
from gpugrant_gate.net.core import Core, World
from gpugrant_gate.net.judgement import Judgement
from gpugrant_gate.net.session import Policy
from gpugrant_gate.net.watched import Means
from gpugrant_gate.settings import Limits

_SAY_EVERY = 1.0
"""Seconds between two looks at what an answer waits for that was given already."""
_LINES_WAIT_MAX = 1024 * 1024
"""Bytes that the parent has not read yet, above which decisions are not copied to it: they are in the audit anyway."""


class Worker:
    """Does what the parent says, in order."""

    def __init__(self, channel: Channel, core: Core, limits: Limits, clock: Clock) -> None:
        self._channel = channel
        self._core = core
        self._limits = limits
        self._clock = clock
        self._trail = audit.trail()
        self._waits: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Returns when told to stop, when the last connection of one that leaves has ended, or without its parent."""
        self._channel.send({"kind": messages.READY})
        with suppress(ChannelClosed):
            while True:
                message, fds = await self._channel.receive()
                if message["kind"] == messages.STOP:
                    await self._core.stop(self._limits.stop_timeout)
                    return
                await self._obey(message, fds)
        await self._core.stop(0)

    async def _obey(self, message: Message, fds: list[int]) -> None:
        match message["kind"]:
            case messages.ENFORCE:
                enforced = messages.read_enforced(message["enforced"])
                if enforced.at is not None:
                    self._clock.not_before(enforced.at)
                self._core.apply(enforced)
                self._start(self._settled(message["turn"], message.get("within", self._limits.pending_timeout)))
            case messages.REPO:
                opened = socket.socket(fileno=fds[0]) if fds else None
                await self._core.serve(messages.read_repo(message["repo"]), opened)
            case messages.DROP:
                await self._core.drop(message["name"])
            case messages.IN_USE:
                self._start(self._in_use(message["turn"]))
            case messages.COUNT:
                self._count(message["turn"])
            case messages.FOLLOW:
                self._trail.follower = self._copy if message["wanted"] else None
            case messages.REOPEN:
                self._trail.outlet.reopen()
            case messages.PING:
                self._channel.send({"kind": messages.PONG, "trouble": self._trail.outlet.trouble})
            case messages.PAUSE:
                self._core.pause()
                self._channel.send({"kind": messages.PAUSED})
            case messages.LEAVE:
                self._start(self._leave())

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._waits.add(task)
        task.add_done_callback(self._waits.discard)

    async def _leave(self) -> None:
        await self._core.leave()
        self._channel.close()

    def _count(self, turn: int) -> None:
        counted = self._trail.counters
        counted.traffic = self._core.traffic()
        message = {"kind": messages.COUNTED, "turn": turn, "counters": counted.write()}
        self._channel.send(message | {"connections": self._core.connections()})

    def _copy(self, lines: bytes) -> None:
        if self._channel.backlog < _LINES_WAIT_MAX:
            self._channel.send({"kind": messages.LINES, "text": lines.decode()})

    async def _settled(self, turn: int, within: float) -> None:
        """Says what of the older snapshot is still underway: after its time, and again when nothing is."""
        settled = asyncio.get_running_loop().create_task(self._core.settled())
        try:
            await asyncio.wait({settled}, timeout=within)
            said = self._say_settled(turn)
            while not settled.done():
                await asyncio.wait({settled}, timeout=_SAY_EVERY)
                if self._pending() != said or settled.done():
                    said = self._say_settled(turn)
        finally:
            settled.cancel()

    def _say_settled(self, turn: int) -> list[Message]:
        pending = self._pending()
        self._channel.send({"kind": messages.SETTLED, "turn": turn, "pending": pending})
        return pending

    async def _in_use(self, turn: int) -> None:
        found, problems = await self._core.in_use()
        self._channel.send(
            {
                "kind": messages.CONTAINERS,
                "turn": turn,
                "found": [entry.to_json() for entry in found],
                "problems": problems,
            }
        )

    def _pending(self) -> list[Message]:
        return [pending.to_json() for pending in self._core.pending()]


async def _serve(sock: socket.socket, layout: Layout, machine: str, policy: Policy) -> None:
    channel = Channel(sock)
    try:
        message, _ = await channel.receive()
    except ChannelClosed:
        return
    limits, file, enforces = messages.read_settings(message["settings"])
    audit.configure(file)

    def changed(status: RepoStatus) -> None:
        channel.send({"kind": messages.STATUS, "status": status.to_json()})

    def found(case: Case) -> None:
        audit.trail().note("sweep", case.to_json())
        channel.send({"kind": messages.FOUND, "case": case.to_json()})

    def running(repo: str, found: list[InUse]) -> None:
        channel.send({"kind": messages.RUNNING, "repo": repo, "found": [entry.to_json() for entry in found]})

    clock = Clock(time.time, lambda: time.clock_gettime(time.CLOCK_BOOTTIME))
    world = World(
        layout=layout,
        limits=limits,
        policy=policy,
        now=clock,
        monotonic=time.monotonic,
        jitter=random.random,
        changed=changed,
        sweep=Means(enforces, asyncio.Semaphore(limits.inspects), layout.admitted),
        found=found,
        running=running,
    )
    await Worker(channel, Core(world, machine), limits, clock).run()


def main() -> int:
    """Started by the parent only; the descriptor is an end of its socket pair."""
    parser = argparse.ArgumentParser(prog="gpugrant gate worker")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--machine", required=True)
    given = parser.parse_args()
    if not process.die_with(given.parent):
        return 1
    # the parent decides: a terminal's ^C and systemd's SIGTERM reach the whole group
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    process.raise_descriptor_limit()
    process.keep_freed_memory()
    audit.configure()
    sock = socket.socket(fileno=given.fd)
    os.set_inheritable(given.fd, False)
    uvloop.run(_serve(sock, Layout(given.root), given.machine, Judgement()))
    audit.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
