"""Puts a server through the script, and takes out of its answers what no two servers can have in common."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from api_script import CHAPTERS, Step

from apiservers import Answer, ApiServer

HEADERS = ("content-type", "warning", "retry-after", "allow", "cache-control")
"""Those that clients act on."""

UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
GENERATED = re.compile(r"\bgen-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
VERSIONS = re.compile(r"(resource ?[vV]ersion\S*[^0-9\n]{0,40}?|ResourceVersion in object meta: )\d+")
AGE = re.compile(r"(\d+[smh])+")
OLD_TIME = "2026-01-01T00:00:00"
"""The script's own times stay."""


def ask(server: ApiServer, chapter: str) -> Iterator[tuple[Step, Answer]]:
    """Each step of a chapter with its answer."""
    kept: dict[str, str] = {}
    for step in CHAPTERS[chapter]:
        filled = _filled(step, kept)
        answer = server.ask(filled.method, filled.path, filled.headers, filled.data)
        kept |= {name: str(_pointed(answer.body, at)) for name, at in step.keep.items()}
        yield step, answer


def _filled(step: Step, kept: Mapping[str, str]) -> Step:
    path, data = step.path, step.data
    for name, value in kept.items():
        path = path.replace(f"${{{name}}}", value)
        data = None if data is None else data.replace(f"${{{name}}}".encode(), value.encode())
    return dataclasses.replace(step, path=path, body=data)


def _pointed(body: Any, pointer: str) -> Any:
    for part in pointer.strip("/").split("/"):
        body = body.get(part, "") if isinstance(body, dict) else ""
    return body


def normal(step: Step, answer: Answer) -> dict[str, Any]:
    """What must be equal of an answer, as JSON."""
    body = _pointed(answer.body, step.part) if step.part else answer.body
    if step.groups:
        body = {**body, "items": [item for item in body["items"] if item["metadata"]["name"] in step.groups]}
    headers = {name: _text(answer.headers[name]) for name in HEADERS if answer.headers.get(name)}
    return {"code": answer.code, "headers": headers, "body": _normal(body)}


def _normal(value: Any, key: str = "") -> Any:
    match value:
        case {"kind": "Status", "details": {"causes": [_, _, *_] as causes}, "reason": "Invalid"}:
            # Go gives them in no order.
            made = {name: _normal(item, name) for name, item in value.items()}
            made["details"]["causes"].sort(key=lambda cause: (cause["field"], cause["message"]))
            return {**made, "message": f"{made['message'].partition('[')[0]}{len(causes)} causes"}
        case dict():
            return {name: _normal(item, name) for name, item in value.items()}
        case list() if value and all(isinstance(item, dict) and "manager" in item for item in value):
            made = [_normal(item) for item in value]
            return sorted(made, key=lambda entry: json.dumps(entry, sort_keys=True))
        case list() if value and isinstance(value[0], dict) and value[0].keys() >= {"type", "object"}:
            return [_normal(event) for event in value if event["type"] != "BOOKMARK" or _ends_initial(event)]
        case list():
            return [_normal(item) for item in value]
        case str() if key == "resourceVersion":
            return "<version>" if value.isdigit() else value
        case str() if key == "continue":
            return "<continue>" if value else ""
        case str() if key == "serverAddress":
            return "<address>"
        case str():
            return _text(value)
        case _:
            return value


def _ends_initial(event: Mapping[str, Any]) -> bool:
    annotations = event["object"].get("metadata", {}).get("annotations") or {}
    return "k8s.io/initial-events-end" in annotations


def _text(text: str) -> str:
    if AGE.fullmatch(text):
        return "<age>"
    text = UID.sub("<uid>", text)
    text = TIME.sub(lambda found: found[0] if found[0].startswith(OLD_TIME) else "<time>", text)
    return VERSIONS.sub(r"\1<version>", GENERATED.sub("gen-<suffix>", text))


def differing(theirs: Any, ours: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two normal answers differ: the JSON pointer, what the real server says, what ours says."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            place = f"{at}/{key.replace('~', '~0').replace('/', '~1')}"
            yield from differing(theirs.get(key, MISSING), ours.get(key, MISSING), place)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from differing(one, other, f"{at}/{index}")
    elif theirs != ours or type(theirs) is not type(ours):
        yield at, theirs, ours


MISSING = "<missing>"
