"""The snapshot on disk: what a gate that starts again enforces. A damaged file grants nothing and says so."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from gpugrant_crds.snapshot import ClockMark, Snapshot, StoredSnapshot, sound
from gpugrant_gate.life import durable


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the file held. With a problem, `stored` is None: all hardware is refused."""

    stored: StoredSnapshot | None = None
    written: datetime | None = None
    """When the file was written: no clock may say an earlier time afterwards."""
    problem: str = ""


def load(path: Path) -> Loaded:
    """The stored snapshot, nothing, or what is wrong with the file."""
    try:
        text = path.read_bytes()
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return Loaded()
    except OSError as error:
        return Loaded(problem=_damaged(path, error.strerror or "it can't be read"))
    try:
        stored = StoredSnapshot.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return Loaded(problem=_damaged(path, f"{place}: {first['msg']}" if place else first["msg"]))
    if not sound(stored.snapshot):
        return Loaded(problem=_damaged(path, "its digest is not that of its contents"))
    return Loaded(stored, written)


def save(path: Path, stored: StoredSnapshot) -> None:
    """Durable when it returns; raises OSError with the old file in place."""
    durable.write(path, json.dumps(stored.to_json(), separators=(",", ":")).encode() + b"\n")


def successor(current: StoredSnapshot | None, snapshot: Snapshot, mark: ClockMark) -> StoredSnapshot:
    """What is stored once `snapshot` is taken at that moment: the machine that it replaces is remembered as retired."""
    if current is None:
        return StoredSnapshot(snapshot=snapshot, received=mark.wall, clock=mark)
    retired = current.retired
    if snapshot.machine_uid != current.snapshot.machine_uid:
        retired = (*retired, current.snapshot.machine_uid)
    return StoredSnapshot(snapshot=snapshot, received=mark.wall, clock=mark, retired=retired)


def too_old_at(stored: StoredSnapshot | None) -> datetime | None:
    """When the snapshot gives no hardware any more; None: never."""
    policy = None if stored is None else stored.snapshot.policy
    if stored is None or policy is None or policy.max_snapshot_age is None:
        return None
    # a file from before this was noted down is too old at once
    try:
        return datetime.fromtimestamp((stored.received or 0.0) + policy.max_snapshot_age, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _damaged(path: Path, what: str) -> str:
    return f"the stored snapshot {path} is damaged ({what}): all hardware is refused until the operator sends a new one"
