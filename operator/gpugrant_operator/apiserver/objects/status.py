"""Every answer that is not an object: `kind: Status` bodies with the words a real API server uses.

Clients act on `reason`, `details.causes` and the code, and people read `message`; so all of them are made here and
nowhere else. A foreign exception's text must never become a message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Any
"""A decoded JSON value; only this edge of the program is untyped."""
Obj = dict[str, Json]
"""A decoded API object. Objects in the store are never changed in place."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One field and what is wrong with it (metav1.StatusCause)."""

    reason: str
    field: str
    message: str

    @property
    def line(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class ApiError(Exception):
    """A request that is answered with a Status; `body` is that Status."""

    def __init__(self, code: int, reason: str, message: str, *, details: Mapping[str, Json] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    @property
    def body(self) -> Obj:
        return failure(self.code, self.reason, self.message, self.details)


def failure(code: int, reason: str, message: str, details: Mapping[str, Json] | None = None) -> Obj:
    status: Obj = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
    }
    if details:
        status["details"] = dict(details)
    status["code"] = code
    return status


def success(details: Mapping[str, Json]) -> Obj:
    """The answer to a delete that took effect at once."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": dict(details),
    }


def qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(plural: str, group: str, name: str, why: str) -> ApiError:
    return ApiError(
        403,
        "Forbidden",
        f'{qualified(plural, group)} "{name}" is forbidden: {why}',
        details=_details(plural, group, name),
    )


def not_found(plural: str, group: str, name: str) -> ApiError:
    return ApiError(
        404,
        "NotFound",
        f'{qualified(plural, group)} "{name}" not found',
        details=_details(plural, group, name),
    )


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
"""As kube-apiserver's NewMethodNotSupported is told; it has no word for the others."""


def method_not_allowed(plural: str, group: str, verb: str, why: str = "") -> ApiError:
    word = _VERBS.get(verb, "" if verb.isupper() else verb)
    message = f'{word} is not supported on resources of kind "{qualified(plural, group)}"'
    return ApiError(
        405,
        "MethodNotAllowed",
        f"{message}: {why}" if why else message,
        details=_details(plural, group, ""),
    )


def already_exists(plural: str, group: str, name: str) -> ApiError:
    return ApiError(
        409,
        "AlreadyExists",
        f'{qualified(plural, group)} "{name}" already exists',
        details=_details(plural, group, name),
    )


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(plural: str, group: str, name: str, why: str = MODIFIED) -> ApiError:
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}',
        details=_details(plural, group, name),
    )


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def too_large(limit: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"the request body is larger than {limit} bytes, which is the limit")


def unsupported_media(message: str) -> ApiError:
    return ApiError(415, "UnsupportedMediaType", message)


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 with every cause; the message lists them as kubectl users know it."""
    lines = [cause.line for cause in causes]
    told = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    subject = f"{kind}.{group}" if group else kind
    details = _details(kind, group, name)
    details["causes"] = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    return ApiError(422, "Invalid", f'{subject} "{name}" is invalid: {told}', details=details)


def internal(message: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {message}")


def out_of_storage(message: str) -> ApiError:
    """507 (RFC 4918 11.5): reads go on, and the same write may be tried again."""
    return ApiError(507, "InsufficientStorage", message)


def _details(plural: str, group: str, name: str) -> Obj:
    details: Obj = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    details["kind"] = plural
    return details


def required(field: str, why: str = "") -> Cause:
    return Cause("FieldValueRequired", field, f"Required value: {why}" if why else "Required value")


def invalid_value(field: str, value: str, why: str) -> Cause:
    return Cause("FieldValueInvalid", field, f"Invalid value: {value}: {why}")


def forbidden_value(field: str, why: str) -> Cause:
    return Cause("FieldValueForbidden", field, f"Forbidden: {why}")
