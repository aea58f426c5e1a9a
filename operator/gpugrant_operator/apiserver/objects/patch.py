"""The patches of kubectl and kopf: JSON merge patch (RFC 7396), JSON Patch (RFC 6902), strategic merge (core kinds).

A patch never changes the value that it is applied to.
"""

from __future__ import annotations

from typing import Any

import jsonpatch
import jsonpointer

from gpugrant_operator.apiserver.objects.status import ApiError, Json, Obj, bad_request, unsupported_media

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

MAX_OPERATIONS = 10_000
"""As kube-apiserver's maxJSONPatchOperations."""


def apply(content_type: str, patch: Json, target: Obj, *, custom: bool) -> Obj:
    """The patched object; raises ApiError 400 for a malformed patch, 415 for a kind of patch that isn't taken, and
    422 for a failed `test` or a missing path (kopf repeats on 422, and on nothing else)."""
    check_type(content_type, custom=custom)
    if content_type == JSON_PATCH:
        return _json_patch(patch, target)
    if not isinstance(patch, dict):
        raise bad_request(f"a merge patch must be an object, got {_kind(patch)}")
    merged: Obj = merge(target, patch) if content_type == MERGE_PATCH else strategic(target, patch)
    return merged


def check_type(content_type: str, *, custom: bool) -> None:
    """Raises ApiError 415 for a kind of patch that isn't taken here, whether or not the object exists."""
    if content_type not in _accepted(custom):
        raise unsupported_media(_unsupported(custom))


def _accepted(custom: bool) -> tuple[str, ...]:
    return (JSON_PATCH, MERGE_PATCH, *(() if custom else (STRATEGIC_PATCH,)), APPLY_PATCH)


def _unsupported(custom: bool) -> str:
    accepted = ", ".join(_accepted(custom))
    return f"the body of the request was in an unknown format - accepted media types include: {accepted}"


def merge(target: Json, patch: Json) -> Json:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Json, patch: Json) -> Json:
    """Strategic merge for the core kinds we serve, whose lists are plain values: lists of finalizers are merged,
    others replaced; order hints are dropped; other directives are refused."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    for key, value in patch.items():
        if key.startswith(("$setElementOrder/", "$retainKeys")):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name) or [] if item not in value]
        elif key.startswith("$"):
            raise bad_request(f"the strategic merge directive {key!r} is not supported: use --type=merge")
        elif value is None:
            result.pop(key, None)
        elif key == "finalizers" and isinstance(value, list):
            held = result.get(key) or []
            result[key] = [*held, *(item for item in value if item not in held)]
        else:
            result[key] = strategic(result.get(key), value)
    return result


def _json_patch(patch: Json, target: Obj) -> Obj:
    if not isinstance(patch, list):
        raise bad_request(f"a JSON patch must be a list of operations, got {_kind(patch)}")
    if len(patch) > MAX_OPERATIONS:
        raise ApiError(
            413,
            "RequestEntityTooLarge",
            f"the JSON patch has {len(patch)} operations and {MAX_OPERATIONS} are taken",
        )
    try:
        patched: Any = jsonpatch.JsonPatch(patch).apply(target)
    except jsonpatch.InvalidJsonPatch as error:
        raise bad_request(f"the JSON patch is malformed: {error}") from error
    except jsonpatch.JsonPatchTestFailed as error:
        raise _rejected("testing value failed") from error
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise _rejected(str(error)) from error
    except (TypeError, KeyError, IndexError, AttributeError, ValueError) as error:
        raise _rejected("an operation does not fit the object") from error
    if not isinstance(patched, dict):
        raise _rejected("the patch leaves no object")
    return patched


def _rejected(why: str) -> ApiError:
    return ApiError(
        422, "Invalid", f"the server rejected our request due to an error in our request: {why}", details={}
    )


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"
