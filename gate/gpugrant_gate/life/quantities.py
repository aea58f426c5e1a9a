"""Times and sizes as a person writes them into a settings file; pure."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", re.ASCII)
"""As `rdc` takes them (8h, 90m, 1h30m), days of 24 hours included."""
_SIZE = re.compile(r"(\d{1,12})(B|KiB|MiB|GiB)", re.ASCII)
_UNITS = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def seconds(text: str) -> int | None:
    """The time in seconds; None: it is none."""
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        return None
    return sum(int(part or 0) * size for part, (size, _) in zip(match.groups(), _SPANS, strict=True))


def size(text: str) -> int | None:
    """The size in bytes; None: it is none."""
    match = _SIZE.fullmatch(text)
    return None if match is None else int(match[1]) * _UNITS[match[2]]


def write_seconds(span: int) -> str:
    """The shortest text for whole seconds: `seconds` reads it back."""
    parts = []
    for length, unit in _SPANS:
        count, span = divmod(span, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def write_size(count: int) -> str:
    """The shortest text for bytes: `size` reads it back."""
    for unit in ("GiB", "MiB", "KiB"):
        if count and count % _UNITS[unit] == 0:
            return f"{count // _UNITS[unit]}{unit}"
    return f"{count}B"
