from __future__ import annotations

from pathlib import Path

import pytest

from gpugrant_operator.node import files


def test_a_file_is_written_with_its_mode_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new/folder/x.yaml"
    assert files.write(path, b"one")
    assert path.read_bytes() == b"one"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["x.yaml"]


def test_equal_bytes_are_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    files.write(path, b"one")
    before = path.stat().st_ino
    assert not files.write(path, b"one")
    assert path.stat().st_ino == before
    assert files.write(path, b"two")
    assert path.stat().st_ino != before


def test_a_failure_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.mkdir()
    (path / "inside").touch()
    with pytest.raises(OSError, match=r"x\.yaml"):
        files.write(path, b"one")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.yaml"]


def test_remove_says_whether_there_was_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.touch()
    assert files.remove(path)
    assert not files.remove(path)


def test_sweep_takes_only_our_temporary_files(tmp_path: Path) -> None:
    for name in (".rediacc-1a2b.tmp", ".rediacc-1a2b.yaml", "other.tmp"):
        (tmp_path / name).touch()
    files.sweep(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".rediacc-1a2b.yaml", "other.tmp"]
