"""The rows of what Go's encoding/json and Python's json read differently."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_gate.policy import strictjson
from gpugrant_gate.policy.strictjson import BodyRefused

REFUSED = {
    "a key that is there twice": b'{"HostConfig":{"Privileged":true},"HostConfig":{"Binds":[]}}',
    "a key that is there twice, once escaped": b'{"HostConfig":1,"\\u0048ostConfig":2}',
    "a key that is there twice deep inside": b'{"a":[{"b":{"c":1,"c":null}}]}',
    "a brace behind the value": b"{} } junk",
    "a second value": b"{}{}",
    "a NUL behind the value": b"{}\x00",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "UTF-32": '{"a":1}'.encode("utf-32"),
    "invalid UTF-8 in a string": b'{"a":"\xff"}',
    "an overlong encoding": b'{"a":"\xc0\xaf"}',
    "a surrogate in UTF-8": b'{"a":"\xed\xa0\x80"}',
    "a lone high surrogate": b'{"a":"\\ud800"}',
    "a lone low surrogate in a key": b'{"\\udc00":1}',
    "an escaped NUL": b'{"Runtime":"runc\\u0000"}',
    "an escaped NUL in a key": b'{"a\\u0000":1}',
    "NaN": b'{"a":NaN}',
    "Infinity": b'{"a":Infinity}',
    "minus Infinity": b'{"a":-Infinity}',
    "1e400": b'{"a":1e400}',
    "1.0": b'{"a":1.0}',
    "1e3": b'{"a":1e3}',
    "a number above 64 bits": b'{"a":9223372036854775808}',
    "5000 digits": b'{"a":' + b"1" * 5000 + b"}",
    "a leading zero": b'{"a":01}',
    "a plus sign": b'{"a":+1}',
    "full-width digits": '{"a":\uff11}'.encode(),
    "a comment": b'{"a":1/* x */}',
    "a trailing comma": b'{"a":1,}',
    "single quotes": b"{'a':1}",
    "a raw newline in a string": b'{"a":"\n"}',
    "an unfinished string": b'{"a":"b',
    "an unfinished escape": b'{"a":"b\\',
    "a bad escape": b'{"a":"\\x"}',
    "33 levels": b"[" * 33 + b"]" * 33,
    "100,000 levels": b"[" * 100_000 + b"]" * 100_000,
    "brackets that close first": b"]" * 1000,
    "nothing": b"",
    "blanks": b"  \n",
    "a non-breaking space around the value": "\u00a0{}".encode(),
}


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED.keys())
def test_refuses(raw: bytes) -> None:
    with pytest.raises(BodyRefused) as refused:
        strictjson.decode(raw)
    assert refused.value.status in (400, 413)


TAKEN = {
    "an escaped key, once": (b'{"\\u0048ostConfig":1}', {"HostConfig": 1}),
    "a pair of surrogates": (b'"\\ud83d\\ude00"', "\U0001f600"),
    "keys of a user that differ in case only": (b'{"A":1,"a":2}', {"A": 1, "a": 2}),
    "null": (b"null", None),
    "the largest number": (b"9223372036854775807", 2**63 - 1),
    "the smallest number": (b"-9223372036854775808", -(2**63)),
    "32 levels": (b"[" * 32 + b"]" * 32, None),
    "brackets and commas in strings": (json.dumps("[{," * 30_000).encode(), "[{," * 30_000),
    "blanks of JSON": (b' \t\r\n{ "a" : [ ] } \n', {"a": []}),
}


@pytest.mark.parametrize(("raw", "value"), TAKEN.values(), ids=TAKEN.keys())
def test_takes(raw: bytes, value: object) -> None:
    decoded = strictjson.decode(raw)
    assert value is None or decoded == value


def test_counts_values_before_it_decodes_them() -> None:
    exactly = b"[" + b",".join([b"1"] * (strictjson.MAX_NODES - 1)) + b"]"
    assert len(strictjson.decode(exactly)) == strictjson.MAX_NODES - 1
    with pytest.raises(BodyRefused) as refused:
        strictjson.decode(exactly[:-1] + b",1]")
    assert (refused.value.status, refused.value.rule) == (413, "body.size")


def test_counts_empty_containers_once() -> None:
    exactly = b"[" + b",".join([b"{}"] * (strictjson.MAX_NODES - 1)) + b"]"
    assert len(strictjson.decode(exactly)) == strictjson.MAX_NODES - 1


def test_refuses_two_mebibytes_and_a_byte() -> None:
    value = b'"' + b"x" * (strictjson.MAX_BYTES - 2) + b'"'
    assert len(strictjson.decode(value)) == strictjson.MAX_BYTES - 2
    with pytest.raises(BodyRefused) as refused:
        strictjson.decode(value[:-1] + b'x"')
    assert refused.value.status == 413


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "raw",
    [b'"' + b'\\"' * 1_000_000, b"\\" * 2_000_000, b'"\\' * 700_000, b"]" * 2_000_000, b"[]" * 1_000_000],
    ids=["escaped quotes", "backslashes", "unfinished strings", "closing brackets", "pairs"],
)
def test_spends_linear_time_on_the_worst_bytes(raw: bytes) -> None:
    with pytest.raises(BodyRefused):
        strictjson.decode(raw)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_the_one_error(raw: bytes) -> None:
    try:
        strictjson.decode(raw)
    except BodyRefused:
        return
    json.loads(raw)


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text("abcABC"), inner), max_leaves=20)


@given(VALUES, st.randoms())
def test_reads_back_what_it_wrote_whatever_the_order_of_keys(value: object, chance: random.Random) -> None:
    assert strictjson.decode(strictjson.encode(value)) == value
    assert strictjson.encode(_shuffled(value, chance)) == strictjson.encode(value)


def _shuffled(value: object, chance: random.Random) -> object:
    if isinstance(value, dict):
        items = [(key, _shuffled(entry, chance)) for key, entry in value.items()]
        chance.shuffle(items)
        return dict(items)
    return [_shuffled(entry, chance) for entry in value] if isinstance(value, list) else value
