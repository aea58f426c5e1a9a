"""One end of a connection: buffered reading before a decision, then a direct path of bytes with back-pressure.

While no sink is set, bytes wait in a bounded buffer and the peer is not read from. A sink gets each piece as it
comes, without a task switch; when the other end's transport is full, this end stops reading.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

_BUFFER_MAX = 256 * 1024
"""Bytes that wait unread before reading stops: two reads of the event loop."""

Sink = Callable[[bytes], None]
Told = Callable[[], None]


class Gone(ConnectionError):
    """The peer closed before what was waited for had come."""


@dataclass(frozen=True, slots=True)
class Peer:
    """SO_PEERCRED of a Unix socket; zeros and -1 where the kernel does not say."""

    pid: int = 0
    uid: int = -1


class Link(asyncio.Protocol):
    """A stream's end. Methods are called from the event loop's own thread only."""

    def __init__(self, on_connected: Callable[[Link], None] | None = None) -> None:
        self._on_connected = on_connected
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._sink: Sink | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._feeder: Link | None = None
        self._watcher: Told | None = None
        self._writable_again: Told | None = None
        self._paused = False
        self._held = False
        self._spare: socket.socket | None = None
        self.on_lost: Told | None = None
        """Called once, when the connection is no more."""
        self.peer = Peer()
        """Who is at the other end: the process that connected, or the one that called listen(2)."""
        self.received = self.sent = 0
        """Bytes from the peer and to it."""
        self.writable = True
        self.at_eof = False
        """The peer will send no more."""
        self.lost = False
        """The connection is no more, in either direction."""

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer = _peer(self._transport)
        if self._on_connected is not None:
            self._on_connected(self)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self._sink is not None:
            self._sink(data)
            return
        self._buffer += data
        if len(self._buffer) >= _BUFFER_MAX:
            self._pause()
        self._wake()

    def eof_received(self) -> bool:
        self.at_eof = True
        self._wake()
        self._notify()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._hear_last_words()
        self.at_eof = self.lost = True
        self._wake()
        self._release_feeder()
        self._notify()
        if self.on_lost is not None:
            self.on_lost()

    def pause_writing(self) -> None:
        self.writable = False
        if self._feeder is not None:
            self._feeder.hold()

    def resume_writing(self) -> None:
        self.writable = True
        self._release_feeder()
        again, self._writable_again = self._writable_again, None
        if again is not None:
            again()

    # Reading.

    async def more(self) -> bool:
        """Waits for bytes in the buffer beyond those that are there; False when none will come."""
        if self.at_eof:
            return False
        self._waiter = asyncio.get_running_loop().create_future()
        self._resume()
        try:
            await self._waiter
        finally:
            self._waiter = None
        return not self.at_eof or bool(self._buffer)

    @property
    def buffered(self) -> bytearray:
        """What came and was not taken; not to be changed."""
        return self._buffer

    def take(self, count: int | None = None) -> bytes:
        """The first `count` bytes of the buffer (all: None), taken out of it."""
        if count is None or count >= len(self._buffer):
            data = bytes(self._buffer)
            self._buffer.clear()
        else:
            data = bytes(self._buffer[:count])
            del self._buffer[:count]
        return data

    def put_back(self, data: bytes) -> None:
        """Bytes that were taken and belong to what follows."""
        self._buffer[:0] = data
        if len(self._buffer) >= _BUFFER_MAX:
            self._pause()

    def flow_to(self, sink: Sink, other: Link | None) -> None:
        """From now on every byte goes to `sink`, first what waits; reading stops while `other` can't be written to."""
        self._sink = sink
        if other is not None:
            other._feeder = self
            self._held = not other.writable
        waiting = self.take()
        if waiting:
            sink(waiting)
        if self._sink is sink and not self._held:
            self._resume()

    def stop_flow(self, other: Link | None) -> None:
        """Back to buffering."""
        self._sink = None
        self._held = False
        if other is not None and other._feeder is self:
            other._feeder = None
        self._resume()

    def hold(self) -> None:
        """Stop reading until `release`."""
        self._held = True
        self._pause()

    def release(self) -> None:
        self._held = False
        self._resume()

    def watch(self, watcher: Told | None) -> None:
        """Calls `watcher` from now on at end of file and when the connection is lost, also if that has been already; it
        takes the place of the one before."""
        self._watcher = watcher
        if watcher is not None and self.at_eof:
            watcher()

    # Writing.

    def write(self, data: bytes) -> None:
        """Writes, or drops what a lost peer will never read."""
        if self._transport is not None and not self.lost and not self._transport.is_closing():
            self.sent += len(data)
            self._transport.write(data)

    def when_writable(self, again: Told) -> None:
        """Calls `again` once the peer has taken enough of what was written; never when it is lost."""
        self._writable_again = again

    def write_eof(self) -> None:
        """No more bytes from here; the other direction stays open."""
        transport = self._transport
        if transport is not None and not self.lost and not transport.is_closing() and transport.can_write_eof():
            transport.write_eof()

    def close(self) -> None:
        """Closes once all that was written is out."""
        self._drop_spare()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Closes at once: a peer sees that what it got is not whole."""
        self._drop_spare()
        if self._transport is not None:
            self._transport.abort()

    def keep_last_words(self) -> None:
        """From now on what the peer wrote before it closed is read, even when a write to it fails first: the event loop
        would drop it (a daemon answers an upload that it refuses, and closes, while the upload still comes)."""
        if self._spare is None and self._transport is not None and not self.lost:
            self._spare = socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno()))

    def _hear_last_words(self) -> None:
        """What still lies in the socket; no more than its kernel buffer, for the other side is closed."""
        spare, self._spare = self._spare, None
        if spare is None:
            return
        with spare, contextlib.suppress(OSError):
            while data := spare.recv(_BUFFER_MAX, socket.MSG_DONTWAIT):
                self.data_received(data)

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def hung_up(self) -> bool:
        """The peer has closed both directions, not only its writing one."""
        if self.lost or self._transport is None:
            return True
        sock = self._transport.get_extra_info("socket")
        poller = select.poll()
        try:
            poller.register(sock.fileno(), 0)
            return any(event & (select.POLLHUP | select.POLLERR) for _, event in poller.poll(0))
        except (OSError, ValueError):
            return True

    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._paused = True

    def _resume(self) -> None:
        full = self._sink is None and len(self._buffer) >= _BUFFER_MAX
        if not self._paused or self._held or self.at_eof or full:
            return
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._paused = False

    def _release_feeder(self) -> None:
        if self._feeder is not None:
            self._feeder.release()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _notify(self) -> None:
        if self._watcher is not None:
            self._watcher()


def _peer(transport: asyncio.Transport) -> Peer:
    """Asked once a connection: neither end of one ever changes."""
    try:
        sock = transport.get_extra_info("socket")
        pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except (OSError, AttributeError):
        return Peer()
    return Peer(pid, uid)
