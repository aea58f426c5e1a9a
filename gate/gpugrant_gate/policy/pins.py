"""The names of pinned bind sources, and the way back from them in a daemon's answers.

A source that somebody could swap for a link is mounted, opened, at a place of the gate's own, and the daemon is told
that place (design 5). A place's name is its source, written so that it is one file name: the way back needs no memory,
and no two sources share a place.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from gpugrant_gate.policy import strictjson

_NAME_MAX = 200
"""Characters of one file name; the kernel takes 255."""
_MORE = "+"
"""Begins a folder of a name that goes on below it: such a folder is never a place itself, so no place lies in another
one, where a tenant could swap it."""
_NAME = r"(?:\+[A-Za-z0-9_-]+/)*[A-Za-z0-9_-]+"


@dataclass(frozen=True, slots=True)
class Pin:
    """A source and its place; both absolute and clean."""

    source: str
    """As the client names it."""
    place: str
    """What the daemon is told."""
    target: str
    """What is mounted there: the source itself, or the gate's own socket for a daemon's."""
    socket: bool = False


def place(folder: str, source: str) -> str:
    """Where this source is pinned below the repo's `folder`."""
    name = urlsafe_b64encode(source.encode()).decode().rstrip("=")
    parts = [name[start : start + _NAME_MAX] for start in range(0, len(name), _NAME_MAX)]
    return "/".join([folder, *(f"{_MORE}{part}" for part in parts[:-1]), parts[-1]])


def source(folder: str, text: str) -> str | None:
    """The source of a place; None for any other text, however much it looks like one."""
    if not folder or not text.startswith(f"{folder}/"):
        return None
    name = text.removeprefix(f"{folder}/").replace(f"/{_MORE}", "").replace("/", "").removeprefix(_MORE)
    try:
        found = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except (binascii.Error, ValueError):
        return None
    return found if found.startswith("/") and found.isprintable() and place(folder, found) == text else None


def bind_source(folder: str, text: str) -> tuple[str, str] | None:
    """The source of an entry of Binds, and what follows it; None where it begins with no place."""
    head, colon, rest = text.removeprefix(folder).partition(":")
    found = source(folder, folder + head) if folder and text.startswith(f"{folder}/") else None
    return None if found is None else (found, colon + rest)


# the daemon's answers

Rewrite = Callable[[bytes], bytes]


def rewrite(route: str, folder: str, status: int) -> Rewrite | None:
    """What puts a client's own paths back into the answer on this route; None: no path stands in it."""
    if status >= 400:
        return partial(_answer, folder, _error) if route in _FAULTS else None
    shape = _SHAPES.get(route)
    return None if shape is None else partial(_answer, folder, shape)


def _answer(folder: str, shape: Callable[[str, Any], Any], body: bytes) -> bytes:
    """The body as it came where no place stands in it or it can't be read."""
    if folder.encode() not in body:
        return body
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return body
    return strictjson.encode(shape(folder, value)) + (b"\n" if body.endswith(b"\n") else b"")


def _container(folder: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    host = value.get("HostConfig")
    if isinstance(host, dict):
        host = _with(_with(host, "Binds", partial(_bind, folder)), "Mounts", partial(_mount, folder))
        value = {**value, "HostConfig": host}
    return _with(value, "Mounts", partial(_mount, folder))


def _containers(folder: str, value: Any) -> Any:
    return [_container(folder, entry) for entry in value] if isinstance(value, list) else value


def _usage(folder: str, value: Any) -> Any:
    return _with(value, "Containers", partial(_container, folder)) if isinstance(value, dict) else value


def _with(value: Mapping[str, Any], key: str, change: Callable[[Any], Any]) -> Mapping[str, Any]:
    entries = value.get(key)
    return {**value, key: [change(entry) for entry in entries]} if isinstance(entries, list) else value


def _bind(folder: str, entry: Any) -> Any:
    found = bind_source(folder, entry) if isinstance(entry, str) else None
    return entry if found is None else "".join(found)


def _mount(folder: str, entry: Any) -> Any:
    if not isinstance(entry, dict) or not isinstance(entry.get("Source"), str):
        return entry
    found = source(folder, entry["Source"])
    return entry if found is None else {**entry, "Source": found}


def _error(folder: str, value: Any) -> Any:
    """A daemon's message to people, in which the path stands anywhere."""
    if not isinstance(value, dict) or not isinstance(value.get("message"), str):
        return value
    message = _places(folder).sub(lambda found: source(folder, found[0]) or found[0], value["message"])
    return {**value, "message": message}


@lru_cache(maxsize=64)
def _places(folder: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(folder)}/{_NAME}", re.ASCII)


_SHAPES: Mapping[str, Callable[[str, Any], Any]] = {
    "container.inspect": _container,
    "container.list": _containers,
    "system.df": _usage,
}
_FAULTS = frozenset(
    {"container.create", "container.start", "container.restart", "container.archive.get", "container.archive.put",
     "container.remove", "container.export"}
)  # fmt: skip
"""Where a daemon's error may name a source."""
