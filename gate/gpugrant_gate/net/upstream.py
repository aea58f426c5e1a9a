"""Connections to a repo's daemon: fresh ones, those that wait for another request, and the gate's own questions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpugrant_gate.net.link import Link, Peer
from gpugrant_gate.settings import Limits
from gpugrant_gate.wire import framing, heads, messages
from gpugrant_gate.wire.faults import Malformed, Truncated
from gpugrant_gate.wire.framing import Framing
from gpugrant_gate.wire.heads import ResponseHead

_BACKLOG_RETRY = 0.01
"""Seconds between tries while the daemon's accept queue is full: connect(2) says EAGAIN on Unix sockets then."""


class Unreachable(ConnectionError):
    """The daemon can't be asked; the message is one clause."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A daemon's answer to a question of the gate's. `value` is the decoded body, None where it is no JSON."""

    status: int
    value: Any
    peer: Peer


async def connect(path: Path, limits: Limits) -> Link:
    """A new connection; raises Unreachable."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(limits.connect_timeout):
            while True:
                try:
                    _, link = await loop.create_unix_connection(Link, str(path))
                except BlockingIOError:
                    await asyncio.sleep(_BACKLOG_RETRY)
                else:
                    return link
    except TimeoutError as error:
        raise Unreachable("it accepts no connection") from error
    except OSError as error:
        raise Unreachable((error.strerror or str(error)).lower()) from error


class Idle:
    """Connections to one daemon that have carried a GET to its end and wait for the next one (design 5).

    The one used last is used first. Whatever a waiting one says or does closes it: nobody asked it anything.
    """

    def __init__(self, *, most: int = 256, seconds: float = 10.0) -> None:
        """`most`: the clients of a busy repo at once; each costs dockerd 20 KiB and waits at least `seconds`, at most
        twice that."""
        self._most = most
        self._seconds = seconds
        self._waiting: dict[Link, float] = {}
        """With the loop's time at which each began to wait, the oldest first."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def give(self, link: Link) -> None:
        """Takes over a connection; closes it where enough wait already."""
        if len(self._waiting) >= self._most:
            link.close()
            return
        loop = asyncio.get_running_loop()
        self._waiting[link] = loop.time()
        link.flow_to(lambda data: self._drop(link), None)
        link.watch(lambda: self._drop(link))
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._tidy)

    def take(self, is_judged: Callable[[Link], bool]) -> Link | None:
        """A connection that is still open as far as is known, to the right daemon; None: a fresh one is needed."""
        while self._waiting:
            link, _ = self._waiting.popitem()
            link.watch(None)
            if is_judged(link):
                return link
            link.abort()
        return None

    def close(self) -> None:
        """Closes all of them."""
        for link in tuple(self._waiting):
            self._drop(link)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self, link: Link) -> None:
        self._waiting.pop(link, None)
        link.watch(None)
        link.abort()

    def _tidy(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._seconds
        for link in [link for link, since in self._waiting.items() if since <= oldest]:
            self._drop(link)
        if self._waiting:
            self._timer = loop.call_later(self._seconds, self._tidy)


async def read_head(link: Link) -> ResponseHead:
    """The head of the daemon's final answer, taken from the link; raises Unreachable or Malformed."""
    while True:
        end = link.buffered.find(b"\r\n\r\n") + 4
        if end >= 4:
            head = heads.parse_response(link.take(end))
            if head.status >= 200:
                return head
        elif len(link.buffered) > heads.HEAD_MAX:
            raise Malformed(502, "wire.answer", "the daemon's answer has a head that is too long")
        elif not await link.more():
            raise Unreachable("it closed the connection without an answer")


async def read_body(link: Link, body: Framing, most: int) -> bytes:
    """The whole body; raises Unreachable, or Malformed (also above `most` bytes)."""
    decoder = framing.answer_decoder(body)
    pieces: list[bytes] = []
    size = 0
    while not decoder.done:
        if link.buffered:
            piece = decoder.feed(link.take())
            size += len(piece)
            pieces.append(piece)
            if size > most:
                raise Malformed(502, "wire.answer", "the daemon's answer is too long")
        elif not await link.more():
            _end(decoder)
    return b"".join(pieces)


def _end(decoder: framing.Decoder) -> None:
    try:
        decoder.eof()
    except Truncated as error:
        raise Unreachable("it closed the connection in the middle of an answer") from error


async def get(path: Path, target: str, limits: Limits) -> Answer:
    """One question; raises Unreachable for whatever keeps its answer away."""
    link: Link | None = None
    try:
        async with asyncio.timeout(limits.fact_timeout):
            link = await connect(path, limits)
            link.write(messages.request("GET", target, (("accept", "application/json"),), framing.NONE))
            head = await read_head(link)
            body = await read_body(link, heads.response_framing(head, "GET"), limits.fact_max)
            return Answer(head.status, _decoded(body), link.peer)
    except TimeoutError as error:
        raise Unreachable(f"it did not answer within {limits.fact_timeout:g} s") from error
    except Malformed as error:
        raise Unreachable(str(error)) from error
    finally:
        if link is not None:
            link.abort()


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
