"""RFC 3339 times as Kubernetes writes them: whole seconds, UTC, `Z`."""

from __future__ import annotations

from datetime import UTC, datetime


def write(moment: datetime) -> str:
    """`2026-03-01T12:00:00Z`; fractions of a second are cut off, as metav1.Time does."""
    return f"{moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat()}Z"


def read(text: str) -> datetime:
    """An aware time in UTC; raises ValueError for anything that is no RFC 3339 time with a zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or len(text) < len("2026-03-01T12:00:00Z"):
        raise ValueError(f'"{text}" is not an RFC 3339 time such as 2026-03-01T12:00:00Z')
    return in_utc(moment)


def in_utc(moment: datetime) -> datetime:
    """The same moment in UTC; raises ValueError where it has no zone, or lies outside the years 1 to 9999 there."""
    if moment.tzinfo is None:
        raise ValueError("a time must have a zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("a time must lie in the years 1 to 9999 (UTC)") from error
