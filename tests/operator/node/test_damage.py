"""A machine whose files are not what they should be: there is an inventory all the same, and a problem says so.

Every file that detection reads of every kind of machine, cut, filled with garbage, or with something else in its
place. By default a few of each kind; GPUGRANT_EVERY_FILE=1 takes them all.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kinds
import nvml
from gpugrant_crds.inventory import Inventory
from gpugrant_operator.node import cards, gather
from gpugrant_operator.node.gather import Limits
from gpugrant_operator.node.tree import Tree
from machines import Machine

PATIENT, IMPATIENT = Limits(smi=8.0), Limits(smi=0.3)
"""Seconds for a healthy driver on a busy machine, and for one that never answers."""

OURS = (nvml.SETTINGS, "usr/share/nvidia-stand-in")
"""What only the stand-ins read."""

MAY_BE_EMPTY = ("product_name", "serial_number", "unique_id", "uevent", "name")
"""`name`: of a KFD node; older drivers leave it empty, and a card's own name is elsewhere."""
ANY_TEXT = ("product_name", "serial_number", "model", "version", "hostname")
"""Files whose text is shown as it is, whatever it says."""

NO_MATTER = ("mig-minors",)
"""A list of no capabilities is what a card without MIG has."""


class Watched(Tree):
    """Remembers which files were looked into, and as what."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.texts: set[str] = set()
        self.links: set[str] = set()
        self.nodes: set[str] = set()

    def _own(self, relative: str) -> str | None:
        place = self.locate(relative)
        return None if place is None else str(place.relative_to(self.root))

    def text(self, relative: str, limit: int = 65536) -> str | None:
        if (own := self._own(relative)) is not None:
            self.texts.add(own)
        return super().text(relative, limit)

    def link_name(self, relative: str) -> str | None:
        parent, _, name = relative.rpartition("/")
        folder = self._own(parent)
        if folder is not None and (self.root / folder / name).is_symlink():
            self.links.add(f"{folder}/{name}")
        return super().link_name(relative)

    def is_node(self, relative: str) -> bool:
        if (own := self._own(relative)) is not None:
            self.nodes.add(own)
        return super().is_node(relative)


def _cut(path: Path) -> None:
    path.write_text("")


def _words(path: Path) -> None:
    path.write_text("lorem ipsum !\ndolor = sit, amet\n")


def _noise(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 3)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _huge(path: Path) -> None:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(1 << 40)


PLACED = {"folder": _folder, "loop": _loop, "fifo": _fifo}
FILLED = {"cut": _cut, "words": _words, "noise": _noise, "huge": _huge}
DAMAGES: dict[str, Callable[[Path], None]] = PLACED | FILLED


def _must_be_said(path: str, damage: str, seen: Watched) -> bool:
    name = path.rpartition("/")[2]
    if path.startswith(OURS) or name in NO_MATTER:
        return False
    if path in seen.links or path in seen.nodes:
        return damage in PLACED
    if path not in seen.texts:
        return False
    if damage == "cut":
        return name not in MAY_BE_EMPTY
    # a sparse file is NULs, which are no text but an empty one
    return not (name in ANY_TEXT and damage in ("words", "huge")) and not (name in MAY_BE_EMPTY and damage == "huge")


def _detect(
    tree: Path, watched: Watched | None = None, limits: Limits = PATIENT
) -> tuple[Inventory, tuple[tuple[str, str], ...]]:
    machine = watched or Tree(tree)
    env = {"GPUGRANT_HARDWARE": str(tree), "GPUGRANT_ROOT": str(tree)}
    seen = gather.gather(machine, env, limits, lambda _line: None)
    found = cards.join(seen)
    made = Inventory(
        generated_at="2026-03-01T12:00:00Z",
        hostname=seen.hostname,
        platform=seen.platform,
        gpus=found.gpus,
        render_nodes=found.render_nodes,
    )
    return made, found.problems


def _files(tree: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(tree):
        for name in sorted([*files, *(entry for entry in folders if (Path(folder) / entry).is_symlink())]):
            yield str((Path(folder) / name).relative_to(tree))


@pytest.fixture(params=sorted(kinds.KINDS))
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    machine = Machine(tmp_path / "tree", tmp_path / "root")
    machine.tree.mkdir()
    kinds.KINDS[request.param](machine)
    return machine.tree


@pytest.mark.req("R10", "R12")
@pytest.mark.timeout(3600 if os.environ.get("GPUGRANT_EVERY_FILE") else 240)
def test_any_one_file_may_be_damaged(tree: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """An inventory within 30 s, and a problem more than on the sound machine where detection reads the file."""
    watched = Watched(tree)
    limits = IMPATIENT if request.node.callspec.params["tree"] == "nvidia-hung" else PATIENT
    _, sound = _detect(tree, watched, limits)
    cases = [(path, damage) for path in _files(tree) for damage in DAMAGES]
    if not os.environ.get("GPUGRANT_EVERY_FILE"):
        cases = random.sample(cases, min(len(cases), 8))
    silent = []
    for path, damage in cases:
        copy = tmp_path / "damaged"
        shutil.copytree(tree, copy, symlinks=True)
        if (copy / path).is_symlink() and damage in FILLED:
            (copy / path).unlink()
        DAMAGES[damage](copy / path)
        began = time.monotonic()
        made, problems = _detect(copy, limits=limits)
        assert time.monotonic() - began < 30, (path, damage)
        assert made.dump()
        new = {_neutral(problem, copy) for problem in problems} - {_neutral(problem, tree) for problem in sound}
        if _must_be_said(path, damage, watched) and not new:
            silent.append((path, damage))
        shutil.rmtree(copy)
    assert silent == []


def _neutral(problem: tuple[str, str], tree: Path) -> tuple[str, str]:
    return problem[0], problem[1].replace(str(tree), "")


def test_a_tree_that_is_cut_anywhere_still_is_a_machine(tree: Path) -> None:
    """Without any one of its top folders, and without all of them."""
    for name in sorted(entry.name for entry in tree.iterdir() if entry.is_dir()):
        shutil.rmtree(tree / name)
        made, _ = _detect(tree, limits=IMPATIENT)
        assert made.dump()
