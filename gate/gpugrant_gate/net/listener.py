"""Listening Unix sockets that nobody can reach for a moment with wider rights than they shall have.

A socket is bound in a folder that only its maker can enter, gets its owner and mode there, and is then renamed into
place: a path that clients know always has a socket that accepts.
"""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

_BACKLOG = 4096
"""Connections that wait while a worker starts again; the kernel's own limit (somaxconn) is 4096."""
_FOLDER_MODE = 0o755


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket and where it lies."""

    sock: socket.socket
    path: Path
    inode: tuple[int, int]

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


def _bind(sock: socket.socket, private: Path, uid: int, gid: int, mode: int) -> tuple[int, int]:
    folder = os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # by descriptor: the private folder's own path may be longer than sun_path takes
        sock.bind(f"/proc/self/fd/{folder}/s")
        os.chown("s", uid, gid, dir_fd=folder)
        os.chmod("s", mode, dir_fd=folder)
        sock.listen(_BACKLOG)
        found = os.stat("s", dir_fd=folder)
    finally:
        os.close(folder)
    return found.st_dev, found.st_ino
