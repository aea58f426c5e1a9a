"""The objects of one file of a source: a YAML stream, a JSON object, or a List. Pure.

Only our own kinds and Namespaces are taken; what else lies in a repository (kustomization files, other workloads) is
none of our business.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from gpugrant_operator.apiserver.objects import decode
from gpugrant_operator.apiserver.objects.decode import BadYamlError
from gpugrant_operator.apiserver.objects.resources import NAMESPACES, Catalog, Resource
from gpugrant_operator.apiserver.objects.status import ApiError, Json, Obj
from gpugrant_operator.apiserver.store.journal import Key

DEFAULT_NAMESPACE = "default"
EMPTY = "the file is empty; to take its objects away, delete the file"


@dataclass(frozen=True, slots=True)
class Document:
    """One object as a file says it; the digest is of its meaning, so that a comment changes nothing."""

    key: Key
    body: Obj
    digest: str


@dataclass(frozen=True, slots=True)
class Read:
    """What a file holds. `problem`: why a part of it can't be told; `ours`: it names one of our groups."""

    documents: tuple[Document, ...] = ()
    problem: str = ""
    ours: bool = False


def read(data: bytes, catalog: Catalog, *, as_json: bool) -> Read:
    """Everything in these bytes that is ours; a file that can't be read whole gives nothing but its problem."""
    groups = {resource.group for resource in catalog.resources if resource.custom}
    ours = any(group.encode() in data for group in groups)
    try:
        values = [decode.from_json(data).value] if as_json and data.strip() else decode.documents(data)
    except BadYamlError as error:
        return Read((), str(error), ours)
    except ApiError as error:
        return Read((), error.message, ours)
    found: list[Document] = []
    problems: list[str] = []
    objects = list(_objects(values))
    if not objects:
        problems.append(EMPTY)
    for number, value in enumerate(objects, start=1):
        taken = _document(value, catalog, groups)
        if isinstance(taken, str):
            problems.append(f"object {number}: {taken}")
        elif taken is not None:
            found.append(taken)
    return Read(tuple(found), "; ".join(problems), ours)


def _objects(values: list[Json]) -> Iterator[Json]:
    for value in values:
        if isinstance(value, dict) and (value.get("apiVersion"), value.get("kind")) == ("v1", "List"):
            items = value.get("items")
            yield from items if isinstance(items, list) else []
        elif value is not None:
            yield value


def _document(value: Json, catalog: Catalog, groups: set[str]) -> Document | str | None:
    """The object; a sentence: it is ours and can't be told; None: it is none of ours."""
    if not isinstance(value, dict):
        return "it is no object with apiVersion, kind and metadata"
    version, kind = value.get("apiVersion"), value.get("kind")
    resource = _resource(version, kind, catalog)
    if resource is None:
        group = str(version).partition("/")[0]
        return f"there is no kind {kind!r} of {version!r}" if group in groups else None
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        return f"the {kind} has no metadata"
    name = metadata.get("name")
    namespace = metadata.get("namespace") or DEFAULT_NAMESPACE
    if not isinstance(name, str) or not name:
        return f"the {kind} has no metadata.name"
    if not isinstance(namespace, str):
        return f"metadata.namespace of the {kind} {name} must be a string"
    text = json.dumps({key: part for key, part in value.items() if key != "status"}, sort_keys=True)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Document((resource.id, namespace if resource.namespaced else "", name), value, digest)


def _resource(version: Json, kind: Json, catalog: Catalog) -> Resource | None:
    for resource in catalog.resources:
        if (resource.api_version, resource.kind) == (version, kind):
            return resource if resource.custom or resource.id == NAMESPACES.id else None
    return None
