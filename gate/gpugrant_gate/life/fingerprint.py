"""The machine's fingerprint as the gate polls it: a change of it makes the operator detect anew (design 7).

Cheap reads of sysfs and procfs, in a thread of their own: a file whose driver hangs holds up nothing but this.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gpugrant_crds import fingerprint

_PATIENCE = 1.0
"""Seconds that a question waits for a look; after that the last one's result is told."""


class Fingerprint:
    """What was seen last; looked at again when that is EVERY old, or when another inventory is there. `clock` is
    monotonic seconds."""

    def __init__(self, hardware: Path, clock: Callable[[], float]) -> None:
        self._files = _files(hardware)
        self._clock = clock
        self._value = ""
        self._due = clock()
        self._inventory = ""
        self._look: asyncio.Future[str] | None = None

    async def current(self, inventory: str) -> str:
        """`inventory` is the hash of the file that the last detection left; empty until there was a first look."""
        if self._look is None and (self._clock() >= self._due or inventory != self._inventory):
            self._inventory = inventory
            self._due = self._clock() + fingerprint.EVERY
            self._look = self._start()
            # later questions do not wait again for one that hangs
            await asyncio.wait([self._look], timeout=_PATIENCE)
        if self._look is not None and self._look.done():
            self._value, self._look = self._look.result(), None
        return self._value

    def _start(self) -> asyncio.Future[str]:
        loop = asyncio.get_running_loop()
        look: asyncio.Future[str] = loop.create_future()

        def told(value: str) -> None:
            if not look.done():
                look.set_result(value)

        def run() -> None:
            value = fingerprint.take(self._files)
            with suppress(RuntimeError):  # the loop ended meanwhile
                loop.call_soon_threadsafe(told, value)

        threading.Thread(target=run, daemon=True, name="fingerprint").start()
        return look


def _files(root: Path) -> fingerprint.Files:
    """Reads below `root`: `/`, or a recorded tree."""
    return fingerprint.Files(
        names=lambda path: _names(root / path),
        data=lambda path: _data(root / path),
        link=lambda path: _link(root / path),
        stamp=lambda path: _stamp(root / path),
    )


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  names are all that is wanted
    except OSError:
        return []


def _data(path: Path) -> bytes | None:
    try:
        # O_NONBLOCK: a FIFO in place of the file must not hold the thread for ever
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return None
    try:
        return os.read(handle, fingerprint.DATA_MAX) if stat.S_ISREG(os.fstat(handle).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(handle)


def _link(path: Path) -> str | None:
    try:
        return path.readlink().name
    except OSError:
        return None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns)
