from __future__ import annotations

import threading
import time

import pytest

from gpugrant_operator.node import bounded


def test_what_the_call_gives_and_what_it_raises() -> None:
    assert bounded.within(5, lambda: 7) == 7
    with pytest.raises(KeyError):
        bounded.within(5, lambda: {}["x"])


def test_a_call_that_hangs_is_left_alone() -> None:
    """As a read in uninterruptible sleep: nobody can end it, and it holds nothing up."""
    release = threading.Event()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        bounded.within(0.05, release.wait)
    assert time.monotonic() - began < 5
    release.set()
