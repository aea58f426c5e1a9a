"""What each JSON body may hold: every field known as safe, as judged, or as one that must be zero.

Real clients send almost the whole HostConfig on every create, most of it zero; so a field that is not wanted passes
when it says nothing (null, false, 0, "", [], {}) and is left out of what goes on; else the refusal names it.
A reader of shapes only: what a known field may say is for `rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpugrant_gate.policy.model import Violation
from gpugrant_gate.policy.strictjson import BodyRefused, quoted


@dataclass(slots=True)
class Reading:
    """What one reading of a body came upon that is policy, not malformed."""

    violations: list[Violation] = field(default_factory=list)


Kind = Callable[[Any, str, Reading], Any]
"""Takes a value that is not null, its path and the reading; gives the value that goes on, or `DROP`."""


class _Drop:
    """The field is left out."""


DROP = _Drop()


def text(value: Any, path: str, reading: Reading) -> Any:
    """A string for people or programs: any characters (NUL is gone before)."""
    if type(value) is not str:
        raise _wrong(path, "a string", value)
    return value


def word(value: Any, path: str, reading: Reading) -> Any:
    """A string that is a name, a path or one of a few words: no control characters."""
    if not text(value, path, reading).isprintable():
        raise BodyRefused(f"field {path} holds a control character", rule="body.characters")
    return value


def integer(value: Any, path: str, reading: Reading) -> Any:
    if type(value) is not int:
        raise _wrong(path, "an integer", value)
    return value


def flag(value: Any, path: str, reading: Reading) -> Any:
    if type(value) is not bool:
        raise _wrong(path, "true or false", value)
    return value


def zero(value: Any, path: str, reading: Reading) -> Any:
    """A field that is known and must say nothing; which words refuse it is said by `must_be_zero`."""
    return must_be_zero("body.field", "")(value, path, reading)


def must_be_zero(rule: str, reason: str) -> Kind:
    """Refuses a field that says something, by `rule`, as `field X is refused: reason`."""

    def read(value: Any, path: str, reading: Reading) -> Any:
        if not is_zero(value):
            tail = f": {reason}" if reason else ""
            reading.violations.append(Violation(rule, f"field {path} is refused{tail}"))
        return DROP

    return read


def obsolete(value: Any, path: str, reading: Reading) -> Any:
    """A field that no supported daemon reads: left out whatever it says."""
    return DROP


def seq(item: Kind) -> Kind:
    """A list; null inside one keeps what a daemon's memory held before, so there is none."""

    def read(value: Any, path: str, reading: Reading) -> Any:
        if type(value) is not list:
            raise _wrong(path, "a list", value)
        return [_item(item, entry, f"{path}[{index}]", reading) for index, entry in enumerate(value)]

    return read


def _item(item: Kind, value: Any, path: str, reading: Reading) -> Any:
    if value is None:
        raise _wrong(path, "no null", value)
    return item(value, path, reading)


def mapping(item: Kind, key: Kind = text) -> Kind:
    """An object whose keys are the user's."""

    def read(value: Any, path: str, reading: Reading) -> Any:
        if type(value) is not dict:
            raise _wrong(path, "an object", value)
        return {
            key(name, f"{path}'s keys", reading): None
            if entry is None
            else item(entry, f"{path}[{_plain(name)}]", reading)
            for name, entry in value.items()
        }

    return read


MOST_ENTRIES = 256
"""More binds, capabilities or networks than any container of a real client has."""


def few(kind: Kind) -> Kind:
    """A list or map of which each entry costs a question to the daemon or a sentence: at most `MOST_ENTRIES`."""

    def read(value: Any, path: str, reading: Reading) -> Any:
        if isinstance(value, list | dict) and len(value) > MOST_ENTRIES:
            message = f"field {path} holds {len(value)} entries; at most {MOST_ENTRIES} are taken here"
            raise BodyRefused(message, status=413, rule="body.size")
        return kind(value, path, reading)

    return read


def _plain(name: str) -> str:
    """A key for a message; most need no quoting, and 20,000 labels each get here."""
    return name if len(name) <= 100 and name.isprintable() else quoted(name)


def words(value: Any, path: str, reading: Reading) -> Any:
    """Docker's StrSlice: a list of strings; one string is a list of that one."""
    return [value] if type(value) is str else seq(text)(value, path, reading)


def struct(fields: Mapping[str, Kind], twice: Collection[str] = ()) -> Kind:
    """An object with Go's fields: keys folded to their canonical spelling, unknown ones only when they say nothing.

    `twice`: true-or-false fields that a client says in two spellings; they pass when both say the same.
    """
    canonical = {name.lower(): name for name in fields}

    def read(value: Any, path: str, reading: Reading) -> Any:
        if type(value) is not dict:
            raise _wrong(path, "an object", value)
        result: dict[str, Any] = {}
        seen: dict[str, str] = {}
        for key, entry in value.items():
            if twice and canonical.get(key.lower()) in twice and _repeats(key, value, seen):
                continue
            folded = _fold(key, path, seen)
            name = canonical.get(folded)
            if name is None:
                _unknown(key, entry, path, reading)
            elif entry is not None:
                read_entry = fields[name](entry, join(path, name), reading)
                if read_entry is not DROP:
                    result[name] = read_entry
        return result

    return read


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _repeats(key: str, value: Mapping[str, Any], seen: Mapping[str, str]) -> bool:
    """Whether another spelling of the key said the same true, false or null: Go reads both in any order alike."""
    before = seen.get(key.lower()) if key.isascii() else None
    return before is not None and (value[key] is None or type(value[key]) is bool) and value[before] is value[key]


def _fold(key: str, path: str, seen: dict[str, str]) -> str:
    """The key as Go compares it; refuses what two decoders could tell apart, or not."""
    if not key.isascii():
        # U+017F and U+212A fold to s and k in Go.
        raise BodyRefused(f"the key {quoted(join(path, key))} is not ASCII", rule="body.keys")
    folded = key.lower()
    if folded in seen:
        raise BodyRefused(
            f"the keys {quoted(join(path, seen[folded]))} and {quoted(key)} are the same field", rule="body.keys"
        )
    seen[folded] = key
    return folded


def _unknown(key: str, value: Any, path: str, reading: Reading) -> None:
    if not is_zero(value):
        message = f"field {quoted(join(path, key))} is refused, for the gate does not know it: leave it out"
        reading.violations.append(Violation("body.field", message))


def is_zero(value: Any) -> bool:
    """Whether a value says nothing: null, false, 0, "", [], {} or an object of such."""
    if type(value) is dict:
        return all(is_zero(entry) for entry in value.values())
    return value is None or value is False or value == 0 or value == "" or value == []


def _wrong(path: str, wanted: str, value: Any) -> BodyRefused:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number"}
    got = kinds.get(type(value), "null")
    return BodyRefused(f"field {path} must be {wanted}, got {got}", rule="body.type")


def exactly(value: Any, path: str, reading: Reading) -> Any:
    """A struct{} of Go: an object without fields."""
    return struct({})(value, path, reading)


def read(kind: Kind, value: Any) -> tuple[dict[str, Any], tuple[Violation, ...]]:
    """A body's canonical form and the fields it may not have; raises BodyRefused where it is malformed."""
    if type(value) is not dict:
        raise BodyRefused("the body must be a JSON object", rule="body.type")
    reading = Reading()
    result = kind(value, "", reading)
    return result, tuple(reading.violations)
