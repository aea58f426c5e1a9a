"""Structural schemas: prune, default, validate, and CEL rules, compiled once a resource.

jsonschema-rs judges the shape (about 1 us an object), CEL the rules across fields and over time. Whatever can't be
evaluated is invalid: an error in a rule must never let an object pass.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jsonschema_rs

from gpugrant_operator.apiserver.objects.resources import Resource
from gpugrant_operator.apiserver.objects.status import Cause, Json, Obj, invalid_value, required


def _cel() -> Any:
    """The extension module of common-expression-language alone.

    `import cel` brings its command line too, typer and prompt_toolkit among its 210 modules: 12 MB that no rule needs.
    """
    package = importlib.util.find_spec("cel")
    where = package.submodule_search_locations if package is not None else None
    spec = importlib.machinery.PathFinder.find_spec("cel.cel", where)
    if spec is None or spec.loader is None:
        raise ImportError("common-expression-language is not installed: run hack/setup")
    if "cel.cel" not in sys.modules:
        sys.modules["cel.cel"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["cel.cel"]


cel = _cel()

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
RULES = "x-kubernetes-validations"

Schema = Mapping[str, Json]
_COPIED = (
    "enum",
    "format",
    "maximum",
    "minimum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxLength",
    "minLength",
    "pattern",
    "maxProperties",
    "minProperties",
    "multipleOf",
    "required",
)
_FORMATS = ("date-time", "date", "email", "hostname", "ipv4", "ipv6", "uri", "uuid")

METADATA_FIELDS = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


_BLOCKING = {f"FieldValue{kind}" for kind in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid")}
_UNCHECKED = Cause(
    "FieldValueInvalid",
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
)
"""As apiextensions-apiserver's hasBlockingErr: a reason of the set above keeps the rules from being judged."""


@dataclass(frozen=True)
class Rules:
    """The compiled schema of one resource."""

    resource: Resource

    @cached_property
    def validator(self) -> Any:
        return jsonschema_rs.Draft202012Validator(json_schema(self.resource.schema, root=True), validate_formats=True)

    @cached_property
    def cel_rules(self) -> tuple[Rule, ...]:
        return tuple(_collect_rules(self.resource.schema, ()))

    def prune(self, obj: Obj) -> tuple[Obj, tuple[str, ...]]:
        """The object without fields that the schema does not know, and their paths (`spec.foo`)."""
        unknown: list[str] = []
        pruned = _prune(obj, self.resource.schema, "", unknown, root=True)
        return pruned, tuple(unknown)

    def default(self, obj: Obj) -> Obj:
        """The object with the schema's defaults; nulls of fields that aren't nullable are dropped first."""
        defaulted: Obj = _default(obj, self.resource.schema)
        return defaulted

    def check(self, obj: Mapping[str, Json], old: Mapping[str, Json] | None) -> tuple[Cause, ...]:
        """All that is wrong with the object, shape first; rules are judged only on a sound shape."""
        shape = tuple(_causes(error) for error in self.validator.iter_errors(obj))
        shape = shape or tuple(_doubles(obj, self.resource.schema, ""))
        if self.cel_rules and any(cause.reason in _BLOCKING for cause in shape):
            return *shape, _UNCHECKED
        return shape or tuple(_judge(self.cel_rules, obj, old))


# --- pruning and defaults -------------------------------------------------------------------------------------


def _prune(value: Json, schema: Schema, path: str, unknown: list[str], *, root: bool = False) -> Json:
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [_prune(item, items, f"{path}[{i}]", unknown) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    pruned: Obj = {}
    for key, child in value.items():
        here = f"{path}.{key}" if path else key
        if root and key == "metadata":
            pruned[key] = _prune_metadata(child, unknown)
        elif key in properties:
            pruned[key] = _prune(child, properties[key], here, unknown)
        elif isinstance(additional, Mapping):
            pruned[key] = _prune(child, additional, here, unknown)
        elif (root and key in ("apiVersion", "kind")) or schema.get(PRESERVE) or additional is True:
            pruned[key] = child
        else:
            unknown.append(here)
    return pruned


def _prune_metadata(value: Json, unknown: list[str]) -> Json:
    if not isinstance(value, dict):
        return value
    unknown.extend(f"metadata.{key}" for key in value if key not in METADATA_FIELDS)
    return {key: child for key, child in value.items() if key in METADATA_FIELDS}


def _default(value: Json, schema: Schema) -> Json:
    if isinstance(value, list):
        items = schema.get("items")
        return [_default(item, items) for item in value] if items else value
    if not isinstance(value, dict):
        return value
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    filled: Obj = {}
    for key, child in value.items():
        inner = properties.get(key) or (additional if isinstance(additional, Mapping) else None)
        if child is None and inner is not None and not inner.get("nullable"):
            continue
        filled[key] = _default(child, inner) if inner else child
    for key, inner in properties.items():
        if key not in filled and "default" in inner:
            filled[key] = _default(inner["default"], inner)
    return filled


# --- shape ----------------------------------------------------------------------------------------------------


def json_schema(schema: Schema, *, root: bool = False) -> Obj:
    """The structural schema in JSON Schema's words (`nullable` and int-or-string are Kubernetes' own)."""
    made: Obj = {key: schema[key] for key in _COPIED if key in schema and _known(key, schema)}
    kind = schema.get("type")
    if schema.get(INT_OR_STRING):
        kind = ["integer", "string"]
    if kind:
        kinds = list(kind) if isinstance(kind, list) else [kind]
        made["type"] = [*kinds, "null"] if schema.get("nullable") else kinds
    if schema.get("nullable") and "enum" in made and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    if schema.get("exclusiveMaximum") is True:  # OpenAPI 3.0 says it with a flag
        made["exclusiveMaximum"] = made.pop("maximum")
    if schema.get("exclusiveMinimum") is True:
        made["exclusiveMinimum"] = made.pop("minimum")
    for key in ("exclusiveMaximum", "exclusiveMinimum"):
        if made.get(key) is False:
            del made[key]
    if "properties" in schema:
        made["properties"] = {
            name: json_schema(child)
            for name, child in schema["properties"].items()
            if not (root and name == "metadata")
        }
    if isinstance(schema.get("additionalProperties"), Mapping):
        made["additionalProperties"] = json_schema(schema["additionalProperties"])
    if isinstance(schema.get("items"), Mapping):
        made["items"] = json_schema(schema["items"])
    for key in ("allOf", "anyOf", "oneOf"):
        if key in schema and not schema.get(INT_OR_STRING):
            made[key] = [json_schema(child) for child in schema[key]]
    if isinstance(schema.get("not"), Mapping):
        made["not"] = json_schema(schema["not"])
    return made


def _known(key: str, schema: Schema) -> bool:
    return key != "format" or schema["format"] in _FORMATS


def _causes(error: Any) -> Cause:
    path = _path(error.instance_path)
    kind = error.kind
    shown = _shown(error.instance)
    match kind.name:
        case "required":
            return required(f"{path}.{kind.property}" if path else kind.property)
        case "enum":
            options = ", ".join(json.dumps(option) for option in kind.options if option is not None)
            return Cause("FieldValueNotSupported", path, f"Unsupported value: {shown}: supported values: {options}")
        case "type":
            wanted = ",".join(name for name in _types(kind.types) if name != "null")
            return Cause(
                "FieldValueTypeInvalid",
                path,
                f'Invalid value: "{_type_name(error.instance)}": {path or "the object"} in body must be of '
                f'type {wanted}: "{_type_name(error.instance)}"',
            )
        case "maxLength":
            return Cause("FieldValueTooLong", path, f"Too long: may not be more than {kind.limit} bytes")
        case "maxItems":
            return Cause(
                "FieldValueTooMany", path, f"Too many: {len(error.instance)}: must have at most {kind.limit} items"
            )
        case "pattern":
            return invalid_value(path, shown, f"{path} in body should match '{kind.pattern}'")
        case "format":
            told = f"Invalid value: {shown}: {path} in body must be of type {kind.format}: {shown}"
            return Cause("FieldValueTypeInvalid", path, told)
        case "minLength":
            return invalid_value(path, shown, f"{path} in body should be at least {kind.limit} chars long")
        case "minimum" | "exclusiveMinimum":
            return invalid_value(path, shown, f"{path} in body should be greater than or equal to {kind.limit}")
        case "maximum" | "exclusiveMaximum":
            return invalid_value(path, shown, f"{path} in body should be less than or equal to {kind.limit}")
        case _:
            return invalid_value(path, shown, f"{path} in body does not satisfy {kind.name}")


def _doubles(value: Json, schema: Schema, path: str) -> Iterator[Cause]:
    """Items that stand twice in a list that is a set or a map by keys."""
    if isinstance(value, list):
        seen: list[Json] = []
        for index, item in enumerate(value):
            here = f"{path}[{index}]"
            identity = _identity(item, schema)
            if identity is not None and identity in seen:
                yield Cause("FieldValueDuplicate", here, f"Duplicate value: {_compact(identity)}")
            seen.append(identity)
            yield from _doubles(item, schema.get("items") or {}, here)
    elif isinstance(value, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, child in value.items():
            inner = properties.get(key) or (additional if isinstance(additional, Mapping) else None)
            if inner:
                yield from _doubles(child, inner, f"{path}.{key}" if path else key)


def _identity(item: Json, schema: Schema) -> Json:
    """What makes the item one of its list; None: anything may stand twice."""
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return item
        case "map" if isinstance(item, Mapping):
            return {key: item.get(key) for key in schema.get("x-kubernetes-list-map-keys", ())}
        case _:
            return None


def _compact(value: Json) -> str:
    """JSON as Go writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _path(parts: Sequence[str | int]) -> str:
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else (f".{part}" if path else part)
    return path


def _shown(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _types(value: Json) -> list[str]:
    return [value] if isinstance(value, str) else [str(item) for item in value]


def _type_name(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


# --- CEL ------------------------------------------------------------------------------------------------------

_OLD_SELF = re.compile(r"\boldSelf\b")
ITEM = object()
"""A step of a rule's place that means every item or every value."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One x-kubernetes-validations entry at its place in the schema."""

    place: tuple[object, ...]
    text: str
    program: Any
    message: str
    message_program: Any
    reason: str
    field: str
    transition: bool
    optional_old: bool


def _collect_rules(schema: Schema, place: tuple[object, ...]) -> Iterator[Rule]:
    for entry in schema.get(RULES, ()):
        text = " ".join(entry["rule"].split())
        told = entry.get("messageExpression")
        yield Rule(
            place=place,
            text=text,
            program=cel.compile(text),
            message=entry.get("message") or f"failed rule: {text}",
            message_program=cel.compile(told) if told else None,
            reason=entry.get("reason", "FieldValueInvalid"),
            field=entry.get("fieldPath", ""),
            transition=bool(_OLD_SELF.search(text)),
            optional_old=bool(entry.get("optionalOldSelf")),
        )
    for name, child in (schema.get("properties") or {}).items():
        yield from _collect_rules(child, (*place, name))
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from _collect_rules(schema["additionalProperties"], (*place, ITEM))
    if isinstance(schema.get("items"), Mapping):
        yield from _collect_rules(schema["items"], (*place, ITEM))


_ABSENT = object()


def _judge(rules: Sequence[Rule], obj: Mapping[str, Json], old: Mapping[str, Json] | None) -> Iterator[Cause]:
    for rule in rules:
        before = _ABSENT if old is None else old
        for path, value, old_value in _visit(rule.place, obj, before, ""):
            if rule.transition and old_value is _ABSENT:
                continue
            if cause := _apply(rule, path, value, old_value):
                yield cause


def _visit(place: Sequence[object], value: Json, old: Any, path: str) -> Iterator[tuple[str, Json, Any]]:
    """Every value at the place with its old value. Items of a list have none: a list without keys can't be
    matched with the old one, as in the API server."""
    if not place:
        yield path, value, old
        return
    head, rest = place[0], place[1:]
    if head is ITEM and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _visit(rest, item, _ABSENT, f"{path}[{index}]")
    elif head is ITEM and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _visit(rest, item, _child(old, key), f"{path}[{key}]")
    elif isinstance(head, str) and isinstance(value, Mapping) and value.get(head) is not None:
        yield from _visit(rest, value[head], _child(old, head), f"{path}.{head}" if path else head)


def _child(old: Any, key: str) -> Any:
    if isinstance(old, Mapping) and old.get(key) is not None:
        return old[key]
    return _ABSENT


def _apply(rule: Rule, path: str, value: Json, old: Any) -> Cause | None:
    variables = {"self": value} if old is _ABSENT else {"self": value, "oldSelf": old}
    verdict = _evaluate(rule.program, variables)
    if verdict is True:
        return None
    field = f"{path}{rule.field}" if rule.field else path
    if verdict is not False:
        return invalid_value(field or "<root>", _brief(value), f"rule evaluation error: {rule.text}")
    told = _evaluate(rule.message_program, variables) if rule.message_program else None
    message = told if isinstance(told, str) and told.strip() else rule.message
    return _cause(rule.reason, field or "<root>", value, message)


def _evaluate(program: Any, variables: Mapping[str, Json]) -> Any:
    """The result, or None where the expression failed: a failed rule is an invalid object."""
    try:
        return program.execute(dict(variables))
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError, OverflowError, ZeroDivisionError):
        return None


def _cause(reason: str, field: str, value: Json, message: str) -> Cause:
    words: dict[str, Callable[[], str]] = {
        "FieldValueRequired": lambda: f"Required value: {message}",
        "FieldValueForbidden": lambda: f"Forbidden: {message}",
        "FieldValueDuplicate": lambda: f"Duplicate value: {_brief(value)}",
    }
    told = words.get(reason, lambda: f"Invalid value: {_brief(value)}: {message}")()
    return Cause(reason, field, told)


def _brief(value: Json) -> str:
    """A scalar itself, `"object"` or `"array"` for the rest, as kubectl users see it."""
    return f'"{_type_name(value)}"' if isinstance(value, dict | list) else _shown(value)
