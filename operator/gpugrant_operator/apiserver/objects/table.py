"""`kind: Table` answers: what `kubectl get` prints, computed on the server from the printer columns.

Column definitions and cell rules follow apiextensions-apiserver's tableconvertor and `duration.HumanDuration`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal

from gpugrant_operator.apiserver.objects import jsonpath
from gpugrant_operator.apiserver.objects.resources import EVENTS, Column, Resource
from gpugrant_operator.apiserver.objects.status import Json, Obj

Include = Literal["Metadata", "Object", "None"]

_NAME: Obj = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "Name must be unique within a namespace. Is required when creating resources, although some "
    "resources may allow a client to request the generation of an appropriate name automatically. Name is primarily "
    "intended for creation idempotence and configuration definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    "priority": 0,
}


@dataclass(frozen=True, slots=True)
class Format:
    """How the client wants a table: the version of meta.k8s.io, and what stands in `rows[].object`."""

    version: str = "v1"
    include: Include = "Metadata"


def table(
    resource: Resource,
    objects: Iterable[Mapping[str, Json]],
    *,
    form: Format,
    now: datetime,
    metadata: Mapping[str, Json],
    head: bool = True,
) -> Obj:
    """The table of these objects; without `head` there are no column definitions (later watch events)."""
    definitions = [definition for definition, _ in columns(resource)] if head else None
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{form.version}",
        "metadata": dict(metadata),
        "columnDefinitions": definitions,
        "rows": [_row(resource, obj, form, now) for obj in objects],
    }


@lru_cache(maxsize=64)
def columns(resource: Resource) -> tuple[tuple[Obj, tuple[Column, jsonpath.Path] | None], ...]:
    """Column definitions with their compiled paths; the first is the name, save for events."""
    read: list[tuple[Obj, tuple[Column, jsonpath.Path] | None]] = []
    if resource.id != EVENTS.id:
        read.append((_NAME, None))
    for column in resource.columns:
        shown = "string" if column.type == "date" and not resource.custom else column.type
        definition: Obj = {
            "name": column.name,
            "type": shown,
            "format": column.format,
            "description": column.description or _described(resource, column),
            "priority": column.priority,
        }
        read.append((definition, (column, jsonpath.parse(column.path))))
    return tuple(read)


def _described(resource: Resource, column: Column) -> str:
    """Of a custom resource as kube-apiserver's tableconvertor words it."""
    if resource.custom:
        return f"Custom resource definition column (in JSONPath format): {column.path}"
    return f"{column.path} of the {resource.kind}"


def _row(resource: Resource, obj: Mapping[str, Json], form: Format, now: datetime) -> Obj:
    cells = [obj["metadata"]["name"] if source is None else _cell(*source, obj, now) for _, source in columns(resource)]
    row: Obj = {"cells": cells}
    if form.include == "Object":
        row["object"] = obj
    elif form.include == "Metadata":
        row["object"] = partial(obj, form.version)
    return row


def partial(obj: Mapping[str, Json], version: str = "v1") -> Obj:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj["metadata"],
    }


def _cell(column: Column, path: jsonpath.Path, obj: Mapping[str, Json], now: datetime) -> Json:
    values = jsonpath.find(path, obj)
    if column.path in _SUMMARIES:
        return _SUMMARIES[column.path](values[0] if values else None)
    if not values or values[0] is None:
        return "<unknown>" if column.type == "date" else None
    value = values[0] if len(values) == 1 else ",".join(_text(item) for item in values)
    match column.type:
        case "date":
            return age(str(value), now)
        case "integer":
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        case "number":
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case _:
            return _text(value)


def _text(value: Json) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _involved(value: Json) -> str:
    reference = value or {}
    return f"{str(reference.get('kind', '')).lower()}/{reference.get('name', '')}"


_SUMMARIES: dict[str, Callable[[Json], Json]] = {
    ".data": lambda value: str(len(value or {})),
    ".involvedObject": _involved,
}


def age(text: str, now: datetime) -> str:
    """`5m`, `3d4h`; `<invalid>` for a time that can't be read or that lies in the future."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return "<invalid>"
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return human_duration((now - moment).total_seconds())


def human_duration(seconds: float) -> str:
    """duration.HumanDuration (k8s.io/apimachinery/pkg/util/duration)."""
    whole = int(seconds)
    if seconds < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 60 * 2:
        return f"{whole}s"
    if minutes < 10:
        return _pair(minutes, "m", whole % 60, "s")
    if minutes < 60 * 3:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 24 * 8:
        return _pair(days, "d", hours % 24, "h")
    if hours < 24 * 365 * 2:
        return f"{days}d"
    if hours < 24 * 365 * 8:
        return _pair(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _pair(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"
