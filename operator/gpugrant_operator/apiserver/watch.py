"""Watch streams: committed changes to one client, filtered, in order, without gaps; bounded and cut off when slow.

A client that can't be served without a gap gets an in-stream ERROR with code 410 and lists again; HTTP 410 would make
kopf exit.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from gpugrant_operator.apiserver.objects import table
from gpugrant_operator.apiserver.objects.resources import Resource
from gpugrant_operator.apiserver.objects.selectors import Selector
from gpugrant_operator.apiserver.objects.status import ApiError, Obj
from gpugrant_operator.apiserver.store.history import Event, EventType, Stored
from gpugrant_operator.apiserver.store.store import Store

log = structlog.get_logger(__name__)

TIMEOUT = 1800.0
"""Seconds until the server ends a watch whose client named no time; kube-apiserver takes 30 to 60 minutes."""


@dataclass(frozen=True, slots=True)
class Query:
    """What a client watches. `since` None: first the objects that are there, as ADDED."""

    resource: Resource
    namespace: str | None
    selector: Selector
    since: int | None
    bookmarks: bool
    timeout: float


Encoder = Callable[[EventType, Stored], bytes]


def json_encoder(kind: EventType, stored: Stored) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), stored.raw)


def partial_encoder(kind: EventType, stored: Stored) -> bytes:
    return _line(kind, table.partial(stored.obj))


def table_encoder(resource: Resource, form: table.Format, now: Callable[[], datetime]) -> Encoder:
    """One-row tables; only the first carries column definitions, as kubectl expects."""
    head = True

    def encode(kind: EventType, stored: Stored) -> bytes:
        nonlocal head
        metadata = {"resourceVersion": stored.obj["metadata"]["resourceVersion"]}
        made = table.table(resource, [stored.obj], form=form, now=now(), metadata=metadata, head=head)
        head = False
        return _line(kind, made)

    return encode


def _line(kind: str, obj: Obj) -> bytes:
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def bookmark(resource: Resource, version: int, *, as_table: bool) -> bytes:
    metadata = {"resourceVersion": str(version), "creationTimestamp": None}
    obj: Obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    if as_table:
        obj = {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": str(version)},
            "columnDefinitions": None,
            "rows": [{"cells": [], "object": {"kind": "PartialObjectMetadata", "metadata": metadata}}],
        }
    return _line("BOOKMARK", obj)


def failed(error: ApiError) -> bytes:
    return _line("ERROR", error.body)


def visible(query: Query, event: Event) -> tuple[EventType, Stored] | None:
    """How the change looks through the query: an object that enters a selection is ADDED, one that leaves DELETED."""
    if event.key[0] != query.resource.id or query.namespace not in (None, event.key[1]):
        return None
    if not query.selector:
        return event.type, event.now
    was = event.before is not None and query.selector.matches(event.before.obj)
    is_now = event.type != "DELETED" and query.selector.matches(event.now.obj)
    if is_now:
        return ("MODIFIED" if was else "ADDED"), event.now
    if event.before is None or not was:
        return None
    return "DELETED", event.now if event.type == "DELETED" else _as_of(event.before, event.version)


def _as_of(stored: Stored, version: int) -> Stored:
    """The object under another version: who selects objects sees one leave as it last was selected, under the version
    of the change."""
    metadata = {**stored.obj["metadata"], "resourceVersion": str(version)}
    return Stored({**stored.obj, "metadata": metadata})


class Feed:
    """The changes of one watcher between the store and its connection.

    `cut` is called at once when the buffer is full: the connection may be stuck in a write that never ends.
    """

    def __init__(self, store: Store, query: Query, limit: int, cut: Callable[[], None]) -> None:
        self._query = query
        self._limit = limit
        self._cut = cut
        self._waiting: deque[tuple[EventType, Stored]] = deque()
        self._news = asyncio.Event()
        self.ended = False
        self._unsubscribe = store.history.subscribe(self._take)

    def _take(self, event: Event) -> None:
        seen = visible(self._query, event)
        if seen is None:
            return
        if len(self._waiting) >= self._limit:
            log.warning("slow watcher cut off", resource=self._query.resource.id)
            self.end()
            self._cut()
            return
        self._waiting.append(seen)
        self._news.set()

    async def next(self, seconds: float) -> tuple[EventType, Stored] | None:
        """The next change; None after that time without one, or when the feed has ended."""
        if not self._waiting and not self.ended:
            self._news.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                return None
        return self._waiting.popleft() if self._waiting and not self.ended else None

    def end(self) -> None:
        self.ended = True
        self._unsubscribe()
        self._news.set()


@dataclass
class Watches:
    """All open watches of a server."""

    store: Store
    limit: int
    """Changes that a watcher may be behind."""
    bookmark_interval: float
    feeds: set[Feed] = field(default_factory=set)

    def close(self) -> None:
        """Ends every watch at once, in good order: a server that stops must not wait for its watchers."""
        for feed in tuple(self.feeds):
            feed.end()

    async def stream(
        self, query: Query, encode: Encoder, *, cut: Callable[[], None], as_table: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """The lines of the answer, until the query's time is over or the watches are closed."""
        feed = Feed(self.store, query, self.limit, cut)
        self.feeds.add(feed)
        try:
            try:
                first = _first(self.store, query)
            except ApiError as error:
                yield failed(error)
                return
            for kind, stored in first:
                yield encode(kind, stored)
            async for change in self._changes(query, feed):
                yield encode(*change) if change else bookmark(query.resource, self.store.version, as_table=as_table)
        finally:
            feed.end()
            self.feeds.discard(feed)

    async def _changes(self, query: Query, feed: Feed) -> AsyncIterator[tuple[EventType, Stored] | None]:
        """Changes, and None when it is time for a bookmark. Feeding is synchronous with the store: an empty feed has
        seen everything up to the store's version."""
        loop = asyncio.get_running_loop()
        end = loop.time() + query.timeout
        while (left := end - loop.time()) > 0 and not feed.ended:
            change = await feed.next(min(left, self.bookmark_interval))
            if change is not None:
                yield change
            elif query.bookmarks and not feed.ended and loop.time() < end:
                yield None


def _first(store: Store, query: Query) -> list[tuple[EventType, Stored]]:
    """What the client has not seen at the moment of the call; taken in the same step as the subscription."""
    if query.since is None:
        objects = store.listed(query.resource, query.namespace)
        return [("ADDED", stored) for stored in objects if query.selector.matches(stored.obj)]
    seen = (visible(query, event) for event in store.history.since(query.since))
    return [item for item in seen if item is not None]
