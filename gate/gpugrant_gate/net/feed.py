"""Decisions as they are made, for whoever watches. A reader that is too slow misses some and is told how many."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_WAITING_MAX = 1024 * 1024
"""Bytes that one reader has not taken yet; more are dropped."""

Wanted = Callable[[dict[str, Any]], bool]


class Reader:
    """One who watches."""

    def __init__(self, wanted: Wanted | None) -> None:
        self._wanted = wanted
        self._waiting = bytearray()
        self._dropped = 0
        self._news = asyncio.Event()
        self._over = False

    def offer(self, lines: bytes) -> None:
        if self._wanted is not None:
            lines = b"".join(line for line in lines.splitlines(keepends=True) if self._wanted(json.loads(line)))
        if len(self._waiting) + len(lines) > _WAITING_MAX:
            self._dropped += lines.count(b"\n")
        else:
            self._waiting += lines
        if self._waiting or self._dropped:
            self._news.set()

    def end(self) -> None:
        self._over = True
        self._news.set()

    async def lines(self, seconds: float) -> bytes | None:
        """What has come, which is nothing after so many seconds without a line; None: no more will come."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return b""
        if not self._over:
            self._news.clear()
        taken, self._waiting = bytes(self._waiting), bytearray()
        if self._dropped:
            taken += json.dumps({"event": "lines dropped", "lines": self._dropped}).encode() + b"\n"
            self._dropped = 0
        return None if self._over and not taken else taken


class Feed:
    """All who watch; `follow` is told when the first one comes and when the last one has gone."""

    def __init__(self) -> None:
        self.follow: Callable[[bool], None] = lambda wanted: None
        self._readers: set[Reader] = set()
        self._over = False

    def put(self, lines: bytes) -> None:
        for reader in self._readers:
            reader.offer(lines)

    @contextmanager
    def read(self, wanted: Wanted | None = None) -> Iterator[Reader]:
        reader = Reader(wanted)
        if self._over:
            reader.end()
        self._readers.add(reader)
        if len(self._readers) == 1:
            self.follow(True)
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            if not self._readers:
                self.follow(False)

    def close(self) -> None:
        """The gate ends: readers get what there is, and the end."""
        self._over = True
        for reader in self._readers:
            reader.end()


def wanted(repo: str, *, refused: bool) -> Wanted | None:
    """A filter for lines; None: all are wanted."""
    if not repo and not refused:
        return None
    return lambda line: repo in ("", line.get("repo")) and not (refused and line.get("verdict") == "admitted")
