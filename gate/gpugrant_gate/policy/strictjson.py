"""Reads a JSON body so that nobody can read it in another way: not Go's encoding/json, not an older daemon.

What Go would merge, fold, repair or skip (repeated keys, invalid UTF-8, half surrogates, bytes behind the value) is
refused, never mended. Size and number of values are bounded before anything is decoded (design 5). Whether two keys
fold to one field is a question of structs, not of maps with a user's keys: `bodies` asks it.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_BYTES = 2 * 1024 * 1024
"""Design 5. Compose projects reach 300 KiB; exec bodies of editors exceed 16 KiB (reference 3.2)."""
MAX_NODES = 20_000
"""Values in one body, design 5: a body with more costs the neighbours their time."""
MAX_DEPTH = 32
"""A create body of a real client is 7 deep."""
INT64 = range(-(2**63), 2**63)
"""No field of Docker's API takes a larger number."""

_EMPTY = re.compile(rb"\[[ \t\r\n]*\]|\{[ \t\r\n]*\}")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DIGITS = 20
"""Longer than any 64-bit number; int() of thousands of digits is slow."""


class BodyRefused(ValueError):
    """The body can't be taken; the message is one clause for a person, without what the body says."""

    def __init__(self, message: str, *, status: int = 400, rule: str = "body.json") -> None:
        super().__init__(message)
        self.status = status
        self.rule = rule


def decode(raw: bytes) -> Any:
    """The one value that `raw` holds, made of dict, list, str, int, bool and None; raises BodyRefused."""
    _check_size(raw)
    try:
        text = raw.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        raise BodyRefused(f"the body is not valid UTF-8 at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise BodyRefused("the body starts with a byte order mark")
    value = _parse(text)
    if b"\\u" in raw:
        _check_strings(value)
    return value


def _check_size(raw: bytes) -> None:
    if len(raw) > MAX_BYTES:
        raise BodyRefused(
            f"the body has {len(raw)} bytes; at most {MAX_BYTES} are taken here", status=413, rule="body.size"
        )
    bones = _bones(raw)
    opened = bones.count(b"[") + bones.count(b"{")
    nodes = 1 + bones.count(b",") + opened
    if nodes > MAX_NODES:
        # Exact only now: an empty container was counted as if it held a value.
        nodes -= len(_EMPTY.findall(bones))
    if nodes > MAX_NODES or opened > MAX_NODES:
        raise BodyRefused(
            f"the body holds more than {MAX_NODES} values; fewer are taken here", status=413, rule="body.size"
        )
    depth = 0
    for bracket in bones.translate(None, _NOT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if not 0 <= depth <= MAX_DEPTH:
            raise BodyRefused(f"the body is not JSON, or nested deeper than {MAX_DEPTH} levels")


def _bones(raw: bytes) -> bytes:
    """What is left without strings. Only right for JSON; what isn't JSON is refused by the parser anyway."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(raw.split(b'"')[::2])


def _parse(text: str) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_no_float,
            parse_constant=_no_constant,
        )
    except BodyRefused:
        raise
    except json.JSONDecodeError as error:
        raise BodyRefused(f"the body is not JSON: {error.msg.lower()} at character {error.pos}") from None
    except (ValueError, RecursionError):
        raise BodyRefused("the body is not JSON") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise BodyRefused(f"the key {quoted(twice)} is there twice", rule="body.keys")
    return found


def _integer(text: str) -> int:
    if len(text) > _DIGITS or not text.isascii() or (number := int(text)) not in INT64:
        raise BodyRefused("a number is larger than 64 bits")
    return number


def _no_float(text: str) -> Any:
    raise BodyRefused(f"{text[:_DIGITS]} is not an integer, and no field here takes another number")


def _no_constant(text: str) -> Any:
    raise BodyRefused(f"{text} is not JSON")


def _check_strings(value: Any) -> None:
    """Refuses what only an escape can bring into a string: half surrogate pairs and NUL."""
    stack = [value]
    while stack:
        item = stack.pop()
        if type(item) is str:
            if "\0" in item:
                raise BodyRefused("a string holds a NUL character")
            if any("\ud800" <= char <= "\udfff" for char in item):
                raise BodyRefused("a string holds half of a surrogate pair")
        elif type(item) is dict:
            stack.extend(item)
            stack.extend(item.values())
        elif type(item) is list:
            stack.extend(item)


def encode(value: Any) -> bytes:
    """The one way in which the gate writes a value: ASCII, sorted keys, no blanks."""
    return json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode("ascii")


def quoted(text: str) -> str:
    """`text` for a message: in double quotes, printable, at most 120 characters."""
    shown = text if len(text) <= 120 else f"{text[:117]}..."
    return json.dumps(shown)
