"""The gate's time: a wall clock that never goes back, so that setting it back revives no expired grant (design 6)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpugrant_crds.snapshot import ClockMark

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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

    def mark(self, boot_id: str) -> ClockMark:
        """This moment, for a later process."""
        now = self().timestamp()
        return ClockMark(wall=now, boottime=self._boottime(), boot_id=boot_id)

    def go_on(self, mark: ClockMark, boot_id: str) -> None:
        """From where an earlier process was: in the same boot its time has gone on since."""
        elapsed = self._boottime() - mark.boottime if boot_id and mark.boot_id == boot_id else 0.0
        self._latest = max(self._latest, mark.wall + max(elapsed, 0.0))

    def until(self, moment: datetime) -> timedelta:
        """How long until then; zero when it is past."""
        return max(moment - self(), timedelta())


def boot_id(path: Path = _BOOT_ID) -> str:
    """Of this boot; empty where the kernel says none."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
