"""Requests on real sockets: in order, judged first, relayed whole, and never one behind a refused body."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress

import pytest

from gatebench import DEVICE, Bench, OneOfEach, reply
from gpugrant_gate.policy.model import Decision, Facts, RepoView, Routed
from gpugrant_gate.settings import Limits

GET = b"GET /plain HTTP/1.1\r\nHost:\r\n\r\n"
LAST = b"GET /plain HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n"


def statuses(said: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", said)]


def message(said: bytes) -> str:
    return str(json.loads(said.partition(b"\r\n\r\n")[2])["message"])


async def test_relays_a_request_as_one_of_its_own(bench: Bench) -> None:
    bench.daemon.answers("plain", reply(b"hello"))
    said = await bench.ask(b"GET /plain HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Evil: y\r\n\r\n")
    assert said.endswith(b"\r\n\r\nhello")
    assert bench.daemon.heads == [b"GET /plain HTTP/1.1\r\nHost: docker\r\n\r\n"]


async def test_answers_pipelined_requests_in_order(bench: Bench) -> None:
    bench.daemon.answers("plain", reply(b"hello"))
    said = await bench.ask(GET + b"GET /refused HTTP/1.1\r\n\r\n" + GET + LAST)
    assert statuses(said) == [200, 403, 200, 200]


async def test_a_half_closed_client_gets_its_answer(bench: Bench) -> None:
    bench.daemon.answers("plain", reply(b"hello"))
    assert (await bench.ask(GET, eof=True)).endswith(b"hello")


@pytest.mark.req("R4", "R45")
@pytest.mark.parametrize(
    "body",
    [b"Content-Length: %d\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"],
    ids=["of a length", "in chunks"],
)
async def test_no_request_behind_a_refused_body_is_heard(bench: Bench, body: bytes) -> None:
    hidden = b"POST /plain HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
    head = body % len(hidden) if b"%d" in body else body
    said = await bench.ask(b"POST /refused HTTP/1.1\r\n" + head + hidden, eof=True)
    assert statuses(said) == [403]
    assert bench.daemon.heads == []


async def test_a_client_that_sends_on_can_read_why_it_was_refused(bench: Bench) -> None:
    reader, writer = await bench.connect()
    writer.write(b"POST /refused HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n")
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        for _ in range(50):
            writer.write(b"x" * 100_000)
            await writer.drain()
        assert b"403" in head
        assert json.loads(await reader.read()) == {"message": "not here [test.refused]"}
    writer.close()


MALFORMED = {
    "bare line feeds": (b"GET / HTTP/1.1\n\n", 400),
    "an HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "chunked in HTTP/1.0": (b"POST /judged HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
    "a broken chunk": (b"POST /judged HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    "a broken chunk of a stream": (b"POST /stream HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    "a body above the limit": (b"POST /judged HTTP/1.1\r\nContent-Length: 2097153\r\n\r\n", 413),
    "a body where none is taken": (b'POST /plain HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"a": 1}\n', 400),
    "a strange expectation": (b"POST /judged HTTP/1.1\r\nExpect: magic\r\nContent-Length: 1\r\n\r\n", 417),
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_answers_what_is_malformed_and_closes(bench: Bench, case: str) -> None:
    data, status = MALFORMED[case]
    said = await bench.ask(data + GET, eof=True)
    assert statuses(said) == [status]
    assert message(said)
    if b"/stream" not in data:
        assert bench.daemon.heads == []


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b" {}\n"])
async def test_an_empty_body_may_be_written_in_any_way(bench: Bench, body: bytes) -> None:
    bench.daemon.answers("plain", reply(status="204 No Content"))
    head = b"POST /plain HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    framed = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    assert statuses(await bench.ask(head + framed + b"0\r\n\r\n")) == [204]
    assert bench.daemon.heads[0].endswith(b"Content-Length: 0\r\n\r\n")


async def test_sends_a_judged_body_with_its_length(bench: Bench) -> None:
    got: list[bytes] = []

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.extend([head, await reader.readexactly(5)])
        writer.write(reply(status="201 Created"))

    bench.daemon.handlers["judged"] = handler
    head = b"POST /judged HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert statuses(await bench.ask(head + b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nX: y\r\n\r\n")) == [201]
    assert b"Content-Length: 5\r\n" in got[0]
    assert got[1] == b"hello"


async def test_meets_an_expectation_only_once_the_request_has_passed(bench: Bench) -> None:
    bench.daemon.answers("judged", reply())
    reader, writer = await bench.connect()
    writer.write(b"POST /judged HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(10):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert statuses(await reader.read()) == [200]
    writer.close()
    refused = b"POST /refused HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    assert statuses(await bench.ask(refused, eof=True)) == [403]


@pytest.mark.parametrize("framing", [b"Transfer-Encoding: chunked", b"Content-Length: 3000000"])
async def test_streams_an_upload_with_frames_of_its_own(bench: Bench, framing: bytes) -> None:
    data = bytes(range(256)) * 12000
    data = data[:3_000_000]
    got = bytearray()

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"chunked" in head:
            while size := int(await reader.readline(), 16):
                got.extend(await reader.readexactly(size))
                await reader.readline()
            await reader.readline()
        else:
            got.extend(await reader.readexactly(len(data)))
        writer.write(reply(b"done"))

    bench.daemon.handlers["stream"] = handler
    body = data
    if b"chunked" in framing:
        parts = [data[start : start + 50_001] for start in range(0, len(data), 50_001)]
        body = b"".join(b"%x;a=b\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    said = await bench.ask(b"POST /stream HTTP/1.1\r\n" + framing + b"\r\n\r\n" + body + LAST)
    assert got == data
    assert statuses(said) == [200, 404]


async def test_relays_an_answer_that_comes_before_the_upload_has_ended(bench: Bench) -> None:
    bench.daemon.answers("stream", reply(b"no", "400 Bad Request"))
    reader, writer = await bench.connect()
    writer.write(b"POST /stream HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
    async with asyncio.timeout(10):
        said = await reader.readuntil(b"\r\n\r\nno")
        assert b"400 Bad Request" in said
        assert b"Connection: close" in said
        with suppress(ConnectionError):
            writer.write(b"0\r\n\r\n" + GET)
            await writer.drain()
        assert await reader.read() == b""
    writer.close()
    assert len(bench.daemon.heads) == 1


ANSWERS = {
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nX: y\r\n\r\n",
        b"abcde",
    ),
    "until the end": (b"HTTP/1.1 200 OK\r\n\r\nabcde", b"abcde"),
    "a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", b"abcde"),
    "nothing": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "a 103 before it": (b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"x"),
}


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("case", ANSWERS)
async def test_relays_every_framing_of_an_answer(bench: Bench, case: str, version: bytes) -> None:
    data, body = ANSWERS[case]
    bench.daemon.answers("plain", data)
    said = await bench.ask(b"GET /plain HTTP/" + version + b"\r\nConnection: close\r\n\r\n")
    head, _, rest = said.partition(b"\r\n\r\n")
    if b"chunked" in head:
        assert version == b"1.1"
        assert rest.endswith(b"\r\n0\r\n\r\n")
        rest = b"".join(rest.split(b"\r\n")[1:-3:2])
    assert rest == body


CUT = {
    "a length": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    "broken chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab",
}


@pytest.mark.parametrize("case", CUT)
async def test_an_answer_that_is_not_whole_does_not_look_whole(bench: Bench, case: str) -> None:
    bench.daemon.answers("plain", CUT[case])
    try:
        said = await bench.ask(GET)
    except ConnectionError:
        return
    assert b"0\r\n\r\n" not in said
    assert not said.endswith(b"abcde")


BAD_GATEWAYS = {"no HTTP": b"nonsense\r\n\r\n", "two framings": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"}


@pytest.mark.parametrize("case", BAD_GATEWAYS)
async def test_a_daemon_that_speaks_nonsense_is_a_bad_gateway(bench: Bench, case: str) -> None:
    bench.daemon.answers("plain", BAD_GATEWAYS[case])
    assert statuses(await bench.ask(GET, eof=True)) == [502]


async def test_a_daemon_that_hangs_up_without_an_answer_is_said(bench: Bench) -> None:
    bench.daemon.answers("plain", b"")
    said = await bench.ask(LAST)
    assert statuses(said) == [503]
    assert "closed the connection without an answer" in message(said)


async def test_a_daemon_that_is_down_is_said_in_one_sentence(bench: Bench) -> None:
    await bench.daemon.stop()
    said = await bench.ask(LAST)
    assert statuses(said) == [503]
    assert message(said) == "the repo's Docker daemon can't be used: no such file or directory [gate.upstream]"


async def test_a_head_is_answered_without_a_body(bench: Bench) -> None:
    bench.daemon.answers("plain", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nApi-Version: 1.99\r\n\r\n")
    said = await bench.ask(b"HEAD /plain HTTP/1.1\r\n\r\n" + LAST.replace(b"GET", b"HEAD"))
    assert said.count(b"Api-Version: 1.51\r\n") == 2
    assert said.endswith(b"\r\n\r\n")


async def test_the_version_answer_promises_no_newer_api(bench: Bench) -> None:
    bench.daemon.version = {"ApiVersion": "1.99", "Version": "99.0.0", "Components": []}
    said = await bench.ask(b"GET /version HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert json.loads(said.partition(b"\r\n\r\n")[2])["ApiVersion"] == "1.51"


async def test_the_head_of_an_answer_does_not_wait_for_its_body(bench: Bench) -> None:
    """POST /wait says 200 at once and the exit code at the end; docker run starts the container in between."""
    go_on = asyncio.Event()

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await go_on.wait()
        writer.write(b"2\r\n{}\r\n0\r\n\r\n")

    bench.daemon.handlers["plain"] = handler
    reader, writer = await bench.connect()
    writer.write(LAST)
    async with asyncio.timeout(10):
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        go_on.set()
        assert await reader.read() == b"2\r\n{}\r\n0\r\n\r\n"
    writer.close()


async def test_a_client_that_goes_away_ends_its_request(bench: Bench) -> None:
    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await reader.read()

    bench.daemon.handlers["plain"] = handler
    reader, writer = await bench.connect()
    writer.write(GET)
    async with asyncio.timeout(10):
        await reader.readuntil(b"\r\n\r\n")
    assert bench.daemon.open == 1
    writer.close()
    await bench.until(lambda: bench.daemon.open == 0)


async def test_a_client_that_reads_slowly_slows_the_daemon(bench: Bench) -> None:
    """What a client does not take is not collected here."""
    sent = 0

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000

    bench.daemon.handlers["plain"] = handler
    reader, writer = await bench.connect()
    writer.write(LAST)
    async with asyncio.timeout(60):
        await bench.until(lambda: sent > 0)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 20_000_000
        assert len((await reader.read()).partition(b"\r\n\r\n")[2]) == 100_000_000
    writer.close()


@pytest.mark.req("R5")
async def test_hardware_is_admitted_by_the_grants_of_the_moment(bench: Bench) -> None:
    bench.daemon.answers("hw", reply(status="204 No Content"))
    head = b"POST /hw HTTP/1.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    assert message(await bench.ask(head)) == f"no grant for {DEVICE} [hw.grant]"
    bench.grant(DEVICE, epoch=2)
    assert statuses(await bench.ask(head)) == [204]
    bench.grant(epoch=3)
    assert statuses(await bench.ask(head)) == [403]


async def test_a_restart_stops_and_then_starts(bench: Bench) -> None:
    bench.grant(DEVICE)
    bench.daemon.answers("stop", reply(status="204 No Content"))
    bench.daemon.answers("hw", reply(status="204 No Content"))
    assert statuses(await bench.ask(b"POST /restart HTTP/1.1\r\nConnection: close\r\n\r\n")) == [204]
    assert [head.split(b" ")[1] for head in bench.daemon.heads] == [b"/stop", b"/hw/start"]


@pytest.mark.req("R51")
async def test_a_restart_without_its_grant_stays_stopped_and_says_why(bench: Bench) -> None:
    bench.daemon.answers("stop", reply(status="304 Not Modified"))
    said = await bench.ask(b"POST /restart HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert message(said) == f"no grant for {DEVICE} [hw.grant]"
    assert [head.split(b" ")[1] for head in bench.daemon.heads] == [b"/stop"]


async def test_a_failed_stop_of_a_restart_is_the_answer(bench: Bench) -> None:
    bench.grant(DEVICE)
    bench.daemon.answers("stop", reply(b"{}", status="404 Not Found"))
    assert statuses(await bench.ask(b"POST /restart HTTP/1.1\r\nConnection: close\r\n\r\n")) == [404]


async def test_facts_come_from_the_daemon_at_the_moment_of_judging(bench: Bench) -> None:
    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        known = b"/v1.51/containers/known/json" in head
        writer.write(reply(b'{"Id": "k"}') if known else reply(b"{}", "404 Not Found"))

    bench.daemon.handlers["v1.51"] = handler
    bench.daemon.answers("facts", reply())
    assert statuses(await bench.ask(b"GET /facts/known HTTP/1.1\r\nConnection: close\r\n\r\n")) == [200]
    assert statuses(await bench.ask(b"GET /facts/other HTTP/1.1\r\nConnection: close\r\n\r\n")) == [404]


async def test_a_fact_that_cannot_be_had_is_not_taken_for_none(bench: Bench) -> None:
    bench.daemon.answers("v1.51", reply(b"{}", "500 Internal Server Error"))
    said = await bench.ask(b"GET /facts/known HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert statuses(said) == [503]


class TestLimits:
    """With limits that a test can reach."""

    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(head_timeout=0.05, body_timeout=0.05, connections=2, linger=0.05, head_max=1024, body_max=1000)

    async def test_a_head_that_does_not_come_is_not_waited_for(self, bench: Bench) -> None:
        assert statuses(await bench.ask(b"GET /plain HTTP/1.1\r\n")) == [408]

    async def test_a_judged_body_that_does_not_come_is_not_waited_for(self, bench: Bench) -> None:
        assert statuses(await bench.ask(b"POST /judged HTTP/1.1\r\nContent-Length: 5\r\n\r\nhe")) == [408]

    async def test_too_many_connections_are_told_so(self, bench: Bench) -> None:
        others = [await bench.connect() for _ in range(2)]
        bench.daemon.answers("plain", reply())
        for reader, writer in others:
            writer.write(GET)
            await reader.readuntil(b"\r\n\r\n")
        assert "close some" in message(await bench.ask(b""))
        for _, writer in others:
            writer.close()

    async def test_a_head_has_a_size(self, bench: Bench) -> None:
        bench.daemon.answers("plain", reply())
        assert statuses(await bench.ask(LAST.replace(b"Host:", b"Host: " + b"d" * 900))) == [200]
        said = await bench.ask(LAST.replace(b"Host:", b"Host: " + b"d" * 1000))
        assert message(said) == "the request's head is longer than 1 KiB [wire.head-size]"

    @pytest.mark.parametrize("chunked", [False, True])
    async def test_a_judged_body_has_a_size(self, bench: Bench, chunked: bool) -> None:
        bench.daemon.answers("judged", reply())
        for size, status in ((1000, 200), (1001, 413)):
            head, body = b"Content-Length: %d\r\n" % size, b"x" * size
            if chunked:
                head, body = b"Transfer-Encoding: chunked\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (size, body)
            said = await bench.ask(b"POST /judged HTTP/1.1\r\nConnection: close\r\n" + head + b"\r\n" + body)
            assert statuses(said) == [status]

    async def test_a_head_that_comes_a_byte_at_a_time_has_no_more_time(self, bench: Bench) -> None:
        reader, writer = await bench.connect()
        answered = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
        async with asyncio.timeout(10):
            while not answered.done():
                writer.write(b"G")
                await asyncio.sleep(0.01)
        assert statuses(answered.result()) == [408]
        writer.close()

    async def test_a_closed_connection_makes_room(self, bench: Bench) -> None:
        bench.daemon.answers("plain", reply())
        for _ in range(10):
            assert statuses(await bench.ask(LAST)) == [200]


async def test_a_client_that_asks_and_never_reads_is_not_read_from(bench: Bench) -> None:
    """Neither its requests nor their answers are collected here; others are served as before."""
    bench.daemon.keeps = True
    bench.daemon.answers("plain", reply(b"x" * 1000))
    reader, writer = await bench.connect()
    reader._transport.pause_reading()  # type: ignore[attr-defined]  # a client that does not take its answers
    sent, still = 0, 0
    while still < 20:
        if writer.transport.get_write_buffer_size() == 0:
            writer.write(GET * 100)
            sent, still = sent + len(GET) * 100, 0
        else:
            still += 1
        await asyncio.sleep(0.01)
    assert sent < 3_000_000
    assert statuses(await bench.ask(LAST)) == [200]
    writer.transport.abort()


async def test_a_daemon_that_does_not_read_slows_the_client(bench: Bench) -> None:
    """An upload is not collected here."""
    go_on = asyncio.Event()
    size = 50_000_000

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        await reader.readexactly(size)
        writer.write(reply(b"done"))

    bench.daemon.handlers["stream"] = handler
    reader, writer = await bench.connect()
    writer.write(b"POST /stream HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size)
    sent, still = 0, 0
    async with asyncio.timeout(60):
        while still < 20:
            if writer.transport.get_write_buffer_size() == 0:
                writer.write(b"x" * 100_000)
                sent, still = sent + 100_000, 0
            else:
                still += 1
            await asyncio.sleep(0.01)
        assert sent < 5_000_000
        go_on.set()
        writer.write(b"x" * (size - sent))
        assert (await reader.read()).endswith(b"done")
    writer.close()


class TestLargeBodies:
    """Bodies that are judged beside the loop, a few at once."""

    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(large_bodies=1)

    async def test_one_waits_for_the_other_and_small_ones_for_none(self, bench: Bench) -> None:
        bench.daemon.answers("judged", reply())
        bench.daemon.answers("plain", reply())
        head = b"POST /judged HTTP/1.1\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n"
        first, second = await bench.connect(), await bench.connect()
        first[1].write(head + b"x" * 99_999)
        await asyncio.sleep(0.05)
        second[1].write(head + b"x" * 100_000)
        assert statuses(await bench.ask(LAST)) == [200]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await second[0].read(1)
        first[1].write(b"x")
        async with asyncio.timeout(10):
            assert statuses(await first[0].read()) == [200]
            assert statuses(await second[0].read()) == [200]
        for _, writer in (first, second):
            writer.close()

    @pytest.mark.req("R6", "R51")
    async def test_a_snapshot_that_comes_meanwhile_makes_it_judged_again(self, bench: Bench) -> None:
        loop, seen = asyncio.get_running_loop(), []

        class Late(OneOfEach):
            """The first look takes until another snapshot is in force."""

            def judge(self, routed: Routed, body: bytes | None, facts: Facts, repo: RepoView) -> Decision:
                seen.append(repo.granted)
                if len(seen) == 1:
                    asyncio.run_coroutine_threadsafe(self.change(), loop).result(10)
                return super().judge(routed, body, facts, repo)

            async def change(self) -> None:
                bench.grant(DEVICE, epoch=2)

        bench.core.repos["a"].policy = Late()
        bench.daemon.answers("judged", reply())
        head = b"POST /judged HTTP/1.1\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n"
        assert statuses(await bench.ask(head + b"x" * 100_000)) == [200]
        assert seen == [frozenset(), frozenset({DEVICE})]
