"""What the server does by itself: empties terminating namespaces, lets old events go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpugrant_operator.apiserver.objects.resources import EVENTS, NAMESPACES
from gpugrant_operator.apiserver.objects.status import ApiError, Obj
from gpugrant_operator.apiserver.registry import Options, Registry
from gpugrant_operator.apiserver.store.history import Event

EVENT_SWEEP = 60.0
"""Seconds between two looks at the age of events."""


@dataclass
class Namespaces:
    """Deletes what is in a terminating namespace, then the namespace: kube-controller-manager's part."""

    registry: Registry
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        unsubscribe = self.registry.store.history.subscribe(self._notice)
        try:
            self._wake.set()
            while True:
                await self._wake.wait()
                self._wake.clear()
                for stored in list(self.registry.store.listed(NAMESPACES)):
                    if stored.obj["metadata"].get("deletionTimestamp"):
                        await self._empty(stored.obj["metadata"]["name"])
        finally:
            unsubscribe()

    def _notice(self, event: Event) -> None:
        ending = event.key[0] == NAMESPACES.id and event.now.obj["metadata"].get("deletionTimestamp")
        if ending or event.type == "DELETED":
            self._wake.set()

    async def _empty(self, namespace: str) -> None:
        store = self.registry.store
        left = 0
        for resource in store.catalog.resources:
            if not resource.namespaced:
                continue
            for obj in store.head_list(resource, namespace):
                left += 1
                if not obj["metadata"].get("deletionTimestamp"):
                    await _quietly(self.registry.delete(resource, namespace, obj["metadata"]["name"], {}, Options()))
        if not left or not self._holds(namespace):
            await _quietly(self.registry.finish_namespace(namespace))

    def _holds(self, namespace: str) -> bool:
        store = self.registry.store
        return any(store.head_list(r, namespace) for r in store.catalog.resources if r.namespaced)


async def expire_events(registry: Registry) -> None:
    """Lets events go that nobody repeated for their time to live."""
    while True:
        await asyncio.sleep(EVENT_SWEEP)
        await expire_old_events(registry)


async def expire_old_events(registry: Registry) -> None:
    limit = registry.settings.now() - timedelta(seconds=registry.settings.event_ttl)
    for stored in list(registry.store.listed(EVENTS)):
        if _last_seen(stored.obj) < limit:
            metadata = stored.obj["metadata"]
            await _quietly(registry.delete(EVENTS, metadata["namespace"], metadata["name"], {}, Options()))


def _last_seen(event: Obj) -> datetime:
    """When the event was last written, by its own words, and never before it was made."""
    made = datetime.fromisoformat(event["metadata"]["creationTimestamp"])
    try:
        return max(made, datetime.fromisoformat(str(event.get("lastTimestamp"))))
    except (ValueError, TypeError):
        return made


async def _quietly(work: Awaitable[object]) -> None:
    """What an object's own state forbids is tried again at the next change."""
    try:
        await work
    except ApiError:
        return
