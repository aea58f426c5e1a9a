"""What is remembered is what would be decided again, and is forgotten with its view."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from datetime import timedelta

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

import rig
from gatebench import DEVICE, NOW, Bench, bench_of, reply
from gpugrant_gate.life.grants import Enforced, Grant
from gpugrant_gate.net.judgement import Judgement
from gpugrant_gate.net.prepared import HEAD_MAX, MOST, Memo, Prepared
from gpugrant_gate.net.reposerver import RepoServer
from gpugrant_gate.policy.model import RepoView
from gpugrant_gate.settings import Limits
from gpugrant_gate.wire.exchange import Call

VIEW = RepoView("a", "m", frozenset())


def prepared(route: str = "r", *, repeatable: bool = True) -> Prepared:
    return Prepared(route, (), Call("GET"), b"GET / HTTP/1.1\r\n\r\n", repeatable)


@pytest.mark.req("R6", "R51")
def test_another_view_is_another_matter_even_an_equal_one() -> None:
    memo = Memo()
    memo.keep(b"a", VIEW, prepared())
    assert memo.find(b"a", VIEW) == prepared()
    equal = RepoView("a", "m", frozenset())
    assert memo.find(b"a", equal) is None
    memo.keep(b"b", equal, prepared())
    assert memo.find(b"a", equal) is None
    assert memo.find(b"a", VIEW) is None


def test_only_what_may_be_repeated_is_remembered() -> None:
    memo = Memo()
    memo.keep(b"a", VIEW, prepared(repeatable=False))
    memo.keep(b"x" * (HEAD_MAX + 1), VIEW, prepared())
    assert memo.find(b"a", VIEW) is None
    assert memo.find(b"x" * (HEAD_MAX + 1), VIEW) is None


def test_it_stays_small() -> None:
    memo = Memo()
    for number in range(10 * MOST):
        memo.keep(b"%d" % number, VIEW, prepared())
    assert sum(memo.find(b"%d" % number, VIEW) is not None for number in range(10 * MOST)) <= MOST


TARGETS = (
    "/_ping", "/version", "/v1.45/info", "/containers/json?all=1", "/v1.44/images/x/y/json", "/events?since=1",
    "/containers/a/logs?stdout=1&follow=", "/volumes", "/networks/n", "/v1.45/containers/%61/json", "/images/json?a=b",
    "/containers/a/archive?path=/x", "/nothing", "/v1.99/_ping", "/plugins", "/containers/a/json/",
)  # fmt: skip
LINES = (
    "Host: d", "Host:", "User-Agent: x", "Connection: close", "Accept: a/b", "X-Meta-A: b", "Upgrade: tcp", "TE: x",
    "Content-Type: a/b", "Content-Length: 0", "Accept: c", "Expect: 100-continue", "X-Registry-Auth: e30=",
)  # fmt: skip
HEADS = st.builds(
    lambda method, target, version, lines: f"{method} {target} HTTP/1.{version}\r\n{''.join(lines)}\r\n".encode(),
    st.sampled_from(("GET", "GET", "GET", "HEAD", "DELETE")),
    st.sampled_from(TARGETS),
    st.sampled_from((1, 1, 0)),
    st.lists(st.sampled_from([f"{line}\r\n" for line in LINES]), max_size=4),
)


@pytest.mark.req("R4", "R6")
def test_remembering_changes_nothing() -> None:
    """The real policy: each request is asked for anew, then again as it may be remembered, then under a new view."""
    folder = rig.short_folder()

    async def asked(bench: Bench, head: bytes) -> tuple[bytes, list[bytes]]:
        before = len(bench.daemon.heads)
        said = await bench.ask(head, eof=True)
        return said, bench.daemon.heads[before:]

    async def all_equal(bench: Bench, head: bytes) -> None:
        bench.grant()
        first = await asked(bench, head)
        assert await asked(bench, head) == first
        assert await asked(bench, head) == first
        bench.grant()
        assert await asked(bench, head) == first

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        standing = bench_of(folder, Limits(linger=0.05), Judgement())
        bench = runner.run(standing.__aenter__())
        bench.daemon.keeps = True
        bench.daemon.answers("v1.51", reply(b"{}"))
        bench.daemon.answers("v1.45", reply(b"[]"))

        @settings(max_examples=150, deadline=None)
        @given(HEADS)
        def holds(head: bytes) -> None:
            runner.run(all_equal(bench, head))

        try:
            holds()
        finally:
            runner.run(standing.__aexit__(None, None, None))
    shutil.rmtree(folder)


HEAD = b"GET /plain HTTP/1.1\r\n\r\n"


async def remembered(bench: Bench) -> RepoServer:
    """The repo, which remembers what HEAD came to."""
    bench.daemon.answers("plain", reply(b"hello"))
    await bench.ask(HEAD, eof=True)
    server = bench.core.repos["a"]
    assert server.recall(HEAD) is not None
    return server


@pytest.mark.req("R6", "R51")
async def test_a_snapshot_ends_it_at_once(bench: Bench) -> None:
    server = await remembered(bench)
    bench.grant(epoch=2)
    assert server.recall(HEAD) is None


async def test_a_repo_file_ends_it_at_once(bench: Bench) -> None:
    server = await remembered(bench)
    server.change(bench.repo)
    assert server.recall(HEAD) is None


async def test_a_daemon_that_is_gone_ends_it(bench: Bench) -> None:
    server = await remembered(bench)
    await bench.daemon.stop()
    assert b" 503 " in await bench.ask(b"POST /plain HTTP/1.1\r\n\r\n", eof=True)
    assert server.recall(HEAD) is None


@pytest.mark.req("R6")
async def test_an_expiry_ends_it_without_anybody_saying_so(bench: Bench) -> None:
    soon = NOW + timedelta(seconds=1)
    bench.core.apply(Enforced("m", 2, (Grant("a", "id-a", DEVICE, soon),)))
    server = await remembered(bench)
    bench.core.world = replace(bench.core.world, now=lambda: soon)
    assert server.recall(HEAD) is None
