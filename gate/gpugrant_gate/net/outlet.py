"""Where lines go: standard error or a file. A place that takes no more never stops the gate.

What can't be written yet waits here, up to a bound; lines beyond it are lost and counted. Lines reach their place
whole, since several processes write to the same one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

_WAITING_MAX = 1024 * 1024
"""Bytes; some seconds of a gate under full load."""
_PIECE = 4096
"""Bytes that a pipe takes whole or not at all (PIPE_BUF, pipe(7)); no line is longer."""
_AGAIN = 1.0
"""Seconds between two tries on a full disk; a slow reader is tried at every flush."""
_FILE_MODE = 0o600


class Place(Protocol):
    """One place; `send` never blocks. It takes whole lines and says how many bytes it took.

    Raises BlockingIOError (not now) and OSError (not as it is).
    """

    name: str

    def send(self, lines: bytes) -> int: ...
    def reopen(self) -> None:
        """What lies at its path now counts, where it has one."""

    def close(self) -> None: ...


class Outlet:
    """The lines of this process on their way to one place."""

    def __init__(self, place: Place, monotonic: Callable[[], float]) -> None:
        self._place = place
        self._monotonic = monotonic
        self._waiting = bytearray()
        self._again = 0.0
        self.lost = 0
        """Lines that were dropped."""
        self.trouble = ""
        """Why lines wait, as a sentence; empty: they don't."""

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def put(self, lines: bytes) -> None:
        """Whole lines; written now or as soon as the place takes them."""
        if len(self._waiting) + len(lines) > _WAITING_MAX:
            self.flush()
        if len(self._waiting) + len(lines) > _WAITING_MAX:
            self.lost += lines.count(b"\n")
            return
        self._waiting += lines
        self.flush()

    def flush(self) -> None:
        if not self._waiting or self._monotonic() < self._again:
            return
        try:
            while self._waiting:
                sent = self._place.send(bytes(self._waiting))
                del self._waiting[:sent]
        except BlockingIOError:
            self.trouble = f"{self._place.name} is not read as fast as lines come"
        except OSError as error:
            self.trouble = f"{self._place.name} can't be written: {(error.strerror or str(error)).lower()}"
            self._again = self._monotonic() + _AGAIN
        else:
            self.trouble = ""

    def reopen(self) -> None:
        self._again = 0.0
        self._place.reopen()
        self.flush()

    def close(self) -> None:
        """A last try; what the place does not take then is lost."""
        self._again = 0.0
        self.flush()
        self.lost += self._waiting.count(b"\n")
        self._waiting.clear()
        self._place.close()

    # What a logger expects of a stream.

    def write(self, text: str) -> None:
        self.put(text.encode(errors="replace"))


class Stream:
    """An open descriptor: a pipe, a terminal, a socket (the journal) or a file that somebody redirected to."""

    def __init__(self, fd: int, name: str) -> None:
        self.name = name
        self._socket: socket.socket | None = None
        self._fd = -1
        self._piece = _PIECE
        kind = os.fstat(fd).st_mode
        if stat.S_ISSOCK(kind):
            self._socket = socket.socket(fileno=os.dup(fd))
        elif stat.S_ISREG(kind):
            # its own offset counts, which only the shared description has; a file never blocks
            self._piece = _WAITING_MAX
            self._fd = os.dup(fd)
        else:
            self._fd = _unblocked(fd)

    def send(self, lines: bytes) -> int:
        piece = lines if len(lines) <= self._piece else lines[: lines.rfind(b"\n", 0, self._piece) + 1 or self._piece]
        if self._socket is not None:
            return self._socket.send(piece, socket.MSG_DONTWAIT)
        return os.write(self._fd, piece)

    def reopen(self) -> None:
        pass

    def close(self) -> None:
        """What is said afterwards is lost: the number may be another file's by then."""
        if self._socket is not None:
            self._socket.close()
        elif self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class AppendedFile:
    """A file that grows. It is opened anew once it was renamed or removed (logrotate), and made where it is missing."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._fd = -1

    def send(self, lines: bytes) -> int:
        self._follow()
        # All processes of the gate append: a line of which a full disk took half is taken back before another follows.
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            before = os.fstat(self._fd).st_size
            sent = os.write(self._fd, lines)
            if sent < len(lines):
                sent = lines.rfind(b"\n", 0, sent) + 1
                os.ftruncate(self._fd, before + sent)
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        if sent == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return sent

    def reopen(self) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _follow(self) -> None:
        """Opens what lies at the path now; raises OSError."""
        if self._fd >= 0:
            try:
                if os.path.samestat(self._path.stat(), os.fstat(self._fd)):
                    return
            except FileNotFoundError:
                pass
            self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        opened = os.open(self._path, flags, _FILE_MODE)
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise OSError(errno.EINVAL, "it is no regular file")
        self._fd = opened


def standard_error(monotonic: Callable[[], float]) -> Outlet:
    return Outlet(Stream(2, "standard error"), monotonic)


def _unblocked(fd: int) -> int:
    """The same pipe or terminal under flags of our own: those of `fd` are shared with whoever started us."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return os.dup(fd)
