"""Spans of time as specs write them: Go's `1h30m`, whole hours, minutes and seconds."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"h": "hours", "m": "minutes", "s": "seconds"}


def read(text: str | None) -> timedelta | None:
    """The span; None for nothing, for a text that is no duration, and for zero."""
    if text is None or not re.fullmatch(r"([0-9]{1,9}[hms])+", text, re.ASCII):
        return None
    parts = re.findall(r"([0-9]+)([hms])", text, re.ASCII)
    return sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta()) or None
