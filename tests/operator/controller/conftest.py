"""A world of API, gate and clock for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """With one machine that an operator has not seen yet."""
    made = World(tmp_path)
    made.api.machine_made()
    return made
