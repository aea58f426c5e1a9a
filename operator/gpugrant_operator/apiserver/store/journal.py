"""The append-only log of every accepted change, and the snapshot that keeps it short.

One line is one batch: `<crc32 of the rest, 8 hex> <JSON>\\n`, numbered without gaps. A batch is fsynced before the next
one is written, so only the last line can be torn; it was never acknowledged and is cut off. A bad line before others
can't come from a crash: the store then refuses to open, because to go on would lose acknowledged writes silently.
"""

from __future__ import annotations

import io
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from gpugrant_operator.apiserver.objects import ownership, sharing
from gpugrant_operator.apiserver.objects.status import Json, Obj
from gpugrant_operator.apiserver.store.disk import PRIVATE_DIR, Disk

FORMAT = 1
JOURNAL = "journal.jsonl"
SNAPSHOT = "snapshot.jsonl"
PIECE = 100
"""Records that are written at once."""
RESTORE = "restore a backup (gpugrant store restore FILE)"

log = structlog.get_logger(__name__)

Key = tuple[str, str, str]
"""(resource id, namespace or "", name)"""


class DamagedStore(Exception):
    """The store can't be opened without losing something; the text is one sentence with the file and the line."""


class StoreFailed(Exception):
    """The medium did not take a write. `fatal`: the state of the log is unknown, and nothing more may be written."""

    def __init__(self, message: str, *, fatal: bool) -> None:
        super().__init__(message)
        self.fatal = fatal


@dataclass(frozen=True, slots=True)
class Origin:
    """The file of a source that an object comes from: its path, the digest of what it says of the object, and the
    annotations that it gives."""

    file: str
    digest: str
    annotations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One object after one change; obj None: it is gone.

    `file` and `was` are the hashes of its manifest after and before the change (None: no file); `writes` says that
    the server itself makes the difference on disk; `text` is what the file says, where that is a person's text.
    """

    key: Key
    obj: Obj | None
    version: int
    file: str | None = None
    was: str | None = None
    writes: bool = False
    origin: Origin | None = None
    text: str | None = None

    def to_json(self) -> Obj:
        entry: Obj = {"key": list(self.key), "rv": self.version}
        if self.obj is not None:
            entry["obj"] = self.obj
        for name, value in (("file", self.file), ("was", self.was), ("text", self.text)):
            if value is not None:
                entry[name] = value
        if self.writes:
            entry["writes"] = True
        if self.origin is not None:
            entry["origin"] = [self.origin.file, self.origin.digest, *self.origin.annotations]
        return entry

    @classmethod
    def from_json(cls, entry: Json) -> Record:
        resource, namespace, name = entry["key"]
        return cls(
            key=(resource, namespace, name),
            obj=_shared(entry.get("obj")),
            version=int(entry["rv"]),
            file=entry.get("file"),
            was=entry.get("was"),
            writes=bool(entry.get("writes")),
            origin=_origin(entry.get("origin")),
            text=entry.get("text"),
        )


def _shared(obj: Obj | None) -> Obj | None:
    """At once for each record: what a line leaves behind is then used for the next, and not by the side of it."""
    return None if obj is None else sharing.shared(ownership.shared(obj))


def _origin(told: Json) -> Origin | None:
    return Origin(told[0], told[1], tuple(told[2:])) if told else None


@dataclass
class Contents:
    """What the files of a store hold."""

    store_id: str
    created: str
    version: int = 0
    """The highest resourceVersion ever given out."""
    records: dict[Key, Record] = field(default_factory=dict)
    unfinished: list[Record] = field(default_factory=list)
    """Changes whose manifests may not be on disk yet: those of the last batch, and those that failed before."""
    cut: int = 0
    """Bytes of a torn last line that were cut off."""


def line(value: Json) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def parse_line(data: bytes) -> Json | None:
    """The value of a whole, sound line (without its newline); None otherwise."""
    if len(data) < 10 or data[8:9] != b" ":
        return None
    try:
        if int(data[:8], 16) != zlib.crc32(data[9:]):
            return None
        return json.loads(data[9:])
    except ValueError:
        return None


@dataclass
class Reading:
    """What the files of a store say; nothing is changed by looking."""

    contents: Contents | None
    """None: there is no store yet."""
    sequence: int = 0
    """The number of the last batch."""
    size: int = 0
    """Bytes of the journal that are sound."""
    snapshot_size: int = 0


class Journal:
    """The open log of one store; one thread at a time may call it."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.folder = folder
        self.disk = disk
        self._descriptor = -1
        self._size = 0
        self._sequence = 0
        self.snapshot_size = 0

    @property
    def size(self) -> int:
        return self._size

    def open(self, *, store_id: str, created: str) -> Contents:
        """Everything stored; a fresh store gets the given id. Raises DamagedStore or OSError."""
        self.disk.make_dir(self.folder)
        self.folder.chmod(PRIVATE_DIR)
        found = read(self.folder)
        contents = found.contents or Contents(store_id=store_id, created=created)
        self._sequence, self._size, self.snapshot_size = found.sequence, found.size, found.snapshot_size
        self._descriptor = self.disk.open_append(self.folder / JOURNAL)
        if contents.cut:
            self.disk.truncate(self._descriptor, self._size)
            log.warning("torn line cut off", file=str(self.folder / JOURNAL), bytes=contents.cut)
        if found.contents is None:
            self.write_snapshot(contents)
        return contents

    def append(self, records: Sequence[Record], *, unfinished: Sequence[Record] = (), closing: bool = False) -> None:
        """One batch, durable on return. Raises StoreFailed; unless it is fatal, nothing of the batch is stored."""
        batch: Obj = {"seq": self._sequence + 1, "records": [record.to_json() for record in records]}
        if unfinished:
            batch["unfinished"] = [record.to_json() for record in unfinished]
        if closing:
            batch["closed"] = True
        data = line(batch)
        try:
            self.disk.append(self._descriptor, data)
        except OSError as error:
            self._undo(error)
        try:
            self.disk.sync(self._descriptor)
        except OSError as error:
            # After a failed fsync the kernel may drop the pages and call the next fsync a success (fsyncgate).
            raise StoreFailed(sentence(self.folder / JOURNAL, error), fatal=True) from error
        self._size += len(data)
        self._sequence += 1

    def _undo(self, error: OSError) -> None:
        try:
            self.disk.truncate(self._descriptor, self._size)
        except OSError as second:
            raise StoreFailed(sentence(self.folder / JOURNAL, second), fatal=True) from error
        raise StoreFailed(sentence(self.folder / JOURNAL, error), fatal=False) from error

    def write_snapshot(self, contents: Contents) -> None:
        """Puts all objects into a new snapshot and empties the journal behind it. Raises OSError.

        A crash between the two leaves old batches in the journal; their numbers say that the snapshot has them.
        """
        self._replace_snapshot(contents)
        self.disk.truncate(self._descriptor, 0)
        self._size = 0

    def renew(self, contents: Contents) -> None:
        """A snapshot and a new journal, for one that may end in a batch which was not acknowledged. Raises OSError.

        The doubtful batch loses its number to the snapshot, and its pages go with the old file.
        """
        self._sequence += 1
        self._replace_snapshot(contents)
        self.disk.replace(self.folder / JOURNAL, b"")
        descriptor = self.disk.open_append(self.folder / JOURNAL)
        self.close()
        self._descriptor, self._size = descriptor, 0

    def _replace_snapshot(self, contents: Contents) -> None:
        self.disk.replace(self.folder / SNAPSHOT, snapshot(contents, self._sequence))
        self.snapshot_size = (self.folder / SNAPSHOT).stat().st_size

    def close(self) -> None:
        if self._descriptor >= 0:
            self.disk.close(self._descriptor)
            self._descriptor = -1


def snapshot(contents: Contents, sequence: int) -> Iterator[bytes]:
    """The bytes of a snapshot that has all batches up to that number, in pieces: a store is larger than a batch."""
    head: Obj = {
        "format": FORMAT,
        "store": contents.store_id,
        "created": contents.created,
        "rv": contents.version,
        "seq": sequence,
        "count": len(contents.records),
    }
    if contents.unfinished:
        head["unfinished"] = [record.to_json() for record in contents.unfinished]
    yield line(head)
    records = iter(contents.records.values())
    while rows := [line(record.to_json()) for record in itertools.islice(records, PIECE)]:
        yield b"".join(rows)


def read(folder: Path) -> Reading:
    """The store in this folder as it lies there. Raises DamagedStore or OSError."""
    path, journal = folder / SNAPSHOT, folder / JOURNAL
    if path.exists():
        found = parse_snapshot(path, path.read_bytes())
    else:
        if journal.exists() and journal.stat().st_size:
            raise DamagedStore(
                f"{path} is missing and {journal} is not: put the file back, or move the whole folder away to start "
                "an empty store"
            )
        found = Reading(None)
    if found.contents is not None:
        _read_journal(journal, journal.read_bytes() if journal.exists() else b"", found, found.contents)
    return found


def parse_snapshot(path: Path, data: bytes) -> Reading:
    """The snapshot in these bytes; `path` is for the sentences. Raises DamagedStore."""
    rows = (row.rstrip(b"\n") for row in io.BytesIO(data))
    head = parse_line(next(rows, b""))
    if head is None:
        raise _damaged(path, 1)
    if head.get("format") != FORMAT:
        raise DamagedStore(
            f"{path} has format {head.get('format')!r}, and this version reads {FORMAT}: use the version that wrote it"
        )
    contents = Contents(head["store"], head["created"], int(head["rv"]))
    contents.unfinished = [Record.from_json(entry) for entry in head.get("unfinished", ())]
    number = 1
    for number, row in enumerate(itertools.islice(rows, head["count"]), start=2):
        value = parse_line(row)
        if value is None:
            raise _damaged(path, number)
        _take(contents, [Record.from_json(value)])
    if len(contents.records) != head["count"]:
        raise _damaged(path, number + 1)
    return Reading(contents, sequence=int(head["seq"]), snapshot_size=len(data))


def _read_journal(path: Path, data: bytes, found: Reading, contents: Contents) -> None:
    offset, number = 0, 0
    while offset < len(data):
        number += 1
        end = data.find(b"\n", offset)
        batch = parse_line(data[offset:end]) if end >= 0 else None
        if batch is None:
            if 0 <= end < len(data) - 1:
                raise _damaged(path, number)
            contents.cut = len(data) - offset
            break
        _take_batch(path, number, found, contents, batch)
        offset = end + 1
    found.size = offset


def _take_batch(path: Path, number: int, found: Reading, contents: Contents, batch: Json) -> None:
    if batch["seq"] <= found.sequence:
        return  # the snapshot has it already
    if batch["seq"] != found.sequence + 1:
        raise DamagedStore(
            f"{path} line {number}: batch {found.sequence + 1} is missing, so acknowledged writes are lost: "
            f"{RESTORE}, or move the folder away to start an empty store"
        )
    found.sequence = batch["seq"]
    records = [Record.from_json(entry) for entry in batch["records"]]
    _take(contents, records)
    late = [Record.from_json(entry) for entry in batch.get("unfinished", ())]
    contents.unfinished = [] if batch.get("closed") else [*late, *(r for r in records if r.writes)]


def _take(contents: Contents, records: Iterable[Record]) -> None:
    for record in records:
        contents.version = max(contents.version, record.version)
        if record.obj is None:
            contents.records.pop(record.key, None)
        else:
            contents.records[record.key] = record


def _damaged(path: Path, number: int) -> DamagedStore:
    return DamagedStore(
        f"{path} line {number} is damaged, and what follows it was acknowledged: {RESTORE}, or move the "
        "folder away to start an empty store (the manifests stay)"
    )


def sentence(path: Path, error: OSError) -> str:
    """Why the medium did not take a write, for a person."""
    return f"{path} can't be written: {error.strerror or 'input/output error'}"
