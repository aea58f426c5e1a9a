"""Label and field selectors, parsed once into frozen requirements.

Grammar of labels.Parse (k8s.io/apimachinery): comma-separated `key`, `!key`, `key=v`, `key==v`, `key!=v`,
`key in (a,b)`, `key notin (a,b)`. Field selectors know `=`, `==`, `!=` on a fixed set of fields; another field is
refused, because a selector that is ignored would show or delete too much.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpugrant_operator.apiserver.objects.resources import Resource
from gpugrant_operator.apiserver.objects.status import Json, bad_request

Operator = Literal["exists", "absent", "in", "notin"]

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_SET = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUAL = re.compile(rf"\s*({_KEY})\s*(==|=|!=)\s*({_VALUE})\s*")
_EXISTS = re.compile(rf"\s*(!?)\s*({_KEY})\s*")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label or field; `absent` keys satisfy `notin`."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, value: str | None) -> bool:
        match self.operator:
            case "exists":
                return value is not None
            case "absent":
                return value is None
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements of one request; the empty selector matches everything."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, obj: Mapping[str, Json]) -> bool:
        if self.labels:
            labels = obj["metadata"].get("labels") or {}
            if not all(rule.matches(labels.get(rule.key)) for rule in self.labels):
                return False
        return all(rule.matches(field_value(obj, rule.key)) for rule in self.fields)

    @property
    def name(self) -> str | None:
        """The one name that a field selector asks for."""
        for rule in self.fields:
            if rule.key == "metadata.name" and rule.operator == "in" and len(rule.values) == 1:
                return next(iter(rule.values))
        return None


def parse(resource: Resource, labels: str, fields: str) -> Selector:
    """The selector of a request; raises ApiError 400 with the part that can't be read."""
    return Selector(parse_labels(labels), parse_fields(resource, fields))


def parse_labels(text: str) -> tuple[Requirement, ...]:
    return tuple(_label(part) for part in _split(text) if part.strip())


def parse_fields(resource: Resource, text: str) -> tuple[Requirement, ...]:
    return tuple(_field(resource, part) for part in text.split(",") if part.strip())


def _split(text: str) -> list[str]:
    """The parts between commas that stand outside parentheses."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _label(part: str) -> Requirement:
    if found := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in found[3].split(","))
        return Requirement(found[1], "in" if found[2] == "in" else "notin", values)
    if found := _EQUAL.fullmatch(part):
        return Requirement(found[1], "notin" if found[2] == "!=" else "in", frozenset({found[3]}))
    if found := _EXISTS.fullmatch(part):
        return Requirement(found[2], "absent" if found[1] else "exists")
    raise bad_request(f"unable to parse requirement: {part.strip()!r}")


def _field(resource: Resource, part: str) -> Requirement:
    key, sign, value = part.partition("!=")
    operator: Operator = "notin"
    if not sign:
        key, sign, value = part.partition("=")
        value, operator = value.removeprefix("="), "in"
    if not sign:
        raise bad_request(f"invalid field selector: {part!r}: can't understand")
    known = known_fields(resource)
    if key.strip() not in known:
        raise bad_request(
            f'field label not supported: "{key.strip()}": {resource.plural} can be selected by {", ".join(known)}'
        )
    return Requirement(key.strip(), operator, frozenset({value.strip()}))


def known_fields(resource: Resource) -> Sequence[str]:
    scope = ("metadata.name", "metadata.namespace") if resource.namespaced else ("metadata.name",)
    return (*scope, *resource.selectable)


def field_value(obj: Mapping[str, Json], path: str) -> str:
    """The field's text; a missing field counts as empty, as in fields.Set."""
    value: Json = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):  # an Event's `source` is selected by its component
        value = value.get("component")
    return "" if value is None else str(value)
