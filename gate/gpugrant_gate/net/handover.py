"""A gate hands all that only one may have to its successor: lock, sockets, what it has underway (design 5).

The successor asks over the control socket once it is ready to serve. The older gate accepts nothing while the things go
over; it gives them up only on the answer that they have arrived, and takes everything up again without one. The
successor owns nothing before it is told so. So each of them has exactly one owner at every moment, whoever of the two
dies, and connections that come meanwhile wait in the sockets.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpugrant_gate.net.channel import Channel, ChannelClosed, Message
from gpugrant_gate.net.elder import Elder
from gpugrant_gate.net.listener import Found, Listener

PROTOCOL = "gpugrant-handover"
PATH = "/v1/handover"
_REQUEST = (
    f"POST {PATH} HTTP/1.1\r\nHost: gate\r\nConnection: Upgrade\r\nUpgrade: {PROTOCOL}\r\nContent-Length: 0\r\n\r\n"
)
_HEAD_MAX = 8192
"""Bytes of the older gate's answer."""
_ASK_TIMEOUT = 5.0
"""Seconds for the older gate to say that it hands over; one that is well says so at once."""
_ESTATE_TIMEOUT = 30.0
"""Seconds for it to give everything: a snapshot that is being enforced comes first, and takes 8."""
_TAKEN_TIMEOUT = 5.0
"""Seconds for the successor to say that all has arrived; connections wait that long at the most."""

# successor → older gate
READY = "ready"
TAKEN = "taken"
# older gate → successor
LOCK = "lock"
CONTROL = "control"
METRICS = "metrics"
LISTENER = "listener"
REST = "rest"
YOURS = "yours"


class NotGiven(RuntimeError):
    """The gate that runs does not hand over; the message is a clause."""


@dataclass(frozen=True, slots=True)
class Estate:
    """What one gate at a time has. The descriptors are the owner's to close."""

    lock: int
    control: Found | None = None
    metrics: int | None = None
    listeners: tuple[Found, ...] = ()
    notify: str = ""
    """Where the sockets are kept while no gate runs."""
    not_before: datetime | None = None
    """The older gate's time: a clock never goes back."""
    elder: Elder | None = None


@dataclass(frozen=True, slots=True)
class Bequest:
    """What the older gate gives; its own descriptors stay open until it lets go of them."""

    lock: int
    control: Listener
    metrics: socket.socket | None
    listeners: Sequence[Listener]
    notify: str
    now: datetime


# The successor.


async def ask(control: Path) -> Channel:
    """A channel to the gate that runs; raises NotGiven."""
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        async with asyncio.timeout(_ASK_TIMEOUT):
            await loop.sock_connect(sock, str(control))
            await loop.sock_sendall(sock, _REQUEST.encode())
            head = bytearray()
            while b"\r\n\r\n" not in head and len(head) < _HEAD_MAX:
                piece = await loop.sock_recv(sock, _HEAD_MAX)
                if not piece:
                    break
                head += piece
    except (OSError, TimeoutError) as error:
        sock.close()
        raise NotGiven("it does not answer") from error
    if not head.startswith(b"HTTP/1.1 101 "):
        sock.close()
        raise NotGiven("it does not hand over, since it is of an older version: stop it first")
    return Channel(sock)


async def receive(channel: Channel, older: int) -> Estate:
    """Everything, once it is ours alone; raises NotGiven with nothing taken. `older` is the other process."""
    channel.send({"kind": READY})
    got: list[tuple[Message, list[int]]] = []
    try:
        async with asyncio.timeout(_ESTATE_TIMEOUT):
            while not got or got[-1][0]["kind"] != REST:
                got.append(await channel.receive())
            channel.send({"kind": TAKEN})
            message, _ = await channel.receive()
            if message["kind"] != YOURS:
                raise ChannelClosed
    except (ChannelClosed, TimeoutError) as error:
        channel.close()
        for _, fds in got:
            _close(fds)
        raise NotGiven("it did not hand over in time") from error
    return _estate(got, Elder(channel, older))


def _estate(got: Iterable[tuple[Message, list[int]]], elder: Elder) -> Estate:
    by_kind: dict[str, list[tuple[Message, list[int]]]] = {}
    for message, fds in got:
        by_kind.setdefault(message["kind"], []).append((message, fds))
    rest, _ = by_kind[REST][0]
    control = [_found(*item) for item in by_kind.get(CONTROL, ())]
    metrics = [fds[0] for _, fds in by_kind.get(METRICS, ())]
    return Estate(
        lock=by_kind[LOCK][0][1][0],
        control=control[0] if control else None,
        metrics=metrics[0] if metrics else None,
        listeners=tuple(_found(*item) for item in by_kind.get(LISTENER, ())),
        notify=rest["notify"],
        not_before=datetime.fromisoformat(rest["now"]),
        elder=elder,
    )


def _found(message: Message, fds: list[int]) -> Found:
    return Found(fds[0], Path(message["path"]), (message["inode"][0], message["inode"][1]))


def peer_pid(channel: Channel) -> int:
    """The process that listens at the other end, as the kernel says; 0: it can't be seen from here."""
    pid, _, _ = struct.unpack("3i", channel.option(socket.SO_PEERCRED, 12))
    return int(pid)


# The older gate.


async def ready(channel: Channel) -> bool:
    """Whether the successor is ready to serve; False: it is gone."""
    with suppress(ChannelClosed):
        message, _ = await channel.receive()
        return bool(message["kind"] == READY)
    return False


async def give(channel: Channel, bequest: Bequest) -> bool:
    """Hands everything over; True: it is the successor's from now on. False: nothing happened."""
    channel.send({"kind": LOCK}, [bequest.lock])
    _send(channel, CONTROL, bequest.control)
    if bequest.metrics is not None:
        channel.send({"kind": METRICS}, [bequest.metrics.fileno()])
    for opened in bequest.listeners:
        _send(channel, LISTENER, opened)
    channel.send({"kind": REST, "notify": bequest.notify, "now": bequest.now.isoformat()})
    try:
        async with asyncio.timeout(_TAKEN_TIMEOUT):
            message, _ = await channel.receive()
    except (ChannelClosed, TimeoutError):
        channel.close()
        return False
    if message["kind"] != TAKEN:
        channel.close()
        return False
    channel.send({"kind": YOURS})
    return True


def _send(channel: Channel, kind: str, opened: Listener) -> None:
    channel.send({"kind": kind, "path": str(opened.path), "inode": list(opened.inode)}, [opened.sock.fileno()])


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)
