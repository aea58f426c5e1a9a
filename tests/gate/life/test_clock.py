"""Time never goes back, whoever sets the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    ("wall", "boot", "same_boot", "reads"),
    [
        pytest.param(0, 600, True, at(12, 10), id="set back while no gate ran"),
        pytest.param(-7200, 0, True, at(12), id="set back at once"),
        pytest.param(3600, 600, True, at(13), id="set forward"),
        pytest.param(-7200, -90, False, at(12), id="after a boot, set back"),
        pytest.param(1200, -90, False, at(12, 20), id="after a boot"),
    ],
)
def test_a_later_process_goes_on(wall: float, boot: float, same_boot: bool, reads: datetime) -> None:
    """Design 6: the earlier of the wall clock and the boot clock ends a grant."""
    hands = Hands()
    mark = hands.clock().mark("boot-1")
    hands.wall += wall
    hands.boot += boot
    later = hands.clock()
    later.go_on(mark, "boot-1" if same_boot else "boot-2")
    assert later() == reads


@given(st.lists(st.tuples(st.integers(-5000, 5000), st.integers(0, 5000), st.booleans()), max_size=8))
def test_no_hand_on_the_clock_takes_it_back(steps: list[tuple[int, int, bool]]) -> None:
    """Whatever is done to the wall clock, with restarts in between: time goes on at least as fast as since boot."""
    hands = Hands()
    clock, least = hands.clock(), hands.wall
    for wall, boot, restart in steps:
        mark = clock.mark("b")
        hands.wall += wall
        hands.boot += boot
        least += boot
        if restart:
            clock = hands.clock()
            clock.go_on(mark, "b")
        assert clock().timestamp() >= least
