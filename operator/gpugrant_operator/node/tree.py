"""Reading a machine's files below one root: bounded, never blocking, never outside the root.

A recorded tree is somebody's folder: an absolute link in it means a place in the tree, a FIFO must not hang the run,
and a file that can't be read is a remark, not the end.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

TEXT_MAX = 64 * 1024
"""Of a file in /sys or /proc; the longest that is read (KFD properties) has about 2 KiB."""

_LINK_MAX = 40
"""As the kernel's MAXSYMLINKS."""


@dataclass
class Tree:
    """A machine's files. `faults` collects what could not be read, one clause each."""

    root: Path = Path("/")
    faults: list[str] = field(default_factory=list)

    @property
    def is_live(self) -> bool:
        """The running machine itself, not a recorded tree."""
        return self.root == Path("/")

    def locate(self, relative: str) -> Path | None:
        """The real place with all links followed below the root; None: not there, or links that lead nowhere."""
        todo = [part for part in relative.split("/") if part not in ("", ".")][::-1]
        done: list[str] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                done = done[:-1]
                continue
            here = self.root.joinpath(*done, part)
            try:
                is_link = here.is_symlink()
                target = str(here.readlink()) if is_link else ""
            except OSError:
                return None
            if not is_link:
                done.append(part)
                continue
            links += 1
            if links > _LINK_MAX:
                return None
            if target.startswith("/"):
                done = []
            todo.extend([piece for piece in target.split("/") if piece not in ("", ".")][::-1])
        path = self.root.joinpath(*done)
        return path if os.path.lexists(path) else None

    def exists(self, relative: str) -> bool:
        return self.locate(relative) is not None

    def names(self, relative: str) -> tuple[str, ...]:
        """The sorted entries of a folder; empty when there is none."""
        path = self.locate(relative)
        if path is None or not path.is_dir():
            return ()
        try:
            return tuple(sorted(entry.name for entry in path.iterdir()))
        except OSError as error:
            self._fault(relative, error)
            return ()

    def text(self, relative: str, limit: int = TEXT_MAX) -> str | None:
        """A file's text without surrounding blanks, cut at `limit` bytes; None when it can't be read."""
        path = self.locate(relative)
        if path is None:
            return None
        try:
            # O_NONBLOCK: a FIFO in place of the file opens at once and is then seen to be none
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            self._fault(relative, error)
            return None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            return _read(handle, limit).decode("utf-8", "replace").replace("\0", "").strip()
        except OSError as error:
            self._fault(relative, error)
            return None
        finally:
            os.close(handle)

    def link_name(self, relative: str) -> str | None:
        """The last part of where a link points, such as a driver's name; None when it is no link."""
        parent, _, name = relative.rpartition("/")
        folder = self.locate(parent)
        if folder is None or not (folder / name).is_symlink():
            return None
        return (folder / name).readlink().name

    def program(self, name: str) -> Path | None:
        """Where a program of this machine lies; looked up below the root and nowhere else."""
        for folder in ("usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin", "usr/lib/wsl/lib"):
            path = self.locate(f"{folder}/{name}")
            if path is not None and path.is_file() and os.access(path, os.X_OK):
                return path
        return None

    def _fault(self, relative: str, error: OSError) -> None:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.EINVAL):
            self.faults.append(f"/{relative} can't be read: {(error.strerror or str(error)).lower()}")


def _read(handle: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    left = limit
    while left > 0 and (piece := os.read(handle, min(left, 65536))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
