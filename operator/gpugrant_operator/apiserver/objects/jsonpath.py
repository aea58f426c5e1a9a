"""The part of Kubernetes' JSONPath that printer columns use: fields, `['a.b']`, `\\.` escapes, `[0]`, `[*]`, and
filters of the form `[?(@.type=="Ready")]`. Compiled once a column; nothing is ever evaluated as code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpugrant_operator.apiserver.objects.status import Json


class BadPathError(ValueError):
    """The path is outside of the supported part."""


@dataclass(frozen=True, slots=True)
class Field:
    name: str

    def step(self, value: Json) -> Iterable[Json]:
        if isinstance(value, Mapping) and self.name in value:
            yield value[self.name]


@dataclass(frozen=True, slots=True)
class Index:
    position: int

    def step(self, value: Json) -> Iterable[Json]:
        if isinstance(value, list) and -len(value) <= self.position < len(value):
            yield value[self.position]


@dataclass(frozen=True, slots=True)
class Every:
    def step(self, value: Json) -> Iterable[Json]:
        if isinstance(value, list):
            yield from value
        elif isinstance(value, Mapping):
            yield from value.values()


@dataclass(frozen=True, slots=True)
class Filter:
    path: tuple[str, ...]
    wanted: str

    def step(self, value: Json) -> Iterable[Json]:
        if isinstance(value, list):
            yield from (item for item in value if self._holds(item))

    def _holds(self, item: Json) -> bool:
        for name in self.path:
            item = item.get(name) if isinstance(item, Mapping) else None
        return bool(item == self.wanted)


Step = Field | Index | Every | Filter
Path = tuple[Step, ...]

_FIELD = re.compile(r"\.((?:[^.\[\]\\]|\\.)+)")
_QUOTED = re.compile(r"\[(?:'([^']*)'|\"([^\"]*)\")\]")
_INDEX = re.compile(r"\[(-?\d+)\]")
_EVERY = re.compile(r"\[\*\]|\.\*")
_FILTER = re.compile(r"\[\?\(\s*@((?:\.[A-Za-z0-9_-]+)+)\s*==\s*(?:'([^']*)'|\"([^\"]*)\"|(true|false|\d+))\s*\)\]")


def parse(text: str) -> Path:
    """The compiled path; raises BadPathError naming the rest that can't be read."""
    rest = text if text.startswith((".", "[")) else f".{text}"
    steps: list[Step] = []
    while rest:
        step, length = _next(rest, text)
        steps.append(step)
        rest = rest[length:]
    return tuple(steps)


def _next(rest: str, text: str) -> tuple[Step, int]:
    if found := _EVERY.match(rest):
        return Every(), found.end()
    if found := _FIELD.match(rest):
        return Field(re.sub(r"\\(.)", r"\1", found[1])), found.end()
    if found := _QUOTED.match(rest):
        return Field(found[1] if found[1] is not None else found[2]), found.end()
    if found := _INDEX.match(rest):
        return Index(int(found[1])), found.end()
    if found := _FILTER.match(rest):
        wanted = next(value for value in found.groups()[1:] if value is not None)
        return Filter(tuple(found[1].lstrip(".").split(".")), wanted), found.end()
    raise BadPathError(f'the JSONPath "{text}" can\'t be read at "{rest}"')


def find(path: Path, value: Json) -> Sequence[Json]:
    """All values at the path, in order; none where it leads nowhere."""
    values: list[Json] = [value]
    for step in path:
        values = [found for value in values for found in step.step(value)]
    return values
