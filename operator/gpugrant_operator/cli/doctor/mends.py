"""What `gpugrant doctor --fix` does: only what loses nothing and can be done twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpugrant_crds.layout import Layout
from gpugrant_operator.cli.doctor.seen import Chmod, Mend, SetUp

SETUP_WITHIN = 300.0
"""Seconds; a detection that hangs ends by itself before."""


def mend(what: Mend, layout: Layout, hardware: Path | None) -> str | None:
    """Does it; why it failed, as a clause, or None."""
    match what:
        case Chmod(path=path, mode=mode):
            try:
                path.chmod(mode)
            except OSError as error:
                return f"{path}: {(error.strerror or str(error)).lower()}"
        case SetUp():
            return _set_up(layout, hardware)
    return None


def _set_up(layout: Layout, hardware: Path | None) -> str | None:
    """Without the network: what is not there is not installed by a doctor."""
    if hardware is None:
        return f"nothing runs below {layout.root} that knows its machine: give renet setup the --hardware that is meant"
    words = ("setup", "--offline", "--root", str(layout.root), "--hardware", str(hardware))
    command = (sys.executable, "-P", "-m", "gpugrant_operator.cli.renet", *words)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SETUP_WITHIN, check=False)
    except subprocess.TimeoutExpired:
        return f"renet setup does not end within {SETUP_WITHIN:g} s"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return None if done.returncode == 0 else f"renet setup failed: {lines[-1] if lines else 'it said nothing'}"
