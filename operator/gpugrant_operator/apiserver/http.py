"""Between aiohttp and the registry: what a request asks for, and answers as bytes. Pure but for the aiohttp types."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from gpugrant_operator.apiserver.objects import table
from gpugrant_operator.apiserver.objects.ownership import MAX_NAME as MAX_MANAGER
from gpugrant_operator.apiserver.objects.status import (
    ApiError,
    Cause,
    Json,
    bad_request,
    forbidden_value,
    invalid,
    invalid_value,
    required,
)
from gpugrant_operator.apiserver.registry import FieldValidation, Options

JSON_TYPE = "application/json"
UNCACHED = "no-cache, private"
"""Cache-Control of every answer, as kube-apiserver's withCacheControl filter."""


def encode(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def answer(
    value: Json, *, code: int = 200, warnings: Iterable[str] = (), content_type: str = JSON_TYPE
) -> web.Response:
    return raw_answer(encode(value), code=code, warnings=warnings, content_type=content_type)


def raw_answer(
    data: bytes | AsyncIterator[bytes], *, code: int = 200, warnings: Iterable[str] = (), content_type: str = JSON_TYPE
) -> web.Response:
    headers = {"Content-Type": content_type, "Cache-Control": UNCACHED}
    response = web.Response(body=data, status=code, headers=headers)
    for text in warnings:
        response.headers.add("Warning", warning(text))
    return response


def warning(text: str) -> str:
    """A Warning header's value (RFC 7234 5.5, as net.NewWarningHeader): quoted, escaped, one line, ASCII."""
    plain = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


def refused(error: ApiError) -> web.Response:
    response = answer(error.body, code=error.code)
    if error.code == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="gpugrant"'
    return response


def accepted(request: web.Request) -> tuple[str, ...]:
    """The media types of Accept in the client's order, blanks taken out."""
    values = ",".join(request.headers.getall("Accept", []))
    return tuple(part.replace(" ", "") for part in values.split(",") if part.strip())


@dataclass(frozen=True, slots=True)
class Shape:
    """In which form a client wants objects."""

    form: table.Format | None = None
    partial: bool = False


def shape(request: web.Request) -> Shape:
    """The first acceptable form of Accept; raises ApiError 406 where there is none that we write."""
    entries = accepted(request)
    for entry in entries:
        found = _shape_of(entry, request.query.get("includeObject", "Metadata"))
        if found is not None:
            return found
    if entries:
        raise ApiError(406, "NotAcceptable", "only application/json is written by this API server")
    return Shape()


def _shape_of(entry: str, include: str) -> Shape | None:
    media, _, rest = entry.partition(";")
    parameters = dict(part.split("=", 1) for part in rest.split(";") if "=" in part)
    if media not in (JSON_TYPE, "application/*", "*/*"):
        return None
    match parameters.get("as"):
        case "Table" if parameters.get("g") == "meta.k8s.io" and parameters.get("v") in ("v1", "v1beta1"):
            chosen: table.Include = "Object" if include == "Object" else "None" if include == "None" else "Metadata"
            return Shape(form=table.Format(parameters["v"], chosen))
        case "PartialObjectMetadata" | "PartialObjectMetadataList" if parameters.get("v") == "v1":
            return Shape(partial=True)
        case None:
            return Shape()
        case _:
            return None


def flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("1", "true")


def options(
    query: Mapping[str, str], body: Mapping[str, Json] | None = None, *, agent: str = "", kind: str = "DeleteOptions"
) -> Options:
    """The write options of query and DeleteOptions; raises ApiError 422, of this kind of options, for values that mean
    nothing."""
    dry_run = query.get("dryRun") or (body or {}).get("dryRun") or ""
    if isinstance(dry_run, list):
        dry_run = ",".join(str(item) for item in dry_run)
    if dry_run not in ("", "All"):
        raise _unsupported(kind, "dryRun", json.dumps([dry_run]), ("All",))
    chosen: dict[str, FieldValidation] = {"Strict": "Strict", "Warn": "Warn", "Ignore": "Ignore"}
    wanted = query.get("fieldValidation") or "Warn"
    if wanted not in chosen:
        raise _unsupported(kind, "fieldValidation", json.dumps(wanted), ("", *sorted(chosen)))
    return Options(
        dry_run=dry_run == "All",
        field_validation=chosen[wanted],
        manager=_manager(query, agent, kind),
        force=flag(query, "force"),
    )


def _manager(query: Mapping[str, str], agent: str, kind: str) -> str:
    """`fieldManager`, else the program of the User-Agent, as kube-apiserver's managerOrUserAgent."""
    named = query.get("fieldManager", "")
    if len(named.encode()) > MAX_MANAGER:
        cause = Cause("FieldValueTooLong", "fieldManager", f"Too long: may not be more than {MAX_MANAGER} bytes")
        raise invalid(kind, "meta.k8s.io", "", [cause])
    if not named.isprintable():
        cause = invalid_value("fieldManager", json.dumps(named), "should only contain printable characters")
        raise invalid(kind, "meta.k8s.io", "", [cause])
    program = "".join(char for char in agent.partition("/")[0] if char.isprintable())
    return named or program[:MAX_MANAGER] or "unknown"


def patch_options(query: Mapping[str, str], *, agent: str, applies: bool) -> Options:
    """Those of a patch: an apply has a manager of its own name, and nothing else is forced."""
    if applies and not query.get("fieldManager"):
        cause = required("fieldManager", "is required for apply patch")
    elif not applies and "force" in query:
        cause = forbidden_value("force", "may not be specified for non-apply patch")
    else:
        return options(query, agent=agent, kind="PatchOptions")
    raise invalid("PatchOptions", "meta.k8s.io", "", [cause])


def _unsupported(kind: str, name: str, value: str, known: Sequence[str]) -> ApiError:
    return invalid(kind, "meta.k8s.io", "", [_not_supported(name, value, known)])


def _not_supported(name: str, value: str, known: Sequence[str]) -> Cause:
    told = f"Unsupported value: {value}: supported values: {', '.join(json.dumps(item) for item in known)}"
    return Cause("FieldValueNotSupported", name, told)


def check_list(query: Mapping[str, str]) -> None:
    """What may stand together in the query of a list or a watch: apimachinery's ValidateListOptions; raises ApiError
    422."""
    causes = _watch_causes(query) if flag(query, "watch") else _list_causes(query)
    if causes:
        raise invalid("ListOptions", "meta.k8s.io", "", causes)


_MATCH = "resourceVersionMatch"
_BY_CONTINUE = forbidden_value(_MATCH, f"{_MATCH} is forbidden when continue is provided")


def _list_causes(query: Mapping[str, str]) -> list[Cause]:
    causes: list[Cause] = []
    match, version = query.get(_MATCH, ""), query.get("resourceVersion", "")
    if match and not version:
        causes.append(forbidden_value(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided"))
    if match and query.get("continue"):
        causes.append(_BY_CONTINUE)
    if match not in ("", "Exact", "NotOlderThan"):
        causes.append(_not_supported(_MATCH, json.dumps(match), ("Exact", "NotOlderThan", "")))
    if match == "Exact" and version == "0":
        causes.append(forbidden_value(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        causes.append(forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return causes


def _watch_causes(query: Mapping[str, str]) -> list[Cause]:
    causes: list[Cause] = []
    match, initial = query.get(_MATCH, ""), "sendInitialEvents" in query
    if initial and match != "NotOlderThan":
        causes.append(forbidden_value(_MATCH, f"sendInitialEvents requires setting {_MATCH} to NotOlderThan"))
    if match and not initial:
        causes.append(forbidden_value(_MATCH, f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided"))
    if match not in ("", "NotOlderThan"):
        causes.append(_not_supported(_MATCH, json.dumps(match), ("NotOlderThan",)))
    if query.get("continue"):
        causes.append(_BY_CONTINUE)
    if initial and not causes:
        # kubectl falls back to list and watch on exactly this answer; ignoring the parameter hangs it.
        told = "sendInitialEvents is forbidden for watch: list first, then watch"
        causes.append(forbidden_value("sendInitialEvents", told))
    return causes


def number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise bad_request(f"the query parameter {name} must be a number, got {text!r}")
    return int(text)


@dataclass(frozen=True, slots=True)
class Page:
    """Where a list goes on: behind `after`, as of `version`."""

    version: int
    after: tuple[str, str]

    @property
    def token(self) -> str:
        packed = json.dumps({"rv": self.version, "after": list(self.after)}, separators=(",", ":"))
        return base64.urlsafe_b64encode(packed.encode()).decode()


def page(token: str) -> Page | None:
    """The place of a continue token; raises ApiError 400 for one that we never gave out."""
    if not token:
        return None
    try:
        value = json.loads(base64.urlsafe_b64decode(token.encode()))
        namespace, name = value["after"]
        return Page(int(value["rv"]), (str(namespace), str(name)))
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise bad_request("continue key is not valid: list again from the start") from error
