"""How a batch of decided changes becomes durable; everything here runs in the store's one thread.

New manifests go to temporary files, then the journal takes the batch (the commit point), then the files are renamed.
Whatever fails before the commit point leaves nothing of the batch; whatever fails behind it is made good later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from gpugrant_operator.apiserver.objects.resources import Catalog
from gpugrant_operator.apiserver.store import manifests
from gpugrant_operator.apiserver.store.disk import TEMPORARY, Disk, read_regular
from gpugrant_operator.apiserver.store.journal import Contents, Journal, Key, Record, StoreFailed, sentence

log = structlog.get_logger(__name__)


@dataclass
class Write:
    """A change on its way to the medium. `data`: the manifest to write; None: none."""

    record: Record
    data: bytes | None
    temporary: Path | None = None


class Writer:
    """The manifests folder and the journal of one store."""

    def __init__(self, catalog: Catalog, root: Path, journal: Journal, disk: Disk) -> None:
        self.late: dict[Key, Record] = {}
        """Committed changes whose manifest could not be put in place yet."""
        self._catalog = catalog
        self._root = root
        self._journal = journal
        self._disk = disk

    # --- a batch ----------------------------------------------------------------------------------------------

    def persist(self, batch: Sequence[Write]) -> None:
        """Returns when the batch is durable. Raises StoreFailed; unless that is fatal, nothing of the batch is left."""
        try:
            for write in batch:
                if write.data is not None:
                    folder = self._folder(write.record.key)
                    write.temporary = self._disk.write_temporary(folder, write.data)
        except OSError as error:
            self._drop(batch)
            raise StoreFailed(f"a manifest can't be written: {error.strerror}", fatal=False) from error
        try:
            self._journal.append([write.record for write in batch], unfinished=list(self.late.values()))
        except StoreFailed:
            self._drop(batch)
            raise
        self._place(batch)

    def _folder(self, key: Key) -> Path:
        path = self.path(key)
        if path is None:
            raise OSError(None, "there is no folder for it")
        self._disk.make_dir(path.parent)
        return path.parent

    def _drop(self, batch: Sequence[Write]) -> None:
        for write in batch:
            if write.temporary is not None:
                try:
                    self._disk.unlink(write.temporary)
                except OSError as error:
                    log.warning("temporary file left", file=str(write.temporary), error=error.strerror)

    def _place(self, batch: Sequence[Write]) -> None:
        """Behind the commit point: a failure here is made good later, never reported as a failed write."""
        folders: set[Path] = set()
        placed: list[Record] = []
        for write in batch:
            path = self.path(write.record.key)
            if path is None or not write.record.writes:
                continue
            try:
                self._keep_edits(path, write.record)
                if write.temporary is not None:
                    self._disk.rename(write.temporary, path)
                else:
                    self._disk.unlink(path)
                folders.add(path.parent)
                placed.append(write.record)
            except OSError as error:
                self._put_off(write.record, path, error)
                self._drop([write])
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
        there = hash_of(path)
        if there not in (None, record.was, record.file):
            copy = path.with_suffix(".yaml.replaced")
            self._disk.keep_copy(path, copy)
            log.warning("edited manifest replaced", file=str(path), copy=str(copy))

    def _put_off(self, record: Record, path: Path, error: OSError) -> None:
        self.late[record.key] = record
        log.error("manifest not written", file=str(path), error=error.strerror)

    # --- what is late -----------------------------------------------------------------------------------------

    def finish(self, record: Record) -> None:
        """Puts the manifest of a committed change in place. Raises OSError."""
        path = self.path(record.key)
        if path is None:
            return
        there = hash_of(path)
        if there == record.file or there != record.was:
            return  # already done, or a person has been at it since: the scan looks at it
        if record.file is None or record.obj is None:
            self._disk.unlink(path)
            self._disk.sync_dir(path.parent)
        else:
            self._disk.make_dir(path.parent)
            self._disk.replace(path, manifests.text_of(record))

    def finish_late(self) -> None:
        """Tries again what was put off; what fails stays put off."""
        for key, record in list(self.late.items()):
            try:
                self.finish(record)
                del self.late[key]
            except OSError as error:
                log.error("manifest not written", key=key, error=error.strerror)

    def restore(self) -> None:
        """Says what is late in the journal first: an absent file would else count as deleted by hand after a crash."""
        try:
            self._journal.append([], unfinished=list(self.late.values()))
        except StoreFailed as error:
            log.error("store failed", error=str(error), fatal=error.fatal)
        self.finish_late()

    def sweep(self) -> None:
        """Removes unfinished files that a crash left; on a medium that takes no writes they stay."""
        for folder in (self._root, self._journal.folder):
            for path in folder.rglob(f"{TEMPORARY}*"):
                try:
                    self._disk.unlink(path)
                except OSError as error:
                    log.warning("temporary file left", file=str(path), error=error.strerror)

    # --- the medium itself ------------------------------------------------------------------------------------

    def probe(self) -> None:
        """Tries whether the medium takes writes again, by ones that say nothing. Raises StoreFailed."""
        try:
            self._disk.make_dir(self._root)
            self._disk.unlink(self._disk.write_temporary(self._root, b"\n" * 4096))
        except OSError as error:
            raise StoreFailed(sentence(self._root, error), fatal=False) from error
        self._journal.append([], unfinished=list(self.late.values()))

    def renew(self, contents: Contents) -> None:
        """A new journal for one whose state is unknown. Raises StoreFailed, which is fatal: it still is."""
        contents.unfinished = list(self.late.values())
        try:
            self._journal.renew(contents)
        except OSError as error:
            raise StoreFailed(sentence(self._journal.folder, error), fatal=True) from error

    def snapshot(self, contents: Contents) -> None:
        """Keeps the journal short. Raises OSError."""
        contents.unfinished = list(self.late.values())
        self._journal.write_snapshot(contents)

    def is_long(self, compact_bytes: int) -> bool:
        return self._journal.size > max(compact_bytes, 2 * self._journal.snapshot_size)

    def close(self, *, in_doubt: bool) -> None:
        """Says in the journal that every manifest is in place, unless that can't be said."""
        if not in_doubt:
            try:
                self._journal.append([], unfinished=list(self.late.values()), closing=not self.late)
            except StoreFailed as error:
                log.warning("journal not closed", error=str(error))
        self._journal.close()

    def path(self, key: Key) -> Path | None:
        """Where the manifest of the object lies; None: it has none."""
        resource = self._catalog.by_id(key[0])
        return manifests.place(self._root, resource, key) if resource is not None and resource.desired else None


def guarded(work: Callable[[], None]) -> None:
    """Does it; whatever goes wrong and was not foreseen leaves the journal in doubt, and the store running."""
    try:
        work()
    except (StoreFailed, OSError):
        raise
    except Exception as error:
        log.exception("store failed")
        raise StoreFailed(f"{type(error).__name__}: {error}", fatal=True) from error


def hash_of(path: Path) -> str | None:
    """The hash of what lies there; None: nothing. Something that is no manifest has a hash that no manifest has."""
    try:
        return manifests.digest(read_regular(path))
    except FileNotFoundError:
        return None
    except OSError:
        return "unreadable"
