"""The machine's fingerprint as a tree shows it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gpugrant_crds import fingerprint
from gpugrant_operator.node.tree import Tree


def take(tree: Tree) -> str:
    """Cheap reads only: nothing in it wakes a card or starts a program."""
    # its own faults: what it can't read is said by the steps that need it
    quiet = Tree(tree.root)

    def data(path: str) -> bytes | None:
        place = quiet.locate(path)
        return None if place is None else read(place)

    def stamp(path: str) -> tuple[int, int] | None:
        place = quiet.locate(path)
        if place is None:
            return None
        try:
            found = place.stat()
        except OSError:
            return None
        return (found.st_size, found.st_mtime_ns)

    return fingerprint.take(fingerprint.Files(quiet.names, data, quiet.link_name, stamp))


def read(path: Path) -> bytes | None:
    """The beginning of a plain file; never waits."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return None
    try:
        return os.read(handle, fingerprint.DATA_MAX) if stat.S_ISREG(os.fstat(handle).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(handle)
