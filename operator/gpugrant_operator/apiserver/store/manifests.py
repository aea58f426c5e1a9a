"""Objects as readable YAML files, and back: which part of an object a person owns, and where its file lies.

`objects/<plural>/<namespace or _cluster>/<name>.yaml` holds apiVersion, kind, name, namespace, labels, annotations and
the spec. A name may have 253 characters, and that of a file 255 bytes: a longer one goes on in a folder `<begin>~`.
Nothing that the server adds is ever written here, so that a folder under Git stays quiet.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from gpugrant_operator.apiserver.objects.decode import BadYamlError, from_yaml
from gpugrant_operator.apiserver.objects.resources import Catalog, Resource
from gpugrant_operator.apiserver.objects.status import Json, Obj
from gpugrant_operator.apiserver.store.disk import TEMPORARY
from gpugrant_operator.apiserver.store.journal import Key, Record

OBJECTS = "objects"
CLUSTER = "_cluster"
SUFFIXES = (".yaml", ".yml", ".json")

LONGEST = 230
"""Characters of a name that make one file's name, with room for our suffixes; "~" is in no object's name."""

SERVER_ANNOTATIONS = ("kubectl.kubernetes.io/", "kopf.zalando.org/", "kopf.dev/")
"""Annotations that tools write for themselves: they stay in the journal."""


class BadManifestError(ValueError):
    """A file that can't be taken as it is; the text is for a person and names the line where there is one."""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def place(root: Path, resource: Resource, key: Key) -> Path:
    """The one file of an object."""
    _, namespace, name = key
    folder = root / OBJECTS / resource.plural / (namespace or CLUSTER)
    if len(name) > LONGEST:
        return folder / f"{name[:LONGEST]}~" / f"{name[LONGEST:]}.yaml"
    return folder / f"{name}.yaml"


def own_annotations(obj: Mapping[str, Json]) -> dict[str, str]:
    """Annotations that belong to a person."""
    annotations = obj["metadata"].get("annotations") or {}
    return {key: text for key, text in annotations.items() if not key.startswith(SERVER_ANNOTATIONS)}


def tool_annotations(obj: Mapping[str, Json]) -> dict[str, str]:
    annotations = obj["metadata"].get("annotations") or {}
    return {key: text for key, text in annotations.items() if key.startswith(SERVER_ANNOTATIONS)}


def desired(obj: Mapping[str, Json]) -> Obj:
    """The part of an object that its file holds."""
    held = obj["metadata"]
    metadata: Obj = {"name": held["name"]}
    if held.get("namespace"):
        metadata["namespace"] = held["namespace"]
    if held.get("labels"):
        metadata["labels"] = held["labels"]
    if annotations := own_annotations(obj):
        metadata["annotations"] = annotations
    rest = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata", "status")}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata, **rest}


def combined(manifest: Mapping[str, Json], held: Mapping[str, Json] | None) -> Obj:
    """The object that a changed file asks for: the file's part, and what it can't say from the stored object.

    A copy of `kubectl get -o yaml` is welcome: what the server owns in it is passed over.
    """
    given = manifest.get("metadata") or {}
    metadata: Obj = {key: given[key] for key in ("name", "namespace", "labels") if given.get(key)}
    annotations = {**(given.get("annotations") or {})}
    if held is None:
        metadata.update({key: given[key] for key in ("finalizers", "ownerReferences") if given.get(key)})
    else:
        annotations = {**tool_annotations(held), **annotations}
        for key in ("finalizers", "ownerReferences"):
            if held["metadata"].get(key):
                metadata[key] = held["metadata"][key]
    if annotations:
        metadata["annotations"] = annotations
    body = {key: value for key, value in manifest.items() if key not in ("metadata", "status")}
    return {**body, "metadata": metadata}


class _Dumper(yaml.CSafeDumper):
    """Block style, lists indented below their key, text with line breaks as a block."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.CSafeDumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value and not value.startswith((" ", "\n")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(obj: Mapping[str, Json]) -> bytes:
    """The manifest's bytes; `from_yaml(dump(x)) == x`."""
    text: str = yaml.dump(
        dict(obj), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=110
    )
    return text.encode("utf-8")


def text_of(record: Record) -> bytes:
    """The bytes of the manifest of a record that has an object."""
    if record.text is not None:
        return record.text.encode()
    return dump(desired(record.obj or {}))


@dataclass(frozen=True, slots=True)
class Found:
    """A file and the object that it must be, by its place; `resource` None: no object may lie there."""

    path: Path
    resource: Resource | None
    key: Key | None


def scan(root: Path, catalog: Catalog) -> Iterator[Found]:
    """Every file below the folder that looks like a manifest. Unfinished and hidden files are passed over."""
    if not root.is_dir():
        return
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith((".", TEMPORARY)) and name.endswith(SUFFIXES):
                yield locate(root, Path(folder, name), catalog)


def locate(root: Path, path: Path, catalog: Catalog) -> Found:
    parts = PurePosixPath(path.relative_to(root).as_posix()).parts
    if len(parts) not in (4, 5) or parts[0] != OBJECTS or not _is_text(parts):
        return Found(path, None, None)
    resource = catalog.by_plural(parts[1])
    if resource is None or (parts[2] == CLUSTER) == resource.namespaced:
        return Found(path, None, None)
    name = "".join(part.removesuffix("~") for part in parts[3:]).removesuffix(".yaml")
    key = (resource.id, parts[2] if resource.namespaced else "", name)
    return Found(path, resource, key) if place(root, resource, key) == path else Found(path, None, None)


def _is_text(parts: tuple[str, ...]) -> bool:
    """Other names can't be told in an event, nor kept in the journal."""
    return all(part.isprintable() for part in parts)


def read(data: bytes, resource: Resource, key: Key) -> Obj:
    """The manifest in these bytes, which must be the object of this place; raises BadManifestError."""
    try:
        value = from_yaml(data)
    except BadYamlError as error:
        raise BadManifestError(str(error)) from error
    if value is None:
        raise BadManifestError("the file is empty; to delete the object, delete the file or use kubectl delete")
    if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        raise BadManifestError("the file holds no object with apiVersion, kind and metadata")
    _, namespace, name = key
    metadata = value["metadata"]
    for what, said, wanted in (
        ("apiVersion", value.get("apiVersion"), resource.api_version),
        ("kind", value.get("kind"), resource.kind),
        ("metadata.name", metadata.get("name"), name),
        ("metadata.namespace", metadata.get("namespace") or namespace, namespace),
    ):
        if said != wanted:
            raise BadManifestError(f"{what} is {said!r} and by the place of the file it must be {wanted!r}")
    return value
