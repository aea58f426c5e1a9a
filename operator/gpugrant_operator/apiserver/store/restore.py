"""A store becomes what a backup says. Call it with the lock of the API server held.

The new snapshot is the one commit point: until it lies there nothing is changed, and behind it the manifests are put in
place by the same steps that finish a crash. Every object gets a resourceVersion that no client can have seen: who
watches is told 410 and lists again, and who writes with what it read before is refused.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpugrant_operator.apiserver.objects.resources import Catalog
from gpugrant_operator.apiserver.store import journal, manifests
from gpugrant_operator.apiserver.store.backup import Backup
from gpugrant_operator.apiserver.store.disk import Disk
from gpugrant_operator.apiserver.store.journal import JOURNAL, SNAPSHOT, Contents, Journal, Key, Record
from gpugrant_operator.apiserver.store.writer import Writer, hash_of

JUMP = 1_000_000
"""Versions that are left out: more than a damaged store can have given out behind its last readable line
(as etcdutl's --bump-revision is used, etcd-io/etcd#16028)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store lies. `kept`: where what is replaced is put."""

    state: Path
    manifests: Path
    kept: Path


@dataclass(frozen=True, slots=True)
class Restored:
    objects: int
    version: int
    kept: Path | None
    """None: there was nothing to replace."""


def restore(backup: Backup, place: Place, catalog: Catalog, disk: Disk) -> Restored:
    """Raises OSError; the store is then the old one or the new one, and another call may follow."""
    seen, sequence = _seen(place.state)
    kept = _keep(place, disk)
    contents = _renumbered(backup.contents, max(seen, backup.contents.version) + JUMP)
    contents.unfinished = list(_unfinished(contents, place.manifests, catalog))
    contents.records = {key: replace(record, text=None) for key, record in contents.records.items()}
    disk.make_dir(place.state)
    disk.replace(place.state / SNAPSHOT, journal.snapshot(contents, sequence + JUMP))
    disk.replace(place.state / JOURNAL, b"")
    log = Journal(place.state, disk)
    opened = log.open(store_id=contents.store_id, created=contents.created)
    writer = Writer(catalog, place.manifests, log, disk)
    writer.late = {record.key: record for record in opened.unfinished}
    writer.finish_late()
    writer.close(in_doubt=False)
    return Restored(len(contents.records), contents.version, kept)


def _seen(state: Path) -> tuple[int, int]:
    """The highest resourceVersion and batch that can be read there, whatever is damaged between."""
    version = sequence = 0
    for name in (SNAPSHOT, JOURNAL):
        path = state / name
        for row in path.read_bytes().split(b"\n") if path.exists() else ():
            value = journal.parse_line(row)
            if isinstance(value, dict):
                records = value.get("records") or ()
                version = max([version, int(value.get("rv") or 0), *(int(record["rv"]) for record in records)])
                sequence = max(sequence, int(value.get("seq") or 0))
    return version, sequence


def _keep(place: Place, disk: Disk) -> Path | None:
    """A copy of what is there, durable before anything of it changes."""
    files = [place.state / name for name in (SNAPSHOT, JOURNAL) if (place.state / name).exists()]
    objects = place.manifests / manifests.OBJECTS
    if not files and not objects.is_dir():
        return None
    disk.make_dir(place.kept)
    place.kept.chmod(0o700)
    for file in files:
        shutil.copy2(file, place.kept / file.name)
    if objects.is_dir():
        shutil.copytree(objects, place.kept / manifests.OBJECTS, symlinks=True, ignore=_no_plain_file)
    os.sync()
    return place.kept


def _no_plain_file(folder: str, names: list[str]) -> list[str]:
    """Pipes and devices among the manifests: nobody's work, and a copy of them would hang."""
    paths = [Path(folder, name) for name in names]
    return [path.name for path in paths if not (path.is_symlink() or path.is_file() or path.is_dir())]


def _renumbered(contents: Contents, base: int) -> Contents:
    """The same objects in the order of their last changes, each with a version above the base."""
    records: dict[Key, Record] = {}
    for number, record in enumerate(sorted(contents.records.values(), key=lambda record: record.version), start=1):
        obj = record.obj or {}
        metadata = {**obj.get("metadata", {}), "resourceVersion": str(base + number)}
        records[record.key] = replace(record, obj={**obj, "metadata": metadata}, version=base + number)
    return Contents(contents.store_id, contents.created, base + len(records), records)


def _unfinished(contents: Contents, root: Path, catalog: Catalog) -> Iterator[Record]:
    """Manifests to write, and those of objects that are none any more to remove."""
    for key, record in contents.records.items():
        resource = catalog.by_id(key[0])
        if resource is not None and record.file is not None:
            there = hash_of(manifests.place(root, resource, key))
            if there != record.file:
                yield replace(record, was=there, writes=True)
    for found in manifests.scan(root, catalog):
        held = contents.records.get(found.key) if found.key is not None else None
        if found.key is not None and (held is None or held.file is None):
            yield Record(found.key, None, contents.version, None, hash_of(found.path), writes=True)
