"""Folders that are watched: an event, or a look every few seconds, since watches miss what is mounted or moved in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import watchfiles

from gpugrant_crds import repofile
from gpugrant_crds.layout import Layout
from gpugrant_crds.repofile import RepoFile, RepoProblem

LOOK_EVERY = 5.0
"""Seconds between two looks without an event."""
_DEBOUNCE = 100
"""Milliseconds in which events are one: editors write, rename and chmod."""

Signature = tuple[tuple[str, int, int, int], ...]


def signature(folder: Path) -> Signature:
    """Changes whenever a file of the folder does: names, inodes, sizes, times in nanoseconds."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return ()
    found = []
    for path in entries:
        try:
            seen = path.stat()
        except OSError:
            continue
        found.append((path.name, seen.st_ino, seen.st_size, seen.st_mtime_ns))
    return tuple(found)


async def watch(folder: Path, changed: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
    """Calls `changed` after each change in the folder, until `stop`; an absent folder is waited for."""
    last = signature(folder)
    while not stop.is_set():
        async for _ in _events(folder, stop):
            now = signature(folder)
            if now != last and not stop.is_set():
                last = now
                await changed()


async def _events(folder: Path, stop: asyncio.Event) -> AsyncIterator[None]:
    """An item an event and at least one every LOOK_EVERY; ends when the path holds another folder."""
    try:
        inode = folder.stat().st_ino
        watcher = watchfiles.awatch(
            folder,
            stop_event=stop,
            recursive=False,
            debounce=_DEBOUNCE,
            rust_timeout=int(LOOK_EVERY * 1000),
            yield_on_timeout=True,
        )
        async for _ in watcher:
            yield None
            if folder.stat().st_ino != inode:
                return
    except (OSError, RuntimeError):
        # no such folder now, or no watches left on this machine: looking has to do
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY):
                await stop.wait()
        yield None


def read_repos(layout: Layout) -> dict[str, RepoFile | RepoProblem]:
    """Every file of `repos.d` by its path."""
    return {
        str(path): _read_repo(path)
        for path in layout.repos.glob(f"*{repofile.SUFFIX}")
        if not path.name.startswith(".")
    }


def _read_repo(path: Path) -> RepoFile | RepoProblem:
    try:
        with path.open(encoding="utf-8") as file:
            return repofile.parse(file.read(repofile.MAX_BYTES + 1), str(path))
    except (OSError, UnicodeDecodeError) as error:
        return RepoProblem(str(path), 0, f"can't be read: {error}")
