"""Messages between processes of a gate over a Unix socket: JSON with a length before it, descriptors beside it.

Both ends are our own processes; a message that can't be read means a fault, and the channel ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("!IB")
"""Bytes of the JSON text, and how many descriptors come with it."""
_READ = 256 * 1024
_FDS_MAX = 8
MESSAGE_MAX = 16 * 1024 * 1024
"""Bytes: 2,000 grants are about 300 KiB."""

Message = dict[str, Any]


class ChannelClosed(ConnectionError):
    """The other process is gone."""


class Channel:
    """One end. Sends never block: what the other process does not take yet waits here."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._data = bytearray()
        self._fds: deque[int] = deque()
        self._inbox: asyncio.Queue[tuple[Message, list[int]] | None] = asyncio.Queue()
        self._outbox: deque[tuple[bytes, list[int]]] = deque()
        self._closed = False
        self.backlog = 0
        """Bytes that the other process has not taken yet."""
        self._loop.add_reader(sock, self._readable)

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Queues the message; descriptors are duplicated, so the caller may close its own at once."""
        if self._closed:
            return
        text = json.dumps(message, separators=(",", ":")).encode()
        if len(text) > MESSAGE_MAX or len(fds) > _FDS_MAX:
            raise ValueError(f"a message of {len(text)} bytes with {len(fds)} descriptors is too large")
        copies = [os.dup(fd) for fd in fds]
        self._outbox.append((_LENGTH.pack(len(text), len(copies)) + text, copies))
        self.backlog += _LENGTH.size + len(text)
        self._writable()

    async def receive(self) -> tuple[Message, list[int]]:
        """The next message and its descriptors, which the caller has to close; raises ChannelClosed."""
        item = await self._inbox.get()
        if item is None:
            self._inbox.put_nowait(None)
            raise ChannelClosed
        return item

    def option(self, name: int, size: int) -> bytes:
        """A socket option (SOL_SOCKET) of this end."""
        return self._sock.getsockopt(socket.SOL_SOCKET, name, size)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        for _, fds in self._outbox:
            _close_all(fds)
        _close_all(self._fds)
        self._outbox.clear()
        self._fds.clear()
        self._inbox.put_nowait(None)

    def _readable(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, _READ, _FDS_MAX, socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        self._fds.extend(fds)
        if not data:
            self.close()
            return
        self._data += data
        self._deliver()

    def _deliver(self) -> None:
        while len(self._data) >= _LENGTH.size:
            length, count = _LENGTH.unpack_from(self._data)
            end = _LENGTH.size + length
            if length > MESSAGE_MAX:
                self.close()
                return
            if len(self._data) < end:
                return
            message = json.loads(self._data[_LENGTH.size : end])
            del self._data[:end]
            self._inbox.put_nowait((message, [self._fds.popleft() for _ in range(count)]))

    def _writable(self) -> None:
        while self._outbox:
            data, fds = self._outbox[0]
            try:
                sent = socket.send_fds(self._sock, [data], fds) if fds else self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._sock, self._writable)
                return
            except OSError:
                self.close()
                return
            _close_all(fds)
            self.backlog -= sent
            if sent < len(data):
                self._outbox[0] = (data[sent:], [])
            else:
                self._outbox.popleft()
        self._loop.remove_writer(self._sock)


def _close_all(fds: Sequence[int] | deque[int]) -> None:
    for fd in fds:
        os.close(fd)
