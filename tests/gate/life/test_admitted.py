"""What was let start, on disk: whole, of this repo only, and never lost between two who write."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpugrant_gate.life import admitted
from gpugrant_gate.life.admitted import Admitted, Book, Ledger, Unwritable

GPU = "nvidia.com/gpu=all"
ONE, TWO = "1" * 64, "2" * 64


def book(folder: Path, repo_id: str = "id-a") -> Book:
    return Book(folder, "a", repo_id)


def note(its: Book, container: str) -> Ledger:
    return its.change(lambda ledger: ledger.admit(container, {GPU: "uid"}), its.read())


@pytest.mark.req("R51")
def test_what_was_noted_is_there_after_a_restart(tmp_path: Path) -> None:
    note(book(tmp_path), ONE)

    assert book(tmp_path).read().containers == {ONE: Admitted({GPU: "uid"})}
    assert oct((tmp_path / "a.json").stat().st_mode)[-3:] == "600"


@pytest.mark.req("R2", "R9")
def test_to_a_repo_of_another_id_it_says_nothing(tmp_path: Path) -> None:
    """A fork that has taken its parent's name; a repo whose file has lost its id is still the same one."""
    note(book(tmp_path), ONE)

    assert book(tmp_path, "id-fork").read() == Ledger("id-fork", enforced=True)
    assert ONE in book(tmp_path, "").read().containers


def test_two_who_write_keep_each_others_lines(tmp_path: Path) -> None:
    """The gate before this one finishes its requests."""
    older, younger = book(tmp_path), book(tmp_path)
    seen = younger.read()
    note(older, ONE)
    younger.change(lambda ledger: ledger.admit(TWO, {GPU: "uid"}), seen)

    assert set(book(tmp_path).read().containers) == {ONE, TWO}


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"repoId": "id-a"}', b'{"repoId":"id-a","enforced":true,"containers":[]}']
)
def test_a_file_that_cant_be_read_admits_nothing(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.json").write_bytes(text)

    assert book(tmp_path).read() == Ledger("id-a", enforced=True)


def test_a_start_that_cant_be_noted_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    note(book(tmp_path), ONE)
    (tmp_path / "a.json").unlink()
    (tmp_path / "a.json").mkdir()

    with pytest.raises(Unwritable, match="can't be written"):
        note(book(tmp_path), TWO)


def test_what_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    note(book(tmp_path), ONE)
    before = (tmp_path / "a.json").stat().st_ino
    book(tmp_path).change(lambda ledger: ledger, Ledger())

    assert (tmp_path / "a.json").stat().st_ino == before


def test_repos_of_the_first_start_are_spared_and_later_ones_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "admitted"
    admitted.begin(folder, {"a": "id-a"}, enforce=False)
    admitted.begin(folder, {"a": "id-a", "b": "id-b"}, enforce=False)

    assert not Book(folder, "a", "id-a").read().enforced
    assert Book(folder, "b", "id-b").read().enforced


def test_enforcing_at_once_spares_nobody_then_and_later(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    admitted.begin(first, {"a": "id-a"}, enforce=True)
    admitted.begin(second, {"a": "id-a"}, enforce=False)
    note(Book(second, "a", "id-a"), ONE)
    admitted.begin(second, {"a": "id-a"}, enforce=True)

    assert Book(first, "a", "id-a").read().enforced
    assert Book(second, "a", "id-a").read() == replace(
        Ledger("id-a", enforced=True), containers={ONE: Admitted({GPU: "uid"})}
    )


def test_a_trial_keeps_it_to_itself() -> None:
    its = Book(None, "a", "trial", enforced=False)

    assert note(its, ONE).containers
    assert its.read() == Ledger("trial", enforced=False)


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    note(book(tmp_path), ONE)

    assert json.loads((tmp_path / "a.json").read_bytes()) == {
        "schema": 1,
        "repoId": "id-a",
        "enforced": True,
        "containers": {ONE: {"devices": {GPU: "uid"}, "run": ""}},
    }
