"""The objects of a file's bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_crds import schema
from gpugrant_operator.apiserver.objects.resources import catalog
from gpugrant_operator.apiserver.sources import documents

CATALOG = catalog(schema.crds())
GRANT = """apiVersion: gpu.rediacc.io/v1alpha1
kind: RepoGpuGrant
metadata: {name: a, namespace: team}
spec: {machine: m, repo: r, device: nvidia.com/gpu=all}
"""
KEY = ("repogpugrants.gpu.rediacc.io", "team", "a")
MACHINE = "apiVersion: gpu.rediacc.io/v1alpha1\nkind: GpuMachine\nmetadata: {name: m, namespace: ignored}\n"


def read(text: str | bytes, *, as_json: bool = False) -> documents.Read:
    return documents.read(text.encode() if isinstance(text, str) else text, CATALOG, as_json=as_json)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        pytest.param(GRANT, [KEY], id="one"),
        pytest.param(
            f"---\n{GRANT}---\n---\n# words\n---\n{MACHINE}...\n",
            [KEY, ("gpumachines.gpu.rediacc.io", "", "m")],
            id="a stream",
        ),
        pytest.param(GRANT.replace(", namespace: team", ""), [(KEY[0], "default", "a")], id="no namespace"),
        pytest.param(
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n", [("namespaces", "", "team")], id="a namespace"
        ),
        pytest.param("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n", [], id="another kind"),
        pytest.param("apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n", [], id="a secret"),
        pytest.param("resources: [a.yaml]\n", [], id="a kustomization"),
        pytest.param("apiVersion: v1\nkind: List\nitems:\n- " + GRANT.replace("\n", "\n  "), [KEY], id="a list"),
    ],
)
def test_takes_what_is_ours(text: str, keys: list[Any]) -> None:
    found = read(text)
    assert [document.key for document in found.documents] == keys
    assert found.problem == ""


def test_json_is_read_as_json() -> None:
    body = {
        "apiVersion": "gpu.rediacc.io/v1alpha1",
        "kind": "RepoGpuGrant",
        "metadata": {"name": "a", "namespace": "team"},
    }
    assert [document.key for document in read(json.dumps(body), as_json=True).documents] == [KEY]
    assert "line 1" in read('{"a": "gpu.rediacc.io",', as_json=True).problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", documents.EMPTY, id="nothing"),
        pytest.param(" \n# words\n---\n", documents.EMPTY, id="comments"),
        pytest.param(GRANT + "spec: {}\n", "stands twice", id="a key twice"),
        *(
            pytest.param(GRANT + f"x: {value}\n", "JSON does not know", id=value)
            for value in ("!!binary aGk=", "!!set {a}", "!!timestamp 2026-03-01")
        ),
        pytest.param(GRANT + "x: &a 1\ny: *a\n", "aliases", id="an alias"),
        pytest.param(
            GRANT.replace("RepoGpuGrant", "RepoGpuGrants"),
            "object 1: there is no kind 'RepoGpuGrants'",
            id="a wrong kind",
        ),
        pytest.param(GRANT.replace("v1alpha1", "v9"), "'gpu.rediacc.io/v9'", id="a wrong version"),
        pytest.param(GRANT.replace("name: a", "generateName: a"), "no metadata.name", id="no name"),
        pytest.param(GRANT.replace("{name: a, namespace: team}", "x"), "no metadata", id="no metadata"),
        pytest.param(GRANT.replace("namespace: team", "namespace: [x]"), "must be a string", id="a strange namespace"),
        pytest.param(f"words\n---\n{GRANT}", "object 1: it is no object", id="words before it"),
    ],
)
def test_says_what_cannot_be_told(text: str, problem: str) -> None:
    assert problem in read(text).problem


def test_a_comment_or_another_order_changes_nothing() -> None:
    moved = "# words\nspec: {device: nvidia.com/gpu=all, repo: r, machine: m}\n" + GRANT.partition("spec")[0]
    assert read(moved).documents[0].digest == read(GRANT).documents[0].digest
    assert read(GRANT.replace("repo: r", "repo: s")).documents[0].digest != read(GRANT).documents[0].digest


@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: (GRANT + text).encode(errors="replace")))
)
def test_any_bytes_are_read_or_told(data: bytes) -> None:
    for as_json in (False, True):
        found = documents.read(data, CATALOG, as_json=as_json)
        assert isinstance(found.problem, str)


@given(st.integers(0, len(GRANT)))
def test_a_torn_file_names_no_other_object(end: int) -> None:
    """A cut may leave less of an object, never another one."""
    assert {document.key for document in read(GRANT[:end]).documents} <= {KEY, (KEY[0], "default", "a")}
