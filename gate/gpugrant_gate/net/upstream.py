"""Connections to a repo's daemon: always fresh ones, and the gate's own questions over them."""

from __future__ import annotations

import asyncio
import json
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


async def read_head(link: Link, *, upgradable: bool = False) -> ResponseHead:
    """The head of the daemon's final answer, taken from the link; raises Unreachable or Malformed."""
    while True:
        end = link.buffered.find(b"\r\n\r\n") + 4
        if end >= 4:
            head = heads.parse_response(link.take(end))
            if head.status >= 200 or (upgradable and head.status == 101):
                return head
        elif len(link.buffered) > heads.HEAD_MAX:
            raise Malformed(502, "wire.answer", "the daemon's answer has a head that is too long")
        elif not await link.more():
            raise Unreachable("it closed the connection without an answer")


async def read_body(link: Link, body: Framing, most: int) -> bytes:
    """The whole body; raises Unreachable, or Malformed (also above `most` bytes)."""
    decoder = framing.decoder(body)
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
            return Answer(head.status, _decoded(body), link.peer())
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
