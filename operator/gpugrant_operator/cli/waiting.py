"""Waits for something that a command can only look at."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

FIRST_LOOK = 0.05
"""Seconds between two looks, at first."""

LAST_LOOK = 0.5
"""Seconds, in the end: a thousand waiting commands don't wear out an API."""

T = TypeVar("T")


def until(look: Callable[[], T | None], seconds: float) -> T | None:
    """The first value that `look` gives within that time, asked ever more seldom; None: it gave none."""
    deadline = time.monotonic() + seconds
    pause = FIRST_LOOK
    while (found := look()) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, LAST_LOOK)
    return found
