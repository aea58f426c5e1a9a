"""A client's bytes mean the same in any pieces, and none reaches the daemon that was not judged.

Requests are cut anywhere; what the daemon got and what the client was told must not change. Then any bytes at all.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

import rig
from gatebench import Bench, OneOfEach, bench_of, reply
from gpugrant_gate.policy.model import Admission, Decision, Facts, RepoView, Routed
from gpugrant_gate.settings import Limits

pytestmark = pytest.mark.req("R4", "R45")


class Recording(OneOfEach):
    """Remembers what it let pass."""

    def __init__(self) -> None:
        self.passed: set[str] = set()

    def judge(self, routed: Routed, body: bytes | None, facts: Facts, repo: RepoView) -> Decision:
        decision = super().judge(routed, body, facts, repo)
        if isinstance(decision, Admission):
            self.passed.add(f"{decision.outgoing.method} {decision.outgoing.target}")
        return decision


@contextmanager
def running() -> Iterator[tuple[asyncio.Runner, Bench, Recording]]:
    """A gate on a loop of its own, before a daemon that says what it got."""
    folder, policy = rig.short_folder(), Recording()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        standing = bench_of(folder, Limits(linger=0.02, head_timeout=0.3), policy)
        bench = runner.run(enter(standing))
        try:
            yield runner, bench, policy
        finally:
            runner.run(standing.__aexit__(None, None, None))
    shutil.rmtree(folder)


async def enter(standing: AbstractAsyncContextManager[Bench]) -> Bench:
    bench = await standing.__aenter__()
    bench.daemon.keeps = True
    for first in ("plain", "judged", "stream"):
        bench.daemon.handlers[first] = said_back
    bench.daemon.handlers["hijack"] = echoed
    return bench


async def said_back(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with the request as it came."""
    body = b""
    if b"Transfer-Encoding: chunked" in head:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += await reader.readexactly(size)
            await reader.readuntil(b"\r\n")
        await reader.readuntil(b"\r\n")
    elif (length := re.search(rb"Content-Length: ([0-9]+)", head)) is not None:
        body = await reader.readexactly(int(length[1]))
    writer.write(reply(json.dumps([head.split(b"\r\n")[0].decode(), body.decode("latin-1")]).encode()))


async def echoed(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    length = re.search(rb"Content-Length: ([0-9]+)", head)
    await reader.readexactly(int(length[1]) if length is not None else 0)
    writer.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
    writer.write(await reader.read() + b"!")


async def sent_in_pieces(bench: Bench, data: bytes, cuts: list[int]) -> tuple[bytes, list[bytes]]:
    """What the client is told and what the daemon got, when `data` comes in these pieces and then the client's end."""
    before = len(bench.daemon.heads)
    reader, writer = await bench.connect()
    places = sorted({min(cut, len(data)) for cut in cuts})
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        writer.write(data[start:end])
        for _ in range(3):
            await asyncio.sleep(0)
    writer.write_eof()
    async with asyncio.timeout(10):
        said = await reader.read()
    writer.close()
    return said, bench.daemon.heads[before:]


GET = b"GET /plain HTTP/1.1\r\nHost: d\r\n\r\n"
SMUGGLED = b"POST /plain/smuggled HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
CHUNKED_JUDGED = b"POST /judged HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED_STREAM = b"POST /stream HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUESTS = {
    "three in a row": GET * 3,
    "a judged body and one behind it": b"POST /judged HTTP/1.1\r\nContent-Length: 4\r\n\r\n{  }" + GET,
    "a judged body in chunks": CHUNKED_JUDGED + b"1\r\n{\r\n1;a\r\n}\r\n0\r\n\r\n" + GET,
    "a stream in chunks": CHUNKED_STREAM + b"3\r\nabc\r\n0\r\nX: y\r\n\r\n" + GET,
    "a stream of a length": b"POST /stream HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc" + GET,
    "an expectation": b"POST /judged HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}" + GET,
    "a refusal and one behind it": b"GET /refused HTTP/1.1\r\n\r\n" + GET,
    "a refused body and one in it": b"POST /refused HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
    "a pipe": b"POST /hijack HTTP/1.1\r\nUpgrade: tcp\r\nContent-Length: 2\r\n\r\n{}" + SMUGGLED,
    "a bare line feed": b"GET /plain HTTP/1.1\nHost: d\r\n\r\n" + GET,
    "two framings": b"POST /judged HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}" + SMUGGLED,
    "an HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + GET,
}  # fmt: skip


def test_a_cut_changes_nothing() -> None:
    with running() as (runner, bench, _):
        whole = {name: runner.run(sent_in_pieces(bench, data, [])) for name, data in REQUESTS.items()}

        @settings(max_examples=300, deadline=None)
        @given(st.sampled_from(sorted(REQUESTS)), st.lists(st.integers(0, 150), min_size=1, max_size=6))
        def holds(name: str, cuts: list[int]) -> None:
            assert runner.run(sent_in_pieces(bench, REQUESTS[name], cuts)) == whole[name]

        holds()
        for name in ("three in a row", "a judged body in chunks", "a pipe"):
            every = list(range(len(REQUESTS[name])))
            assert runner.run(sent_in_pieces(bench, REQUESTS[name], every)) == whole[name]


TOKENS = [
    GET, SMUGGLED, b"POST /judged HTTP/1.1\r\n", b"POST /stream HTTP/1.1\r\n", b"POST /hijack HTTP/1.1\r\n", b"\r\n",
    b"\n", b"\r", b"Content-Length: 2\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"#", b":",
    b"Upgrade: tcp\r\n", b"2\r\n{}\r\n", b"0\r\n\r\n", b"{}", b"\0", b" ", b"HTTP/1.0",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /plain/x\ty HTTP/1.1\r\n",
]  # fmt: skip
STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) [^\r\n]*\r\n")


def test_any_bytes_get_an_answer_and_nothing_unjudged_goes_on() -> None:
    with running() as (runner, bench, policy):

        @settings(max_examples=300, deadline=None)
        @given(st.one_of(st.lists(st.sampled_from(TOKENS), max_size=12).map(b"".join), st.binary(max_size=200)))
        def holds(data: bytes) -> None:
            said, heads = runner.run(sent_in_pieces(bench, data, []))
            for head in heads:
                lines = head.split(b"\r\n")
                method, target, version = lines[0].decode().split(" ")
                assert f"{method} {target}" in policy.passed
                assert version == "HTTP/1.1"
                assert lines[1] == b"Host: docker"
            assert not said or STATUS.match(said), said
            assert not {b"500", b"502", b"503"} & set(STATUS.findall(said)), said

        holds()


def test_what_is_smuggled_is_never_executed() -> None:
    """Behind a refused body, in a body, behind a pipe's head: the hidden request is not among what the daemon got."""
    hidden = ("a refused body and one in it", "a pipe", "two framings")
    with running() as (runner, bench, _):
        for name in hidden:
            _, heads = runner.run(sent_in_pieces(bench, REQUESTS[name], []))
            assert not [head for head in heads if b"smuggled" in head], name
