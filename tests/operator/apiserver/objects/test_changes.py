"""Names, labels and finalizers at the door; the rest of the registry's rules is shown over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpugrant_operator.apiserver.objects import changes
from gpugrant_operator.apiserver.objects.resources import NAMESPACES, Resource, catalog
from gpugrant_operator.apiserver.objects.status import ApiError
from gpugrant_operator.apiserver.objects.validation import Rules

CONTEXT = changes.Context(datetime(2026, 3, 1, tzinfo=UTC), "uid-1", "abcde")


@pytest.fixture
def widgets(settings: Any) -> Resource:
    found = catalog(settings.crds).by_plural("widgets")
    assert found is not None
    return found


def owner(name: str, controller: bool | None = None) -> dict[str, Any]:
    given = {"apiVersion": "v1", "kind": "T", "name": name, "uid": name}
    return given if controller is None else {**given, "controller": controller}


METADATA = [
    pytest.param({"name": "a"}, "", id="a short name"),
    pytest.param({"name": "a.b-c.1"}, "", id="dots and dashes"),
    pytest.param({"name": "a" * 63}, "", id="63 letters"),
    pytest.param({"name": "a" * 64}, "metadata.name", id="a label of 64 letters"),
    pytest.param({"name": ".".join(["a" * 60] * 4)}, "", id="243 letters"),
    pytest.param({"name": "a" + ".aa" * 85}, "no more than 253", id="256 letters"),
    pytest.param({"name": "A"}, "RFC 1123", id="a capital"),
    pytest.param({"name": "a\n"}, "RFC 1123", id="a newline"),
    pytest.param({"name": "../a"}, "RFC 1123", id="a path"),
    pytest.param({"name": "."}, "RFC 1123", id="a dot"),
    pytest.param({"name": "_cluster"}, "RFC 1123", id="an underscore"),
    pytest.param({}, "name or generateName is required", id="no name"),
    pytest.param({"generateName": "a" * 300}, "metadata.name", id="a long generated name"),
    pytest.param({"generateName": "x-"}, "", id="a generated name"),
    pytest.param({"name": "a", "labels": {"a/b": "c"}}, "", id="a label with a prefix"),
    pytest.param({"name": "a", "labels": {"a b": "c"}}, "metadata.labels", id="a label key with a blank"),
    pytest.param({"name": "a", "labels": {"a": "b c"}}, "metadata.labels.a", id="a label value with a blank"),
    pytest.param({"name": "a", "labels": {"a": "b" * 64}}, "metadata.labels.a", id="a long label value"),
    pytest.param({"name": "a", "labels": {"a": True}}, "must be a string: quote it", id="a boolean as label"),
    pytest.param({"name": "a", "annotations": {"a": "b c\nd"}}, "", id="free text as annotation"),
    pytest.param({"name": "a", "annotations": {"a": "x" * 300_000}}, "Too long", id="a huge annotation"),
    pytest.param({"name": "a", "annotations": ["a"]}, "must be an object of strings", id="a list as annotations"),
    pytest.param({"name": "a", "finalizers": ["a/b"]}, "", id="a finalizer"),
    pytest.param({"name": "a", "finalizers": "a/b"}, "metadata.finalizers", id="a text as finalizers"),
    pytest.param({"name": "a", "ownerReferences": [{"name": "x"}]}, "metadata.ownerReferences", id="half an owner"),
    pytest.param({"name": "a", "ownerReferences": [owner("x", True), owner("y", False)]}, "", id="a controller"),
    pytest.param(
        {"name": "a", "ownerReferences": [owner("x", True), owner("y"), owner("z", True)]},
        'Only one reference can have Controller set to true. Found "true" in references for T/x and T/z',
        id="two controllers",
    ),
]


@pytest.mark.parametrize(("metadata", "told"), METADATA)
def test_metadata(widgets: Resource, metadata: dict[str, Any], told: str, make_widget: Any) -> None:
    body = {**make_widget(), "metadata": metadata}
    if not told:
        made = changes.create(Rules(widgets), body, namespace="default", context=CONTEXT)
        assert made["metadata"]["uid"] == "uid-1"
        assert made["metadata"]["namespace"] == "default"
        return
    with pytest.raises(ApiError) as refused:
        changes.create(Rules(widgets), body, namespace="default", context=CONTEXT)
    assert refused.value.code == 422
    assert told in refused.value.message


@pytest.mark.parametrize("name", ["a.b", "Default", "a" * 64])
def test_a_namespace_has_a_plain_name(name: str) -> None:
    body = {"metadata": {"name": name}}
    with pytest.raises(ApiError):
        changes.create(Rules(NAMESPACES), body, namespace="", context=CONTEXT)


def test_what_the_server_owns_never_comes_from_a_request(widgets: Resource, make_widget: Any) -> None:
    body = make_widget()
    body["metadata"] |= {
        "uid": "mine",
        "generation": 9,
        "creationTimestamp": "1999-01-01T00:00:00Z",
        "deletionTimestamp": "1999-01-01T00:00:00Z",
        "managedFields": [{}],
    }
    made = changes.create(Rules(widgets), body, namespace="default", context=CONTEXT)["metadata"]
    assert made == {
        "name": "w1",
        "namespace": "default",
        "uid": "uid-1",
        "generation": 1,
        "creationTimestamp": "2026-03-01T00:00:00Z",
    }


def test_a_release_is_possible_where_a_newer_schema_refuses_the_object(widgets: Resource, make_widget: Any) -> None:
    old = changes.create(Rules(widgets), make_widget(), namespace="default", context=CONTEXT)
    old["metadata"] |= {
        "resourceVersion": "1",
        "deletionTimestamp": "2026-03-01T00:00:00Z",
        "finalizers": ["example.com/hold"],
    }
    old["spec"]["size"] = 99
    body = {**old, "metadata": {**old["metadata"], "finalizers": []}}
    assert changes.update(Rules(widgets), old, body, context=CONTEXT).kind == "Remove"
