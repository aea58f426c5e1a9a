"""A store with its registry and manifests, and no server in front: what tests of durability open and cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from gpugrant_operator.apiserver.objects.resources import catalog
from gpugrant_operator.apiserver.objects.status import Obj
from gpugrant_operator.apiserver.registry import Registry
from gpugrant_operator.apiserver.settings import Settings
from gpugrant_operator.apiserver.store.disk import Disk
from gpugrant_operator.apiserver.store.journal import Journal
from gpugrant_operator.apiserver.store.store import Store
from gpugrant_operator.apiserver.sync import ManifestSync


@dataclass
class Opened:
    registry: Registry
    store: Store
    sync: ManifestSync
    running: asyncio.Task[None]


@asynccontextmanager
async def opened(settings: Settings, disk: Disk, *, probe: float = 2.0) -> AsyncIterator[Opened]:
    journal = Journal(settings.layout.store, disk)
    contents = journal.open(store_id="id", created="2026-01-01T00:00:00Z")
    store = Store(
        catalog=catalog(settings.crds),
        root=settings.layout.manifests,
        journal=journal,
        disk=disk,
        compact_bytes=settings.compact_bytes,
        probe=probe,
    )
    store.load(contents)
    registry = Registry(store, replace(settings, disk=disk))
    running = asyncio.create_task(store.run())
    try:
        yield Opened(registry, store, ManifestSync(registry, settings.layout.manifests), running)
    finally:
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        if not getattr(disk, "dead", False):
            await store.close()


def namespace(name: str = "default") -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
