"""Spans of time in specs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpugrant_crds import durations


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("45s", timedelta(seconds=45)),
        ("1h30m", timedelta(minutes=90)),
        ("90m5s", timedelta(minutes=90, seconds=5)),
        ("0h0m0s", None),
        ("", None),
        (None, None),
        ("5", None),
        ("1.5h", None),
        ("-1h", None),
        ("1d", None),
        ("1h ", None),
        ("١h", None),
    ],
)
def test_a_duration(text: str | None, span: timedelta | None) -> None:
    assert durations.read(text) == span
