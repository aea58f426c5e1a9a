"""One gate with a repo a generation of Docker for all tests of this folder, and the libraries that they need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import clientstand
from clientstand import Stand


@pytest.fixture(scope="session")
def stands() -> Iterator[dict[str, Stand]]:
    if os.geteuid() != 0:
        pytest.skip("a Docker daemon needs root")
    with clientstand.opened() as made:
        yield made


@pytest.fixture(params=clientstand.GENERATIONS)
def stand(request: pytest.FixtureRequest, stands: dict[str, Stand]) -> Iterator[Stand]:
    """The repo of each generation; what a test leaves in its daemon is taken away."""
    made = stands[request.param]
    before = made.judge.look()
    yield made
    made.judge.clear(before)


@pytest.fixture
def desk(stand: Stand, tmp_path: Path) -> dict[str, str]:
    """The environment of a person at this repo, whose home is an empty folder."""
    return stand.environ(tmp_path)
