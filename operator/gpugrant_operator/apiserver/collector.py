"""The garbage collector: deletes what has no owner left, and lets owners go that wait for their dependents.

One pass looks at the objects that name an owner and at those that wait, and at no others.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

import structlog

from gpugrant_operator.apiserver.objects import garbage, patch
from gpugrant_operator.apiserver.objects.resources import Resource
from gpugrant_operator.apiserver.objects.status import ApiError, Json, Obj
from gpugrant_operator.apiserver.registry import Options, Registry
from gpugrant_operator.apiserver.store.history import Event
from gpugrant_operator.apiserver.store.journal import Key

AGAIN = 30.0
"""Seconds until what could not be done is tried again without a change."""

_NOTHING: Obj = {"metadata": {}}

log = structlog.get_logger(__name__)


@dataclass
class Collector:
    """The collector of one server."""

    registry: Registry
    _concerned: set[Key] = field(default_factory=set)
    """Objects with an owner, and objects that wait for their dependents."""
    _by_owner: dict[str, list[Key]] = field(default_factory=dict)
    """The uid of an owner to its dependents, as of this pass."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        store = self.registry.store
        unsubscribe = store.history.subscribe(self._notice)
        try:
            for resource in store.catalog.resources:
                for obj in store.head_list(resource):
                    self._remember(_key(resource, obj), obj)
            while True:
                await self.collect()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN):
                        await self._wake.wait()
                self._wake.clear()
        finally:
            unsubscribe()

    def _notice(self, event: Event) -> None:
        if event.type == "DELETED":
            self._concerned.discard(event.key)
        else:
            self._remember(event.key, event.now.obj)
        if self._concerned and (event.type == "DELETED" or event.key in self._concerned):
            self._wake.set()

    def _remember(self, key: Key, obj: Obj) -> None:
        if garbage.owners(obj) or _waits(obj):
            self._concerned.add(key)
        else:
            self._concerned.discard(key)

    async def collect(self) -> None:
        """One pass; what an object's own state forbids is tried again at the next."""
        self._by_owner = self._index()
        for key in sorted(self._concerned):
            resource, obj = self._there(key)
            if resource is None or obj is None:
                continue
            try:
                if _waits(obj):
                    await self._let_go(resource, obj)
                elif not obj["metadata"].get("deletionTimestamp"):
                    await self._judge(resource, obj)
            except ApiError as error:
                if error.code >= 500:
                    log.warning("not collected", resource=resource.id, name=key[2], reason=error.message)

    def _there(self, key: Key) -> tuple[Resource | None, Obj | None]:
        resource = self.registry.store.catalog.by_id(key[0])
        return resource, self.registry.store.head(resource, key[1], key[2]) if resource is not None else None

    async def _judge(self, resource: Resource, obj: Obj) -> None:
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]

        def state(owner: Obj) -> garbage.Owner:
            return self._state(resource, namespace, owner)

        has_dependents = any(not other["metadata"].get("deletionTimestamp") for _, other in self._dependents(obj))
        verdict = garbage.judge(obj, state, has_dependents=has_dependents)
        match verdict:
            case garbage.Keep():
                return
            case garbage.Release(owners):
                await self._patch(resource, obj, {"ownerReferences": list(owners)})
            case garbage.Collect(policy):
                here = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
                options = {"propagationPolicy": policy, "preconditions": here}
                await self.registry.delete(resource, namespace, name, options, Options())
                log.info("object deleted with its owner", resource=resource.id, namespace=namespace, name=name)

    def _state(self, resource: Resource, namespace: str, owner: Obj) -> garbage.Owner:
        place = garbage.place(self.registry.store.catalog, resource, namespace, owner)
        if place is None:
            return "unknown"
        found = self.registry.store.head(*place, owner["name"])
        if found is None or found["metadata"]["uid"] != owner["uid"]:
            return "absent"
        leaving = found["metadata"].get("deletionTimestamp")
        waits = leaving and garbage.FOREGROUND in (found["metadata"].get("finalizers") or ())
        return "waits" if waits else "there"

    async def _let_go(self, resource: Resource, obj: Obj) -> None:
        """Takes the finalizer away from an owner whose dependents are orphaned or gone."""
        held, uid = obj["metadata"]["finalizers"], obj["metadata"]["uid"]
        dependents = self._dependents(obj)
        if garbage.ORPHAN in held:
            for other, dependent in dependents:
                await self._patch(other, dependent, {"ownerReferences": garbage.without_owner(dependent, uid)})
        elif any(garbage.blocks(dependent, uid) for _, dependent in dependents):
            return
        left = [name for name in held if name not in (garbage.ORPHAN, garbage.FOREGROUND)]
        await self._patch(resource, obj, {"finalizers": left})

    def _index(self) -> dict[str, list[Key]]:
        found: dict[str, list[Key]] = {}
        for key in self._concerned:
            for ref in garbage.owners(self._there(key)[1] or _NOTHING):
                found.setdefault(ref["uid"], []).append(key)
        return found

    def _dependents(self, owner: Obj) -> list[tuple[Resource, Obj]]:
        """As they are now; one that came since the pass began wakes the next."""
        uid = owner["metadata"]["uid"]
        found: list[tuple[Resource, Obj]] = []
        for key in self._by_owner.get(uid, ()):
            resource, obj = self._there(key)
            if resource is not None and obj is not None and garbage.is_owned_by(obj, uid):
                found.append((resource, obj))
        return found

    async def _patch(self, resource: Resource, obj: Obj, metadata: dict[str, Json]) -> None:
        held = obj["metadata"]
        body = {"metadata": {"uid": held["uid"], "resourceVersion": held["resourceVersion"], **metadata}}
        where = (resource, held.get("namespace", ""), held["name"])
        await self.registry.patch(*where, patch.MERGE_PATCH, body, Options(manager="gpugrant-collector"))


def _waits(obj: Obj) -> bool:
    held = obj["metadata"].get("finalizers") or ()
    return bool(obj["metadata"].get("deletionTimestamp")) and (garbage.ORPHAN in held or garbage.FOREGROUND in held)


def _key(resource: Resource, obj: Obj) -> Key:
    return resource.id, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
