"""Reading a machine's files below one root: bounded, never blocking, never outside the root.

A recorded tree is somebody's folder: an absolute link in it means a place in the tree, a FIFO must not hang the run,
and what is there and can't be read as what it should be is a fault, not the end.
"""

from __future__ import annotations

import codecs
import errno
import itertools
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

TEXT_MAX = 64 * 1024
"""Of a file in /sys or /proc; the longest that is read (KFD properties) has about 2 KiB."""

NAMES_MAX = 20_000
"""Entries of one folder that are looked at; /dev of a large server has about 5,000."""

FAULTS_MAX = 50
"""Faults that are kept: they end in the inventory and in a status, whose size is bounded."""

_LINK_MAX = 40
"""As the kernel's MAXSYMLINKS."""

_ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.EINVAL))
"""How sysfs answers for an attribute that a card does not have."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISREG, "a file"),
)


class _Loop(Exception):
    """More links than the kernel follows."""


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
        try:
            path = self._resolve(relative)
        except _Loop:
            self.remark(relative, "is a loop of links")
            return None
        except OSError as error:
            self._fault(relative, error)
            return None
        return path if os.path.lexists(path) else None

    def _resolve(self, relative: str) -> Path:
        """Where it is or would be; raises _Loop and OSError."""
        todo = [part for part in relative.split("/") if part not in ("", ".")][::-1]
        done: list[str] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                done = done[:-1]
                continue
            here = self.root.joinpath(*done, part)
            if not here.is_symlink():
                done.append(part)
                continue
            links += 1
            if links > _LINK_MAX:
                raise _Loop
            target = str(here.readlink())
            if target.startswith("/"):
                done = []
            todo.extend([piece for piece in target.split("/") if piece not in ("", ".")][::-1])
        return self.root.joinpath(*done)

    def exists(self, relative: str) -> bool:
        return self.locate(relative) is not None

    def is_node(self, relative: str) -> bool:
        """Whether a device node is there. In a recorded tree a plain file stands for one: Git can't hold nodes."""
        path = self.locate(relative)
        if path is None:
            return False
        mode = path.lstat().st_mode
        if stat.S_ISCHR(mode) or (stat.S_ISREG(mode) and not self.is_live):
            return True
        self.remark(relative, f"is {_kind(mode)}, not a device node")
        return False

    def names(self, relative: str) -> tuple[str, ...]:
        """The sorted entries of a folder; empty when there is none."""
        path = self.locate(relative)
        if path is None:
            return ()
        try:
            with os.scandir(path) as entries:
                found = sorted(entry.name for entry in itertools.islice(entries, NAMES_MAX + 1))
        except NotADirectoryError:
            self.remark(relative, f"is {_kind(path.lstat().st_mode)}, not a folder")
            return ()
        except OSError as error:
            self._fault(relative, error)
            return ()
        if len(found) > NAMES_MAX:
            self.remark(relative, f"has more than {NAMES_MAX} entries, of which that many were looked at")
        return tuple(found[:NAMES_MAX])

    def text(self, relative: str, limit: int = TEXT_MAX) -> str | None:
        """A file's text without surrounding blanks, cut at `limit` bytes; None when it can't be read as one."""
        path = self.locate(relative)
        if path is None:
            self._dangling(relative)
            return None
        try:
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode):
                self.remark(relative, f"is {_kind(mode)}, not a file")
                return None
            # O_NONBLOCK: a FIFO that takes the file's place now opens at once as well
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            self._fault(relative, error)
            return None
        try:
            data = _read(handle, limit)
        except OSError as error:
            self._fault(relative, error)
            return None
        finally:
            os.close(handle)
        return self._decoded(relative, data)

    def link_name(self, relative: str) -> str | None:
        """The last part of where a link points, such as a driver's name; None when it is no link."""
        parent, _, name = relative.rpartition("/")
        folder = self.locate(parent)
        if folder is None or not os.path.lexists(folder / name):
            return None
        if not (folder / name).is_symlink():
            self.remark(relative, f"is {_kind((folder / name).lstat().st_mode)}, not a link")
            return None
        try:
            self._resolve(relative)
            return (folder / name).readlink().name
        except _Loop:
            self.remark(relative, "is a loop of links")
        except OSError as error:
            self._fault(relative, error)
        return None

    def program(self, name: str) -> Path | None:
        """Where a program of this machine lies; looked up below the root and nowhere else."""
        for folder in ("usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin", "usr/lib/wsl/lib"):
            path = self.locate(f"{folder}/{name}")
            if path is None:
                continue
            if path.is_file() and os.access(path, os.X_OK):
                return path
            self.remark(f"{folder}/{name}", "is no program that can be run")
        return None

    def remark(self, relative: str, clause: str) -> None:
        """Notes what is wrong with a path, once."""
        fault = f"/{relative.strip('/')} {clause}"
        if fault not in self.faults and len(self.faults) < FAULTS_MAX:
            self.faults.append(fault)

    def _decoded(self, relative: str, data: bytes) -> str | None:
        try:
            # a character that the limit cuts is left out; NULs end the texts of device trees
            text = codecs.getincrementaldecoder("utf-8")().decode(data).replace("\0", "").strip()
        except UnicodeDecodeError:
            self.remark(relative, "holds no text")
            return None
        if any(not (char.isprintable() or char.isspace()) for char in text):
            self.remark(relative, "holds no text")
            return None
        return text

    def _dangling(self, relative: str) -> None:
        parent, _, name = relative.rpartition("/")
        folder = self.locate(parent)
        if folder is not None and (folder / name).is_symlink():
            self.remark(relative, "is a link to nothing")

    def _fault(self, relative: str, error: OSError) -> None:
        if error.errno not in _ABSENT:
            self.remark(relative, f"can't be read: {(error.strerror or str(error)).lower()}")


def _kind(mode: int) -> str:
    return next((name for test, name in _KINDS if test(mode)), "something else")


def _read(handle: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    left = limit
    while left > 0 and (piece := os.read(handle, min(left, 65536))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
