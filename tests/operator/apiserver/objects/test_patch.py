"""Patches as pure functions."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_operator.apiserver.objects import patch
from gpugrant_operator.apiserver.objects.status import ApiError

RFC_7396 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "change", "wanted"), RFC_7396)
def test_the_examples_of_rfc_7396(target: Any, change: Any, wanted: Any) -> None:
    before = copy.deepcopy(target)
    assert patch.merge(target, change) == wanted
    assert target == before


OBJECTS = st.dictionaries(
    st.text("abc", min_size=1, max_size=2),
    st.recursive(
        st.none() | st.integers(), lambda inner: st.dictionaries(st.text("ab", max_size=1), inner), max_leaves=5
    ),
)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_twice_is_the_same_as_once(target: Any, change: Any) -> None:
    once = patch.merge(target, change)
    assert patch.merge(once, change) == once


STRATEGIC = [
    pytest.param({"a": 1}, {"$patch": "replace", "b": 2}, {"b": 2}, id="replace"),
    pytest.param(
        {"finalizers": ["x"]},
        {"finalizers": ["y"], "$setElementOrder/finalizers": ["x", "y"]},
        {"finalizers": ["x", "y"]},
        id="finalizers are merged",
    ),
    pytest.param(
        {"finalizers": ["x", "y"]},
        {"$deleteFromPrimitiveList/finalizers": ["x"]},
        {"finalizers": ["y"]},
        id="taken out",
    ),
    pytest.param({"data": {"a": "b"}}, {"data": {"a": None, "c": "d"}}, {"data": {"c": "d"}}, id="maps are merged"),
    pytest.param({"list": [1]}, {"list": [2]}, {"list": [2]}, id="other lists are replaced"),
    pytest.param({"a": 1}, {"$retainKeys": ["a"]}, {"a": 1}, id="hints are dropped"),
]


@pytest.mark.parametrize(("target", "change", "wanted"), STRATEGIC)
def test_strategic_merge(target: Any, change: Any, wanted: Any) -> None:
    assert patch.apply(patch.STRATEGIC_PATCH, change, target, custom=False) == wanted


def test_an_unknown_directive_is_refused() -> None:
    with pytest.raises(ApiError, match="is not supported") as refused:
        patch.apply(patch.STRATEGIC_PATCH, {"x": {"$patch/odd": 1}}, {"x": {}}, custom=False)
    assert refused.value.code == 400


POINTER = st.text("/ab0~-", max_size=5)
OPERATION = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "no"]), "path": POINTER},
    optional={"value": OBJECTS, "from": POINTER},
)


@given(st.lists(OPERATION, max_size=4) | OBJECTS)
def test_any_json_patch_gives_an_object_or_a_status(change: Any) -> None:
    target = {"a": {"b": [1, 2]}, "b": None}
    before = copy.deepcopy(target)
    code = 0
    try:
        assert isinstance(patch.apply(patch.JSON_PATCH, change, target, custom=True), dict)
    except ApiError as error:
        code = error.code
    assert code in (0, 400, 422)
    assert target == before
