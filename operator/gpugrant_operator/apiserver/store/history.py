"""Versions of objects, and the last committed changes: what a watch resumes over and what watchers are told."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from gpugrant_operator.apiserver.objects.resources import Resource
from gpugrant_operator.apiserver.objects.status import Obj, expired
from gpugrant_operator.apiserver.store.journal import Key

EVENT_LOG = 5_000
"""Changes that a watch can resume over; more than two of every grant of the largest machine."""

ENCODED = 1_000
"""Objects whose JSON is kept beside them: enough for a burst of changes, and no second copy of a whole store."""

STATIC_VERSION = "1"
"""resourceVersion of the server's own objects; a change gets at least 2 (the first is burnt at creation)."""

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """One version of one object."""

    obj: Obj

    @property
    def raw(self) -> bytes:
        """Its JSON, made once for all watchers of a change."""
        return _encoded(self)


@lru_cache(maxsize=ENCODED)
def _encoded(stored: Stored) -> bytes:
    return json.dumps(stored.obj, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class Event:
    """One committed change. `before` is what a selector compares with: an object can leave a selection."""

    version: int
    type: EventType
    key: Key
    now: Stored
    before: Stored | None


class History:
    """The newest changes in their order, and who is told of the next."""

    def __init__(self) -> None:
        self.version = self.oldest = 0
        """The resourceVersion of the last committed change, and the one behind which all changes are known."""
        self._events: deque[Event] = deque(maxlen=EVENT_LOG)
        self._listeners: set[Callable[[Event], None]] = set()

    def begin(self, version: int) -> None:
        """Nothing is known of the changes up to this version."""
        self.version = self.oldest = version

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Calls the listener with every committed change from now on; the result ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def since(self, version: int) -> Iterable[Event]:
        """Committed changes after that version; raises ApiError 410 where they are not all known."""
        if version > self.version:
            raise expired(f"too large resource version: {version}, current: {self.version}")
        if version < self.oldest:
            raise expired(f"too old resource version: {version} ({self.oldest})")
        return (event for event in self._events if event.version > version)

    def announce(self, event: Event) -> None:
        if len(self._events) == self._events.maxlen:
            self.oldest = self._events[0].version
        self._events.append(event)
        self.version = event.version
        for listener in tuple(self._listeners):
            listener(event)


def versioned(obj: Obj, version: int) -> Obj:
    """The object as it is after the change of that number."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


def of_this_version(obj: Obj, resource: Resource) -> Obj:
    """An object that was stored at another version of its kind, by Kubernetes' conversion strategy None."""
    return obj if obj["apiVersion"] == resource.api_version else {**obj, "apiVersion": resource.api_version}
