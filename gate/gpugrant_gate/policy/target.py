"""Request targets: one grammar in, one spelling out.

A daemon's mux decodes, cleans and redirects paths, and its query parser skips what it dislikes (reference: Go net/url
and gorilla/mux); here a target has one meaning or none. What goes on is encoded anew from the decoded parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from gpugrant_gate.policy.strictjson import quoted

_TARGET = re.compile(r"/[\x21\x22\x24-\x5b\x5d-\x7e]*", re.ASCII)
"""Origin-form in printable ASCII, without blank, `#` and `\\`."""
_VERSION = re.compile(r"v([0-9]{1,2}\.[0-9]{1,3})", re.ASCII)
_ESCAPED = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*", re.ASCII)
_SPANNING = frozenset({"images", "distribution"})
"""Behind these a name may hold slashes, raw or encoded: it is an image reference."""


class TargetRefused(ValueError):
    """The target has no single meaning; the message is one clause for a person."""

    def __init__(self, message: str, rule: str = "http.path") -> None:
        super().__init__(message)
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Target:
    version: str
    """`1.45`, or "" without a prefix."""
    segments: tuple[str, ...]
    """Decoded, behind the prefix; none is empty."""
    query: tuple[tuple[str, str], ...]
    """Decoded, in the order sent."""


def parse(target: str) -> Target:
    """The parts of an origin-form target; raises TargetRefused."""
    if not _TARGET.fullmatch(target):
        raise TargetRefused("the request's target must be a plain path that starts with /")
    path, _, query = target.partition("?")
    raw = path[1:].split("/")
    version = ""
    first = _decode(raw[0])
    if (match := _VERSION.fullmatch(first)) is not None:
        version, raw = match[1], raw[1:]
    segments = _segments(raw)
    return Target(version, segments, _query(query))


def build(version: str, segments: Iterable[str], query: Iterable[tuple[str, str]] = ()) -> str:
    """The target that says this and nothing else; an empty `version` leaves the prefix out."""
    prefix = f"/v{version}" if version else ""
    path = "".join(f"/{quote(segment, safe=':@')}" for segment in segments)
    pairs = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in query)
    return f"{prefix}{path}?{pairs}" if pairs else f"{prefix}{path}"


def _segments(raw: list[str]) -> tuple[str, ...]:
    if not raw:
        raise TargetRefused("the path ends behind its version")
    decoded: list[str] = []
    for position, piece in enumerate(raw):
        text = _decode(piece)
        spans = position > 0 and decoded[0] in _SPANNING
        decoded.extend(text.split("/") if spans else [text])
    for segment in decoded:
        _check_segment(segment)
    return tuple(decoded)


def _check_segment(segment: str) -> None:
    if segment in ("", ".", ".."):
        raise TargetRefused('the path holds an empty segment, "." or ".."')
    if "/" in segment or "\\" in segment or not segment.isprintable():
        raise TargetRefused(f"the path segment {quoted(segment)} holds a character that no name has")


def _query(query: str) -> tuple[tuple[str, str], ...]:
    if ";" in query:
        # Go drops the parameter with ";" in it; others split there.
        raise TargetRefused('the query holds a ";": write it as %3B', "http.query")
    pairs = []
    for piece in query.split("&"):
        if not piece:
            continue
        key, _, value = piece.partition("=")
        name, text = _decode(key.replace("+", " ")), _decode(value.replace("+", " "))
        if not name or not name.isascii() or not name.isprintable() or "\0" in text:
            raise TargetRefused("the query holds an empty or unprintable key, or a NUL", "http.query")
        pairs.append((name, text))
    return tuple(pairs)


def _decode(text: str) -> str:
    """Percent-decoded once, as UTF-8; raises TargetRefused."""
    if "%" not in text:
        return text
    if not _ESCAPED.fullmatch(text):
        raise TargetRefused(f"{quoted(text)} holds a % that starts no escape", "http.escape")
    head, *rest = text.split("%")
    raw = head.encode("ascii") + b"".join(bytes.fromhex(piece[:2]) + piece[2:].encode("ascii") for piece in rest)
    try:
        return raw.decode("utf-8", "strict")
    except UnicodeDecodeError:
        raise TargetRefused(f"{quoted(text)} does not decode to UTF-8", "http.escape") from None
