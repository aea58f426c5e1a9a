"""A core on real sockets, on the loop that the gate runs on."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop

import rig
from gatebench import NOW, Bench, FakeDaemon, OneOfEach
from gpugrant_crds.layout import Layout
from gpugrant_crds.snapshot import RepoStatus
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net import listener
from gpugrant_gate.net.core import Core, World
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
    daemon = FakeDaemon(folder / "d.sock")
    await daemon.start()
    repo = Repo("a", "id-a", daemon.path, folder / "a.sock")
    statuses: list[RepoStatus] = []
    world = World(
        layout=Layout(Path("/")),
        limits=limits,
        policy=OneOfEach(),
        now=lambda: NOW,
        monotonic=time.monotonic,
        jitter=lambda: 0.0,
        changed=statuses.append,
    )
    core = Core(world, "m")
    opened = listener.listen(repo.listen, uid=-1, gid=-1, mode=0o600)
    await core.serve(repo, opened.sock)
    made = Bench(core, daemon, repo.listen, repo, statuses)
    made.grant()
    yield made
    await core.stop(0)
    await daemon.stop()
    opened.close()
