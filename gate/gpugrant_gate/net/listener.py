"""Listening Unix sockets that nobody can reach for a moment with wider rights than they shall have.

A socket is bound in a folder that only its maker can enter, gets its owner and mode there, and is then renamed into
place: a path that clients know always has a socket that accepts.
"""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

BACKLOG = 4096
"""Connections that wait while a worker or a gate starts again; the kernel's own limit (somaxconn) is 4096."""
_FOLDER_MODE = 0o755


Inode = tuple[int, int]
"""Device and inode number of a socket's path."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket and where it lies."""

    sock: socket.socket
    path: Path
    inode: Inode

    def let_go(self) -> None:
        """Closes our descriptor only: another process listens on, or keeps it for the next gate."""
        self.sock.close()

    def close(self) -> None:
        """Closes it and removes the path, unless somebody else's socket lies there by now."""
        self.sock.close()
        try:
            found = self.path.lstat()
        except OSError:
            return
        if (found.st_dev, found.st_ino) == self.inode:
            self.path.unlink(missing_ok=True)


def listen(path: Path, *, uid: int, gid: int, mode: int) -> Listener:
    """A socket that listens at `path`, in place of one that is there; raises OSError with a sentence as strerror."""
    path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
        raise FileExistsError(f"{path} is there and is no socket: remove it or choose another listen path")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        with tempfile.TemporaryDirectory(prefix=".gate-", dir=path.parent) as private:
            inode = _bind(sock, Path(private), uid, gid, mode)
            (Path(private) / "s").rename(path)
    except BaseException:
        sock.close()
        raise
    return Listener(sock, path, inode)


@dataclass(frozen=True, slots=True)
class Found:
    """A listening socket that came from another process, not yet looked at. `inode`: None where it was not told."""

    fd: int
    path: Path
    inode: Inode | None = None


class Inherited:
    """Sockets of an earlier gate or of systemd, by their path, until they are served again."""

    def __init__(self, found: Iterable[Found] = ()) -> None:
        self._found = {one.path: one for one in found}

    def take(self, path: Path, *, uid: int, gid: int, mode: int) -> Listener | None:
        """The socket that listens at `path`, when clients reach it there under these rights (-1: any); taken once."""
        one = self._found.get(path)
        if one is None or not _listens(one.fd):
            return None
        try:
            seen = path.lstat()
        except OSError:
            return None
        inode = (seen.st_dev, seen.st_ino)
        same_rights = uid in (-1, seen.st_uid) and gid in (-1, seen.st_gid) and mode == stat.S_IMODE(seen.st_mode)
        if not stat.S_ISSOCK(seen.st_mode) or one.inode not in (None, inode) or not same_rights:
            return None
        del self._found[path]
        return Listener(socket.socket(fileno=one.fd), path, inode)

    def close(self) -> list[Listener]:
        """Closes what nobody took, its path too; they come back."""
        left = []
        for one in self._found.values():
            if _listens(one.fd):
                left.append(Listener(socket.socket(fileno=one.fd), one.path, one.inode or (0, 0)))
            else:
                os.close(one.fd)
        self._found.clear()
        for opened in left:
            opened.close()
        return left


def _listens(fd: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(fd)) as sock:
            return sock.family == socket.AF_UNIX and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


def _bind(sock: socket.socket, private: Path, uid: int, gid: int, mode: int) -> tuple[int, int]:
    folder = os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # by descriptor: the private folder's own path may be longer than sun_path takes
        sock.bind(f"/proc/self/fd/{folder}/s")
        os.chown("s", uid, gid, dir_fd=folder)
        os.chmod("s", mode, dir_fd=folder)
        sock.listen(BACKLOG)
        found = os.stat("s", dir_fd=folder)
    finally:
        os.close(folder)
    return found.st_dev, found.st_ino
