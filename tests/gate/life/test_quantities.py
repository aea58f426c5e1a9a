"""Times and sizes: what is written is read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_gate.life import quantities


@given(st.integers(0, 10**9))
def test_is_read_back_as_it_was_written(count: int) -> None:
    assert quantities.seconds(quantities.write_seconds(count)) == count
    assert quantities.size(quantities.write_size(count)) == count


TIMES = {"90s": 90, "1h30m": 5400, "1d": 86_400, "0s": 0, "2d1s": 172_801}
NO_TIMES = ["", "90", "1.5h", "-1s", "1 h", "1H", "30m1h", "s", "1ms", "１s"]
SIZES = {"1B": 1, "512KiB": 524_288, "2MiB": 2_097_152, "1GiB": 1_073_741_824}
NO_SIZES = ["", "2", "2MB", "2M", "1.5MiB", "-1B", "2 MiB", "2mib"]


def test_reads_times_and_sizes() -> None:
    assert {text: quantities.seconds(text) for text in TIMES} == TIMES
    assert {text: quantities.size(text) for text in SIZES} == SIZES


@pytest.mark.parametrize("text", NO_TIMES)
def test_anything_else_is_no_time(text: str) -> None:
    assert quantities.seconds(text) is None


@pytest.mark.parametrize("text", NO_SIZES)
def test_anything_else_is_no_size(text: str) -> None:
    assert quantities.size(text) is None
