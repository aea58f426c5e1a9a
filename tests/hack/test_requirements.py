"""Which requirement a test shows is read from its marks."""

from __future__ import annotations

import pytest
from gpugrant_hack import requirements
from gpugrant_hack.say import Trouble

import rig

CASES = {
    "a mark on a test": ('@pytest.mark.req("R1", "R2")\ndef test_a(): ...', [("R1", False), ("R2", False)]),
    "a real one": ('@pytest.mark.real\n@pytest.mark.req("R1")\nasync def test_a(): ...', [("R1", True)]),
    "a module's mark counts for each test": (
        'pytestmark = [pytest.mark.real, pytest.mark.req("R1")]\ndef test_a(): ...\ndef test_b(): ...',
        [("R1", True), ("R1", True)],
    ),
    "a class's mark counts for its tests": (
        '@pytest.mark.req("R1")\nclass TestA:\n    pytestmark = pytest.mark.real\n    def test_a(self): ...',
        [("R1", True)],
    ),
    "a case's mark counts for its test": (
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.req("R1"))])\ndef test_a(x): ...',
        [("R1", False)],
    ),
    "the same number twice counts once": (
        'pytestmark = pytest.mark.req("R1")\n@pytest.mark.req("R1")\ndef test_a(): ...',
        [("R1", False)],
    ),
    "a mark without a test shows nothing": ('pytestmark = pytest.mark.req("R1")\ndef helper(): ...', []),
    "another function of that name is no mark": ('@req("R1")\ndef test_a(): ...', []),
}


@pytest.mark.parametrize(("source", "expected"), CASES.values(), ids=CASES)
def test_shown(source: str, expected: list[tuple[str, bool]]) -> None:
    found = [(item.number, item.real) for item in requirements.shown(source, "test_x.py")]

    assert found == expected


def test_the_last_lines_say_what_is_missing():
    known = {"R1": "one", "R2": "two", "R3": "three"}
    found = [requirements.Shown("R1", True, "a:1"), requirements.Shown("R2", False, "a:2")]

    lines = requirements.report(known, found)

    assert lines[0] == "R1      1 real    0 unit  one"
    assert lines[-2:] == ["no test: R3", "unit tests only, no proof on real parts: R2"]


def test_an_unknown_number_names_its_place():
    with pytest.raises(Trouble, match=r"test_x\.py:3 marks R99"):
        requirements.report({"R1": ""}, [requirements.Shown("R99", False, "test_x.py:3")])


def test_the_committed_list_is_whole_and_the_marks_of_all_tests_are_in_it():
    known = requirements.numbers((rig.CHECKOUT / "tests/requirements.txt").read_text())

    assert list(known) == [*(f"R{n}" for n in range(1, 53)), *(f"D{n}" for n in range(1, 14))]
    assert all(known.values())
    assert rig.succeeded(rig.script("requirements")).count("\n") == len(known) + 1
