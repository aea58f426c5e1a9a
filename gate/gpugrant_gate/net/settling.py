"""Whoever enforces what this gate sends, be it a worker or an older gate that finishes: when it does so, and what it
still has underway of the time before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpugrant_crds.snapshot import Pending
from gpugrant_gate.net.channel import Message


class Settling:
    """The answers of one of them; turns rise."""

    def __init__(self) -> None:
        self.pending: list[Pending] = []
        self._settled = -1
        self._news = asyncio.Condition()

    async def heard(self, message: Message) -> None:
        """It says that it enforces what was sent in that turn."""
        if message["turn"] >= self._settled:
            async with self._news:
                self._settled = message["turn"]
                self.pending = [Pending.model_validate(entry) for entry in message["pending"]]
                self._news.notify_all()

    async def ended(self) -> None:
        """Its process is gone, and what it had underway with it: its connections are closed."""
        async with self._news:
            self.pending = []
            self._news.notify_all()

    def has(self, turn: int) -> bool:
        return self._settled >= turn

    async def until(self, reached: Callable[[], bool]) -> None:
        """Returns once it is so after some answer."""
        async with self._news:
            await self._news.wait_for(reached)
