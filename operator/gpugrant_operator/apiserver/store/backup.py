"""One file that holds a whole store at one moment, made beside a running server, and read back with every check.

The journal only grows between two snapshots, so that its readable part is the store as it was after some batch: no
lock, no torn state, and every write that was acknowledged before is in it. The file is a tar: `index` (one checked
line), `snapshot.jsonl` as the store has it, and `manifests/…` as people wrote them. It holds no key and no token.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpugrant_operator.apiserver.objects.resources import Catalog, Resource
from gpugrant_operator.apiserver.objects.status import Obj
from gpugrant_operator.apiserver.store import journal, manifests
from gpugrant_operator.apiserver.store.disk import MODE_FILE, read_regular
from gpugrant_operator.apiserver.store.journal import SNAPSHOT, Contents, DamagedStore, Reading, Record
from gpugrant_operator.apiserver.store.manifests import BadManifestError

FORMAT = 1
INDEX = "index"
MANIFESTS = "manifests"

TRIES = 10
PAUSE = 0.05
"""Seconds between two looks at files that change meanwhile."""


class BadBackup(Exception):
    """The file is no backup, or no whole one; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds. `made` is RFC 3339."""

    contents: Contents
    made: str


def look(folder: Path) -> Reading:
    """The store in the folder as it is after one of its batches, whether or not a server writes to it meanwhile.

    Raises DamagedStore or OSError.
    """
    for left in reversed(range(TRIES)):
        before = _identity(folder)
        try:
            found = journal.read(folder)
        except DamagedStore:
            if left == 0:
                raise
        else:
            if _identity(folder) == before:
                return found
        time.sleep(PAUSE)
    raise DamagedStore(f"{folder} changes all the time: stop the API server and try again")


def _identity(folder: Path) -> tuple[int, int] | None:
    """Tells one snapshot from the next: it is never written in place."""
    try:
        found = (folder / SNAPSHOT).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def pack(contents: Contents, root: Path, catalog: Catalog, made: str) -> bytes:
    """The backup's bytes. `root`: the manifests folder, `made`: now, RFC 3339."""
    files: dict[str, bytes] = {}
    records: dict[journal.Key, Record] = {}
    for key, record in contents.records.items():
        resource = catalog.by_id(key[0])
        records[key] = record
        if resource is None or not resource.desired or record.file is None or record.obj is None:
            continue
        path = manifests.place(root, resource, key)
        data = _text(path, record, resource)
        records[key] = replace(record, file=manifests.digest(data))
        files[f"{MANIFESTS}/{path.relative_to(root).as_posix()}"] = data
    whole = Contents(contents.store_id, contents.created, contents.version, records)
    files = {SNAPSHOT: b"".join(journal.snapshot(whole, 0)), **files}
    index: Obj = {
        "format": FORMAT,
        "store": contents.store_id,
        "resourceVersion": contents.version,
        "made": made,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in {INDEX: journal.line(index), **files}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), MODE_FILE
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _text(path: Path, record: Record, resource: Resource) -> bytes:
    """The file of the object, where it says what the object is; else as the server would write it."""
    wanted = manifests.desired(record.obj or {})
    try:
        data = read_regular(path)
        said = manifests.combined(manifests.read(data, resource, record.key), record.obj)
        return data if manifests.desired(said) == wanted else manifests.dump(wanted)
    except (OSError, BadManifestError):
        return manifests.dump(wanted)


def unpack(data: bytes, catalog: Catalog) -> Backup:
    """The backup in these bytes. Raises BadBackup."""
    files = _members(data)
    index = journal.parse_line(files.pop(INDEX, b"").rstrip(b"\n"))
    if not isinstance(index, dict):
        raise BadBackup("it is no backup of a gpugrant store, or its index is damaged")
    if index.get("format") != FORMAT:
        raise BadBackup(
            f"it has format {index.get('format')!r}, and this version reads {FORMAT}: use the version that made it"
        )
    said: Mapping[str, str] = index["files"]
    for name in sorted({*said, *files}):
        if name not in files:
            raise BadBackup(f"it is not whole: {name} is missing")
        if said.get(name) != hashlib.sha256(files[name]).hexdigest():
            raise BadBackup(f"it is damaged: {name} is not what was backed up")
    try:
        found = journal.parse_snapshot(Path(SNAPSHOT), files[SNAPSHOT]).contents
    except (DamagedStore, KeyError) as error:
        raise BadBackup(f"it holds no store that this version reads: {error}") from error
    if found is None:
        raise BadBackup("it holds no store")
    texts = dict(_texts(found, files, catalog))
    found.records = {key: replace(record, text=texts.get(key)) for key, record in found.records.items()}
    return Backup(found, index["made"])


def _members(data: bytes) -> dict[str, bytes]:
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            opened = {member.name: tar.extractfile(member) for member in tar.getmembers()}
            return {name: member.read() for name, member in opened.items() if member is not None}
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise BadBackup("it is no tar file, or not a whole one") from error


def _texts(contents: Contents, files: Mapping[str, bytes], catalog: Catalog) -> Iterator[tuple[journal.Key, str]]:
    """What people wrote; what the server wrote it writes again."""
    for key, record in contents.records.items():
        resource = catalog.by_id(key[0])
        if resource is None or record.obj is None:
            continue
        name = manifests.place(Path(MANIFESTS), resource, key).as_posix()
        if name in files and files[name] != manifests.dump(manifests.desired(record.obj)):
            yield key, files[name].decode()
