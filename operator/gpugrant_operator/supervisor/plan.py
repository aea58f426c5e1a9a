"""What to do about a part: pure decisions on what was seen of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from gpugrant_operator.supervisor.parts import VERSION_VARIABLE, Part

FIRST_DELAY = 0.2
"""Seconds before a part that was well is started again."""

LONGEST_DELAY = 30.0
"""Seconds; a part that can't start is tried that often."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One part as it is."""

    pid: int | None
    """Who holds its lock; None: nobody."""
    argv: tuple[str, ...] = ()
    version: str | None = None
    answers: bool = False
    """Its control socket answers, be it well or not."""


@dataclass(frozen=True, slots=True)
class Start:
    """Nobody runs as this part."""


@dataclass(frozen=True, slots=True)
class Adopt:
    pid: int


@dataclass(frozen=True, slots=True)
class Replace:
    pid: int
    why: str
    well: bool = True
    """It does its work, so that it can hand over."""


Step = Start | Adopt | Replace


def judge(seen: Observed, part: Part) -> Step:
    """A part that runs is kept when it is the one that would be started and answers."""
    if seen.pid is None:
        return Start()
    if seen.argv != part.argv:
        return Replace(seen.pid, "it was started with other arguments")
    if seen.version != part.environ.get(VERSION_VARIABLE):
        return Replace(seen.pid, f"it was started from version {seen.version or 'unknown'}")
    if not seen.answers:
        return Replace(seen.pid, "its control socket does not answer", well=False)
    return Adopt(seen.pid)


def next_delay(before: float, *, was_well: bool) -> float:
    """Seconds to wait before the next start; `before` is the last such wait, 0.0 at first.

    Only a part that never became well is started more and more seldom.
    """
    if was_well or before == 0.0:
        return FIRST_DELAY
    return min(before * 2, LONGEST_DELAY)


def told(step: Step) -> str:
    """The step as the name of a log event."""
    match step:
        case Start():
            return "part_started"
        case Adopt():
            return "part_adopted"
        case Replace():
            return "part_replaced"
        case _:
            assert_never(step)
