"""Sharing changes no value, and takes what it can from the old one."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpugrant_operator.apiserver.objects.sharing import shared

keys = st.sampled_from(["kind", "status", "name", "é"])
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(values, values)
def test_the_value_is_the_same(value: Any, old: Any) -> None:
    """Of the same types too: `True == 1` in Python and not in JSON."""
    assert json.dumps(shared(value, old), sort_keys=True) == json.dumps(value, sort_keys=True)


def test_what_did_not_change_is_the_old_part() -> None:
    old: dict[str, Any] = {"spec": {"a": 1}, "conditions": [{"type": "Ready"}, {"type": "Stalled", "status": "False"}]}
    new: dict[str, Any] = {"spec": {"a": 1}, "conditions": [{"type": "Ready"}, {"type": "Stalled", "status": "True"}]}
    made = shared(new, old)

    assert made == new
    assert made["spec"] is old["spec"]
    assert made["conditions"][0] is old["conditions"][0]


def test_words_that_repeat_are_one_word() -> None:
    first, second = (shared(json.loads('{"kind": "a b", "name": "x y"}')) for _ in range(2))

    assert next(iter(first)) is next(iter(second))
    assert first["kind"] is second["kind"]
    assert first["name"] is not second["name"]
