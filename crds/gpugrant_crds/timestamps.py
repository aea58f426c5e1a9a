"""RFC 3339 times as Kubernetes writes them: whole seconds, UTC, `Z`."""

from __future__ import annotations

from datetime import UTC, datetime


def write(moment: datetime) -> str:
    """`2026-03-01T12:00:00Z`; fractions of a second are cut off, as metav1.Time does."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read(text: str) -> datetime:
    """An aware time in UTC; raises ValueError for anything that is no RFC 3339 time with a zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or len(text) < len("2026-03-01T12:00:00Z"):
        raise ValueError(f'"{text}" is not an RFC 3339 time such as 2026-03-01T12:00:00Z')
    return moment.astimezone(UTC)
