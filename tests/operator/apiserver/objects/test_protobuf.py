"""Protobuf bodies: what Kubernetes' own Go types encode is read as the JSON that they encode to.

`protobuf.jsonl` holds objects that k8s.io/apimachinery v0.34.2's own fuzzer filled, each in both encodings.
"""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_operator.apiserver.objects import protobuf
from gpugrant_operator.apiserver.objects.status import ApiError

SAMPLES = [json.loads(line) for line in Path(__file__).with_name("protobuf.jsonl").read_text().splitlines()]
BODIES = [base64.b64decode(sample["protobuf"]) for sample in SAMPLES]


def said(value: Any) -> Any:
    """The value without empty objects, empty lists and nulls: protobuf can't tell them from fields that nobody set."""
    if isinstance(value, list):
        return [said(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: said(child) for key, child in value.items()}
    return {key: child for key, child in kept.items() if child not in ({}, [], None)}


@pytest.mark.req("D3", "D10")
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["json"]["kind"])
def test_what_go_encodes_is_read_as_its_json(sample: dict[str, Any]) -> None:
    read = protobuf.body(base64.b64decode(sample["protobuf"]))

    assert said(read) == said(sample["json"])


def unknown(version: str, kind: str, raw: bytes) -> bytes:
    """A runtime.Unknown with texts shorter than 128 bytes."""

    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    return protobuf.MAGIC + field(1, field(1, version.encode()) + field(2, kind.encode())) + field(2, raw)


@pytest.mark.parametrize(
    ("data", "code", "told"),
    [
        pytest.param(b"", 400, "prefix", id="nothing"),
        pytest.param(b"{}", 400, "prefix", id="JSON"),
        pytest.param(protobuf.MAGIC, 415, "kind ''", id="no kind"),
        pytest.param(unknown("apps/v1", "Deployment", b""), 415, "'Deployment'", id="a kind that is not served"),
        pytest.param(unknown("v1", "ConfigMap", b"\x0a"), 400, "ends within a number", id="no length"),
        pytest.param(unknown("v1", "ConfigMap", b"\x0a\x05a"), 400, "ends within field 1", id="too short"),
        pytest.param(unknown("v1", "ConfigMap", b"\x0b"), 400, "wire type 3", id="a group"),
        pytest.param(unknown("v1", "ConfigMap", b"\x08\x01"), 400, "a number stands", id="a number for an object"),
        pytest.param(unknown("v1", "ConfigMap", b"\x22\x00"), 400, "text stands", id="text for a number"),
        pytest.param(unknown("v1", "ConfigMap", b"\xff" * 11), 400, "more than 64 bits", id="an endless number"),
        pytest.param(unknown("v1", "Secret", b"\x1a\x01\xff"), 400, "not UTF-8", id="no UTF-8"),
    ],
)
def test_what_is_refused(data: bytes, code: int, told: str) -> None:
    with pytest.raises(ApiError, match=told) as refused:
        protobuf.body(data)

    assert refused.value.code == code


def test_fields_from_a_newer_client_are_passed_over() -> None:
    data = unknown("v1", "Secret", b"\x1a\x01x" + b"\xf8\x01\x01" + b"\xf9\x01" + bytes(8) + b"\xfd\x01" + bytes(4))

    assert protobuf.body(data) == {"apiVersion": "v1", "kind": "Secret", "type": "x"}


@given(st.sampled_from(BODIES), st.data())
def test_any_bytes_are_an_object_or_one_error(body: bytes, data: st.DataObject) -> None:
    """Of our own encodings, cut and with bytes changed."""
    changed = bytearray(body[: data.draw(st.integers(0, len(body)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))

    with contextlib.suppress(ApiError):
        json.dumps(protobuf.body(bytes(changed)))
