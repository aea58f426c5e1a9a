"""The sealed folder of the daemon behind a trial: found by looking, since no repo file tells whose it is.

It holds the specs of the trial's names while the trial runs and nothing after it; that of a trial that was killed is
emptied when the next gate or trial of the root starts. A folder that is not the daemon's is never touched, and none
where this root's own gate runs, which keeps them all.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from gpugrant_crds.layout import Layout
from gpugrant_gate.life import lock, sealed
from gpugrant_gate.net.audit import log
from gpugrant_gate.net.daemon import is_sealed


class SealedFolder:
    """The one folder that the trial fills, which changes when another daemon answers."""

    def __init__(self, layout: Layout, granted: Collection[str]) -> None:
        self._layout = layout
        self._granted = granted
        self._folder: Path | None = None
        self._mark: int | None = None
        _empty_left_ones(layout)

    def follow(self, pid: int) -> None:
        """The daemon's process is another one; 0: none that may have hardware. The old daemon's folder is emptied."""
        found = find(pid, self._layout)
        if found == self._folder:
            return
        self.empty()
        self._folder = found
        self._set_mark()
        self.rewrite(sealed.read_specs(self._layout.cdi))

    def rewrite(self, specs: sealed.Specs) -> None:
        """The specs are these now."""
        self._fill(sealed.wanted(specs, self._granted))

    def empty(self) -> None:
        """The trial is over, or the daemon gone."""
        filled = self._fill({})
        if self._folder is not None and self._mark is not None:
            if filled:
                _mark_of(self._layout, self._folder).unlink(missing_ok=True)
            os.close(self._mark)
        self._folder = self._mark = None

    def _set_mark(self) -> None:
        """Before the folder is filled: whoever finds the mark without its holder empties the folder."""
        if self._folder is not None:
            try:
                self._mark = lock.quietly(_mark_of(self._layout, self._folder))
            except OSError as error:
                log.error("sealed folder", message=f"{self._layout.trials} can't be written: {error}")

    def _fill(self, files: dict[str, bytes]) -> bool:
        return self._folder is None or _fill(self._layout, self._folder, files)


def _fill(layout: Layout, folder: Path, files: dict[str, bytes]) -> bool:
    """Whether the folder holds these files now; it is not ours where this root's own gate runs."""
    if lock.is_held(layout.lock("gate")):
        what = f"{folder} is left to the gate that runs with the root {layout.root}"
        log.warning("sealed folder", message=what)
        return True
    try:
        sealed.fill(folder, files)
    except OSError as error:
        log.error("sealed folder", message=f"{folder} can't be written: {error}")
        return False
    return True


def _mark_of(layout: Layout, folder: Path) -> Path:
    return layout.trials / folder.name


def _empty_left_ones(layout: Layout) -> None:
    """Empties the folders of trials that were killed."""
    try:
        marks = sorted(layout.trials.iterdir())
    except OSError:
        return
    for path in marks:
        mark = lock.quietly(path)
        if mark is None:
            continue  # its trial runs
        folder = layout.sealed_repo(path.name)
        if not folder.is_dir() or _fill(layout, folder, {}):
            path.unlink(missing_ok=True)
        os.close(mark)


def find(pid: int, layout: Layout) -> Path | None:
    """The sealed folder of this root that the process has as its CDI folder; None: it has none of them."""
    try:
        folders = sorted(layout.sealed.iterdir())
    except OSError:
        return None
    return next((folder for folder in folders if is_sealed(pid, folder.name, layout)), None)
