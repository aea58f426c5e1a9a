"""API versions: a gate promises no newer one than it knows, so that clients speak what it can judge."""

from __future__ import annotations

import json
import re
from typing import Any

NEWEST = "1.51"
"""Docker 28.5's; a field that a newer API adds is unknown to the policy."""

EVERYWHERE = "1.44"
"""Docker 25's, and the oldest that Docker 29.0 takes: spoken while a daemon's own is not known, for without a prefix it
would take its newest."""

_VERSION = re.compile(r"([0-9]{1,2})\.([0-9]{1,3})", re.ASCII)


def parse(text: str) -> tuple[int, int] | None:
    """`1.45` as numbers; None for anything else."""
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def at_most(text: str, limit: str = NEWEST) -> str:
    """The older of the two; the limit itself for what is no version."""
    version, most = parse(text), parse(limit)
    if version is None or most is None or version > most:
        return limit
    return text


def own(said: dict[str, Any]) -> str:
    """The newest API version that a daemon's `/version` names; the gate's newest where it names none."""
    text = said.get("ApiVersion")
    return text if isinstance(text, str) and parse(text) is not None else NEWEST


def too_new(asked: str, most: str) -> bool:
    """Whether a client asks for more than `most`; what is no version is."""
    version, limit = parse(asked), parse(most)
    return version is None or limit is None or version > limit


def clamp_version_body(body: bytes) -> bytes:
    """The daemon's `/version` with no newer API version than the gate's; bytes that are no such object as they are."""
    try:
        said = json.loads(body)
    except ValueError:
        return body
    if not isinstance(said, dict):
        return body
    _clamp(said)
    components = said.get("Components")
    for component in components if isinstance(components, list) else []:
        if isinstance(component, dict) and isinstance(component.get("Details"), dict):
            _clamp(component["Details"])
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def _clamp(said: dict[str, Any]) -> None:
    if isinstance(said.get("ApiVersion"), str):
        said["ApiVersion"] = at_most(said["ApiVersion"])
