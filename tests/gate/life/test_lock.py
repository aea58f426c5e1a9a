"""One gate a root."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpugrant_gate.life import lock

SINCE = datetime(2026, 3, 1, tzinfo=UTC)


def test_says_who_holds_it_and_lets_go_with_the_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "run/gate.lock"
    held = lock.take(path, SINCE)
    assert json.loads(path.read_text()) == {"pid": os.getpid(), "since": "2026-03-01T00:00:00Z"}
    with pytest.raises(lock.Held, match=f"by process {os.getpid()}"):
        lock.take(path, SINCE)
    os.close(held)
    os.close(lock.take(path, SINCE))


def test_a_look_at_it_takes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "gate.lock"
    assert not lock.is_held(path)
    assert not path.exists()
    held = lock.take(path, SINCE)
    assert lock.is_held(path)
    os.close(held)
    assert not lock.is_held(path)
    os.close(lock.take(path, SINCE))
