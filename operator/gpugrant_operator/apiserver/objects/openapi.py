"""OpenAPI documents: v3 a group-version (kubectl explain, apply, create), and v2 as small as old clients allow.

kubectl asks the server to validate fields only if an operation of the kind declares `fieldValidation`, so each does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache

from gpugrant_operator.apiserver.objects.resources import Catalog, Resource
from gpugrant_operator.apiserver.objects.status import Json, Obj

V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The content type of the answer; the one in the request has an `@`, which Go's mime parser refuses."""

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_REF = "#/components/schemas/"

_TEXT: Obj = {"type": "string"}
_TEXTS: Obj = {"type": "object", "additionalProperties": {"type": "string", "default": ""}}
_TIME: Obj = {"type": "string", "format": "date-time"}

META_SCHEMAS: dict[str, Obj] = {
    f"{_META}.Time": {
        "type": "string",
        "format": "date-time",
        "description": "Time is a wrapper around time.Time.",
    },
    f"{_META}.OwnerReference": {
        "type": "object",
        "description": "OwnerReference contains enough information to let you identify an owning object.",
        "required": ["apiVersion", "kind", "name", "uid"],
        "properties": {
            "apiVersion": _TEXT,
            "blockOwnerDeletion": {"type": "boolean"},
            "controller": {"type": "boolean"},
            "kind": _TEXT,
            "name": _TEXT,
            "uid": _TEXT,
        },
    },
    f"{_META}.ManagedFieldsEntry": {
        "type": "object",
        "description": "ManagedFieldsEntry says which fields a workflow manages.",
        "properties": {
            "apiVersion": _TEXT,
            "fieldsType": _TEXT,
            "fieldsV1": {"type": "object"},
            "manager": _TEXT,
            "operation": _TEXT,
            "subresource": _TEXT,
            "time": _TIME,
        },
    },
    f"{_META}.ObjectMeta": {
        "type": "object",
        "description": "ObjectMeta is metadata that all persisted resources must have.",
        "properties": {
            "annotations": {
                **_TEXTS,
                "description": "Annotations is an unstructured key value map stored with a resource.",
            },
            "creationTimestamp": {
                **_TIME,
                "description": "The server time when this object was created.",
            },
            "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
            "deletionTimestamp": {
                **_TIME,
                "description": "The time at which this object was asked to be deleted.",
            },
            "finalizers": {
                "type": "array",
                "items": {"type": "string", "default": ""},
                "description": "Must be empty before the object is deleted from the registry.",
                "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
            },
            "generateName": {**_TEXT, "description": "A prefix used by the server to make a unique name."},
            "generation": {
                "type": "integer",
                "format": "int64",
                "description": "A sequence number of the desired state.",
            },
            "labels": {**_TEXTS, "description": "Map of string keys and values to organize objects."},
            "managedFields": {"type": "array", "items": {"$ref": f"{_REF}{_META}.ManagedFieldsEntry"}},
            "name": {**_TEXT, "description": "Name must be unique within a namespace."},
            "namespace": {**_TEXT, "description": "Namespace within which each name must be unique."},
            "ownerReferences": {
                "type": "array",
                "items": {"$ref": f"{_REF}{_META}.OwnerReference"},
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-list-type": "map",
                "x-kubernetes-patch-merge-key": "uid",
                "x-kubernetes-patch-strategy": "merge",
            },
            "resourceVersion": {
                **_TEXT,
                "description": "The internal version of this object, for optimistic concurrency.",
            },
            "selfLink": _TEXT,
            "uid": {**_TEXT, "description": "The unique in time and space value for this object."},
        },
    },
    f"{_META}.ListMeta": {
        "type": "object",
        "properties": {
            "continue": _TEXT,
            "remainingItemCount": {"type": "integer", "format": "int64"},
            "resourceVersion": _TEXT,
            "selfLink": _TEXT,
        },
    },
    f"{_META}.Patch": {
        "type": "object",
        "description": "Patch is provided to give a concrete name and type to the Kubernetes PATCH request body.",
    },
    f"{_META}.DeleteOptions": {
        "type": "object",
        "properties": {
            "apiVersion": _TEXT,
            "dryRun": {"type": "array", "items": _TEXT},
            "gracePeriodSeconds": {"type": "integer", "format": "int64"},
            "kind": _TEXT,
            "preconditions": {"type": "object", "properties": {"resourceVersion": _TEXT, "uid": _TEXT}},
            "propagationPolicy": _TEXT,
        },
    },
    f"{_META}.Status": {
        "type": "object",
        "properties": {
            "apiVersion": _TEXT,
            "code": {"type": "integer", "format": "int32"},
            "details": {"type": "object"},
            "kind": _TEXT,
            "message": _TEXT,
            "metadata": {"$ref": f"{_REF}{_META}.ListMeta"},
            "reason": _TEXT,
            "status": _TEXT,
        },
    },
}


def schema_name(resource: Resource) -> str:
    """`io.rediacc.gpu.v1alpha1.GpuMachine`: the group turned round, as the API server names CRD schemas."""
    if resource.group == "":
        return f"io.k8s.api.core.{resource.version}.{resource.kind}"
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


@lru_cache(maxsize=32)
def document_bytes(catalog: Catalog, group: str, version: str) -> bytes:
    return json.dumps(document(catalog, group, version), separators=(",", ":"), ensure_ascii=False).encode()


def document_hash(catalog: Catalog, group: str, version: str) -> str:
    return hashlib.sha512(document_bytes(catalog, group, version)).hexdigest().upper()


def index(catalog: Catalog) -> Obj:
    """`/openapi/v3`: every group-version with the address of its document."""
    paths: Obj = {}
    for group, version in catalog.groups.items():
        name = f"apis/{group}/{version}" if group else f"api/{version}"
        digest = document_hash(catalog, group, version)
        paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
    return {"paths": paths}


def document(catalog: Catalog, group: str, version: str) -> Obj:
    """The OpenAPI v3 document of one group-version."""
    resources = catalog.of(group, version)
    schemas: Obj = dict(META_SCHEMAS)
    paths: Obj = {}
    for resource in resources:
        schemas[schema_name(resource)] = _schema(resource)
        schemas[f"{schema_name(resource)}List"] = _list_schema(resource)
        paths.update(_paths(resource))
    return {
        "openapi": "3.0.0",
        "info": {"title": "gpugrant", "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def swagger() -> Obj:
    """The JSON form of `/openapi/v2`: valid and without definitions; clients since 1.29 read v3."""
    return {
        "swagger": "2.0",
        "info": {"title": "gpugrant", "version": "v1"},
        "paths": {},
        "definitions": {},
    }


def _gvk(resource: Resource, kind: str | None = None) -> Obj:
    return {"group": resource.group, "version": resource.version, "kind": kind or resource.kind}


def _schema(resource: Resource) -> Obj:
    properties = {name: _published(child) for name, child in (resource.schema.get("properties") or {}).items()}
    properties["apiVersion"] = {
        **_TEXT,
        "description": "APIVersion defines the versioned schema of this representation of an object.",
    }
    properties["kind"] = {
        **_TEXT,
        "description": "Kind is a string value representing the REST resource this object represents.",
    }
    properties["metadata"] = {
        "allOf": [{"$ref": f"{_REF}{_META}.ObjectMeta"}],
        "default": {},
        "description": "Standard object's metadata.",
    }
    return {
        **{key: value for key, value in _published(resource.schema).items() if key != "properties"},
        "type": "object",
        "properties": properties,
        "x-kubernetes-group-version-kind": [_gvk(resource)],
    }


def _published(schema: Json) -> Json:
    """The schema without what is a matter of the server alone."""
    if isinstance(schema, Mapping):
        return {key: _published(value) for key, value in schema.items() if key != "x-kubernetes-validations"}
    if isinstance(schema, list):
        return [_published(item) for item in schema]
    return schema


def _list_schema(resource: Resource) -> Obj:
    return {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": _TEXT,
            "kind": _TEXT,
            "items": {"type": "array", "items": {"$ref": f"{_REF}{schema_name(resource)}"}},
            "metadata": {"$ref": f"{_REF}{_META}.ListMeta"},
        },
        "x-kubernetes-group-version-kind": [_gvk(resource, resource.list_kind)],
    }


def _parameter(name: str, kind: str = "string") -> Obj:
    return {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}


_WRITE = [_parameter(name) for name in ("dryRun", "fieldManager", "fieldValidation", "pretty")]
_LIST = [
    _parameter("continue"),
    _parameter("fieldSelector"),
    _parameter("labelSelector"),
    _parameter("limit", "integer"),
    _parameter("resourceVersion"),
    _parameter("timeoutSeconds", "integer"),
    _parameter("watch", "boolean"),
    _parameter("allowWatchBookmarks", "boolean"),
]


def _paths(resource: Resource) -> Obj:
    scope = f"{resource.url_root}/namespaces/{{namespace}}" if resource.namespaced else resource.url_root
    collection = f"{scope}/{resource.plural}"
    paths: Obj = {collection: _collection(resource), f"{collection}/{{name}}": _item(resource)}
    if resource.namespaced:
        everywhere = f"{resource.url_root}/{resource.plural}"
        paths[everywhere] = {"get": _operation(resource, "list", _LIST, listed=True)}
    if resource.has_status and "update" in resource.verbs:
        paths[f"{collection}/{{name}}/status"] = _item(resource, delete=False)
    return paths


def _collection(resource: Resource) -> Obj:
    methods: Obj = {"get": _operation(resource, "list", _LIST, listed=True)}
    if "create" in resource.verbs:
        methods["post"] = _operation(resource, "post", _WRITE, body=schema_name(resource))
    if "deletecollection" in resource.verbs:
        methods["delete"] = _operation(resource, "deletecollection", [*_LIST, _parameter("dryRun")])
    return methods


def _item(resource: Resource, *, delete: bool = True) -> Obj:
    methods: Obj = {"get": _operation(resource, "get", [])}
    if "update" in resource.verbs:
        methods["put"] = _operation(resource, "put", _WRITE, body=schema_name(resource))
    if "patch" in resource.verbs:
        force = _parameter("force", "boolean")
        methods["patch"] = _operation(resource, "patch", [*_WRITE, force], body=f"{_META}.Patch")
    if delete and "delete" in resource.verbs:
        methods["delete"] = _operation(resource, "delete", [_parameter("dryRun")], body=f"{_META}.DeleteOptions")
    return methods


def _operation(resource: Resource, action: str, parameters: list[Obj], *, body: str = "", listed: bool = False) -> Obj:
    answer = schema_name(resource) + ("List" if listed else "")
    operation: Obj = {
        "tags": [resource.group or "core"],
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "OK",
                "content": {"application/json": {"schema": {"$ref": f"{_REF}{answer}"}}},
            }
        },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(resource),
    }
    if body:
        operation["requestBody"] = {"content": {"*/*": {"schema": {"$ref": f"{_REF}{body}"}}}}
    return operation
