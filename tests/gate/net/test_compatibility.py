"""What real clients rely on, case by case: the issues in which other proxies broke them are the cases' sources.

The numbers are those of the list of compatibility cases that this gate was built against; clients themselves run in
tests/gate/attacks/test_clients.py.
"""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from gatebench import Bench, reply
from gpugrant_gate.settings import Limits

LAST = b"GET /plain HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n"
UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
PIPE = b"POST /hijack HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 2\r\n\r\n{}"
Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


@pytest.mark.parametrize("upgrade", [b"tcp", b"TCP", b"anything", b"h2c"])
async def test_c01_an_upgrade_is_recognised_by_its_header_alone(bench: Bench, upgrade: bytes) -> None:
    async def handler(head: bytes, reader: Reader, writer: Writer) -> None:
        await reader.readexactly(2)
        writer.write(UPGRADED + b"out")

    bench.daemon.handlers["hijack"] = handler
    said = await bench.ask(PIPE.replace(b"Upgrade: tcp", b"Upgrade: " + upgrade))
    assert said.startswith(b"HTTP/1.1 101 ")
    assert said.endswith(b"\r\n\r\nout")
    assert b"Upgrade: tcp\r\n" in bench.daemon.heads[0]


EMPTY = {
    "no body": b"\r\n",
    "length 0": b"Content-Length: 0\r\n\r\n",
    "an empty object": b"Content-Length: 2\r\n\r\n{}",
    "no chunk": b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("case", EMPTY)
async def test_c03_a_start_has_no_body_however_that_is_said(bench: Bench, case: str) -> None:
    bench.daemon.answers("plain", reply(status="204 No Content"))
    head = b"POST /plain HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
    assert b" 204 " in await bench.ask(head + EMPTY[case])
    assert b"Content-Length: 0\r\n" in bench.daemon.heads[0]
    assert b"chunked" not in bench.daemon.heads[0]


async def test_c04_a_container_that_closes_its_output_still_gets_its_input(bench: Bench) -> None:
    got = asyncio.get_running_loop().create_future()

    async def handler(head: bytes, reader: Reader, writer: Writer) -> None:
        await reader.readexactly(2)
        writer.write(UPGRADED + b"all")
        writer.write_eof()
        got.set_result(await reader.read())

    bench.daemon.handlers["hijack"] = handler
    reader, writer = await bench.connect()
    writer.write(PIPE)
    async with asyncio.timeout(10):
        assert (await reader.read()).endswith(b"all")
        writer.write(b"late input")
        writer.write_eof()
        assert await got == b"late input"
    writer.close()


class TestC05:
    """Nothing that is underway has a time limit: 240 s and 10 min were the end of logs and shells elsewhere."""

    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(head_timeout=0.05, idle_timeout=0.05, body_timeout=0.05, linger=0.05)

    async def test_c05_a_pipe_may_be_silent(self, bench: Bench) -> None:
        async def handler(head: bytes, reader: Reader, writer: Writer) -> None:
            await reader.readexactly(2)
            writer.write(UPGRADED)
            writer.write(await reader.readexactly(2))

        bench.daemon.handlers["hijack"] = handler
        reader, writer = await bench.connect()
        writer.write(PIPE)
        async with asyncio.timeout(10):
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.3)
            writer.write(b"hi")
            assert await reader.read() == b"hi"
        writer.close()

    async def test_c05_an_answer_may_be_silent(self, bench: Bench) -> None:
        async def handler(head: bytes, reader: Reader, writer: Writer) -> None:
            await asyncio.sleep(0.2)
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            await asyncio.sleep(0.2)
            writer.write(b"2\r\nhi\r\n0\r\n\r\n")

        bench.daemon.handlers["plain"] = handler
        assert b"hi" in await bench.ask(LAST)

    async def test_c05_an_upload_may_be_silent(self, bench: Bench) -> None:
        async def handler(head: bytes, reader: Reader, writer: Writer) -> None:
            writer.write(reply(await reader.readexactly(4)))

        bench.daemon.handlers["stream"] = handler
        reader, writer = await bench.connect()
        writer.write(b"POST /stream HTTP/1.1\r\nConnection: close\r\nContent-Length: 4\r\n\r\nab")
        await asyncio.sleep(0.3)
        writer.write(b"cd")
        async with asyncio.timeout(10):
            assert (await reader.read()).endswith(b"abcd")
        writer.close()

    async def test_a_connection_without_a_request_is_closed(self, bench: Bench) -> None:
        assert await bench.ask(b"") == b""
        bench.daemon.answers("plain", reply())
        assert b" 200 " in await bench.ask(LAST.replace(b"Connection: close\r\n", b""))


async def test_c05_a_stop_does_not_wait_for_open_streams(bench: Bench) -> None:
    async def forever(head: bytes, reader: Reader, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await reader.read()

    async def pipe(head: bytes, reader: Reader, writer: Writer) -> None:
        writer.write(UPGRADED)
        await reader.read()

    bench.daemon.handlers |= {"plain": forever, "hijack": pipe}
    clients = [await bench.connect() for _ in range(20)]
    for number, (reader, writer) in enumerate(clients):
        writer.write(PIPE if number % 2 else LAST)
        await reader.readuntil(b"\r\n\r\n")
    began = time.monotonic()
    await bench.core.stop(0.1)
    assert time.monotonic() - began < 2
    for reader, writer in clients:
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
    await bench.until(lambda: bench.daemon.open == 0)


async def test_c06_a_head_leaves_its_connection_to_the_next_request(bench: Bench) -> None:
    bench.daemon.answers("plain", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nApi-Version: 1.45\r\n\r\n")
    reader, writer = await bench.connect()
    async with asyncio.timeout(10):
        for _ in range(2):
            writer.write(b"HEAD /plain HTTP/1.1\r\nHost: d\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"Content-Length: 5\r\n" in head
        bench.daemon.answers("plain", reply(b"hello"))
        writer.write(LAST)
        assert (await reader.read()).endswith(b"\r\n\r\nhello")
    writer.close()


HOSTS = [b"", b"docker", b"localhost", b"api.moby.localhost", b"/var/run/docker.sock", b"%2Fvar%2Frun%2Fdocker.sock"]


@pytest.mark.parametrize("host", HOSTS)
async def test_c08_the_host_header_says_nothing(bench: Bench, host: bytes) -> None:
    bench.daemon.answers("plain", reply(b"hello"))
    said = await bench.ask(b"GET /plain HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
    assert said.endswith(b"hello")
    assert b"Host: docker\r\n" in bench.daemon.heads[0]


@pytest.mark.parametrize("size", [15 << 10, 17 << 10, 64 << 10, 200 << 10, 1 << 20])
@pytest.mark.parametrize("chunked", [False, True])
async def test_c11_bodies_of_every_size_arrive_whole(bench: Bench, size: int, chunked: bool) -> None:
    body = json.dumps({"Cmd": ["sh", "-c", "x" * size]}).encode()
    got = []

    async def handler(head: bytes, reader: Reader, writer: Writer) -> None:
        got.append(await reader.readexactly(len(body)))
        writer.write(reply(status="201 Created"))

    bench.daemon.handlers["judged"] = handler
    head = b"POST /judged HTTP/1.1\r\nConnection: close\r\n"
    if chunked:
        parts = [body[start : start + 4000] for start in range(0, len(body), 4000)]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
        said = await bench.ask(head + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n")
    else:
        said = await bench.ask(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert b" 201 " in said
    assert got == [body]


async def test_c12_an_http_1_0_client_gets_a_pipe_too(bench: Bench) -> None:
    async def handler(head: bytes, reader: Reader, writer: Writer) -> None:
        assert await reader.readexactly(2) == b"{}"
        writer.write(UPGRADED)
        writer.write(await reader.read() + b"!")

    bench.daemon.handlers["hijack"] = handler
    said = await bench.ask(b"POST /hijack HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}hi", eof=True)
    assert said.startswith(b"HTTP/1.1 200 OK\r\n")
    assert said.endswith(b"hi!")


async def test_c16_progress_comes_as_it_is_made(bench: Bench) -> None:
    """Each piece of an answer is out before the next one is made: the daemon waits for the client's word."""
    heard = asyncio.Event()

    async def handler(head: bytes, reader: Reader, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(5):
            writer.write(b"2\r\n%d\n\r\n" % number)
            await heard.wait()
            heard.clear()
        writer.write(b"0\r\n\r\n")

    bench.daemon.handlers["plain"] = handler
    reader, writer = await bench.connect()
    writer.write(LAST)
    async with asyncio.timeout(10):
        await reader.readuntil(b"\r\n\r\n")
        for number in range(5):
            assert await reader.readexactly(7) == b"2\r\n%d\n\r\n" % number
            heard.set()
        assert await reader.read() == b"0\r\n\r\n"
    writer.close()


async def test_a_client_that_knows_http_2_is_told_to_speak_1_1(bench: Bench) -> None:
    """buildx falls back to an upgrade where the answer is a daemon's without HTTP/2, and gives up on a refusal."""
    said = await bench.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0", eof=True)
    assert said.startswith(b"HTTP/1.1 505 HTTP Version Not Supported\r\n")
    assert b"Connection: close\r\n" in said
    assert bench.daemon.heads == []


async def test_a_daemon_that_is_not_there_for_a_moment_costs_no_connection(bench: Bench) -> None:
    """A daemon that restarts: what was asked meanwhile is answered, and the connection goes on."""
    bench.daemon.answers("plain", reply(b"hello"))
    reader, writer = await bench.connect()
    plain = LAST.replace(b"Connection: close\r\n", b"")
    async with asyncio.timeout(10):
        writer.write(plain)
        assert b" 200 " in await reader.readuntil(b"hello")
        await bench.daemon.stop()
        writer.write(plain)
        assert b" 503 " in await reader.readuntil(b"}\n")
        await bench.daemon.start()
        writer.write(LAST)
        assert (await reader.read()).endswith(b"hello")
    writer.close()
