"""The gate's time: a wall clock that never goes back, so that setting it back revives no expired grant (design 6)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class Clock:
    """Wall time, or the time since the last reading by a clock that counts through suspend, whichever is later."""

    def __init__(self, wall: Callable[[], float], boottime: Callable[[], float]) -> None:
        """Both in seconds; `boottime` is CLOCK_BOOTTIME."""
        self._wall = wall
        self._boottime = boottime
        self._latest = wall()
        self._read_at = boottime()

    def __call__(self) -> datetime:
        elapsed = self._boottime() - self._read_at
        self._latest = max(self._wall(), self._latest + max(elapsed, 0.0))
        self._read_at += elapsed
        return datetime.fromtimestamp(self._latest, UTC)

    def not_before(self, moment: datetime) -> None:
        """A time that has certainly been reached already."""
        self._latest = max(self._latest, moment.timestamp())

    def until(self, moment: datetime) -> timedelta:
        """How long until then; zero when it is past."""
        return max(moment - self(), timedelta())
