"""Byte pipes: opened only by the daemon's 101, half-closed on either side, and never read as a request otherwise."""

from __future__ import annotations

import asyncio

import pytest

from gatebench import Bench, reply

UPGRADED = (
    b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
    b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
)
ASK = b"POST /hijack HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 2\r\n\r\n{}"
OLD = b"POST /hijack HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"


async def echo(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends back what comes, and a last word after the client's end."""
    assert await reader.readexactly(2) == b"{}"
    writer.write(UPGRADED)
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write(b"late")


@pytest.mark.parametrize(("request_head", "status"), [(ASK, b"101 UPGRADED"), (OLD, b"200 OK")])
async def test_a_pipe_outlives_the_clients_end(bench: Bench, request_head: bytes, status: bytes) -> None:
    """`echo hi | docker run -i` closes its writing side and still wants the output, in both forms."""
    bench.daemon.handlers["hijack"] = echo
    reader, writer = await bench.connect()
    writer.write(request_head)
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"hi\n")
        assert await reader.readexactly(3) == b"hi\n"
        writer.write_eof()
        assert await reader.read() == b"late"
    writer.close()
    assert head.startswith(b"HTTP/1.1 " + status)
    assert (b"Upgrade" in head) == (request_head == ASK)
    assert b"Upgrade: tcp\r\n" in bench.daemon.heads[0]


async def test_bytes_right_behind_the_head_are_held_until_the_101(bench: Bench) -> None:
    """A daemon drops what it has read already when it hijacks: data pipelined behind the head would be lost."""

    async def late(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(2) == b"{}"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await reader.read(1)
        writer.write(UPGRADED)
        assert await reader.readexactly(5) == b"hello"
        writer.write(b"got it")

    bench.daemon.handlers["hijack"] = late
    said = await bench.ask(ASK + b"hello")
    assert said.partition(b"\r\n\r\n")[2] == b"got it"


async def test_an_end_that_comes_before_the_101_follows_the_bytes_before_it(bench: Bench) -> None:
    """`echo hello | nc -UN gate.sock`: all of it is there before the daemon has said a word."""

    async def late(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(2) == b"{}"
        await asyncio.sleep(0.05)
        writer.write(UPGRADED)
        writer.write(b"got " + await reader.read())

    bench.daemon.handlers["hijack"] = late
    said = await bench.ask(ASK + b"hello", eof=True)
    assert said.partition(b"\r\n\r\n")[2] == b"got hello"


@pytest.mark.req("R4", "R45")
async def test_without_a_101_what_follows_is_no_request(bench: Bench) -> None:
    bench.daemon.answers("hijack", reply(b'{"message":"No such container"}\n', "404 Not Found"))
    bench.daemon.answers("plain", reply())
    said = await bench.ask(ASK + b"POST /plain HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    assert said.endswith(b'{"message":"No such container"}\n')
    assert b"Connection: close" in said
    assert [head.split(b" ")[1] for head in bench.daemon.heads] == [b"/hijack"]


@pytest.mark.req("R4", "R45")
async def test_what_is_meant_for_a_refused_pipe_is_no_request(bench: Bench) -> None:
    """Typed input, or a file at standard input, must not be read as what its owner asks of the daemon."""
    bench.daemon.answers("plain", reply())
    ask = ASK.replace(b"/hijack", b"/hijack/refused")
    said = await bench.ask(ask + b"POST /plain HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    assert said.count(b"HTTP/1.1 ") == 1
    assert b"[test.refused]" in said
    assert bench.daemon.heads == []


@pytest.mark.req("R4", "R45")
async def test_a_200_of_the_daemon_opens_no_pipe(bench: Bench) -> None:
    """The gate always asks with Upgrade, so only a 101 is the daemon's yes."""
    got = bytearray()

    async def old(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.extend(await reader.readexactly(2))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\nout")
        writer.write_eof()
        got.extend(await reader.read())

    bench.daemon.handlers["hijack"] = old
    said = await bench.ask(OLD + b"POST /plain HTTP/1.1\r\n\r\n")
    assert b"out" in said
    assert got == b"{}"


async def test_a_daemon_that_closes_ends_the_pipe(bench: Bench) -> None:
    async def short(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2)
        writer.write(UPGRADED + b"bye")

    bench.daemon.handlers["hijack"] = short
    assert (await bench.ask(ASK)).endswith(b"bye")


async def test_a_client_that_goes_away_ends_the_pipe(bench: Bench) -> None:
    bench.daemon.handlers["hijack"] = echo
    reader, writer = await bench.connect()
    writer.write(ASK)
    async with asyncio.timeout(10):
        await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await bench.until(lambda: bench.daemon.open == 0)


async def test_much_flows_both_ways_at_once(bench: Bench) -> None:
    bench.daemon.handlers["hijack"] = echo
    data = bytes(range(256)) * 40_000
    reader, writer = await bench.connect()
    writer.write(ASK)
    async with asyncio.timeout(30):
        await reader.readuntil(b"\r\n\r\n")

        async def send() -> None:
            for start in range(0, len(data), 60_000):
                writer.write(data[start : start + 60_000])
                await writer.drain()
            writer.write_eof()

        sent, got = await asyncio.gather(send(), reader.read())
    assert sent is None
    assert got == data + b"late"
    writer.close()
