"""What a create, update, status update or delete makes of an object: the registry rules of a Kubernetes API server.

Each function takes the old and the wanted object and gives an Outcome; nothing is stored here. Server-owned metadata
(uid, creationTimestamp, generation, deletionTimestamp, resourceVersion) never comes from a request.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gpugrant_crds import timestamps
from gpugrant_operator.apiserver.objects import data, garbage
from gpugrant_operator.apiserver.objects.resources import NAMESPACES, SECRETS, Resource
from gpugrant_operator.apiserver.objects.status import (
    ApiError,
    Cause,
    Json,
    Obj,
    bad_request,
    conflict,
    forbidden,
    forbidden_value,
    invalid,
    invalid_value,
    required,
)
from gpugrant_operator.apiserver.objects.validation import Rules

SYSTEM_NAMESPACES = ("default", "kube-system")
"""Always there; kube-system's uid names this store (apiId of snapshots)."""

MAX_NAME = 253
"""Characters of a name: a DNS subdomain (RFC 1123), as Kubernetes has it."""

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
DNS_LABEL = re.compile(_LABEL)
DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_QUALIFIED_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
MAX_ANNOTATIONS = 256 * 1024
"""Bytes of all annotations together, as apimachinery's TotalAnnotationSizeLimitB."""


@dataclass(frozen=True, slots=True)
class Context:
    """What is true at the moment of the change; made by the shell."""

    now: datetime
    uid: str
    suffix: str
    """Five characters for generateName."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`Put`: store obj. `Remove`: the object goes, and obj is how it looked last. `Keep`: nothing changes."""

    kind: Literal["Put", "Remove", "Keep"]
    obj: Obj


def create(rules: Rules, body: Obj, *, namespace: str, context: Context) -> Obj:
    """The new object, complete but for its resourceVersion; raises ApiError 400 or 422."""
    resource = rules.resource
    given = body.get("metadata") or {}
    if given.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    metadata: Obj = {key: given[key] for key in _USER_METADATA if given.get(key)}
    if metadata.get("generateName") and not metadata.get("name"):
        _require_text(resource, "metadata.generateName", metadata["generateName"], given)
        metadata["name"] = metadata["generateName"][: MAX_NAME - 5] + context.suffix
    if resource.namespaced:
        metadata["namespace"] = namespace
    metadata["uid"] = context.uid
    if resource.custom:
        metadata["generation"] = 1
    metadata["creationTimestamp"] = timestamps.write(context.now)
    obj = {**body, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    if resource.has_status:
        obj.pop("status", None)
    return _checked(rules, _settled(resource, rules.default(obj)), None)


def update(rules: Rules, old: Obj, body: Obj, *, context: Context) -> Outcome:
    """The object after an update of the main resource; raises ApiError 409 or 422."""
    resource = rules.resource
    metadata = _updated_metadata(resource, old, body)
    new = {**body, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    if resource.has_status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    new = _settled(resource, rules.default(new))
    if resource.custom and _desired_part(new) != _desired_part(old):
        metadata["generation"] = _generation(old) + 1
    new["metadata"] = metadata
    return _finish(rules, old, new)


def update_status(rules: Rules, old: Obj, body: Obj) -> Outcome:
    """The object with the body's status; everything else of the body is ignored, as in a real API server."""
    _check_preconditions(rules.resource, old, body.get("metadata") or {})
    new = {key: value for key, value in old.items() if key != "status"}
    if body.get("status") is not None:
        new["status"] = body["status"]
    return _finish(rules, old, rules.default(new))


def delete(resource: Resource, old: Obj, options: Mapping[str, Json], *, now: datetime) -> Outcome:
    """Two-phase deletion: with finalizers the object is marked, without it goes. Raises ApiError 403 or 409."""
    metadata, name = old["metadata"], old["metadata"]["name"]
    _check_delete_preconditions(resource, old, options.get("preconditions") or {})
    if resource.id == NAMESPACES.id and name in SYSTEM_NAMESPACES:
        raise forbidden(resource.plural, resource.group, name, "this namespace may not be deleted")
    held = list(metadata.get("finalizers") or ())
    finalizers = garbage.finalizers(held, garbage.policy(options))
    stays = bool(finalizers) or resource.id == NAMESPACES.id
    if not stays:
        return Outcome("Remove", old)
    if finalizers != held:
        metadata = {key: value for key, value in metadata.items() if key != "finalizers"}
        metadata.update({"finalizers": finalizers} if finalizers else {})
    if metadata.get("deletionTimestamp"):
        return Outcome("Keep", old) if finalizers == held else Outcome("Put", {**old, "metadata": metadata})
    marked = {
        **metadata,
        "deletionTimestamp": timestamps.write(now),
        "deletionGracePeriodSeconds": 0,
        **({"generation": _generation(old) + 1} if resource.custom else {}),
    }
    new = {**old, "metadata": marked}
    if resource.id == NAMESPACES.id:
        new["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
    return Outcome("Put", new)


def emptied_namespace(old: Obj) -> Outcome:
    """A terminating namespace whose objects are gone; its own finalizers still count."""
    metadata = old["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return Outcome("Keep", old)
    return Outcome("Remove", old)


# --- metadata -------------------------------------------------------------------------------------------------

_USER_METADATA = (
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
)
_KEPT_METADATA = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def _updated_metadata(resource: Resource, old: Obj, body: Obj) -> Obj:
    given, held = body.get("metadata") or {}, old["metadata"]
    _check_preconditions(resource, old, given)
    metadata = {key: held[key] for key in _KEPT_METADATA if key in held}
    metadata.update({key: given[key] for key in _USER_METADATA[3:] if given.get(key)})
    added = [f for f in given.get("finalizers") or () if f not in (held.get("finalizers") or ())]
    if held.get("deletionTimestamp") and added:
        raise invalid(
            resource.kind,
            resource.group,
            held["name"],
            [
                forbidden_value(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, "
                    f"found new finalizers {_list(added)}",
                )
            ],
        )
    return metadata


def _list(items: list[Json]) -> str:
    return "[" + ", ".join(f'"{item}"' for item in items) + "]"


def _check_preconditions(resource: Resource, old: Obj, given: Mapping[str, Json]) -> None:
    held = old["metadata"]
    if given.get("uid") and given["uid"] != held["uid"]:
        raise conflict(
            resource.plural,
            resource.group,
            held["name"],
            f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {held['uid']}",
        )
    version = given.get("resourceVersion")
    if version and version != held["resourceVersion"]:
        raise conflict(resource.plural, resource.group, held["name"])


def _check_delete_preconditions(resource: Resource, old: Obj, wanted: Mapping[str, Json]) -> None:
    held = old["metadata"]
    for key, words in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(key) and wanted[key] != held[key]:
            raise conflict(
                resource.plural,
                resource.group,
                held["name"],
                f"Precondition failed: {words} in precondition: {wanted[key]}, {words} in object meta: {held[key]}",
            )


def _generation(obj: Obj) -> int:
    return int(obj["metadata"].get("generation", 1))


def _desired_part(obj: Mapping[str, Json]) -> Obj:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _finish(rules: Rules, old: Obj, new: Obj) -> Outcome:
    if new == old:
        return Outcome("Keep", old)
    if old["metadata"].get("deletionTimestamp") and _only_finalizers_shrank(old, new):
        # Release must always be possible, also for an object that a newer schema would refuse.
        checked = new
    else:
        checked = _checked(rules, new, old)
    leaving = checked["metadata"].get("deletionTimestamp") and not checked["metadata"].get("finalizers")
    if leaving and rules.resource.id != NAMESPACES.id:
        return Outcome("Remove", checked)
    return Outcome("Put", checked)


def _only_finalizers_shrank(old: Obj, new: Obj) -> bool:
    def rest(obj: Obj) -> Obj:
        metadata = {key: value for key, value in obj["metadata"].items() if key != "finalizers"}
        return {**obj, "metadata": metadata}

    return rest(old) == rest(new)


def _settled(resource: Resource, obj: Obj) -> Obj:
    """What a real API server writes into core objects by itself."""
    if resource.id == NAMESPACES.id:
        status = obj.get("status") or {"phase": "Active"}
        labels = {**(obj["metadata"].get("labels") or {})}
        labels["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")
        spec = obj.get("spec") or {"finalizers": ["kubernetes"]}
        return {**obj, "metadata": {**obj["metadata"], "labels": labels}, "spec": spec, "status": status}
    if resource.id == SECRETS.id:
        return _settled_secret(obj)
    return obj


def _settled_secret(obj: Obj) -> Obj:
    settled = {key: value for key, value in obj.items() if key != "stringData"}
    settled.setdefault("type", "Opaque")
    written = obj.get("stringData")
    if isinstance(written, dict):
        encoded = {key: _base64(value) for key, value in written.items()}
        settled["data"] = {**(settled.get("data") or {}), **encoded}
    return settled


def _base64(text: Json) -> str:
    return base64.b64encode(str(text).encode()).decode("ascii")


# --- checks ---------------------------------------------------------------------------------------------------


def _checked(rules: Rules, obj: Obj, old: Obj | None) -> Obj:
    resource = rules.resource
    causes = (*_metadata_causes(resource, obj["metadata"]), *data.causes(resource, obj, old), *rules.check(obj, old))
    if causes:
        raise invalid(resource.kind, resource.group, str(obj["metadata"].get("name", "")), causes)
    return obj


def _metadata_causes(resource: Resource, metadata: Mapping[str, Json]) -> tuple[Cause, ...]:
    name = metadata.get("name")
    if not name:
        return (required("metadata.name", "name or generateName is required"),)
    causes: list[Cause] = []
    if not isinstance(name, str) or not _sound_name(resource, name):
        causes.append(
            invalid_value(
                "metadata.name",
                f'"{name}"',
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
                "and must start and end with an alphanumeric character "
                "(e.g. 'example.com', regex used for validation is "
                "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            )
        )
    elif len(name) > MAX_NAME:
        causes.append(invalid_value("metadata.name", f'"{name}"', f"must be no more than {MAX_NAME} characters"))
    causes.extend(_map_causes("metadata.labels", metadata.get("labels"), labels=True))
    causes.extend(_map_causes("metadata.annotations", metadata.get("annotations"), labels=False))
    causes.extend(_finalizer_causes(metadata.get("finalizers")))
    causes.extend(_owner_causes(metadata.get("ownerReferences")))
    return tuple(causes)


def _sound_name(resource: Resource, name: str) -> bool:
    if resource.id == NAMESPACES.id:
        return bool(DNS_LABEL.fullmatch(name))
    return bool(DNS_SUBDOMAIN.fullmatch(name))


def _map_causes(field: str, value: Json, *, labels: bool) -> list[Cause]:
    if value is None:
        return []
    if not isinstance(value, dict):
        return [invalid_value(field, '"…"', "must be an object of strings")]
    causes: list[Cause] = []
    size = 0
    for key, text in value.items():
        if not _sound_key(key):
            causes.append(invalid_value(field, f'"{key}"', "a qualified name must consist of alphanumeric characters"))
        if not isinstance(text, str):
            causes.append(invalid_value(f"{field}.{key}", str(text), "must be a string: quote it"))
        elif labels and not _LABEL_VALUE.fullmatch(text):
            causes.append(
                invalid_value(
                    f"{field}.{key}",
                    f'"{text}"',
                    "a label value has at most 63 alphanumeric characters, '-', '_' or '.'",
                )
            )
        else:
            size += len(key) + len(text)
    if size > MAX_ANNOTATIONS:
        causes.append(Cause("FieldValueTooLong", field, f"Too long: may not be more than {MAX_ANNOTATIONS} bytes"))
    return causes


def _sound_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(_QUALIFIED_NAME.fullmatch(name)) and (not slash or bool(DNS_SUBDOMAIN.fullmatch(prefix.lower())))


def _finalizer_causes(value: Json) -> list[Cause]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) and _sound_key(item) for item in value):
        return [invalid_value("metadata.finalizers", '"…"', "must be a list of qualified names")]
    return []


def _owner_causes(value: Json) -> list[Cause]:
    if value is None:
        return []
    texts = ("apiVersion", "kind", "name", "uid")
    sound = isinstance(value, list) and all(
        isinstance(owner, dict) and all(isinstance(owner.get(key), str) and owner[key] for key in texts)
        for owner in value
    )
    wanted = "must be a list of objects with apiVersion, kind, name and uid"
    return _controller_causes(value) if sound else [invalid_value("metadata.ownerReferences", '"…"', wanted)]


def _controller_causes(owners: list[Obj]) -> list[Cause]:
    """As apimachinery's ValidateOwnerReferences: two controllers would work against each other."""
    controllers = [f"{owner['kind']}/{owner['name']}" for owner in owners if owner.get("controller") is True]
    order = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
    shown = [{key: owner[key] for key in order if owner.get(key) is not None} for owner in owners]
    return [
        invalid_value(
            "metadata.ownerReferences",
            json.dumps(shown, separators=(",", ":"), ensure_ascii=False),
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {other}",
        )
        for other in controllers[1:]
    ]


def _require_text(resource: Resource, field: str, value: Json, metadata: Mapping[str, Json]) -> None:
    if not isinstance(value, str):
        name = str(metadata.get("name", ""))
        raise invalid(resource.kind, resource.group, name, [invalid_value(field, '"…"', "must be a string")])


# --- the object of a request ----------------------------------------------------------------------------------


def addressed(resource: Resource, body: Json, *, namespace: str, name: str | None) -> Obj:
    """The body as an object of this URL; raises ApiError 400 where kind, name or namespace say otherwise."""
    if not isinstance(body, dict):
        raise bad_request("the body must be an object")
    if not isinstance(body.get("metadata") or {}, dict):
        raise bad_request("metadata must be an object")
    _match_type(resource, body)
    data.check_base64(resource, body)
    metadata = dict(body.get("metadata") or {})
    for key in ("name", "namespace", "uid", "resourceVersion"):
        if metadata.get(key) is not None and not isinstance(metadata[key], str):
            raise bad_request(f"metadata.{key} must be a string")
    if resource.namespaced and metadata.get("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if not resource.namespaced:
        metadata.pop("namespace", None)
    if name is not None:
        check_name({"name": name, **metadata}, name)
        metadata["name"] = name
    return {**body, "metadata": metadata}


def check_name(metadata: Mapping[str, Json], name: str) -> None:
    """As kube-apiserver's checkName; raises ApiError 400."""
    given = metadata.get("name")
    if not given:
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def _match_type(resource: Resource, body: Mapping[str, Json]) -> None:
    kind, version = body.get("kind"), body.get("apiVersion")
    if kind is None and version is None and not resource.custom:
        return  # typed clients leave both out for core kinds
    if kind != resource.kind:
        raise bad_request(f'invalid object: kind must be "{resource.kind}", got "{kind or ""}"')
    if version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version or ''}) does not match the expected API version "
            f"({resource.api_version})"
        )


def strict_error(resource: Resource, problems: tuple[str, ...]) -> ApiError:
    """What `--validate=strict` answers to unknown or doubled fields."""
    return bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
        f"strict decoding error: {', '.join(problems)}"
    )
