"""What looks at sources mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_operator.apiserver.sources import decide, folders
from gpugrant_operator.apiserver.sources.documents import Document, Read
from gpugrant_operator.apiserver.sources.tree import Entry, Look
from gpugrant_operator.apiserver.store.journal import Key, Origin

pytestmark = pytest.mark.req("D11")

ROOT = Path("/git")
NOW, BEFORE = (1, 1, 1, 1, 1), (1, 1, 1, 0, 0)


def key(number: int) -> Key:
    return ("widgets", "default", f"w{number}")


def read(*numbers: int, problem: str = "") -> Entry:
    return Entry(NOW, NOW, Read(tuple(Document(key(n), {}, "d") for n in numbers), problem, ours=True))


def owned(*numbers: int) -> dict[Key, Origin]:
    """Each from a file of its own."""
    return {key(n): Origin(f"/git/{n}.yaml", "d") for n in numbers}


def look(**files: Entry) -> Look:
    return Look(
        ROOT, there=True, files={f"/git/{name[1:]}.yaml": entry for name, entry in files.items()}, unreadable={}
    )


def test_a_missing_file_is_missing() -> None:
    plan = decide.plan([look(_1=read(1))], owned(1, 2), set())
    assert (set(plan.missing), set(plan.declared), dict(plan.problems)) == ({key(2)}, {key(1)}, {})


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(read(problem="broken"), id="broken"),
        pytest.param(Entry(NOW), id="never read"),
        pytest.param(Entry(NOW, BEFORE, Read()), id="changing"),
        pytest.param(read(1, problem="object 2 is broken"), id="broken in part"),
    ],
)
def test_a_file_that_cannot_be_told_keeps_its_objects(entry: Entry) -> None:
    assert decide.plan([look(_1=read(1), _2=entry)], owned(1, 2), set()).missing == frozenset()


def test_a_file_that_cannot_be_told_keeps_its_object_from_others_too() -> None:
    plan = decide.plan([look(_2=read(problem="broken"), _3=read(2))], owned(2), set())
    assert plan.declared == {}
    assert "stands already in /git/2.yaml" in plan.problems["/git/3.yaml"].text


def test_a_folder_that_cannot_be_read_keeps_its_objects() -> None:
    seen = Look(ROOT, there=True, files={}, unreadable={"/git": "Permission denied"})
    plan = decide.plan([seen], owned(1, 2), set())
    assert (plan.missing, "/git" in plan.problems) == (frozenset(), True)


def test_nothing_goes_while_git_is_at_work() -> None:
    plan = decide.plan([Look(ROOT, there=True, busy=True, files={})], owned(1), set())
    assert (plan.missing, plan.busy) == (frozenset(), {ROOT: 1})


@pytest.mark.parametrize(
    ("had", "gone", "waits"),
    [(3, 3, False), (4, 3, False), (4, 4, True), (8, 4, False), (7, 4, True), (9, 5, True), (10, 5, False)],
)
def test_more_than_half_and_over_three_waits(had: int, gone: int, waits: bool) -> None:
    files = {f"_{n}": read(n) for n in range(gone, had)}
    plan = decide.plan([look(**files)], owned(*range(had)), set())
    lost = frozenset(map(key, range(gone)))
    assert (plan.missing, plan.waiting) == ((frozenset(), {ROOT: lost}) if waits else (lost, {}))
    assert decide.plan([look(**files)], owned(*range(had)), lost).missing == lost


@pytest.mark.parametrize("count", [1, 9])
def test_a_folder_that_is_gone_waits(count: int) -> None:
    plan = decide.plan([Look(ROOT, there=False)], owned(*range(count)), set())
    assert (plan.missing, len(plan.waiting[ROOT])) == (frozenset(), count)
    accepted = set(map(key, range(count)))
    assert decide.plan([Look(ROOT, there=False)], owned(*range(count)), accepted).missing == accepted


def test_what_was_accepted_opens_no_door_for_more() -> None:
    accepted = set(map(key, range(4)))
    plan = decide.plan([look(_10=read(10))], owned(*range(11)), accepted)
    assert plan.missing == accepted
    assert plan.waiting == {ROOT: frozenset(map(key, range(4, 10)))}


def test_an_object_that_moves_between_sources_is_not_missing() -> None:
    other = Look(Path("/other"), there=True, files={"/other/1.yaml": read(1)}, unreadable={})
    plan = decide.plan([look(), other], owned(1), set())
    assert (plan.missing, plan.declared[key(1)].file) == (frozenset(), "/other/1.yaml")


@given(
    st.dictionaries(st.integers(0, 9), st.sampled_from(["there", "gone", "broken", "changing"]), max_size=10),
    st.booleans(),
    st.booleans(),
)
def test_only_what_a_sound_look_misses_goes(files: dict[int, str], there: bool, busy: bool) -> None:
    states: dict[str, Callable[[int], Entry]] = {
        "there": lambda n: read(n),
        "broken": lambda _: read(problem="broken"),
        "changing": lambda n: Entry(NOW, BEFORE, read(n).read),
    }
    entries = {f"/git/{n}.yaml": states[state](n) for n, state in files.items() if state != "gone"}
    seen = Look(ROOT, there=there, busy=busy and there, files=entries if there else {}, unreadable={})
    plan = decide.plan([seen], owned(*files), set())
    gone = {key(n) for n, state in files.items() if state == "gone"}
    assert plan.missing <= gone
    assert plan.missing == (gone if there and not busy and not plan.waiting else frozenset())
    assert not plan.missing & set(plan.declared)


@pytest.mark.parametrize(
    ("named", "told"),
    [
        pytest.param(["/a", "/b"], "", id="apart"),
        pytest.param(["/a", "/ab"], "", id="alike"),
        pytest.param(["/a", "/a/b"], "one lies in the other", id="nested"),
        pytest.param(["/a", "/a"], "one lies in the other", id="twice"),
        pytest.param(["/var/lib/x/manifests"], "its own files", id="below the server's"),
        pytest.param(["/var"], "its own files", id="above the server's"),
    ],
)
def test_folders_lie_apart(named: list[str], told: str) -> None:
    said = folders.overlapping([Path(name) for name in named], Path("/var/lib/x"))
    assert told in said if told else said == ""
