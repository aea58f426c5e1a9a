"""The few file operations that durability is made of, as one small object, so that a test can stop them at each point.

Every method either has its whole effect or, when the machine dies in it, leaves what its docstring says.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

MODE_FILE = 0o600
MODE_DIR = 0o755
PRIVATE_DIR = 0o700
TEMPORARY = ".tmp-"
"""Names of unfinished files; a dot in front keeps editors, globs and our own scan away from them."""


MAX_FILE = 3 * 1024 * 1024
"""Bytes of one manifest; as much as a request may have."""


def read_regular(path: Path) -> bytes:
    """The bytes of a regular file; raises OSError for anything else, so that a pipe never blocks the caller."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        data = opened.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_FILE} bytes", str(path))
    return data


class Disk:
    """Real files. Raises OSError as the kernel says it."""

    def make_dir(self, path: Path) -> None:
        """The folder and its parents, each durable in its own parent."""
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for folder in reversed(missing):
            folder.mkdir(MODE_DIR, exist_ok=True)
            self.sync_dir(folder.parent)

    def write_temporary(self, folder: Path, data: bytes | Iterable[bytes]) -> Path:
        """A new file in the folder with these bytes on the medium; a crash leaves a part of it under its own name, an
        error nothing."""
        path = folder / f"{TEMPORARY}{secrets.token_hex(8)}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE_FILE)
        try:
            for piece in (data,) if isinstance(data, bytes) else data:
                write_all(descriptor, piece)
            os.fsync(descriptor)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        return path

    def rename(self, source: Path, target: Path) -> None:
        """Atomic; durable only after sync_dir."""
        source.rename(target)

    def unlink(self, path: Path) -> None:
        """Durable only after sync_dir; a file that is not there is fine."""
        path.unlink(missing_ok=True)

    def keep_copy(self, path: Path, copy: Path) -> None:
        """A second name for the file, so that replacing the first loses nothing."""
        copy.unlink(missing_ok=True)
        os.link(path, copy)

    def sync_dir(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def open_append(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, MODE_FILE)

    def append(self, descriptor: int, data: bytes) -> None:
        """At the end of the file; a crash may leave any part of it."""
        write_all(descriptor, data)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def replace(self, path: Path, data: bytes | Iterable[bytes]) -> None:
        """The whole file at once: the old bytes or the new ones, never a mixture."""
        temporary = self.write_temporary(path.parent, data)
        try:
            self.rename(temporary, path)
        except OSError:
            self.unlink(temporary)
            raise
        self.sync_dir(path.parent)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
