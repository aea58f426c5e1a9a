"""The gate that was here before, as its successor sees it: it finishes what is open and follows every snapshot, so that
a revocation is answered only when it counts there too."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from gpugrant_gate.life.grants import Enforced
from gpugrant_gate.net import messages
from gpugrant_gate.net.audit import log
from gpugrant_gate.net.channel import Channel, ChannelClosed
from gpugrant_gate.net.settling import Settling

_SETTLE_TIMEOUT = 12.0
"""Seconds: it may have to replace a worker that hangs, which takes 8."""


class Elder:
    """One older gate; `pid` is its process, as the kernel told."""

    def __init__(self, channel: Channel, pid: int) -> None:
        self.pid = pid
        self.settling = Settling()
        self.ended = asyncio.Event()
        self._channel = channel

    async def live(self) -> None:
        """Returns when it has ended."""
        with suppress(ChannelClosed):
            while True:
                message, _ = await self._channel.receive()
                if message["kind"] == messages.SETTLED:
                    await self.settling.heard(message)
        self._channel.close()
        self.ended.set()
        await self.settling.ended()
        log.info("older gate ended", pid=self.pid)

    @property
    def gone(self) -> bool:
        return self.ended.is_set()

    def enforce(self, enforced: Enforced, turn: int, within: float | None = None) -> None:
        """`within` is not its affair: when we lose our place, it loses us."""
        self._channel.send({"kind": messages.ENFORCE, "enforced": messages.write_enforced(enforced), "turn": turn})

    async def has_settled(self, turn: int) -> None:
        """Returns when it enforces that turn, or has ended; kills one that does neither."""
        while not self.gone and not self.settling.has(turn):
            try:
                async with asyncio.timeout(_SETTLE_TIMEOUT):
                    await self.settling.until(lambda: self.gone or self.settling.has(turn))
            except TimeoutError:
                log.error("older gate hangs", pid=self.pid)
                if self.pid > 0:  # 0: of a PID namespace that is closed to us; without us it gives all hardware up
                    with suppress(ProcessLookupError):
                        os.kill(self.pid, signal.SIGKILL)
                self._channel.close()
