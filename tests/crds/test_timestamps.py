"""Times on the wire: what is read is a moment in UTC, and what is written is read as the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_crds import timestamps

ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=ZONES))
def test_what_is_written_is_read_as_the_same_second(moment: datetime) -> None:
    text = timestamps.write(moment)
    assert len(text) == len("2026-03-01T12:00:00Z")
    assert timestamps.read(text) == moment.astimezone(UTC).replace(microsecond=0)


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01",
        "2026-03-01T12:00:00",
        "9999-12-31T23:59:59-12:00",
        "0001-01-01T00:00:00+14:00",
        "10000-01-01T00:00:00Z",
        "tomorrow",
        "",
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        timestamps.read(text)
