"""Whoever watches decisions gets them, or is told how many were dropped."""

from __future__ import annotations

import asyncio
import json

from gpugrant_gate.net import feed
from gpugrant_gate.net.feed import Feed


def line(**said: object) -> bytes:
    return json.dumps({"event": "request", "repo": "a", "verdict": "admitted", **said}).encode() + b"\n"


async def test_lines_are_sent_only_while_somebody_reads() -> None:
    told: list[bool] = []
    watched = Feed()
    watched.follow = told.append
    with watched.read() as one:
        with watched.read() as other:
            watched.put(line())
            assert await one.lines(1) == await other.lines(1) == line()
        assert told == [True]
    assert told == [True, False]


async def test_a_reader_gets_what_it_asked_for() -> None:
    watched = Feed()
    both = line(repo="a") + line(repo="b", verdict="refused") + line(repo="b")
    with watched.read(feed.wanted("b", refused=False)) as repo, watched.read(feed.wanted("", refused=True)) as refused:
        watched.put(both)
        assert await repo.lines(1) == line(repo="b", verdict="refused") + line(repo="b")
        assert await refused.lines(1) == line(repo="b", verdict="refused")
    assert feed.wanted("", refused=False) is None


async def test_a_slow_reader_is_told_what_it_missed() -> None:
    watched = Feed()
    with watched.read() as reader:
        for _ in range(50):
            watched.put(line(fill="x" * 50_000))
        said = (await reader.lines(1) or b"").splitlines()
        assert len(said) == 21
        assert json.loads(said[-1]) == {"event": "lines dropped", "lines": 30}
        watched.put(line())
        assert await reader.lines(1) == line()


async def test_nothing_comes_for_a_while_and_then_the_end() -> None:
    watched = Feed()
    with watched.read() as reader:
        assert await reader.lines(0.01) == b""
        watched.put(line())
        watched.close()
        assert await reader.lines(1) == line()
        async with asyncio.timeout(1):
            assert await reader.lines(1) is None
