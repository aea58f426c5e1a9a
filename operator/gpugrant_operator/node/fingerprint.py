"""The machine's fingerprint as a tree shows it."""

from __future__ import annotations

from gpugrant_crds import fingerprint
from gpugrant_operator.node.tree import Tree


def take(tree: Tree) -> str:
    """Cheap reads only: nothing in it wakes a card or starts a program."""
    # its own faults: what it can't read is said by the steps that need it
    quiet = Tree(tree.root)

    def stamp(path: str) -> tuple[int, int] | None:
        place = quiet.locate(path)
        if place is None:
            return None
        try:
            found = place.stat()
        except OSError:
            return None
        return (found.st_size, found.st_mtime_ns)

    return fingerprint.take(fingerprint.Files(quiet.names, quiet.text, quiet.link_name, stamp))
