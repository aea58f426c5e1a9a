"""The data of config maps and secrets: what their schemas can't say.

The rules and their words are those of k8s.io/kubernetes/pkg/apis/core/validation (ValidateConfigMap, ValidateSecret and
their updates) and of apimachinery's IsConfigMapKey; the types of secrets have no fields of their own here.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from gpugrant_operator.apiserver.objects.resources import CONFIGMAPS, SECRETS, Resource
from gpugrant_operator.apiserver.objects.status import (
    Cause,
    Json,
    Obj,
    bad_request,
    forbidden_value,
    invalid_value,
)

BYTES: Final = {CONFIGMAPS.id: "binaryData", SECRETS.id: "data"}
"""The map of base64."""
MAPS: Final = {CONFIGMAPS.id: ("data", "binaryData"), SECRETS.id: ("data",)}

MAX_KEY = 253
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_TOLD = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_IMMUTABLE = "field is immutable when `immutable` is set"


def check_base64(resource: Resource, body: Mapping[str, Json]) -> None:
    """Raises ApiError 400: Kubernetes can't even decode such an object. Other types than texts are the schema's."""
    values = body.get(BYTES.get(resource.id, ""))
    if not isinstance(values, dict):
        return
    for key, text in values.items():
        if isinstance(text, str) and not _is_base64(text):
            raise bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                f"illegal base64 data in {BYTES[resource.id]}[{key}]"
            )


def causes(resource: Resource, obj: Mapping[str, Json], old: Mapping[str, Json] | None) -> tuple[Cause, ...]:
    """Why this object can't be stored in place of `old`; none for another kind."""
    if resource.id not in MAPS:
        return ()
    changed = () if old is None else _update_causes(resource, obj, old)
    return (*changed, *_key_causes(resource, obj))


def _update_causes(resource: Resource, new: Mapping[str, Json], old: Mapping[str, Json]) -> Iterable[Cause]:
    if resource.id == SECRETS.id and new.get("type") != old.get("type"):
        yield invalid_value("type", json.dumps(new.get("type")), "field is immutable")
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield forbidden_value("immutable", _IMMUTABLE)
    for name in MAPS[resource.id]:
        if (new.get(name) or {}) != (old.get(name) or {}):
            yield forbidden_value(name, _IMMUTABLE)


def _key_causes(resource: Resource, obj: Mapping[str, Json]) -> Iterable[Cause]:
    maps = {name: _texts(obj.get(name)) for name in MAPS[resource.id]}
    for name, values in maps.items():
        for key in values:
            yield from (invalid_value(f"{name}[{key}]", json.dumps(key, ensure_ascii=False), why) for why in _why(key))
    for key in sorted(maps["data"].keys() & maps.get("binaryData", {}).keys()):
        told = "duplicate of key present in binaryData"
        yield invalid_value(f"data[{key}]", json.dumps(key, ensure_ascii=False), told)


def _why(key: str) -> Iterable[str]:
    if len(key) > MAX_KEY:
        yield f"must be no more than {MAX_KEY} characters"
    if not _KEY.fullmatch(key):
        yield _KEY_TOLD
    if key in (".", ".."):
        yield f"must not be '{key}'"
    elif key.startswith(".."):
        yield "must not start with '..'"


def _texts(value: Json) -> Obj:
    return value if isinstance(value, dict) else {}


def _is_base64(text: str) -> bool:
    """As Go's StdEncoding, which takes line ends anywhere."""
    try:
        base64.b64decode(text.replace("\r", "").replace("\n", "").encode(), validate=True)
    except binascii.Error:
        return False
    return True
