from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_crds.cdi import yaml11


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("Null", None),
        ("nUll", "nUll"),
        ("y", True),
        ("Off", False),
        ("oFF", "oFF"),
        ("0", 0),
        ("-0", 0),
        ("00", 0),
        ("017", 15),
        ("0o17", 15),
        ("0O17", 15),
        ("0x1F", 31),
        ("-0b11", -3),
        ("0b-11", -3),
        ("1_000", 1000),
        ("_1", "_1"),
        ("08", 8.0),
        ("9223372036854775808", 2**63),
        ("-9223372036854775809", -9223372036854775809.0),
        ("18446744073709551616", 18446744073709551616.0),
        ("+9223372036854775808", 9223372036854775808.0),
        (".5", 0.5),
        ("._5", "._5"),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("1e400", "1e400"),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("12:30:45", "12:30:45"),
        ("2024-01-02", "2024-01-02"),
        ("0x", "0x"),
        ("+", "+"),
        (".", "."),
    ],
)
def test_resolve_is_that_of_go_yaml_v2(text: str, value: object) -> None:
    found = yaml11.resolve(text)
    assert (type(found), found) == (type(value), value)


def test_not_a_number_is_one() -> None:
    assert yaml11.go_text(yaml11.resolve(".nan") or "") == "NaN"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (7, "7"),
        (1e3, "1000"),
        (1e6, "1e+06"),
        (1234567.0, "1.234567e+06"),
        (123456.5, "123456.5"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-1.5, "-1.5"),
        (-0.0, "-0"),
        (math.inf, "+Inf"),
    ],
)
def test_go_text_is_that_of_strconv(value: bool | float | str, text: str) -> None:
    assert yaml11.go_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_survives_its_text(value: float) -> None:
    assert float(yaml11.go_text(value)) == value


@given(st.text(alphabet="0123456789+-_.eExXbBoOyYnN~:"))
def test_any_word_resolves(text: str) -> None:
    found = yaml11.resolve(text)
    assert found is None or yaml11.go_text(found)
