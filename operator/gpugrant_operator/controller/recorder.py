"""Posts Events in the background: a bounded queue and a bucket an object, so that trouble never floods the API.

An Event that is lost is no harm: conditions say the same. Nothing here ever holds up a reconcile.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import datetime

import structlog

from gpugrant_crds import timestamps
from gpugrant_operator.controller.api import Api
from gpugrant_operator.kubeclient import ApiError
from gpugrant_operator.reconcile.transitions import Occurrence

BURST = 25
REFILL = 300.0
"""Events an object at once, and seconds until one more may be posted: client-go's spam filter."""

_QUEUE_MAX = 1000
_OBJECTS_MAX = 4096

log = structlog.get_logger(__name__)


class Recorder:
    """`note` is called by reconciles, `run` posts. `clock` is monotonic seconds."""

    def __init__(self, api: Api, now: Callable[[], datetime], clock: Callable[[], float]) -> None:
        self._api = api
        self._now = now
        self._clock = clock
        self._queue: asyncio.Queue[Occurrence] = asyncio.Queue(_QUEUE_MAX)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def note(self, occurrences: Iterable[Occurrence]) -> None:
        for occurrence in occurrences:
            if not self._queue.full() and self._allowed(occurrence.uid):
                self._queue.put_nowait(occurrence)

    async def run(self) -> None:
        while True:
            await self.post_one()

    async def post_one(self) -> None:
        """Posts the next Event, waiting for one."""
        occurrence = await self._queue.get()
        try:
            await self._api.record(occurrence, timestamps.write(self._now()))
        except ApiError as error:
            log.info("event.lost", name=occurrence.name, reason=occurrence.reason, error=error.message)

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    def _allowed(self, uid: str) -> bool:
        now = self._clock()
        tokens, since = self._buckets.pop(uid, (float(BURST), now))
        tokens = min(tokens + (now - since) / REFILL, float(BURST))
        self._buckets[uid] = (tokens - 1 if tokens >= 1 else tokens, now)
        while len(self._buckets) > _OBJECTS_MAX:
            self._buckets.popitem(last=False)
        return tokens >= 1
