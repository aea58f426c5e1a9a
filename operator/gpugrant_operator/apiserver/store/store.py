"""The objects in memory and the one order in which a change becomes real.

Decide on `head` (committed and pending) without an await: the event loop is the lock, so a decision and its place in
the order are one step. Then a batch of decisions is made durable together: new manifests to temporary files, the
journal (the commit point), renames. Only then do readers, watchers and the caller see it. A crash before the
commit point leaves nothing of a change, one behind it leaves a change that the next start finishes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from gpugrant_operator.apiserver.objects import sharing
from gpugrant_operator.apiserver.objects.resources import Catalog, Resource
from gpugrant_operator.apiserver.objects.status import ApiError, Obj, bad_request, out_of_storage
from gpugrant_operator.apiserver.store import manifests
from gpugrant_operator.apiserver.store.disk import Disk
from gpugrant_operator.apiserver.store.history import (
    STATIC_VERSION,
    Event,
    EventType,
    History,
    Stored,
    of_this_version,
    versioned,
)
from gpugrant_operator.apiserver.store.journal import Contents, Journal, Key, Origin, Record, StoreFailed
from gpugrant_operator.apiserver.store.shelf import Shelf
from gpugrant_operator.apiserver.store.writer import Write, Writer, guarded

MAX_BATCH = 500
"""Changes made durable together."""

PROBE = 2.0
"""Seconds between two tries of a medium that took no write."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """A decided change: the object as it will be (its resourceVersion is set on submission), or None: it goes.

    `last` is how a removed object looks in its DELETED event. `file` is the hash of a manifest that a person wrote
    and that is taken as it lies there; None: the server writes what the object asks for. `origin` is the file of a
    source that the object is taken from: such an object has no manifest here; None: as before.
    """

    key: Key
    obj: Obj | None
    last: Obj | None = None
    file: str | None = None
    from_file: bool = False
    origin: Origin | None = None


@dataclass
class _Pending:
    """A change that was decided and is not durable yet."""

    write: Write
    event: Event
    done: asyncio.Future[Obj]

    @property
    def record(self) -> Record:
        return self.write.record


class Store:
    """See the module. All methods belong to the event loop; a Writer does the work of the one thread."""

    def __init__(
        self, *, catalog: Catalog, root: Path, journal: Journal, disk: Disk, compact_bytes: int, probe: float = PROBE
    ) -> None:
        self.catalog = catalog
        self.failure = ""
        """Why the medium takes no writes; empty: it does."""
        self._compact_bytes = compact_bytes
        self._probe_interval = probe
        self._writer = Writer(catalog, root, journal, disk)
        self._shelf: Shelf[Stored] = Shelf(resource.id for resource in catalog.resources)
        self._unknown: dict[Key, Record] = {}
        """Objects of kinds that this version does not serve; kept as they are for one that does."""
        self._files: dict[Key, str] = {}
        self._origins: dict[Key, Origin] = {}
        self._pending: dict[Key, _Pending] = {}
        self._queue: deque[_Pending] = deque()
        self._wake = asyncio.Event()
        self.history = History()
        self.store_id = self.created = ""
        """The store's own id and the time of its making (RFC 3339)."""
        self._next = 0
        self._in_doubt = False
        """What the journal holds at its end is not known: nothing is written until there is a new one."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    # --- opening ----------------------------------------------------------------------------------------------

    def load(self, contents: Contents) -> None:
        """Takes what the journal holds; finishes the manifests of the last batch before a crash."""
        self.store_id, self.created = contents.store_id, contents.created
        self._next = max(contents.version, int(STATIC_VERSION))
        self.history.begin(self._next)
        self._writer.sweep()
        for key, record in contents.records.items():
            resource = self.catalog.by_id(key[0])
            if record.obj is None:
                continue
            if resource is None:
                self._unknown[key] = record
                continue
            self._shelf.put(key, Stored(of_this_version(record.obj, resource)))
            if record.file is not None:
                self._files[key] = record.file
            if record.origin is not None:
                self._origins[key] = record.origin
        if self._unknown:
            log.warning("objects of unknown kinds are kept and not served", objects=len(self._unknown))
        self._writer.late = {record.key: record for record in contents.unfinished}
        if contents.unfinished:
            log.info("the last batch is finished", changes=len(contents.unfinished))
        self._writer.finish_late()

    def put_static(self, resource: Resource, obj: Obj) -> None:
        """An object of the server itself, which no request changes and no file keeps."""
        self._shelf.put((resource.id, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]), Stored(obj))

    @property
    def version(self) -> int:
        """The resourceVersion of the last committed change."""
        return self.history.version

    @property
    def size(self) -> int:
        """Committed objects."""
        return len(self._shelf)

    @property
    def late(self) -> Mapping[Key, Record]:
        """Committed changes whose manifest could not be put in place yet."""
        return self._writer.late

    # --- reading ----------------------------------------------------------------------------------------------

    def get(self, resource: Resource, namespace: str, name: str) -> Stored | None:
        """The committed object."""
        return self._shelf.of(resource.id).get((namespace, name))

    def listed(
        self, resource: Resource, namespace: str | None = None, *, after: tuple[str, str] | None = None
    ) -> Iterator[Stored]:
        """Committed objects by (namespace, name), behind `after` when that is given."""
        return self._shelf.listed(resource.id, namespace, after)

    def head(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        """The newest object, committed or not: what a decision must be made on."""
        pending = self._pending.get((resource.id, namespace, name))
        if pending is not None:
            return pending.record.obj
        stored = self.get(resource, namespace, name)
        return stored.obj if stored else None

    def head_list(self, resource: Resource, namespace: str | None = None) -> list[Obj]:
        """All newest objects of a resource, committed or not, in no order."""
        found = {
            (resource.id, *key): stored.obj
            for key, stored in self._shelf.of(resource.id).items()
            if namespace is None or key[0] == namespace
        }
        for key, pending in self._pending.items():
            if key[0] == resource.id and (namespace is None or key[1] == namespace):
                if pending.record.obj is None:
                    found.pop(key, None)
                else:
                    found[key] = pending.record.obj
        return list(found.values())

    def is_pending(self, key: Key) -> bool:
        return key in self._pending

    def file_of(self, key: Key) -> str | None:
        """The hash of the manifest that the newest object is of."""
        pending = self._pending.get(key)
        return pending.record.file if pending is not None else self._files.get(key)

    def known_files(self) -> Mapping[Key, str]:
        return self._files

    def remember_file(self, key: Key, file: str) -> None:
        """A file whose bytes differ and whose meaning does not."""
        self._files[key] = file

    def origin_of(self, key: Key) -> Origin | None:
        """The file of a source that the newest object comes from."""
        pending = self._pending.get(key)
        return pending.record.origin if pending is not None else self._origins.get(key)

    def origins(self) -> Mapping[Key, Origin]:
        return self._origins

    def remember_origin(self, key: Key, origin: Origin) -> None:
        """The object stands in another file now and says the same; found again at the next start."""
        self._origins[key] = origin

    def forget_origin(self, key: Key) -> None:
        """The object belongs to no source any more; its next change gives it a manifest here."""
        self._origins.pop(key, None)

    async def restore(self, keys: Sequence[Key]) -> None:
        """Writes the manifests of these committed objects again where none lie, and sees to it until it is done."""
        for key in keys:
            resource = self.catalog.by_id(key[0])
            stored = self._shelf.of(key[0]).get((key[1], key[2])) if resource is not None else None
            if stored is None or resource is None or not resource.desired or key in self._pending:
                continue
            file = manifests.digest(manifests.dump(manifests.desired(stored.obj)))
            version = int(stored.obj["metadata"]["resourceVersion"])
            self._writer.late[key] = Record(key, stored.obj, version, file, None, writes=True)
            self._files[key] = file
        await asyncio.get_running_loop().run_in_executor(self._thread, self._writer.restore)

    async def retry_late(self) -> None:
        """Tries again to put manifests in place whose rename failed."""
        if self.late and not self._pending:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._writer.finish_late)

    # --- writing ----------------------------------------------------------------------------------------------

    def submit(self, change: Change) -> asyncio.Future[Obj]:
        """Gives the change its resourceVersion and its place in the order; the future is done when it is durable.

        Must be called in the same step as the decision. Raises ApiError where the store takes no writes.
        """
        if self._in_doubt:
            raise self._refusal()
        before = self.head(*self._split(change.key))
        write, event = self._prepare(change, before, self._next + 1)
        self._next += 1
        pending = _Pending(write, event, asyncio.get_running_loop().create_future())
        self._pending[change.key] = pending
        self._queue.append(pending)
        self._wake.set()
        return pending.done

    def _split(self, key: Key) -> tuple[Resource, str, str]:
        resource = self.catalog.by_id(key[0])
        if resource is None:
            raise RuntimeError(f"no resource {key[0]}")
        return resource, key[1], key[2]

    def _prepare(self, change: Change, before: Obj | None, version: int) -> tuple[Write, Event]:
        obj = sharing.shared(versioned(change.obj, version), before) if change.obj is not None else None
        shown = obj if obj is not None else versioned(change.last or before or {}, version)
        kind: EventType = "DELETED" if obj is None else ("MODIFIED" if before is not None else "ADDED")
        event = Event(version, kind, change.key, Stored(shown), Stored(before) if before is not None else None)
        try:
            _ = event.now.raw
        except UnicodeEncodeError as error:
            raise bad_request("the object has a lone surrogate, which is no text") from error
        was = self.file_of(change.key)
        origin = (change.origin or self.origin_of(change.key)) if obj is not None else None
        data, file = (None, None) if origin is not None else self._manifest(change, obj, before, was)
        writes = not change.from_file and file != was
        record = Record(change.key, obj, version, file, was, writes=writes, origin=origin)
        return Write(record, data), event

    def _manifest(
        self, change: Change, obj: Obj | None, before: Obj | None, was: str | None
    ) -> tuple[bytes | None, str | None]:
        """The bytes to write (None: none) and the hash that the file has afterwards (None: no file)."""
        resource = self._split(change.key)[0]
        if change.from_file:
            return None, change.file
        if not resource.desired or obj is None or obj["metadata"].get("deletionTimestamp"):
            return None, None
        wanted = manifests.desired(obj)
        if was is not None and before is not None and manifests.desired(before) == wanted:
            return None, was
        data = manifests.dump(wanted)
        return data, manifests.digest(data)

    async def settled(self, key: Key | None = None) -> None:
        """Returns when the pending change of the key (None: every pending change) is durable or has failed."""
        waiting = [p for k, p in self._pending.items() if key is None or k == key]
        if waiting:
            await asyncio.wait([pending.done for pending in waiting])

    async def run(self) -> None:
        """Makes submitted changes durable, batch after batch, until it is cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._probe_interval if self.failure else None):
                    await self._wake.wait()
            except TimeoutError:
                await self._probe()
                continue
            self._wake.clear()
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(len(self._queue), MAX_BATCH))]
                try:
                    await self._in_thread(partial(self._writer.persist, [pending.write for pending in batch]))
                except StoreFailed as error:
                    self._fail(batch, error)
                else:
                    self._publish(batch)
            await self._maintain()

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, guarded, work))

    async def _probe(self) -> None:
        """Whether the medium takes writes again; a journal in doubt is replaced by what is committed."""
        try:
            if self._in_doubt:
                contents = self.contents()
                await self._in_thread(partial(self._writer.renew, contents))
                self._in_doubt = False
            await self._in_thread(self._writer.probe)
        except StoreFailed as error:
            self.failure, self._in_doubt = str(error), self._in_doubt or error.fatal
        else:
            log.info("the store takes writes again")
            self.failure = ""

    async def _maintain(self) -> None:
        if self._writer.is_long(self._compact_bytes) and not self.failure:
            contents = self.contents()
            try:
                await self._in_thread(partial(self._writer.snapshot, contents))
            except (OSError, StoreFailed) as error:
                log.warning("snapshot not written", error=str(error))

    def contents(self) -> Contents:
        """All that is committed, as the journal keeps it."""
        records = {
            key: Record(
                key,
                stored.obj,
                int(stored.obj["metadata"]["resourceVersion"]),
                self._files.get(key),
                origin=self._origins.get(key),
            )
            for key, stored in self._shelf.items()
            if stored.obj["metadata"]["resourceVersion"] != STATIC_VERSION
        }
        return Contents(self.store_id, self.created, self.version, {**self._unknown, **records})

    async def close(self) -> None:
        """Says in the journal that every manifest is in place, and closes the files; call it after `run` has ended."""
        closing = partial(self._writer.close, in_doubt=self._in_doubt)
        await asyncio.get_running_loop().run_in_executor(self._thread, closing)
        self._thread.shutdown()

    def _publish(self, batch: Sequence[_Pending]) -> None:
        self.failure = ""
        for pending in batch:
            record = pending.record
            if self._pending.get(record.key) is pending:
                del self._pending[record.key]
            if record.obj is None:
                self._shelf.remove(record.key)
            else:
                self._shelf.put(record.key, pending.event.now)
            if record.file is None:
                self._files.pop(record.key, None)
            else:
                self._files[record.key] = record.file
            if record.origin is None:
                self._origins.pop(record.key, None)
            else:
                self._origins[record.key] = record.origin
            self.history.announce(pending.event)
        for pending in batch:
            if not pending.done.done():
                pending.done.set_result(pending.event.now.obj)

    def _fail(self, batch: Sequence[_Pending], error: StoreFailed) -> None:
        """Nothing of the batch is stored, and whatever was decided on top of it falls with it."""
        self.failure = str(error)
        self._in_doubt = self._in_doubt or error.fatal
        log.error("store failed", error=self.failure, fatal=error.fatal)
        doomed = [*batch, *self._queue]
        self._queue.clear()
        self._pending.clear()
        for pending in doomed:
            if not pending.done.done():
                pending.done.set_exception(self._refusal())

    def _refusal(self) -> ApiError:
        return out_of_storage(f"the change is not stored: {self.failure}; writes work again when the medium does")
