"""One end of a connection whose other end closes while it is written to."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gpugrant_gate.net.link import Link


async def lost_in_a_write(said: bytes, *, keep: bool) -> Link:
    """A link whose peer said something and closed, and that hears of it by a write that fails."""
    ours, peer = socket.socketpair(socket.AF_UNIX)
    _, link = await asyncio.get_running_loop().create_unix_connection(Link, sock=ours)
    link.hold()
    if keep:
        link.keep_last_words()
    peer.sendall(said)
    peer.close()
    link.write(b"more of the upload")
    async with asyncio.timeout(10):
        while not link.lost:  # noqa: ASYNC110  # the event loop notices by itself
            await asyncio.sleep(0)
    return link


@pytest.mark.parametrize("size", [1, 100_000])
async def test_hears_what_a_peer_said_before_it_closed(size: int) -> None:
    """A daemon answers an upload that it refuses, and closes, while the upload still comes."""
    link = await lost_in_a_write(b"x" * size, keep=True)
    assert link.take() == b"x" * size
    assert link.at_eof


async def test_the_event_loop_alone_drops_it() -> None:
    """Why `keep_last_words` is there; when this fails it can go."""
    link = await lost_in_a_write(b"answer", keep=False)
    assert link.take() == b""


@pytest.mark.parametrize("end", [Link.close, Link.abort], ids=["close", "abort"])
async def test_keeps_no_descriptor_of_a_connection_that_it_ends(end: object) -> None:
    ours, peer = socket.socketpair(socket.AF_UNIX)
    _, link = await asyncio.get_running_loop().create_unix_connection(Link, sock=ours)
    link.keep_last_words()
    assert callable(end)
    end(link)
    peer.setblocking(False)
    async with asyncio.timeout(10):
        assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""
    peer.close()
