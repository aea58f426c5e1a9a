"""Who owns which field: managedFields after a write, and server-side apply with its conflicts.

The rules are those of sigs.k8s.io/structured-merge-diff/v6 (merge/update.go) and of
k8s.io/apimachinery/pkg/util/managedfields. All of them judge an object without its managedFields, beside an owner list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from gpugrant_operator.apiserver.objects import fields
from gpugrant_operator.apiserver.objects.fields import EMPTY, MISSING, FieldSet, Path
from gpugrant_operator.apiserver.objects.resources import Resource
from gpugrant_operator.apiserver.objects.status import ApiError, Cause, Json, Obj, bad_request
from gpugrant_operator.apiserver.objects.validation import Schema

Operation = Literal["Apply", "Update"]

MAX_UPDATERS = 10
"""Owners by update of one object, as kube-apiserver's DefaultMaxUpdateManagers; older ones are put together."""
ANCIENT = "ancient-changes"
BEFORE_FIRST_APPLY = "before-first-apply"
MAX_NAME = 128
"""Characters of a manager's name (FieldManagerMaxLength)."""

_NOBODYS: FieldSet = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    }
)


@dataclass(frozen=True, slots=True)
class Manager:
    """Who writes, and by which door; two doors of one program are two managers."""

    name: str
    operation: Operation
    version: str
    subresource: str = ""

    def __str__(self) -> str:
        told = json.dumps(self.name, ensure_ascii=False)
        if self.subresource:
            told += f' with subresource "{self.subresource}"'
        return told if self.operation == "Apply" else f"{told} using {self.version}"


@dataclass(frozen=True, slots=True)
class Owned:
    """The fields of one manager since `time` (RFC 3339; empty: unknown)."""

    fields: FieldSet
    time: str = ""


Owners = Mapping[Manager, Owned]


# --- managedFields --------------------------------------------------------------------------------------------


def bare(obj: Obj) -> Obj:
    """The object without managedFields."""
    if "managedFields" not in (obj.get("metadata") or {}):
        return obj
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


def owned(obj: Obj, owners: Owners) -> Obj:
    """The object with its owners."""
    if not owners:
        return bare(obj)
    return {**obj, "metadata": {**obj["metadata"], "managedFields": _entries(owners)}}


def owners_of(obj: Mapping[str, Json]) -> dict[Manager, Owned]:
    """The owners that the object names; raises ValueError for entries that can't be read."""
    return _owners((obj.get("metadata") or {}).get("managedFields") or ())


def _owners(entries: Json) -> dict[Manager, Owned]:
    if not isinstance(entries, list | tuple) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("managedFields must be a list of objects")
    found: dict[Manager, Owned] = {}
    for entry in entries:
        if entry.get("operation") not in ("Apply", "Update") or entry.get("fieldsType") != "FieldsV1":
            raise ValueError("an entry of managedFields needs an operation (Apply or Update) and fieldsType FieldsV1")
        name, version, subresource = (entry.get(key) or "" for key in ("manager", "apiVersion", "subresource"))
        time = entry.get("time") or ""
        if not all(isinstance(text, str) for text in (name, version, subresource, time)):
            raise ValueError("manager, apiVersion, subresource and time of managedFields are texts")
        manager = Manager(name, entry["operation"], version, subresource)
        found[manager] = Owned(fields.paths_of(entry.get("fieldsV1") or {}), time)
    return found


def _entries(owners: Owners) -> list[Obj]:
    """In the order of the API server: by operation, time, name, version and subresource."""
    order = sorted(
        owners.items(), key=lambda item: (item[0].operation, item[1].time, item[0].name, item[0].version, str(item[0]))
    )
    return [_entry(manager, held) for manager, held in order]


def _entry(manager: Manager, held: Owned) -> Obj:
    entry: Obj = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.version,
        "time": held.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": _tree(held.fields),
        "subresource": manager.subresource,
    }
    return {key: value for key, value in entry.items() if value != ""}


@lru_cache(maxsize=512)
def _tree(paths: FieldSet) -> Obj:
    """One tree for all objects whose fields are the same: thousands of grants come from one manager."""
    return fields.tree(paths)


def shared(obj: Obj) -> Obj:
    """The object with the trees of `_tree`: what a journal holds is read as one tree an object."""
    try:
        return owned(obj, owners_of(obj))
    except ValueError:
        return bare(obj)


# --- writes ---------------------------------------------------------------------------------------------------


def base(held: Mapping[str, Json], given: Mapping[str, Json], *, subresource: str) -> dict[Manager, Owned]:
    """The owners before a write: those that the request names, else those of the stored object. `[{}]` clears them."""
    wanted = (given.get("metadata") or {}).get("managedFields")
    if not subresource and wanted:
        if wanted == [{}]:
            return {}
        try:
            return _owners(wanted) or owners_of(held)
        except ValueError:
            return owners_of(held)
    return owners_of(held)


def updated(
    resource: Resource, old: Obj, new: Obj, owners: Owners, manager: Manager, *, now: str
) -> dict[Manager, Owned]:
    """The owners after `manager` made `new` of `old` by a create, update or patch."""
    if not owners and old:
        return {}  # nobody ever applied: kube-apiserver starts to keep owners at the first apply, or with the object
    compared = _compared(resource, old, new, manager.subresource)
    taken = frozenset(compared.added | compared.modified)
    after = _drop(owners, taken | compared.removed, but=None)
    mine = frozenset(path for path in taken if path not in _NOBODYS)
    if mine:
        before = owners[manager].fields - compared.removed if manager in owners else EMPTY
        after[manager] = Owned(mine | before, now)
    return _capped(after)


def applied(
    resource: Resource, old: Obj, config: Obj, owners: Owners, manager: Manager, *, now: str, force: bool
) -> tuple[Obj, dict[Manager, Owned]]:
    """The merged object and its owners after an apply; raises ApiError 409 that names each conflict, unless forced."""
    schema = fields.schema_of(resource)
    if not owners and old:
        first = Manager(BEFORE_FIRST_APPLY, "Update", manager.version)
        owners = updated(resource, {}, old, {}, first, now=now)
    last = owners[manager].fields if manager in owners else EMPTY
    mine = frozenset(
        path
        for path in fields.fields_in(config, schema)
        if path not in _NOBODYS and _counts(resource, path, manager.subresource)
    )
    everyone = {**owners, manager: Owned(mine, now)}
    merged = fields.merge(old, config, schema)
    new = _pruned(merged, last, frozenset().union(*(held.fields for held in everyone.values())), schema)
    compared = _compared(resource, old, new, manager.subresource)
    taken = frozenset(compared.added | compared.modified)
    conflicts = [
        (other, path)
        for other, held in sorted(owners.items(), key=lambda item: str(item[0]))
        if other != manager
        for path in sorted(held.fields & taken)
    ]
    if conflicts and not force:
        raise _conflict(conflicts)
    after = _drop(everyone, taken | compared.removed, but=manager)
    if manager in owners and owners[manager].fields == mine and new == old:
        after = {**after, manager: owners[manager]} if mine else after
    return new, after


def _compared(resource: Resource, old: Obj, new: Obj, subresource: str) -> fields.Comparison:
    compared = fields.compare(old, new, fields.schema_of(resource))
    return compared.only(lambda path: _counts(resource, path, subresource))


def _counts(resource: Resource, path: Path, subresource: str) -> bool:
    """The main door never sets the status, and the status door sets nothing else (ResetFields)."""
    if subresource:
        return path[0] == "f:status"
    return not (resource.has_status and path[0] == "f:status")


def _drop(owners: Owners, gone: Iterable[Path], *, but: Manager | None) -> dict[Manager, Owned]:
    """The owners without these fields, and without those that then own nothing."""
    lost = frozenset(gone)
    left = {m: held if m == but else replace(held, fields=held.fields - lost) for m, held in owners.items()}
    return {manager: held for manager, held in left.items() if held.fields}


def _capped(owners: dict[Manager, Owned]) -> dict[Manager, Owned]:
    updaters = sorted((m for m in owners if m.operation == "Update"), key=lambda m: (owners[m].time, str(m)))
    surplus = updaters[: max(0, len(updaters) - MAX_UPDATERS + 1)] if len(updaters) > MAX_UPDATERS else []
    kept = {manager: held for manager, held in owners.items() if manager not in surplus}
    for manager in surplus:
        bucket = Manager(ANCIENT, "Update", manager.version)
        held = kept.get(bucket, Owned(EMPTY))
        kept[bucket] = Owned(held.fields | owners[manager].fields, owners[manager].time)
    return kept


# --- apply ----------------------------------------------------------------------------------------------------


def _pruned(merged: Obj, last: FieldSet, owned_now: FieldSet, schema: Schema) -> Obj:
    """Takes out what the manager set last time, does not set now, and nobody else owns."""
    if not last:
        return merged

    def take_out(paths: FieldSet) -> Obj:
        left = fields.without(merged, fields.tree(paths), schema)
        return {} if left is MISSING else left

    def there(value: Obj) -> FieldSet:
        return fields.named(fields.fields_in(value, schema), schema)

    everything, before = there(merged), fields.named(last, schema)
    pruned = take_out(before)
    pruned = take_out(everything - (there(pruned) | fields.named(owned_now, schema)))
    return take_out((everything - there(pruned)) & before)


def _conflict(conflicts: list[tuple[Manager, Path]]) -> ApiError:
    """The words of managedfields/internal/conflict.go; kubectl adds its own advice."""
    if len(conflicts) == 1:
        [(manager, path)] = conflicts
        told = f"Apply failed with 1 conflict: conflict with {manager}: {fields.shown(path)}"
    else:
        lines: dict[str, list[str]] = {}
        for manager, path in conflicts:
            lines.setdefault(f"conflicts with {manager}:", []).append(f"- {fields.shown(path)}")
        told = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(
            line for title, rows in lines.items() for line in (title, *rows)
        )
    causes = [Cause("FieldManagerConflict", fields.shown(path), f"conflict with {m}") for m, path in conflicts]
    listed = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    return ApiError(409, "Conflict", told, details={"causes": listed})


def check_config(resource: Resource, namespace: str, config: Obj) -> None:
    """Raises ApiError 400 for what can't be applied; kube-apiserver answers some of it with 500, in the same words."""
    if (config.get("metadata") or {}).get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    schema = fields.schema_of(resource)
    problems = [f"{path}: field not declared in schema" for path in fields.unknown(config, schema)]
    problems += [
        f"{fields.shown(path[:-1])}: duplicate entries for key {fields.shown(path[-1:])}"
        for path in fields.doubled(config, schema)
    ]
    if problems:
        gvk = f"{resource.api_version}, Kind={resource.kind}"
        where = f"{namespace}/{config['metadata'].get('name', '')}"
        told = problems[0] if len(problems) == 1 else "errors:\n" + "\n".join(f"  {problem}" for problem in problems)
        raise bad_request(f"failed to create typed patch object ({where}; {gvk}): {told}")
