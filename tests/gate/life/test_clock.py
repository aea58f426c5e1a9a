"""Time never goes back, whoever sets the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gpugrant_gate.life.clock import Clock


class Hands:
    """A wall clock and a boot clock that a test moves."""

    def __init__(self) -> None:
        self.wall = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
        self.boot = 100.0

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.boot)


def at(*time: int) -> datetime:
    return datetime(2026, 3, 1, *time, tzinfo=UTC)


def test_follows_the_wall_clock() -> None:
    hands = Hands()
    clock = hands.clock()
    hands.wall += 60
    hands.boot += 60
    assert clock() == at(12, 1)


def test_counts_on_when_the_wall_clock_is_set_back() -> None:
    hands = Hands()
    clock = hands.clock()
    hands.wall -= 3600
    hands.boot += 60
    assert clock() == at(12, 1)
    hands.boot += 60
    assert clock() == at(12, 2)


def test_follows_a_step_forward() -> None:
    hands = Hands()
    clock = hands.clock()
    hands.wall += 3600
    assert clock() == at(13)
    hands.wall -= 3600
    assert clock() == at(13)


def test_a_time_that_was_reached_before_a_restart_is_not_undone() -> None:
    clock = Hands().clock()
    clock.not_before(at(15))
    assert clock() == at(15)
    assert clock.until(at(14)) == timedelta()
    assert clock.until(at(16)) == timedelta(hours=1)
