"""One coalescing work item a machine: a key is worked on by one worker at a time, soonest first.

A key that is added while it is worked on comes again; one that failed comes again after a jittered, growing pause.
Times are monotonic seconds.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

RETRY_FIRST = 0.05
RETRY_LAST = 15.0
"""Seconds: after a failure the pause doubles from the first to the last, times a random share of 0.5 to 1."""


class WorkQueue:
    """`take` waits for a key that is due; every `take` is followed by one `done`."""

    def __init__(self, clock: Callable[[], float], random: Callable[[], float]) -> None:
        self._clock = clock
        self._random = random
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._working: set[str] = set()
        self._failures: dict[str, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: str, delay: float = 0.0) -> None:
        """Makes the key due in `delay` seconds, unless it is due earlier anyway."""
        moment = self._clock() + max(delay, 0.0)
        if self._due.get(key, moment + 1) <= moment:
            return
        self._due[key] = moment
        heapq.heappush(self._heap, (moment, key))
        self._changed.set()

    def failing(self) -> dict[str, int]:
        """Keys whose last try failed, with the number of failures in a row."""
        return dict(self._failures)

    def idle(self) -> bool:
        """Nothing is worked on, and nothing is due now."""
        now = self._clock()
        return not self._working and all(moment > now for moment in self._due.values())

    async def take(self) -> str:
        while True:
            key, pause = self._next()
            if key is not None:
                self._working.add(key)
                return key
            self._changed.clear()
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def done(self, key: str, *, failed: bool) -> None:
        """The work on a key that was taken has ended."""
        self._working.discard(key)
        if failed:
            self._failures[key] = count = self._failures.get(key, 0) + 1
            pause = min(RETRY_FIRST * 2.0 ** min(count - 1, 20), RETRY_LAST)
            self.add(key, pause * (0.5 + self._random() / 2))
        else:
            self._failures.pop(key, None)
        self._changed.set()

    def _next(self) -> tuple[str | None, float | None]:
        """A key to work on, or how long to wait for one."""
        now = self._clock()
        blocked: list[tuple[float, str]] = []
        found: str | None = None
        while self._heap and found is None and self._heap[0][0] <= now:
            moment, key = heapq.heappop(self._heap)
            if self._due.get(key) != moment:
                continue
            if key in self._working:
                blocked.append((moment, key))
                continue
            del self._due[key]
            found = key
        for item in blocked:
            heapq.heappush(self._heap, item)
        if found is not None:
            return found, None
        waiting = [moment for moment, key in self._heap if key not in self._working]
        return None, max(min(waiting) - now, 0.0) if waiting else None
