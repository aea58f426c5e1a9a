"""The log: what a crash can leave is cut off, what a crash can't leave is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_operator.apiserver.store.disk import Disk
from gpugrant_operator.apiserver.store.journal import (
    JOURNAL,
    SNAPSHOT,
    Contents,
    DamagedStore,
    Journal,
    Record,
    line,
    parse_line,
)


def record(name: str, version: int, **more: Any) -> Record:
    return Record(("widgets", "default", name), {"metadata": {"name": name}, "v": version}, version, **more)


def opened(folder: Path) -> tuple[Journal, Contents]:
    journal = Journal(folder, Disk())
    return journal, journal.open(store_id="first", created="now")


def filled(folder: Path) -> None:
    journal, _ = opened(folder)
    for number in range(1, 6):
        journal.append([record(f"o{number}", number)])
    journal.close()


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    filled(tmp_path)
    _, contents = opened(tmp_path)
    assert contents.store_id == "first"
    assert sorted(key[2] for key in contents.records) == ["o1", "o2", "o3", "o4", "o5"]
    assert contents.version == 5


def test_the_store_keeps_its_id(tmp_path: Path) -> None:
    opened(tmp_path)
    journal = Journal(tmp_path, Disk())
    assert journal.open(store_id="second", created="later").store_id == "first"


def test_a_removed_object_stays_removed_and_its_version_counts(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.append([record("a", 1)])
    journal.append([Record(("widgets", "default", "a"), None, 2)])
    _, contents = opened(tmp_path)
    assert (contents.records, contents.version) == ({}, 2)


@pytest.mark.parametrize("kept", range(0, 60, 7))
def test_a_torn_last_line_is_cut_off(tmp_path: Path, kept: int) -> None:
    filled(tmp_path)
    path = tmp_path / JOURNAL
    data = path.read_bytes()
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    path.write_bytes(data[: last + kept])
    journal, contents = opened(tmp_path)
    assert len(contents.records) == 4
    journal.append([record("o6", 6)])
    journal.close()
    _, again = opened(tmp_path)
    assert sorted(key[2] for key in again.records) == ["o1", "o2", "o3", "o4", "o6"]


def test_a_last_line_with_a_hole_is_cut_off(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / JOURNAL
    data = bytearray(path.read_bytes())
    data[-30:-10] = b"\0" * 20
    path.write_bytes(data)
    _, contents = opened(tmp_path)
    assert len(contents.records) == 4


@pytest.mark.parametrize("row", [0, 1, 3])
def test_a_damaged_middle_is_refused_with_file_and_line(tmp_path: Path, row: int) -> None:
    filled(tmp_path)
    path = tmp_path / JOURNAL
    rows = path.read_bytes().splitlines(keepends=True)
    rows[row] = rows[row].replace(b"metadata", b"metadatb")
    before = b"".join(rows)
    path.write_bytes(before)
    with pytest.raises(DamagedStore, match=rf"journal.jsonl line {row + 1} is damaged"):
        opened(tmp_path)
    assert path.read_bytes() == before


def test_a_missing_batch_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / JOURNAL
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(rows[:2] + rows[3:]))
    with pytest.raises(DamagedStore, match="batch 3 is missing"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(lambda data: data.replace(b"first", b"other"), "line 1 is damaged", id="a changed head"),
        pytest.param(lambda data: data[:-20], "is damaged", id="a short file"),
        pytest.param(lambda _: b"", "line 1 is damaged", id="an empty file"),
        pytest.param(lambda data: data.replace(b'"name":"a"', b'"name":"b"'), "line 2 is damaged", id="an object"),
        pytest.param(lambda _: line({"format": 9}), "has format 9", id="a format of the future"),
    ],
)
def test_a_damaged_snapshot_is_refused(tmp_path: Path, change: Any, told: str) -> None:
    journal, contents = opened(tmp_path)
    contents.records = {record("a", 1).key: record("a", 1)}
    journal.write_snapshot(contents)
    journal.close()
    path = tmp_path / SNAPSHOT
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DamagedStore, match=told):
        opened(tmp_path)


def test_a_journal_without_its_snapshot_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / SNAPSHOT).unlink()
    with pytest.raises(DamagedStore, match="is missing"):
        opened(tmp_path)


def test_batches_that_the_snapshot_has_are_passed_over(tmp_path: Path) -> None:
    filled(tmp_path)
    old = (tmp_path / JOURNAL).read_bytes()
    journal, contents = opened(tmp_path)
    journal.write_snapshot(contents)
    journal.close()
    (tmp_path / JOURNAL).write_bytes(old)  # as if the power failed before the journal was emptied
    journal, contents = opened(tmp_path)
    assert len(contents.records) == 5
    journal.append([record("o6", 6)])
    journal.close()
    assert len(opened(tmp_path)[1].records) == 6


def test_only_the_last_batch_is_unfinished_and_none_after_a_close(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.append([record("a", 1, writes=True)])
    journal.append([record("b", 2, writes=True), record("c", 3)])
    assert [entry.key[2] for entry in opened(tmp_path)[1].unfinished] == ["b"]
    journal.append([record("d", 4)], unfinished=[record("a", 1, writes=True)])
    assert [entry.key[2] for entry in opened(tmp_path)[1].unfinished] == ["a"]
    journal.append([], closing=True)
    assert opened(tmp_path)[1].unfinished == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_a_line_reads_back(value: Any) -> None:
    data = line(value)
    assert data.count(b"\n") == 1
    assert parse_line(data[:-1]) == value


@given(st.dictionaries(st.text(), st.integers(), min_size=1), st.data())
def test_a_changed_line_is_noticed(value: Any, data: st.DataObject) -> None:
    good = bytearray(line(value)[:-1])
    index = data.draw(st.integers(0, len(good) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda new: new != good[index]))
    bad = bytes(good[:index]) + bytes([byte]) + bytes(good[index + 1 :])
    assert parse_line(bad) is None or bad.lower() == bytes(good).lower()


@given(st.binary(max_size=60))
def test_any_bytes_are_a_line_or_none(data: bytes) -> None:
    parse_line(data)
