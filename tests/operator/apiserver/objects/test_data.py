"""Config maps and secrets: their keys, their base64, and what of them never changes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpugrant_operator.apiserver.objects import changes
from gpugrant_operator.apiserver.objects.resources import CONFIGMAPS, SECRETS, Resource
from gpugrant_operator.apiserver.objects.status import ApiError
from gpugrant_operator.apiserver.objects.validation import Rules

CONTEXT = changes.Context(datetime(2026, 3, 1, tzinfo=UTC), "uid-1", "abcde")
pytestmark = pytest.mark.req("D11")


def body(resource: Resource, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": resource.kind, "metadata": {"name": "a"}, **fields}


def create(resource: Resource, **fields: Any) -> dict[str, Any]:
    given = changes.addressed(resource, body(resource, **fields), namespace="default", name=None)
    made = changes.create(Rules(resource), given, namespace="default", context=CONTEXT)
    return {**made, "metadata": {**made["metadata"], "resourceVersion": "1"}}


def update(resource: Resource, old: dict[str, Any], **fields: Any) -> str:
    given = changes.addressed(resource, body(resource, **fields), namespace="default", name="a")
    return changes.update(Rules(resource), old, given, context=CONTEXT).kind


@pytest.mark.parametrize(
    ("resource", "fields"),
    [
        pytest.param(CONFIGMAPS, {"data": {"a.b-c_D": "x", ".e": "", "k" * 253: ""}}, id="keys"),
        pytest.param(CONFIGMAPS, {"data": {"a": "???"}, "binaryData": {"b": "Yg=="}}, id="texts and bytes"),
        pytest.param(SECRETS, {"data": {"a": "Yg\r\n==", "b": ""}}, id="base64 of two lines, and none"),
        pytest.param(SECRETS, {"stringData": {"a": "???"}}, id="a secret of strings"),
    ],
)
def test_what_is_taken(resource: Resource, fields: dict[str, Any]) -> None:
    assert create(resource, **fields)["metadata"]["uid"] == "uid-1"


@pytest.mark.parametrize(
    ("resource", "fields", "code", "told"),
    [
        pytest.param(CONFIGMAPS, {"data": {"a b": ""}}, 422, 'data[a b]: Invalid value: "a b": a valid', id="blank"),
        pytest.param(CONFIGMAPS, {"data": {"": ""}}, 422, "a valid config key", id="no key"),
        pytest.param(CONFIGMAPS, {"data": {"a\n": ""}}, 422, "a valid config key", id="a line end"),
        pytest.param(CONFIGMAPS, {"data": {"k" * 254: ""}}, 422, "no more than 253 characters", id="a long key"),
        pytest.param(CONFIGMAPS, {"data": {".": ""}}, 422, "must not be '.'", id="a dot"),
        pytest.param(CONFIGMAPS, {"binaryData": {"..": ""}}, 422, "binaryData[..]", id="two dots"),
        pytest.param(SECRETS, {"data": {"..a": ""}}, 422, "must not start with '..'", id="two dots before"),
        pytest.param(SECRETS, {"stringData": {"a/b": ""}}, 422, "data[a/b]", id="a key of a string"),
        pytest.param(
            CONFIGMAPS, {"data": {"a": ""}, "binaryData": {"a": ""}}, 422, "duplicate of key present", id="twice"
        ),
        pytest.param(SECRETS, {"data": {"a": "???"}}, 400, "illegal base64 data in data[a]", id="no base64"),
        pytest.param(SECRETS, {"data": {"a": "Yg"}}, 400, "illegal base64 data in data[a]", id="without padding"),
        pytest.param(SECRETS, {"data": {"a": "Yg==x"}}, 400, "illegal base64 data in data[a]", id="more behind it"),
        pytest.param(CONFIGMAPS, {"binaryData": {"a": "ü"}}, 400, "data in binaryData[a]", id="no ASCII"),
        pytest.param(SECRETS, {"data": {"a": 1}}, 422, "must be of type string", id="a number"),
        pytest.param(SECRETS, {"data": "Yg=="}, 422, "must be of type object", id="no map"),
    ],
)
def test_what_is_refused(resource: Resource, fields: dict[str, Any], code: int, told: str) -> None:
    with pytest.raises(ApiError) as refused:
        create(resource, **fields)
    assert refused.value.code == code
    assert told in refused.value.message


@pytest.mark.parametrize("resource", [CONFIGMAPS, SECRETS])
def test_an_update_is_held_to_the_same_rules(resource: Resource) -> None:
    old = create(resource, data={"a": "Yg=="})
    assert update(resource, old, data={"a": "Yw=="}) == "Put"
    assert update(resource, old, data={"a": "Yg=="}, immutable=True) == "Put"
    with pytest.raises(ApiError, match="a valid config key"):
        update(resource, old, data={"a b": "Yg=="})


@pytest.mark.parametrize("resource", [CONFIGMAPS, SECRETS])
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        pytest.param({"immutable": True, "data": {"a": "Yw=="}}, "data", id="other data"),
        pytest.param({"immutable": True}, "data", id="no data"),
        pytest.param({"immutable": False, "data": {"a": "Yg=="}}, "immutable", id="not immutable"),
        pytest.param({"data": {"a": "Yg=="}}, "immutable", id="no word of it"),
    ],
)
def test_an_immutable_object_keeps_its_data(resource: Resource, fields: dict[str, Any], field: str) -> None:
    old = create(resource, immutable=True, data={"a": "Yg=="})
    with pytest.raises(ApiError) as refused:
        update(resource, old, **fields)
    assert refused.value.code == 422
    assert f"{field}: Forbidden: field is immutable when `immutable` is set" in refused.value.message


def test_an_immutable_object_can_be_labelled() -> None:
    old = create(CONFIGMAPS, immutable=True, data={"a": "b"})
    fields = {"immutable": True, "data": {"a": "b"}, "metadata": {"name": "a", "labels": {"l": "1"}}}
    assert update(CONFIGMAPS, old, **fields) == "Put"


def test_a_secret_keeps_its_type() -> None:
    old = create(SECRETS, type="example.com/t")
    with pytest.raises(ApiError, match='type: Invalid value: "other": field is immutable'):
        update(SECRETS, old, type="other")
