"""Manifests that people edit: every added, changed or removed file becomes a create, update or delete.

A file goes through the same rules as a request. What can't be taken changes nothing: the last good object stays, and
the file's problem is told in the log, in an Event and in the health message until it is mended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import structlog
import watchfiles

from gpugrant_operator.apiserver import reports
from gpugrant_operator.apiserver.objects.resources import NAMESPACES, Resource
from gpugrant_operator.apiserver.objects.status import ApiError, Obj, conflict
from gpugrant_operator.apiserver.registry import Options, Registry
from gpugrant_operator.apiserver.store import manifests
from gpugrant_operator.apiserver.store.disk import read_regular
from gpugrant_operator.apiserver.store.journal import Key
from gpugrant_operator.apiserver.store.manifests import BadManifestError, Found

REMOVAL_DELAY = 0.5
"""Seconds that a file must be gone before its object goes: editors replace a file in two steps."""

REASON = "SourceInvalid"

log = structlog.get_logger(__name__)


@dataclass
class ManifestSync:
    """The manifests folder of one server."""

    registry: Registry
    root: Path
    problems: dict[Path, str] = field(default_factory=dict)
    _missing: dict[Key, float] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _again: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def message(self) -> str:
        """The problems in one line; empty: there are none."""
        return reports.in_one_line(self.problems)

    # --- loops ------------------------------------------------------------------------------------------------

    async def follow(self, stop: asyncio.Event) -> None:
        """Takes changes as the kernel tells them, until stopped."""
        while not stop.is_set():
            if not (self.root / manifests.OBJECTS).is_dir():
                await self.scan()
            self.look_again()  # for what changed before the kernel was asked to tell
            watched = watchfiles.awatch(
                self.root, watch_filter=_relevant, debounce=100, step=20, stop_event=stop, recursive=True
            )
            try:
                async for found in watched:
                    await self.take_paths(Path(path) for _, path in found)
                    if not self.root.is_dir():
                        break
            except (OSError, RuntimeError) as error:
                # For example no more inotify watches: then the rescan alone finds changes.
                log.warning("manifests can't be watched", error=str(error))
                await asyncio.sleep(self.registry.settings.rescan_interval)

    async def rescan(self, interval: float) -> None:
        """Looks at every file now and then, for what the kernel did not tell and for what had to wait."""
        while True:
            self._again.clear()
            try:
                async with asyncio.timeout(interval):
                    await self._again.wait()
            except TimeoutError:
                pass
            else:
                await asyncio.sleep(REMOVAL_DELAY)
            await self.scan()

    def look_again(self) -> None:
        """Asks for a scan soon."""
        self._again.set()

    # --- one look ---------------------------------------------------------------------------------------------

    async def scan(self) -> None:
        """One look at the whole folder."""
        async with self._lock:
            await self._ensure_root()
            catalog = self.registry.store.catalog
            found = await asyncio.to_thread(lambda: list(manifests.scan(self.root, catalog)))
            found.sort(key=lambda item: item.resource is not None and item.resource.id != NAMESPACES.id)
            for item in found:
                await self._take(item)
            there = {item.key for item in found}
            for key in [key for key in self.registry.store.known_files() if key not in there]:
                await self._take_absence(key)
            for path in [path for path in self.problems if not path.exists()]:
                del self.problems[path]
            await self.registry.store.retry_late()

    async def take_paths(self, paths: Iterable[Path]) -> None:
        """One look at these files; a folder among them means a look at everything."""
        wanted = sorted(set(paths))
        if any(path.is_dir() or not path.suffix for path in wanted):
            await self.scan()
            return
        async with self._lock:
            for path in wanted:
                item = manifests.locate(self.root, path, self.registry.store.catalog)
                if path.exists():
                    await self._take(item)
                else:
                    self.problems.pop(path, None)
                    if item.key is not None and item.key in self.registry.store.known_files():
                        await self._take_absence(item.key)

    async def _ensure_root(self) -> None:
        """A folder that vanished as a whole is an accident (a mount, a wrong rm), not a wish to delete everything."""
        folder, store = self.root / manifests.OBJECTS, self.registry.store
        if folder.is_dir():
            return
        if lost := list(store.known_files()):
            log.error("manifests folder was missing: its files are written again", folder=str(folder), files=len(lost))
            await store.restore(lost)
        self.registry.settings.disk.make_dir(folder)

    # --- one file ---------------------------------------------------------------------------------------------

    async def _take(self, found: Found) -> None:
        if found.resource is None or found.key is None:
            self._note(
                found,
                "no object may lie here: a manifest's place is objects/<plural>/<namespace, or _cluster>/<name>.yaml",
            )
            return
        self._missing.pop(found.key, None)
        try:
            why = await self._take_object(found, found.resource, found.key)
        except ApiError as error:
            why = error.message
        except BadManifestError as error:
            why = str(error)
        except OSError as error:
            why = f"the file can't be read: {error.strerror}"
        if why and self._note(found, why):
            await reports.warn(
                self.registry, reports.Subject(found.resource, found.key), REASON, f"{found.path}: {why}"
            )
        if not why:
            self.problems.pop(found.path, None)

    async def _take_object(self, found: Found, resource: Resource, key: Key) -> str:
        """Brings the object to what the file says; the answer says why it was not (yet) done."""
        store = self.registry.store
        await store.settled(key)
        if key in store.late:
            return "the file could not be written by the server and is behind its object"
        data = read_regular(found.path)
        digest = manifests.digest(data)
        if digest == store.file_of(key):
            return ""
        manifest = manifests.read(data, resource, key)
        held = store.head(resource, key[1], key[2])
        if held is not None and held["metadata"].get("deletionTimestamp"):
            self.look_again()
            return "the object of this name is being deleted: the file is taken when it is gone"
        options = Options(
            field_validation="Strict",
            manager="gpugrant-manifests",
            file=digest,
            from_file=True,
            guard=lambda: self._unchanged(found.path, resource, key, digest),
        )
        await self._write(resource, key, manifest, held, options)
        return ""

    async def _write(self, resource: Resource, key: Key, manifest: Obj, held: Obj | None, options: Options) -> None:
        _, namespace, name = key
        body = manifests.combined(manifest, held)
        if held is None:
            written = await self.registry.create(resource, namespace, body, options)
            log.info("object made from its manifest", resource=resource.id, namespace=namespace, name=name)
        else:
            written = await self.registry.update(resource, namespace, name, body, options)
            log.info("object changed by its manifest", resource=resource.id, namespace=namespace, name=name)
        for warning in written.warnings:
            log.warning("manifest taken with a warning", namespace=namespace, name=name, warning=warning)
        if options.file is not None and self.registry.store.file_of(key) != options.file:
            self.registry.store.remember_file(key, options.file)

    def _unchanged(self, path: Path, resource: Resource, key: Key, digest: str) -> None:
        """The file is still the one that was read, and no request changed the object meanwhile."""
        try:
            same = manifests.digest(read_regular(path)) == digest
        except OSError:
            same = False
        if not same or self.registry.store.is_pending(key):
            self.look_again()
            raise conflict(resource.plural, resource.group, key[2], "the file changed while it was read")

    async def _take_absence(self, key: Key) -> None:
        store = self.registry.store
        await store.settled(key)
        resource = store.catalog.by_id(key[0])
        if resource is None or key not in store.known_files() or key in store.late:
            return
        path = manifests.place(self.root, resource, key)
        if path.exists():
            return
        loop_time = asyncio.get_running_loop().time()
        since = self._missing.setdefault(key, loop_time)
        if loop_time - since < REMOVAL_DELAY:
            self.look_again()
            return
        del self._missing[key]
        await self._remove(resource, key, path)

    async def _remove(self, resource: Resource, key: Key, path: Path) -> None:
        def guard() -> None:
            if path.exists() or self.registry.store.is_pending(key):
                raise conflict(resource.plural, resource.group, key[2], "the file came back")

        try:
            await self.registry.delete(resource, key[1], key[2], {}, Options(from_file=True, guard=guard))
        except ApiError as error:
            if error.code == 404 or error.reason == "Conflict":
                return
            log.warning("manifest written again", file=str(path), reason=error.message)
            await self.registry.store.restore([key])
        else:
            log.info("object deleted with its manifest", resource=resource.id, namespace=key[1], name=key[2])

    def _note(self, found: Found, why: str) -> bool:
        """Remembers the problem; True: it is new."""
        if self.problems.get(found.path) == why:
            return False
        self.problems[found.path] = why
        log.warning("manifest not taken", file=str(found.path), reason=why)
        return True


def _relevant(_: watchfiles.Change, path: str) -> bool:
    name = Path(path).name
    if name.startswith("."):
        return False
    return name.endswith(manifests.SUFFIXES) or not Path(path).suffix
