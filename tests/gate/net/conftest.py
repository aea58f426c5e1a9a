"""A core on real sockets, on the loop that the gate runs on."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop

import rig
from gatebench import Bench, OneOfEach, bench_of
from gpugrant_gate.settings import Limits


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, so that sockets fit."""
    path = rig.short_folder()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
async def bench(folder: Path, limits: Limits) -> AsyncIterator[Bench]:
    async with bench_of(folder, limits, OneOfEach()) as made:
        yield made
