"""The sealed folder of the daemon behind a trial: found by looking, since no repo file tells whose it is.

It holds the specs of the trial's names while the trial runs and nothing after it. A folder that is not the daemon's is
never touched, and none where this root's own gate runs, which keeps them all.
"""

from __future__ import annotations

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

    def follow(self, pid: int) -> None:
        """The daemon's process is another one; 0: none that may have hardware. The old daemon's folder is emptied."""
        found = find(pid, self._layout)
        if found == self._folder:
            return
        self.empty()
        self._folder = found
        self.rewrite(sealed.read_specs(self._layout.cdi))

    def rewrite(self, specs: sealed.Specs) -> None:
        """The specs are these now."""
        self._fill(sealed.wanted(specs, self._granted))

    def empty(self) -> None:
        """The trial is over, or the daemon gone."""
        self._fill({})
        self._folder = None

    def _fill(self, files: dict[str, bytes]) -> None:
        if self._folder is None:
            return
        if lock.is_held(self._layout.lock("gate")):
            what = f"{self._folder} is left to the gate that runs with the root {self._layout.root}"
            log.warning("sealed folder", message=what)
            return
        try:
            sealed.fill(self._folder, files)
        except OSError as error:
            log.error("sealed folder", message=f"{self._folder} can't be written: {error}")


def find(pid: int, layout: Layout) -> Path | None:
    """The sealed folder of this root that the process has as its CDI folder; None: it has none of them."""
    try:
        folders = sorted(layout.sealed.iterdir())
    except OSError:
        return None
    return next((folder for folder in folders if is_sealed(pid, folder.name, layout)), None)
