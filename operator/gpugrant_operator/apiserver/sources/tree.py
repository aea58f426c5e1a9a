"""One look at a source: which files lie there, and what those say that are whole. Reads only.

A file is read when two looks in a row found it the same: editors, `git checkout` and `cp` write in steps. Folders are
looked at, not watched: a swapped link, a mount, a brand-new sub-folder and a lost notification are then all the same.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpugrant_operator.apiserver.objects.resources import Catalog
from gpugrant_operator.apiserver.sources import documents
from gpugrant_operator.apiserver.sources.documents import Read
from gpugrant_operator.apiserver.store.disk import read_regular
from gpugrant_operator.apiserver.store.manifests import SUFFIXES

NOWHERE = "the link leads nowhere"
"""In the middle of a swap, or its volume is not there: what it said stays."""

OPEN = "everybody may write to it, and who writes here grants: chmod o-w"

Signature = tuple[int, int, int, int, int]
"""Device, inode, size, times of change in ns."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: as it was seen last, and as it was read last (None: never yet)."""

    seen: Signature
    taken: Signature | None = None
    read: Read | None = None

    @property
    def settled(self) -> bool:
        return self.seen == self.taken


@dataclass(frozen=True, slots=True)
class Look:
    """A source at one moment. `files` are in the order in which the first one wins."""

    root: Path
    there: bool
    busy: bool = False
    """Git is at work in it: .git/index.lock is there."""
    files: Mapping[str, Entry] | None = None
    unreadable: Mapping[str, str] | None = None
    """What is passed over, and why."""


def look(root: Path, before: Look | None, catalog: Catalog) -> Look:
    """The source as it is now; never raises for what lies in it."""
    if not root.is_dir():
        return Look(root, there=False)
    known = (before.files if before is not None else None) or {}
    unreadable: dict[str, str] = {}

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            unreadable[str(error.filename)] = error.strerror or str(error)

    real = root.resolve()
    files: dict[str, Entry] = {}
    for folder, folders, names in os.walk(root, onerror=failed):
        if _is_anybodys(Path(folder)):
            unreadable[folder] = OPEN
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in [name for name in (*folders, *names) if not _is_text(name)]:
            unreadable[str(Path(folder, ascii(name)))] = "its name is no UTF-8"
        folders[:] = filter(_is_text, folders)
        for name in sorted(filter(_is_text, names)):
            if name.startswith(".") or not name.endswith(SUFFIXES):
                continue
            path = Path(folder, name)
            entry = _entry(path, known.get(str(path)), real, catalog)
            if entry is not None:
                files[str(path)] = entry
            elif path.is_symlink():
                unreadable[str(path)] = NOWHERE
    return Look(root, there=True, busy=_busy(real), files=files, unreadable=unreadable)


def signature(path: Path) -> Signature | None:
    """None: there is no such file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _entry(path: Path, before: Entry | None, real: Path, catalog: Catalog) -> Entry | None:
    seen = signature(path)
    if seen is None:
        return None
    if before is None:
        return Entry(seen)
    if seen == before.taken:
        return Entry(seen, seen, before.read)
    if seen != before.seen:
        return Entry(seen, before.taken, before.read)
    return Entry(seen, seen, _read(path, real, catalog))


def _read(path: Path, real: Path, catalog: Catalog) -> Read:
    try:
        if not path.resolve().is_relative_to(real):
            return Read((), "the link leads out of the folder", ours=True)
        if _is_anybodys(path):
            return Read((), OPEN, ours=True)
        return documents.read(read_regular(path), catalog, as_json=path.suffix == ".json")
    except OSError as error:
        return Read((), f"the file can't be read: {error.strerror or error}", ours=True)


def _is_text(name: str) -> bool:
    """Other names can't be told in an event, nor kept in the journal."""
    return name.isascii() or name == name.encode("utf-8", "replace").decode()


def _is_anybodys(path: Path) -> bool:
    """Whether every account of the machine may write to it; a place that is gone is nobody's."""
    try:
        return bool(path.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


def _busy(real: Path) -> bool:
    """Whether the checkout that this folder is (in) has an index.lock; `.git` is a file in worktrees and submodules."""
    for folder in (real, *real.parents):
        place = folder / ".git"
        try:
            mode = place.stat().st_mode
            if stat.S_ISREG(mode):
                told = place.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
                place = folder / told
        except (OSError, ValueError):
            continue
        return (place / "index.lock").exists()
    return False
