"""Values of a schema as sets of fields: what is in an object, what differs in two, their merge, what to take out.

The rules are those of structured-merge-diff (sigs.k8s.io/structured-merge-diff/v6: typed/, fieldpath/), for structural
schemas. A field is the path to it, a tuple of elements as FieldsV1 writes them: `f:name`, `k:{"key":"value"}`, `v:1`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpugrant_operator.apiserver.objects.resources import Resource
from gpugrant_operator.apiserver.objects.status import Json, Obj
from gpugrant_operator.apiserver.objects.validation import PRESERVE, Schema

Path = tuple[str, ...]
FieldSet = frozenset[Path]
EMPTY: FieldSet = frozenset()

MISSING: Any = object()
"""In the place of a value that is not there; null is a value."""

_TEXT: Obj = {"type": "string"}
_METADATA: Obj = {
    "type": "object",
    PRESERVE: True,
    "properties": {
        "labels": {"type": "object", "additionalProperties": _TEXT},
        "annotations": {"type": "object", "additionalProperties": _TEXT},
        "finalizers": {"type": "array", "items": _TEXT, "x-kubernetes-list-type": "set"},
        "ownerReferences": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "items": {"type": "object", PRESERVE: True, "x-kubernetes-map-type": "atomic"},
        },
        **dict.fromkeys(("name", "namespace", "generateName", "uid", "resourceVersion"), _TEXT),
    },
}


def schema_of(resource: Resource) -> Schema:
    """The resource's schema with that of metadata, which a CRD leaves to the server."""
    properties = resource.schema.get("properties") or {}
    return {**resource.schema, "properties": {"apiVersion": _TEXT, "kind": _TEXT, **properties, "metadata": _METADATA}}


# --- what a schema says of a value ----------------------------------------------------------------------------

Shape = Literal["leaf", "map", "list"]


def _shape(value: Json, schema: Schema) -> Shape:
    """A leaf is owned as a whole: scalars, atomic lists and maps, and lists that no schema speaks of."""
    if isinstance(value, dict):
        return "leaf" if schema.get("x-kubernetes-map-type") == "atomic" else "map"
    if isinstance(value, list):
        return "list" if schema.get("x-kubernetes-list-type") in ("set", "map") else "leaf"
    return "leaf"


def _child(schema: Schema, key: str) -> Schema:
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    return properties.get(key) or (additional if isinstance(additional, Mapping) else {})


def _is_named(schema: Schema, element: str) -> bool:
    return element.startswith("f:") and element[2:] in (schema.get("properties") or {})


def _below(schema: Schema, element: str) -> Schema:
    return _child(schema, element[2:]) if element.startswith("f:") else schema.get("items") or {}


def _element(item: Json, schema: Schema) -> str:
    if schema.get("x-kubernetes-list-type") == "map" and isinstance(item, dict):
        properties = (schema.get("items") or {}).get("properties") or {}
        keys = {
            key: item.get(key, (properties.get(key) or {}).get("default"))
            for key in sorted(schema.get("x-kubernetes-list-map-keys", ()))
        }
        return "k:" + _compact({key: value for key, value in keys.items() if value is not None})
    return "v:" + _compact(item)


def _compact(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _members(value: Json, schema: Schema) -> dict[str, Json]:
    """Element → child of a map or a list whose items have identities; of doubles the first counts."""
    if isinstance(value, dict):
        return {f"f:{key}": child for key, child in value.items()}
    found: dict[str, Json] = {}
    for item in value if isinstance(value, list) else ():
        found.setdefault(_element(item, schema), item)
    return found


# --- sets -----------------------------------------------------------------------------------------------------


def fields_in(value: Json, schema: Schema) -> FieldSet:
    """Every field that the value sets (typed/tofieldset.go)."""
    return frozenset(_fields_in(value, schema, ()))


def _fields_in(value: Json, schema: Schema, path: Path) -> Iterator[Path]:
    shape = _shape(value, schema)
    if shape == "leaf":
        yield path
        return
    for element, child in _members(value, schema).items():
        here = (*path, element)
        yield from _fields_in(child, _below(schema, element), here)
        if shape == "list" or child is None or child == {} or not _is_named(schema, element):
            yield here


def named(paths: FieldSet, schema: Schema) -> FieldSet:
    """The set with each declared field on the way to one of its members (fieldpath.EnsureNamedFieldsAreMembers)."""
    found = set(paths)
    for path in paths:
        inner = schema
        for depth, element in enumerate(path[:-1], start=1):
            if _is_named(inner, element):
                found.add(path[:depth])
            inner = _below(inner, element)
    return frozenset(found)


def tree(paths: Iterable[Path]) -> Obj:
    """FieldsV1: members are `{}`, or have a `.` where they have children too."""
    root: Obj = {}
    ends: set[int] = set()
    for path in sorted(paths):
        node = root
        for element in path:
            if id(node) in ends and not node:
                node["."] = {}
            node = node.setdefault(element, {})
        ends.add(id(node))
    return root


def paths_of(fields: Json) -> FieldSet:
    """The set of a FieldsV1; raises ValueError for what is none."""
    return frozenset(_paths(fields, (), 0))


MAX_DEPTH = 64
"""Of a FieldsV1 that a client sends."""


def _paths(node: Json, path: Path, depth: int) -> Iterator[Path]:
    if not isinstance(node, dict) or depth > MAX_DEPTH:
        raise ValueError("fieldsV1 must be an object of objects")
    if not node and path:
        yield path
    for element, child in node.items():
        if element == ".":
            yield path
        else:
            yield from _paths(child, (*path, _sound(element)), depth + 1)


def _sound(element: str) -> str:
    """The element as we write it; keys and values are JSON."""
    kind, text = element[:2], element[2:]
    if kind in ("f:", "i:"):
        return element
    if kind in ("k:", "v:"):
        value: Json = json.loads(text)
        if kind == "v:":
            return kind + _compact(value)
        if isinstance(value, dict):
            return kind + _compact(dict(sorted(value.items())))
    raise ValueError(f"fieldsV1 has the element {element!r}")


def shown(path: Path) -> str:
    """`.spec.parts[name="a"].weight`, as kubectl users see it."""
    return "".join(_shown_element(element) for element in path)


def _shown_element(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "k:":
        keys = json.loads(text)
        return "[" + ",".join(f"{key}={_compact(value)}" for key, value in keys.items()) + "]"
    return f"[={text}]" if kind == "v:" else f"[{text}]"


# --- two values -----------------------------------------------------------------------------------------------


@dataclass
class Comparison:
    """What came, went and changed (typed/compare.go)."""

    added: set[Path] = field(default_factory=set)
    modified: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)

    def only(self, wanted: Callable[[Path], bool]) -> Comparison:
        return Comparison(*({p for p in paths if wanted(p)} for paths in (self.added, self.modified, self.removed)))


def compare(old: Json, new: Json, schema: Schema) -> Comparison:
    found = Comparison()
    _compare(old, new, schema, (), found)
    return found


def _compare(old: Json, new: Json, schema: Schema, path: Path, found: Comparison) -> None:
    # Two equal values have nothing to tell; most of an object is so in most writes.
    if old is new or (old is not MISSING and new is not MISSING and old == new):
        return
    if _is_leaf_of_both(old, new, schema):
        _note(old, new, path, found)
        return
    before = {} if old is MISSING else _members(old, schema)
    after = {} if new is MISSING else _members(new, schema)
    for element in {**before, **after}:
        _compare(
            before.get(element, MISSING),
            after.get(element, MISSING),
            _below(schema, element),
            (*path, element),
            found,
        )
    if old is MISSING or new is MISSING:
        _note(old, new, path, found)


def _note(old: Json, new: Json, path: Path, found: Comparison) -> None:
    if old is MISSING:
        found.added.add(path)
    elif new is MISSING:
        found.removed.add(path)
    elif old != new:
        found.modified.add(path)


def _is_leaf_of_both(old: Json, new: Json, schema: Schema) -> bool:
    there = [value for value in (old, new) if value is not MISSING]
    shapes = {_shape(value, schema) for value in there}
    return shapes == {"leaf"} or len(shapes) > 1 or all(value in ({}, []) for value in there)


def merge(live: Json, config: Json, schema: Schema) -> Json:
    """The live value with what the config sets (typed/merge.go)."""
    if config is MISSING or live is MISSING:
        return live if config is MISSING else config
    if _is_leaf_of_both(live, config, schema):
        return config
    before, after = _members(live, schema), _members(config, schema)
    merged = {
        element: merge(before.get(element, MISSING), after.get(element, MISSING), _below(schema, element))
        for element in _order(list(before), list(after))
    }
    return {element[2:]: child for element, child in merged.items()} if isinstance(live, dict) else [*merged.values()]


def _order(live: list[str], config: list[str]) -> list[str]:
    """The config's order where both have an item, and the live list's own items where they stood (typed/merge.go)."""
    known, wanted = set(live), set(config)
    shared = [element for element in config if element in known]
    result: list[str] = []
    left = right = 0
    while left < len(live) or right < len(config):
        if left < len(live) and right < len(config):
            if live[left] == config[right]:
                result.append(live[left])
                left, right, shared = left + 1, right + 1, shared[1:]
                continue
            if live[left] in wanted and shared and shared[0] != live[left]:
                left += 1  # shared, and not yet its turn
                continue
        if left < len(live):
            if live[left] not in wanted:
                result.append(live[left])
                left += 1
                continue
            if live[left] in result:
                left += 1
        if right < len(config):
            result.append(config[right])
            if shared and shared[0] == config[right]:
                shared = shared[1:]
            right += 1
    return result


def without(value: Json, fields: Mapping[str, Json], schema: Schema) -> Json:
    """The value without the fields of this tree (typed/remove.go); MISSING where nothing is left of it."""
    shape = _shape(value, schema)
    if shape == "leaf" or not value:
        return value
    kept: list[tuple[str, Json]] = []
    for element, child in _pairs(value, schema):
        inner = fields.get(element)
        if inner is None:
            kept.append((element, child))
        elif inner and "." not in inner:
            left = without(child, inner, _below(schema, element))
            if left is not MISSING:
                kept.append((element, left))
    if not kept:
        return MISSING
    return {element[2:]: child for element, child in kept} if shape == "map" else [child for _, child in kept]


def _pairs(value: Json, schema: Schema) -> list[tuple[str, Json]]:
    if isinstance(value, dict):
        return [(f"f:{key}", child) for key, child in value.items()]
    return [(_element(item, schema), item) for item in value]


def unknown(value: Json, schema: Schema, path: str = "") -> Iterator[str]:
    """Where the value has a field that the schema does not declare, as `.spec.foo`."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown(item, schema.get("items") or {PRESERVE: True}, f"{path}[{index}]")
    elif isinstance(value, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, child in value.items():
            if key in properties:
                yield from unknown(child, properties[key], f"{path}.{key}")
            elif isinstance(additional, Mapping):
                yield from unknown(child, additional, f"{path}.{key}")
            elif not schema.get(PRESERVE) and additional is not True:
                yield f"{path}.{key}"


def doubled(value: Json, schema: Schema, path: Path = ()) -> Iterator[Path]:
    """The items that stand twice in a list whose items have identities."""
    seen: set[str] = set()
    if _shape(value, schema) == "leaf":
        return
    for element, child in _pairs(value, schema):
        if element in seen:
            yield (*path, element)
        seen.add(element)
        yield from doubled(child, _below(schema, element), (*path, element))
