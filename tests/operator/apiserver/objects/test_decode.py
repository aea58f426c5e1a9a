"""Bodies: strict JSON, and YAML as kubectl reads it."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_operator.apiserver.objects import decode
from gpugrant_operator.apiserver.objects.status import ApiError


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param("a: 2026-03-01T12:00:00Z", {"a": "2026-03-01T12:00:00Z"}, id="a time stays text"),
        pytest.param("a: 12:30:45", {"a": "12:30:45"}, id="a clock stays text"),
        pytest.param("a: 1\nb: -2\nc: 0x10\nd: 1.5", {"a": 1, "b": -2, "c": 16, "d": 1.5}, id="numbers"),
        pytest.param(
            "a: yes\nb: true\nc: null\nd: ~\ne:", {"a": True, "b": True, "c": None, "d": None, "e": None}, id="words"
        ),
        pytest.param("<<: {a: 1}", {"<<": {"a": 1}}, id="no merge keys"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_yaml(text: str, wanted: Any) -> None:
    assert decode.from_yaml(text.encode()) == wanted


@pytest.mark.parametrize(
    ("data", "told"),
    [
        pytest.param(b"a: 1\nb: [", "line 3", id="a list that does not end"),
        pytest.param(b"a: 1\na: 2", "line 2: the key 'a' stands twice", id="a key twice"),
        pytest.param(b"a:\n  b: 1\n  b: 2", "line 3: the key 'b' stands twice", id="an inner key twice"),
        pytest.param(b"a: &x 1\nb: *x", "line 2: aliases are not taken", id="an alias"),
        pytest.param(b"1: a", "is no string", id="a number as key"),
        pytest.param(b"a: 1\n---\nb: 2", "line 2", id="two documents"),
        pytest.param(b"a: 1\n\xff", "line 2: the text is not UTF-8", id="no UTF-8"),
        pytest.param(b"a: \x01", "character", id="a control character"),
        pytest.param(b"a: !!python/object:os.system x", "line 1", id="a tag of Python's"),
        pytest.param(b"[" * 5000, "nesting depth", id="endless nesting"),
        pytest.param(b"- " * 300, "nested deeper than 200", id="deep nesting"),
        pytest.param(b"a: .inf", "out of range", id="infinity"),
    ],
)
def test_yaml_that_cannot_be_read(data: bytes, told: str) -> None:
    with pytest.raises(decode.BadYamlError, match=told):
        decode.from_yaml(data)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_yaml_or_one_error(data: bytes) -> None:
    with contextlib.suppress(decode.BadYamlError):
        decode.from_yaml(data)


@given(st.binary(max_size=60) | st.text('{}[]":,ae1.-', max_size=30).map(str.encode))
def test_any_bytes_are_json_or_a_status(data: bytes) -> None:
    with contextlib.suppress(ApiError):
        decode.from_json(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_json_reads_back(value: Any) -> None:
    decoded = decode.from_json(json.dumps(value).encode())
    assert (decoded.value, decoded.duplicates) == (value, ())


def test_doubled_keys_are_reported() -> None:
    decoded = decode.from_json(b'{"a":1,"a":2,"b":{"c":1,"c":1}}')
    assert decoded.value == {"a": 2, "b": {"c": 1}}
    assert sorted(decoded.duplicates) == ["a", "c"]
