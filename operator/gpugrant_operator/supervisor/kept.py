"""Keeps the gate's listening sockets while no gate runs, so that no connection is refused then.

The protocol is systemd's: FDSTORE=1, FDSTOREREMOVE=1 and MAINPID of sd_notify(3) come in as datagrams, and the next
process finds the sockets from descriptor 3 on (sd_listen_fds(3)).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from gpugrant_crds import keptsockets

_MESSAGE_MAX = 8192
"""Bytes of one message."""
_SOCKETS_MAX = 4096
"""More repos than a machine has."""


class Kept:
    """The sockets by their names; `told_main` hears which process says that it is the gate now."""

    def __init__(self, told_main: Callable[[int], None]) -> None:
        self._told_main = told_main
        self._fds: dict[str, int] = {}

    @property
    def sockets(self) -> dict[str, int]:
        """Descriptors by name, ours to keep."""
        return dict(self._fds)

    @contextlib.asynccontextmanager
    async def served(self, path: Path) -> AsyncIterator[None]:
        """Listens at the path, which the owner alone can write to. Only the supervisor's lock holder may call this."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as sock:
            path.unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                sock.bind(str(path))
            finally:
                os.umask(before)
            loop.add_reader(sock, self._heard, sock)
            try:
                yield
            finally:
                loop.remove_reader(sock)
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """No gate will come any more: clients shall see at once that nobody is there."""
        for text, fd in self._fds.items():
            os.close(fd)
            place = keptsockets.parse(text)
            if place is None:
                continue
            with contextlib.suppress(OSError):
                found = place.path.lstat()
                if (found.st_dev, found.st_ino) == (place.device, place.inode):
                    place.path.unlink()
        self._fds.clear()

    def _heard(self, sock: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data, fds, _, _ = socket.recv_fds(sock, _MESSAGE_MAX, 4, socket.MSG_CMSG_CLOEXEC)
                self._take(dict(_pairs(data)), fds)

    def _take(self, said: dict[str, str], fds: list[int]) -> None:
        text = said.get("FDNAME", "")
        if said.get("FDSTORE") == "1" and text and len(self._fds) < _SOCKETS_MAX and fds:
            self._drop(text)
            self._fds[text] = fds.pop(0)
        if said.get("FDSTOREREMOVE") == "1":
            self._drop(text)
        for fd in fds:
            os.close(fd)
        if said.get("MAINPID", "").isdecimal():
            self._told_main(int(said["MAINPID"]))

    def _drop(self, text: str) -> None:
        fd = self._fds.pop(text, None)
        if fd is not None:
            os.close(fd)


def _pairs(data: bytes) -> list[tuple[str, str]]:
    lines = data.decode(errors="replace").split("\n")
    return [(key, value) for key, found, value in (line.partition("=") for line in lines) if found]
