"""Which folders can be sources together. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path


def overlapping(folders: Sequence[Path], state: Path) -> str:
    """Why these folders can't be sources together; empty: they can. `state`: where the server writes."""
    for folder in folders:
        if folder.is_relative_to(state) or state.is_relative_to(folder):
            return f"--manifests {folder}: the server keeps its own files in {state}; name a folder apart from it"
    for first, second in _pairs(folders):
        if first.is_relative_to(second) or second.is_relative_to(first):
            return f"--manifests {first} and {second}: one lies in the other; name each folder once"
    return ""


def _pairs(folders: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    for index, first in enumerate(folders):
        yield from ((first, second) for second in folders[index + 1 :])
