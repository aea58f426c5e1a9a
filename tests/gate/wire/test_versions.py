"""API versions: nobody is promised a newer one than the gate knows, and a request always has one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_gate.wire import versions

VERSIONS = st.builds("{}.{}".format, st.integers(0, 99), st.integers(0, 999))


@pytest.mark.parametrize(
    ("daemons", "promised"),
    [("1.44", "1.44"), ("1.51", "1.51"), ("1.52", "1.51"), ("1.100", "1.51"), ("2.0", "1.51"), ("", "1.51")],
)
def test_promises_the_older_of_the_two(daemons: str, promised: str) -> None:
    assert versions.at_most(daemons) == promised


@given(VERSIONS, VERSIONS)
def test_what_was_promised_is_never_too_new(daemons: str, limit: str) -> None:
    assert not versions.too_new(versions.at_most(daemons, limit), limit)


@pytest.mark.parametrize("text", ["", "1", "1.45.0", "x", "1.x", "1.4567"])
def test_what_is_no_version_is_too_new(text: str) -> None:
    assert versions.too_new(text, "1.51")


@pytest.mark.parametrize(
    ("said", "own"), [({"ApiVersion": "1.55"}, "1.55"), ({}, "1.51"), ({"ApiVersion": "x/../y"}, "1.51")]
)
def test_the_gates_own_questions_are_as_new_as_the_daemon(said: dict[str, str], own: str) -> None:
    assert versions.own(said) == own


def test_a_version_answer_is_clamped_in_both_places() -> None:
    body = {
        "ApiVersion": "1.52",
        "Version": "29.0.0",
        "Components": [{"Name": "Engine", "Details": {"ApiVersion": "1.52"}}],
    }
    said = json.loads(versions.clamp_version_body(json.dumps(body).encode()))
    assert (said["ApiVersion"], said["Components"][0]["Details"]["ApiVersion"]) == ("1.51", "1.51")
    assert said["Version"] == "29.0.0"
