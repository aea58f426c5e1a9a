"""The corpus covers what it is meant to: no row of the list without a case, no case without a row, none twice."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from corpus import rows

pytestmark = pytest.mark.req("R4", "R45")

CHECKOUT = Path(__file__).parents[3]
IDS = [case.id for case in rows.cases()]
NAMED = re.compile(rb"(?:name|t|repo)=[\w.-]{1,40}(?![\w.-])")


@pytest.mark.parametrize(("row", "patterns"), rows.ROWS.items(), ids=rows.ROWS.keys())
def test_a_row_has_its_cases(row: str, patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        if pattern.startswith("tests/"):
            file, _, test = pattern.partition("::")
            assert f"def {test}" in (CHECKOUT / file).read_text(), f"{row}: there is no {pattern}"
        else:
            assert any(rows.covers(pattern, id_) for id_ in IDS), f"{row}: no case is called {pattern}"


def test_a_case_belongs_to_a_row() -> None:
    patterns = [pattern for found in rows.ROWS.values() for pattern in found]
    assert [id_ for id_ in IDS if not any(rows.covers(pattern, id_) for pattern in patterns)] == []


def test_cases_differ_in_more_than_a_name() -> None:
    assert [id_ for id_, times in Counter(IDS).items() if times > 1] == []
    contents = Counter(tuple(NAMED.sub(b"", step) for step in (*case.past, b"", *case.steps)) for case in rows.cases())
    twice = [steps for steps, times in contents.items() if times > 1]
    assert twice == []
    assert len(contents) > 700
