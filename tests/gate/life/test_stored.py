"""The snapshot on disk: whole or nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpugrant_crds import snapshot
from gpugrant_crds.snapshot import ClockMark, GrantRef, Snapshot, SnapshotGrant, SnapshotPolicy
from gpugrant_gate.life import durable, stored

MARK = ClockMark(wall=1_772_366_400.5, boottime=100.0, boot_id="b")


def made(epoch: int = 1, uid: str = "m1", device: str = "v.com/gpu=0") -> Snapshot:
    grant = SnapshotGrant(
        repo="a", repo_id="id-a", device=device, grant=GrantRef(namespace="default", name="g", uid="u")
    )
    return snapshot.build(
        api_id="api",
        machine="m",
        machine_uid=uid,
        epoch=epoch,
        issued_at=datetime(2026, 3, 1, tzinfo=UTC),
        grants=(grant,),
    )


def test_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    kept = stored.successor(None, made(), MARK)
    stored.save(tmp_path / "s.json", kept)
    loaded = stored.load(tmp_path / "s.json")
    assert (loaded.stored, loaded.problem) == (kept, "")
    assert loaded.written is not None
    assert (tmp_path / "s.json").stat().st_mode & 0o777 == 0o600


def test_none_is_no_problem(tmp_path: Path) -> None:
    assert stored.load(tmp_path / "s.json") == stored.Loaded()


def _torn(text: str) -> str:
    return text[: len(text) // 2]


def _edited(text: str) -> str:
    return text.replace("v.com/gpu=0", "v.com/gpu=1")


DAMAGES = {"torn": _torn, "edited by hand": _edited, "empty": lambda _: "", "another file": lambda _: "[]"}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_file_grants_nothing(tmp_path: Path, case: str) -> None:
    text = json.dumps(stored.successor(None, made(), MARK).to_json())
    (tmp_path / "s.json").write_text(DAMAGES[case](text))
    loaded = stored.load(tmp_path / "s.json")
    assert loaded.stored is None
    assert "damaged" in loaded.problem
    assert "v.com" not in loaded.problem


def test_a_file_that_cannot_be_read_grants_nothing(tmp_path: Path) -> None:
    (tmp_path / "s.json").mkdir()
    assert "damaged" in stored.load(tmp_path / "s.json").problem


def test_remembers_the_machines_that_it_served() -> None:
    first = stored.successor(None, made(), MARK)
    second = stored.successor(first, made(epoch=2), MARK)
    third = stored.successor(second, made(uid="m2"), MARK)
    assert (first.retired, second.retired, third.retired) == ((), (), ("m1",))


@pytest.mark.parametrize(
    ("age", "received", "over"),
    [
        (None, MARK.wall, None),
        (600, MARK.wall, datetime.fromtimestamp(MARK.wall + 600, UTC)),
        (600, None, datetime.fromtimestamp(600, UTC)),
        (10**12, MARK.wall, None),
    ],
)
def test_when_it_is_too_old(age: int | None, received: float | None, over: datetime | None) -> None:
    its = snapshot.build(
        api_id="api",
        machine="m",
        machine_uid="m1",
        epoch=1,
        issued_at=datetime(2026, 3, 1, tzinfo=UTC),
        grants=(),
        policy=None if age is None else SnapshotPolicy(max_snapshot_age=age),
    )
    kept = stored.successor(None, its, MARK).model_copy(update={"received": received})
    assert stored.too_old_at(kept) == over
    assert stored.too_old_at(None) is None


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    durable.write(path, b"old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        durable.write(tmp_path / "folder", b"new")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "s.json"]
    assert path.read_bytes() == b"old"
