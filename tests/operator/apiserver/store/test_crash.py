"""A store whose process is killed at random moments loses nothing that it acknowledged; the long form is a command."""

from __future__ import annotations

from pathlib import Path

import pytest

import crashing


@pytest.mark.real
@pytest.mark.must_run
@pytest.mark.req("D1")
def test_killed_among_many_writes_it_has_every_acknowledged_one(tmp_path: Path) -> None:
    writes, kills = crashing.crash(tmp_path, writes=800, seed=7, most=160)
    assert writes >= 800
    assert kills >= 5
