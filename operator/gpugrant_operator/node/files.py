"""Files that are there whole or not at all: a temporary file beside it, 0644, fsync, rename, fsync of the folder.

The daemons' watchers see a rename within the folder and nothing else reliably (reference cdi-gpu 1.6).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

TEMPORARY = ".rediacc-"
"""Prefix of our temporary files; they end in .tmp, which no reader of specs takes."""


def write(path: Path, data: bytes, mode: int = 0o644) -> bool:
    """Puts `data` there; False when it is there already. Raises OSError and then leaves what was there."""
    if _holds(path, data, mode):
        return False
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = path.parent / f"{TEMPORARY}{secrets.token_hex(6)}.tmp"
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            # before the rename: a reader without root's rights would else see a file that it may not open
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)
    return True


def remove(path: Path) -> bool:
    """Takes a file away; False when there is none."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    sync_folder(path.parent)
    return True


def sweep(folder: Path) -> None:
    """Takes away what a run that was killed left behind. Only under setup's lock."""
    for path in folder.glob(f"{TEMPORARY}*.tmp"):
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _holds(path: Path, data: bytes, mode: int) -> bool:
    """The file itself, not one that a link leads to, and with these rights."""
    try:
        info = path.lstat()
        return stat.S_ISREG(info.st_mode) and stat.S_IMODE(info.st_mode) == mode and path.read_bytes() == data
    except OSError:
        return False
