"""Open builds end when they would not be let in any more, and a snapshot's answer waits for that (design 5)."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from gatebench import Bench
from gpugrant_gate.life import fitness
from gpugrant_gate.life.buildkit import Builder, Entitlements
from gpugrant_gate.life.fitness import Fitness
from gpugrant_gate.net.judgement import Judgement

DEVICE = "vendor.com/gpu=0"
UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
ASK = b"POST /grpc HTTP/1.1\r\nHost:\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
CLOSED = Entitlements(network_host=False, security_insecure=False, device=False)
BUILDER = Builder((28, 5, 2), "/d.json", CLOSED, runc=True, own_specs=True)
FIT = Fitness(True, api_version="1.51", builder=BUILDER)


async def echo(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(UPGRADED)
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


class Known:
    """What is known of the daemon, said by the test and not asked."""

    def __init__(self, bench: Bench) -> None:
        self._server = bench.core.repos["a"]

    def is_(self, found: Fitness) -> None:
        daemon = self._server._daemon
        daemon.fitness = found
        daemon._changed()


@pytest.fixture
async def known(bench: Bench) -> Known:
    """The real policy before a daemon that is closed to builds."""
    server = bench.core.repos["a"]
    server.policy = Judgement()
    bench.daemon.handlers["v1.51"] = echo
    await bench.until(lambda: server._daemon.fit)
    known = Known(bench)
    known.is_(FIT)
    return known


async def opened(bench: Bench) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A build's tunnel in which bytes go both ways."""
    reader, writer = await bench.connect()
    writer.write(ASK + b"PRI")
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        assert await reader.readexactly(3) == b"PRI"
    return reader, writer


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side closed, at once."""
    try:
        async with asyncio.timeout(0.3):
            return await reader.read(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.req("R45")
async def test_a_daemon_that_is_known_to_be_closed_gets_the_tunnel(bench: Bench, known: Known) -> None:
    reader, writer = await opened(bench)
    assert b"POST /v1.51/grpc HTTP/1.1\r\n" in bench.daemon.heads[-1]
    assert b"Upgrade: h2c\r\n" in bench.daemon.heads[-1]
    writer.close()
    assert await ended(reader)


async def test_the_build_of_a_client_without_buildx_ends_as_well(bench: Bench, known: Known) -> None:
    """It is an upload whose answer comes while it runs."""

    async def progress(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
        await reader.read(1 << 16)
        await reader.read()

    bench.daemon.handlers["v1.51"] = progress
    reader, writer = await bench.connect()
    query = b"version=2&remote=client-session&session=s"
    writer.write(b"POST /build?" + query + b" HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    async with asyncio.timeout(10):
        assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200 ")
    known.is_(replace(FIT, builder=Builder()))
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
    writer.close()
    assert not bench.core.repos["a"].is_cutting


async def refused(bench: Bench) -> bool:
    reader, writer = await bench.connect()
    writer.write(ASK)
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await bench.until(lambda: not bench.core.repos["a"]._sessions)
    return head.startswith(b"HTTP/1.1 403 ")


UNKNOWN = {
    "nothing known of its builder": replace(FIT, builder=Builder()),
    "an entitlement": replace(FIT, builder=replace(BUILDER, entitlements=replace(CLOSED, security_insecure=True))),
    "unfit": fitness.unreachable(Path("/x"), "it is gone"),
}


@pytest.mark.req("R45", "R52")
@pytest.mark.parametrize("case", UNKNOWN)
async def test_a_verdict_that_turns_ends_open_builds_and_lets_no_more_in(bench: Bench, known: Known, case: str) -> None:
    reader, writer = await opened(bench)
    known.is_(UNKNOWN[case])
    assert await ended(reader)
    writer.close()
    assert await refused(bench)


@pytest.mark.req("R45", "R51")
async def test_a_revocation_ends_the_builds_of_an_unsealed_daemon_and_waits_for_it(bench: Bench, known: Known) -> None:
    bench.grant(DEVICE, epoch=2)
    reader, writer = await opened(bench)
    bench.grant(DEVICE, "vendor.com/gpu=1", epoch=3)
    assert not await ended(reader)
    bench.grant(DEVICE, epoch=4)
    assert bench.core.repos["a"].is_cutting
    async with asyncio.timeout(10):
        await bench.core.settled()
    assert not bench.core.repos["a"].is_cutting
    assert await ended(reader)
    writer.close()


NO_DEVICES = {
    "sealed": replace(FIT, sealed=True),
    "a builder without devices": replace(FIT, builder=replace(BUILDER, engine=(27, 5, 1))),
}


@pytest.mark.parametrize("case", NO_DEVICES)
async def test_builds_that_cannot_hold_a_device_outlive_a_revocation(bench: Bench, known: Known, case: str) -> None:
    known.is_(NO_DEVICES[case])
    bench.grant(DEVICE, epoch=2)
    reader, writer = await opened(bench)
    bench.grant(epoch=3)
    assert not await ended(reader)
    writer.close()


async def test_another_daemon_is_judged_before_it_gets_the_tunnel(bench: Bench, known: Known) -> None:
    """The process behind the socket is not the one that the verdict was about: it is asked, and here it is open."""
    bench.core.repos["a"]._daemon.listener = 1
    assert await refused(bench)
    assert bench.daemon.heads == []
