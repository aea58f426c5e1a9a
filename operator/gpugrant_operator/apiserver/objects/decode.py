"""Request bodies into JSON values, strictly: size, depth, duplicate keys and stray numbers are looked at here.

YAML is read as kubectl reads it: times stay strings, no aliases (a bomb needs them), no duplicate keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from gpugrant_operator.apiserver.objects import protobuf
from gpugrant_operator.apiserver.objects.status import ApiError, Json, bad_request, unsupported_media

MAX_DEPTH = 200
"""Nesting of a body; our deepest object has 12 levels, and recursion below must stay far from Python's limit."""

JSON_TYPES = ("application/json", "text/json", "")
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")


@dataclass(frozen=True, slots=True)
class Decoded:
    """A value, and the keys that stood twice in one object (a strict request is refused for them)."""

    value: Json
    duplicates: tuple[str, ...] = ()


class BadYamlError(ValueError):
    """YAML that can't be read; the text says the line."""


def body(data: bytes, content_type: str) -> Decoded:
    """The body of a create, update or delete; raises ApiError 400 or 415."""
    if content_type in YAML_TYPES:
        try:
            return Decoded(from_yaml(data))
        except BadYamlError as error:
            raise bad_request(f"the YAML body can't be read: {error}") from error
    if content_type == protobuf.CONTENT_TYPE:
        value = protobuf.body(data)
        _check_tree(value)
        return Decoded(value)
    if content_type not in JSON_TYPES:
        raise unsupported_media(
            f"the content type {content_type!r} is not taken: send application/json or application/yaml"
        )
    return from_json(data)


def json_or_yaml(data: bytes) -> Json:
    """The body of an apply, which is YAML by its media type and JSON from kubectl; raises ApiError 400."""
    try:
        return from_json(data).value
    except ApiError:
        return body(data, YAML_TYPES[0]).value


def from_json(data: bytes) -> Decoded:
    """Strict JSON: UTF-8, no NaN, no surrogates; duplicate keys are reported, the last one counts."""
    seen: list[str] = []

    def pairs(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) < len(items):
            names = [name for name, _ in items]
            seen.extend(sorted({name for name in names if names.count(name) > 1}))
        return made

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not UTF-8: byte {error.start} can't be decoded") from error
    except json.JSONDecodeError as error:
        raise bad_request(
            f"the JSON body can't be read: {error.msg} at line {error.lineno} column {error.colno}"
        ) from error
    except (RecursionError, ValueError) as error:
        raise bad_request("the JSON body can't be read: a number or its nesting is out of range") from error
    _check_tree(value)
    return Decoded(value, tuple(seen))


def _no_constant(name: str) -> Json:
    raise ValueError(name)


def _check_tree(value: Json) -> None:
    """Refuses nesting beyond MAX_DEPTH, lone surrogates (they can't be written as UTF-8), infinite numbers."""
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH):
        if not level:
            return
        level = [child for item in level for child in _children(item)]
    raise bad_request(f"the body is nested deeper than {MAX_DEPTH} levels")


def _children(item: Json) -> list[Json]:
    if isinstance(item, str):
        if not item.isascii():
            _writable(item)
    elif isinstance(item, float):
        if item in (float("inf"), float("-inf")):
            raise bad_request("the body has a number that is out of range")
    elif isinstance(item, dict):
        return [*item.keys(), *item.values()]
    elif isinstance(item, list):
        return item
    elif item is not None and not isinstance(item, int):
        raise bad_request("the body has a value that JSON does not know, such as !!binary, !!set or !!timestamp")
    return []


def _writable(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise bad_request("the body has a lone surrogate, which is no text") from error


class _Loader(yaml.CSafeLoader):
    """CSafeLoader without times and sexagesimal numbers, and with unique string keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        known: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is no string: quote it", key_node.start_mark
                )
            if key in known:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            known.add(key)
        return super().construct_mapping(node, deep=deep)


_DROPPED = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int", "tag:yaml.org,2002:merge")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag not in _DROPPED]
    for first, rules in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(f"^(?:{_INTEGER.pattern})$"), list("-+0123456789"))


def from_yaml(data: bytes) -> Json:
    """The one document of the text; None for an empty one. Raises BadYamlError with the line."""
    return _parsed(data, lambda text: yaml.load(text, Loader=_Loader))  # noqa: S506  # a subclass of CSafeLoader


def documents(data: bytes) -> list[Json]:
    """Every document of the stream; None for an empty one. Raises BadYamlError with the line."""
    found: list[Json] = _parsed(data, lambda text: list(yaml.load_all(text, Loader=_Loader)))  # as above
    return found


def _parsed(data: bytes, load: Callable[[str], Json]) -> Json:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadYamlError(f"line {line}: the text is not UTF-8") from error
    try:
        _refuse_aliases(text)
        value = load(text)
    except yaml.MarkedYAMLError as error:
        raise BadYamlError(_marked(error)) from error
    except yaml.YAMLError as error:
        raise BadYamlError("a character that YAML does not take") from error
    except (RecursionError, ValueError) as error:
        raise BadYamlError("a value or its nesting is out of range") from error
    try:
        _check_tree(value)
    except ApiError as error:
        raise BadYamlError(error.message) from error
    return value


def _refuse_aliases(text: str) -> None:
    """Raises a MarkedYAMLError: nine lines of aliases can stand for gigabytes."""
    if "*" not in text:
        return
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not taken", problem_mark=event.start_mark)  # type: ignore[arg-type]  # the stub knows only the pure mark


def _marked(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    problem = " ".join((error.problem or error.context or "not YAML").split())
    return f"line {mark.line + 1}: {problem}" if mark else problem
