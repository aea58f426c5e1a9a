"""The objects in memory and the one order in which a change becomes real.

Decide on `head` (committed and pending) without an await: the event loop is the lock, so a decision and its place in
the order are one step. Then a batch of decisions is made durable together: new manifests to temporary files, the
journal (the commit point), renames. Only then do readers, watchers and the caller see it. A crash before the
commit point leaves nothing of a change, one behind it leaves a change that the next start finishes.
"""

from __future__ import annotations

import asyncio
import bisect
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import structlog

from gpugrant_operator.apiserver.objects import sharing
from gpugrant_operator.apiserver.objects.resources import Catalog, Resource
from gpugrant_operator.apiserver.objects.status import ApiError, Obj, expired, internal
from gpugrant_operator.apiserver.store import manifests
from gpugrant_operator.apiserver.store.disk import Disk, read_regular
from gpugrant_operator.apiserver.store.journal import Contents, Journal, Key, Origin, Record, StoreFailed

EVENT_LOG = 5_000
"""Changes that a watch can resume over; more than two of every grant of the largest machine."""

ENCODED = 1_000
"""Objects whose JSON is kept beside them: enough for a burst of changes, and no second copy of a whole store."""

MAX_BATCH = 500
"""Changes made durable together."""

log = structlog.get_logger(__name__)

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
    """A change on its way to the medium."""

    record: Record
    event: Event
    data: bytes | None
    done: asyncio.Future[Obj]
    temporary: Path | None = None


class Store:
    """See the module. All methods belong to the event loop; the private ones named `_persist…` to one thread."""

    def __init__(self, *, catalog: Catalog, root: Path, journal: Journal, disk: Disk, compact_bytes: int) -> None:
        self.catalog = catalog
        self._compact_bytes = compact_bytes
        self.root = root
        self.failure = ""
        """Why the medium takes no writes; empty: it does."""
        self.late: dict[Key, Record] = {}
        """Committed changes whose manifest could not be put in place yet."""
        self._journal = journal
        self._disk = disk
        self._objects: dict[str, dict[tuple[str, str], Stored]] = {r.id: {} for r in catalog.resources}
        self._order: dict[str, list[tuple[str, str]]] = {r.id: [] for r in catalog.resources}
        self._files: dict[Key, str] = {}
        self._origins: dict[Key, Origin] = {}
        self._pending: dict[Key, _Pending] = {}
        self._queue: deque[_Pending] = deque()
        self._wake = asyncio.Event()
        self._listeners: set[Callable[[Event], None]] = set()
        self.events: deque[Event] = deque(maxlen=EVENT_LOG)
        self.version = self.oldest = 0
        """The resourceVersion of the last committed change, and the one behind which all changes are in `events`."""
        self.store_id = self.created = ""
        """The store's own id and the time of its making (RFC 3339)."""
        self._next = 0
        self._fatal = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    # --- opening ----------------------------------------------------------------------------------------------

    def load(self, contents: Contents) -> None:
        """Takes what the journal holds; finishes the manifests of the last batch before a crash."""
        self.store_id, self.created = contents.store_id, contents.created
        self._next = self.version = self.oldest = max(contents.version, int(STATIC_VERSION))
        for key, record in contents.records.items():
            if record.obj is None or key[0] not in self._objects:
                continue
            self._put(key, Stored(record.obj))
            if record.file is not None:
                self._files[key] = record.file
            if record.origin is not None:
                self._origins[key] = record.origin
        for record in contents.unfinished:
            self._finish(record)

    def _finish(self, record: Record) -> None:
        path = self._path(record.key)
        if path is None:
            return
        there = _hash(path)
        if there == record.file or there != record.was:
            return  # already done, or a person has been at it since: the scan looks at it
        log.info("manifest written again after a crash", file=str(path))
        if record.file is None or record.obj is None:
            self._disk.unlink(path)
        else:
            self._disk.make_dir(path.parent)
            self._disk.replace(path, manifests.dump(manifests.desired(record.obj)))

    @property
    def size(self) -> int:
        """Committed objects."""
        return sum(len(objects) for objects in self._objects.values())

    # --- reading ----------------------------------------------------------------------------------------------

    def get(self, resource: Resource, namespace: str, name: str) -> Stored | None:
        """The committed object."""
        return self._objects[resource.id].get((namespace, name))

    def listed(
        self, resource: Resource, namespace: str | None = None, *, after: tuple[str, str] | None = None
    ) -> Iterator[Stored]:
        """Committed objects by (namespace, name), behind `after` when that is given."""
        order, objects = self._order[resource.id], self._objects[resource.id]
        start = (namespace, "") if namespace is not None else ("", "")
        index = bisect.bisect_left(order, start) if after is None else bisect.bisect_right(order, after)
        for position in range(index, len(order)):
            if namespace is not None and order[position][0] != namespace:
                return
            yield objects[order[position]]

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
            for key, stored in self._objects[resource.id].items()
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
            stored, resource = self._objects[key[0]].get((key[1], key[2])), self.catalog.by_id(key[0])
            if stored is None or resource is None or not resource.desired or key in self._pending:
                continue
            file = manifests.digest(manifests.dump(manifests.desired(stored.obj)))
            version = int(stored.obj["metadata"]["resourceVersion"])
            # Said in the journal first: an absent file would else count as deleted by hand after a crash.
            self.late[key] = Record(key, stored.obj, version, file, None, writes=True)
            self._files[key] = file
        await asyncio.get_running_loop().run_in_executor(self._thread, self._persist_restored)

    def _persist_restored(self) -> None:
        try:
            self._journal.append([], unfinished=list(self.late.values()))
        except StoreFailed as error:
            log.error("store failed", error=str(error), fatal=error.fatal)
        self._persist_late()

    # --- watching ---------------------------------------------------------------------------------------------

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
        return (event for event in self.events if event.version > version)

    # --- writing ----------------------------------------------------------------------------------------------

    def submit(self, change: Change) -> asyncio.Future[Obj]:
        """Gives the change its resourceVersion and its place in the order; the future is done when it is durable.

        Must be called in the same step as the decision. Raises ApiError where the store takes no writes.
        """
        if self._fatal:
            raise ApiError(500, "InternalError", f"the store takes no writes: {self.failure}")
        self._next += 1
        before = self.head(*self._split(change.key))
        record, event, data = self._prepare(change, before, self._next)
        pending = _Pending(record, event, data, asyncio.get_running_loop().create_future())
        self._pending[change.key] = pending
        self._queue.append(pending)
        self._wake.set()
        return pending.done

    def _split(self, key: Key) -> tuple[Resource, str, str]:
        resource = self.catalog.by_id(key[0])
        if resource is None:
            raise RuntimeError(f"no resource {key[0]}")
        return resource, key[1], key[2]

    def _prepare(self, change: Change, before: Obj | None, version: int) -> tuple[Record, Event, bytes | None]:
        obj = sharing.shared(_versioned(change.obj, version), before) if change.obj is not None else None
        shown = obj if obj is not None else _versioned(change.last or before or {}, version)
        kind: EventType = "DELETED" if obj is None else ("MODIFIED" if before is not None else "ADDED")
        event = Event(version, kind, change.key, Stored(shown), Stored(before) if before is not None else None)
        was = self.file_of(change.key)
        origin = (change.origin or self.origin_of(change.key)) if obj is not None else None
        data, file = (None, None) if origin is not None else self._manifest(change, obj, before, was)
        writes = not change.from_file and file != was
        record = Record(change.key, obj, version, file, was, writes=writes, origin=origin)
        return record, event, data

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
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(len(self._queue), MAX_BATCH))]
                try:
                    await asyncio.shield(loop.run_in_executor(self._thread, self._persist, batch))
                except StoreFailed as error:
                    self._fail(batch, error)
                else:
                    self._publish(batch)
            await self._maintain(loop)

    async def _maintain(self, loop: asyncio.AbstractEventLoop) -> None:
        full = self._journal.size > max(self._compact_bytes, 2 * self._journal.snapshot_size)
        if full and not self.late and not self._fatal:
            try:
                await loop.run_in_executor(self._thread, self._journal.write_snapshot, self.contents())
            except OSError as error:
                log.warning("snapshot not written", error=error.strerror)

    def contents(self) -> Contents:
        """All that is committed, as the journal keeps it."""
        records = {
            (identity, *key): Record(
                (identity, *key),
                stored.obj,
                int(stored.obj["metadata"]["resourceVersion"]),
                self._files.get((identity, *key)),
                origin=self._origins.get((identity, *key)),
            )
            for identity, objects in self._objects.items()
            for key, stored in objects.items()
            if stored.obj["metadata"]["resourceVersion"] != STATIC_VERSION
        }
        return Contents(self.store_id, self.created, self.version, records)

    async def close(self) -> None:
        """Says in the journal that every manifest is in place, and closes the files; call it after `run` has ended."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    def _close(self) -> None:
        if not self._fatal:
            try:
                self._journal.append([], unfinished=list(self.late.values()), closing=not self.late)
            except StoreFailed as error:
                log.warning("journal not closed", error=str(error))
        self._journal.close()

    # --- the one thread ---------------------------------------------------------------------------------------

    def _persist(self, batch: Sequence[_Pending]) -> None:
        try:
            for pending in batch:
                if pending.data is not None:
                    folder = self._existing_folder(pending.record.key)
                    pending.temporary = self._disk.write_temporary(folder, pending.data)
        except OSError as error:
            self._drop_temporaries(batch)
            raise StoreFailed(f"a manifest can't be written: {error.strerror}", fatal=False) from error
        try:
            self._journal.append([p.record for p in batch], unfinished=list(self.late.values()))
        except StoreFailed:
            self._drop_temporaries(batch)
            raise
        self._place(batch)

    def _existing_folder(self, key: Key) -> Path:
        path = self._path(key)
        if path is None:
            raise OSError("no manifest folder")
        self._disk.make_dir(path.parent)
        return path.parent

    def _drop_temporaries(self, batch: Sequence[_Pending]) -> None:
        for pending in batch:
            if pending.temporary is not None:
                try:
                    self._disk.unlink(pending.temporary)
                except OSError as error:
                    log.warning("temporary file left", file=str(pending.temporary), error=error.strerror)

    def _place(self, batch: Sequence[_Pending]) -> None:
        """Behind the commit point: a failure here is made good later, never reported as a failed write."""
        folders: set[Path] = set()
        placed: list[Record] = []
        for pending in batch:
            path = self._path(pending.record.key)
            if path is None or not pending.record.writes:
                continue
            try:
                self._keep_edits(path, pending.record)
                if pending.temporary is not None:
                    self._disk.rename(pending.temporary, path)
                else:
                    self._disk.unlink(path)
                folders.add(path.parent)
                placed.append(pending.record)
            except OSError as error:
                self._put_off(pending.record, path, error)
        try:
            for folder in folders:
                self._disk.sync_dir(folder)
        except OSError as error:
            for record in placed:
                self._put_off(record, folder, error)
        else:
            for record in placed:
                self.late.pop(record.key, None)

    def _keep_edits(self, path: Path, record: Record) -> None:
        """A file with other bytes than ours is somebody's work that was not (yet) taken: it gets a second name."""
        there = _hash(path)
        if there not in (None, record.was, record.file):
            copy = path.with_suffix(".yaml.replaced")
            self._disk.keep_copy(path, copy)
            log.warning("edited manifest replaced", file=str(path), copy=str(copy))

    def _put_off(self, record: Record, path: Path, error: OSError) -> None:
        self.late[record.key] = record
        log.error("manifest not written", file=str(path), error=error.strerror)

    def _path(self, key: Key) -> Path | None:
        resource = self.catalog.by_id(key[0])
        return manifests.place(self.root, resource, key) if resource is not None and resource.desired else None

    async def retry_late(self) -> None:
        """Tries again to put manifests in place whose rename failed."""
        if self.late and not self._pending:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._persist_late)

    def _persist_late(self) -> None:
        for key, record in list(self.late.items()):
            try:
                self._finish(record)
                del self.late[key]
            except OSError as error:
                log.error("manifest not written", key=key, error=error.strerror)

    # --- after a batch ----------------------------------------------------------------------------------------

    def _publish(self, batch: Sequence[_Pending]) -> None:
        self.failure = ""
        for pending in batch:
            record = pending.record
            if self._pending.get(record.key) is pending:
                del self._pending[record.key]
            if record.obj is None:
                self._remove(record.key)
            else:
                self._put(record.key, pending.event.now)
            if record.file is None:
                self._files.pop(record.key, None)
            else:
                self._files[record.key] = record.file
            if record.origin is None:
                self._origins.pop(record.key, None)
            else:
                self._origins[record.key] = record.origin
            self._announce(pending.event)
        for pending in batch:
            if not pending.done.done():
                pending.done.set_result(pending.event.now.obj)

    def _announce(self, event: Event) -> None:
        if len(self.events) == self.events.maxlen:
            self.oldest = self.events[0].version
        self.events.append(event)
        self.version = event.version
        for listener in tuple(self._listeners):
            listener(event)

    def _fail(self, batch: Sequence[_Pending], error: StoreFailed) -> None:
        """Nothing of the batch is stored, and whatever was decided on top of it falls with it."""
        self.failure = str(error)
        self._fatal = self._fatal or error.fatal
        log.error("store failed", error=self.failure, fatal=error.fatal)
        doomed = [*batch, *self._queue]
        self._queue.clear()
        self._pending.clear()
        for pending in doomed:
            if not pending.done.done():
                pending.done.set_exception(internal(f"the change is not stored: {self.failure}"))

    # --- memory -----------------------------------------------------------------------------------------------

    def put_static(self, resource: Resource, obj: Obj) -> None:
        """An object of the server itself, which no request changes and no file keeps."""
        self._put((resource.id, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]), Stored(obj))

    def _put(self, key: Key, stored: Stored) -> None:
        identity, short = key[0], (key[1], key[2])
        if short not in self._objects[identity]:
            bisect.insort(self._order[identity], short)
        self._objects[identity][short] = stored

    def _remove(self, key: Key) -> None:
        identity, short = key[0], (key[1], key[2])
        if self._objects[identity].pop(short, None) is not None:
            order = self._order[identity]
            del order[bisect.bisect_left(order, short)]


STATIC_VERSION = "1"
"""resourceVersion of the server's own objects; a change gets at least 2 (the first is burnt at creation)."""


def _versioned(obj: Obj, version: int) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


def _hash(path: Path) -> str | None:
    """The hash of what lies there; None: nothing. Something that is no manifest has a hash that no manifest has."""
    try:
        return manifests.digest(read_regular(path))
    except FileNotFoundError:
        return None
    except OSError:
        return "unreadable"
