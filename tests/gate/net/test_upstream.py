"""Connections that wait for another GET: used only where nothing can be left on them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from gatebench import Bench, reply
from gpugrant_gate.net.link import Link
from gpugrant_gate.net.upstream import Idle

GET = b"GET /plain HTTP/1.1\r\n\r\n"
LAST = b"GET /plain HTTP/1.1\r\nConnection: close\r\n\r\n"


MADE: list[tuple[Link, socket.socket]] = []


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    """Whatever a test leaves open, a failed one too: the loop would wait for it."""
    yield
    for link, peer in MADE:
        link.abort()
        peer.close()
    MADE.clear()
    await asyncio.sleep(0)


async def pair() -> tuple[Link, socket.socket]:
    ours, peer = socket.socketpair(socket.AF_UNIX)
    _, link = await asyncio.get_running_loop().create_unix_connection(Link, sock=ours)
    peer.setblocking(False)
    MADE.append((link, peer))
    return link, peer


async def is_closed(peer: socket.socket) -> None:
    async with asyncio.timeout(10):
        assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""
    peer.close()


async def kept(bench: Bench) -> int:
    """The daemon keeps connections and answers /plain; how many there were when a first GET was answered."""
    bench.daemon.keeps = True
    bench.daemon.answers("plain", reply(b"hello"))
    await bench.ask(LAST)
    return bench.daemon.made


async def test_a_get_behind_a_get_uses_its_connection(bench: Bench) -> None:
    made = await kept(bench)
    assert (await bench.ask(GET * 5 + LAST)).count(b"hello") == 6
    assert bench.daemon.made == made


@pytest.mark.parametrize("line", [b"POST /plain", b"HEAD /plain", b"DELETE /plain", b"POST /judged"])
async def test_every_other_request_has_a_fresh_connection_of_its_own(bench: Bench, line: bytes) -> None:
    """It could not be sent again where the connection turns out to be closed, and nothing may be left behind it."""
    made = await kept(bench)
    bench.daemon.answers("judged", reply())
    for count in (1, 2):
        await bench.ask(line + b" HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        assert bench.daemon.made == made + count
        assert b"Connection: close\r\n" in bench.daemon.heads[-1]


@pytest.mark.req("R4", "R45")
@pytest.mark.parametrize(
    "answer",
    [
        reply(b"hello", headers=b"Connection: close\r\n"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong",
    ],
    ids=["a daemon that says close", "bytes that nobody asked for"],
)
async def test_a_connection_on_which_something_may_be_left_is_not_used_again(bench: Bench, answer: bytes) -> None:
    made = await kept(bench)
    bench.daemon.answers("plain", answer)
    said = await bench.ask(GET + GET + LAST)
    assert said.count(b"hello") == 3
    assert b"wrong" not in said
    assert bench.daemon.made == made + 2


async def test_a_get_on_a_connection_that_is_closed_meanwhile_goes_out_once_more(bench: Bench) -> None:
    """A daemon that closes an idle connection while a request is on its way to it."""
    made = await kept(bench)
    refused = 0

    async def closes_the_used_one(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal refused
        if bench.daemon.made == made:
            refused += 1
            raise ConnectionError
        writer.write(reply(b"again"))

    bench.daemon.handlers["plain"] = closes_the_used_one
    said = await bench.ask(LAST)
    assert said.endswith(b"again")
    assert refused == 1


async def test_and_not_twice(bench: Bench) -> None:
    await kept(bench)
    bench.daemon.answers("plain", b"")
    bench.daemon.keeps = False
    heads = len(bench.daemon.heads)
    assert b" 503 " in await bench.ask(LAST)
    assert len(bench.daemon.heads) == heads + 2


async def test_a_half_answer_is_not_asked_for_again(bench: Bench) -> None:
    """What was answered in part may be seen by the client: the fault is shown, not mended."""
    await kept(bench)
    bench.daemon.keeps = False
    bench.daemon.answers("plain", b"HTTP/1.1 200 OK\r\nContent-Le")
    heads = len(bench.daemon.heads)
    assert b" 503 " in await bench.ask(LAST)
    assert len(bench.daemon.heads) == heads + 1


async def test_whatever_a_waiting_connection_says_closes_it() -> None:
    idle = Idle()
    link, peer = await pair()
    idle.give(link)
    peer.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    await is_closed(peer)
    assert idle.take(lambda link: True) is None


async def test_a_daemon_that_closes_is_not_asked() -> None:
    idle = Idle()
    link, peer = await pair()
    idle.give(link)
    peer.close()
    async with asyncio.timeout(10):
        while len(idle):  # noqa: ASYNC110  # the event loop notices by itself
            await asyncio.sleep(0)
    assert idle.take(lambda link: True) is None


@pytest.mark.req("R52")
async def test_another_daemons_connection_is_not_used() -> None:
    idle = Idle()
    link, peer = await pair()
    idle.give(link)
    assert idle.take(lambda link: False) is None
    await is_closed(peer)


async def test_no_more_wait_than_it_holds_and_the_last_one_is_used_first() -> None:
    idle = Idle(most=2)
    pairs = [await pair() for _ in range(3)]
    for link, _ in pairs:
        idle.give(link)
    await is_closed(pairs[2][1])
    taken = idle.take(lambda link: True)
    assert taken is pairs[1][0]
    taken.abort()
    idle.close()
    await is_closed(pairs[0][1])
    await is_closed(pairs[1][1])


async def test_none_waits_for_ever() -> None:
    idle = Idle(seconds=0.01)
    link, peer = await pair()
    idle.give(link)
    await is_closed(peer)
    assert len(idle) == 0
