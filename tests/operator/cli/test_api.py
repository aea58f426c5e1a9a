"""Which API is used, and what its errors become."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_operator.cli import api
from gpugrant_operator.cli.api import Api, ApiProblem, Chosen, Exists, Gone
from gpugrant_operator.cli.console import Failure

OWN = Path("/r/etc/rediacc/gpu/kubeconfig")


@pytest.mark.parametrize(
    ("variable", "exists", "chosen"),
    [
        pytest.param(None, True, Chosen(str(OWN)), id="the standalone one"),
        pytest.param("", True, Chosen(str(OWN)), id="an empty KUBECONFIG is none"),
        pytest.param("/k", False, Chosen("/k"), id="KUBECONFIG"),
        pytest.param(str(OWN), True, Chosen(str(OWN)), id="both are the same"),
        pytest.param(
            "/k",
            True,
            Chosen("/k", f"note: using the API of KUBECONFIG=/k, not the one of {OWN}"),
            id="KUBECONFIG wins, and that is said",
        ),
    ],
)
def test_chooses(variable: str | None, exists: bool, chosen: Chosen) -> None:
    assert api.choose(variable, OWN, exists=exists) == chosen


def test_without_any_says_what_to_do() -> None:
    with pytest.raises(Failure, match="start one with gpugrant up, or set KUBECONFIG"):
        api.choose(None, OWN, exists=False)


def body(message: str, reason: str = "Forbidden") -> str:
    return json.dumps({"kind": "Status", "message": message, "reason": reason})


@pytest.mark.parametrize(
    ("status", "text", "kind", "message"),
    [
        pytest.param(
            403,
            body('admission webhook "grants.gpu.rediacc.io" denied the request: it is\nreserved'),
            ApiProblem,
            "it is reserved",
            id="an admission's sentence, without what the API puts before it",
        ),
        pytest.param(
            403,
            body('repogpugrants.gpu.rediacc.io "x" is forbidden: it comes from git/x.yaml'),
            ApiProblem,
            "it comes from git/x.yaml",
            id="an object of a Git file",
        ),
        pytest.param(404, body("x not found", "NotFound"), Gone, "x not found", id="not there"),
        pytest.param(409, body("x exists", "AlreadyExists"), Exists, "x exists", id="there already"),
        pytest.param(409, body("modified", "Conflict"), api.Changed, "modified", id="changed meanwhile"),
        pytest.param(502, "<html>", ApiProblem, "the API answered 502 Bad Gateway", id="no Status"),
        pytest.param(500, None, ApiProblem, "the API answered 500 Bad Gateway", id="no body"),
        pytest.param(500, "[]", ApiProblem, "the API answered 500 Bad Gateway", id="another JSON"),
    ],
)
def test_an_error_becomes_one_sentence(status: int, text: str | None, kind: type[ApiProblem], message: str) -> None:
    found = api.problem(status, text, "Bad Gateway")
    assert type(found) is kind
    assert found.message == message


@given(st.text())
def test_any_answer_becomes_one_line(text: str) -> None:
    assert "\n" not in api.problem(500, body(text), "x").message


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "apiVersion: v1\nkind: Config\n", "contexts: [{name: a}]\ncurrent-context: a\n"]
)
def test_a_kubeconfig_that_can_not_be_used_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(Failure, match="can't be used"):
        Api(str(path))


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="can't be used"):
        Api(str(tmp_path / "none"))
