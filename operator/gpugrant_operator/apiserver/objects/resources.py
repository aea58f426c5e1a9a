"""What the server serves: one frozen value a resource, read from CRD manifests and from the table of core kinds.

Everything generic (discovery, OpenAPI, tables, validation, storage) reads these values; nothing else may know a
resource by name, save the namespace rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gpugrant_operator.apiserver.objects.status import Json, Obj

READ = ("get", "list", "watch")
ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column (CustomResourceColumnDefinition)."""

    name: str
    type: str
    path: str
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True)
class Resource:
    """One served resource. `schema` is a structural schema; `{}` with `open_schema` takes any fields."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    schema: Mapping[str, Json]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    selectable: tuple[str, ...] = ()
    has_status: bool = False
    verbs: tuple[str, ...] = ALL_VERBS
    custom: bool = False
    desired: bool = False
    """True: an object is a YAML file below the manifests folder; else it lives in the journal alone."""
    read_only_reason: str = ""
    open_schema: bool = field(default=False)

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def id(self) -> str:
        """`plural.group`: the name of the resource in the store and in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @cached_property
    def url_root(self) -> str:
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    def __hash__(self) -> int:
        return hash(self.id)


class BadCrdError(ValueError):
    """A CRD manifest that this server can't serve; only a mistake in our own package raises it."""


def from_crd(crd: Mapping[str, Json]) -> Resource:
    """The resource of a CustomResourceDefinition's storage version; raises BadCrdError naming the missing field."""
    try:
        spec, names = crd["spec"], crd["spec"]["names"]
        version = next(entry for entry in spec["versions"] if entry.get("storage"))
        return Resource(
            group=spec["group"],
            version=version["name"],
            kind=names["kind"],
            plural=names["plural"],
            singular=names.get("singular") or names["kind"].lower(),
            namespaced=spec["scope"] == "Namespaced",
            schema=version["schema"]["openAPIV3Schema"],
            short_names=tuple(names.get("shortNames", ())),
            categories=tuple(names.get("categories", ())),
            columns=_crd_columns(version.get("additionalPrinterColumns", ())),
            selectable=tuple(entry["jsonPath"].lstrip(".") for entry in version.get("selectableFields", ())),
            has_status="status" in (version.get("subresources") or {}),
            custom=True,
            desired=True,
        )
    except KeyError as error:
        raise BadCrdError(f"the CRD has no field {error}") from error
    except StopIteration as error:
        raise BadCrdError("the CRD has no storage version") from error


def _crd_columns(columns: Iterable[Mapping[str, Json]]) -> tuple[Column, ...]:
    read = tuple(
        Column(
            name=column["name"],
            type=column["type"],
            path=column["jsonPath"],
            format=column.get("format", ""),
            description=column.get("description", ""),
            priority=int(column.get("priority", 0)),
        )
        for column in columns
    )
    return read or (AGE,)


AGE = Column(
    "Age",
    "date",
    ".metadata.creationTimestamp",
    description="CreationTimestamp is a timestamp representing the server time when this object was created.",
)

_STRING_MAP: Obj = {"type": "object", "additionalProperties": {"type": "string"}}
_ANY: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_REFERENCE: Obj = {
    "type": "object",
    "properties": {
        name: {"type": "string"}
        for name in ("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid")
    },
}
_STRING: Obj = {"type": "string"}
_INTEGER: Obj = {"type": "integer"}
_TIME: Obj = {"type": "string", "nullable": True, "format": "date-time"}


def _schema(kind: str, properties: Mapping[str, Json], *, description: str) -> Obj:
    return {
        "type": "object",
        "description": description,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            **properties,
        },
    }


NAMESPACES = Resource(
    group="",
    version="v1",
    kind="Namespace",
    plural="namespaces",
    singular="namespace",
    namespaced=False,
    short_names=("ns",),
    has_status=True,
    desired=True,
    columns=(Column("Status", "string", ".status.phase"), AGE),
    schema=_schema(
        "Namespace",
        {
            "spec": {
                "type": "object",
                "properties": {"finalizers": {"type": "array", "items": _STRING}},
            },
            "status": {
                "type": "object",
                "properties": {"phase": _STRING, "conditions": {"type": "array", "items": _ANY}},
            },
        },
        description="Namespace provides a scope for Names.",
    ),
)

EVENTS = Resource(
    group="",
    version="v1",
    kind="Event",
    plural="events",
    singular="event",
    namespaced=True,
    short_names=("ev",),
    selectable=(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    columns=(
        Column("Last Seen", "date", ".lastTimestamp"),
        Column("Type", "string", ".type"),
        Column("Reason", "string", ".reason"),
        Column("Object", "string", ".involvedObject"),
        Column("Subobject", "string", ".involvedObject.fieldPath", priority=1),
        Column("Source", "string", ".source.component", priority=1),
        Column("Message", "string", ".message"),
        Column("First Seen", "date", ".firstTimestamp", priority=1),
        Column("Count", "string", ".count", priority=1),
        Column("Name", "string", ".metadata.name", priority=1),
    ),
    schema=_schema(
        "Event",
        {
            "action": _STRING,
            "count": _INTEGER,
            "eventTime": _TIME,
            "firstTimestamp": _TIME,
            "involvedObject": _REFERENCE,
            "lastTimestamp": _TIME,
            "message": _STRING,
            "reason": _STRING,
            "related": _REFERENCE,
            "reportingComponent": _STRING,
            "reportingInstance": _STRING,
            "series": {
                "type": "object",
                "properties": {"count": _INTEGER, "lastObservedTime": _TIME},
            },
            "source": {"type": "object", "properties": {"component": _STRING, "host": _STRING}},
            "type": _STRING,
        },
        description="Event is a report of an event somewhere in the system.",
    ),
)

CONFIGMAPS = Resource(
    group="",
    version="v1",
    kind="ConfigMap",
    plural="configmaps",
    singular="configmap",
    namespaced=True,
    short_names=("cm",),
    desired=True,
    columns=(Column("Data", "string", ".data"), AGE),
    schema=_schema(
        "ConfigMap",
        {"data": _STRING_MAP, "binaryData": _STRING_MAP, "immutable": {"type": "boolean"}},
        description="ConfigMap holds configuration data for pods to consume.",
    ),
)

SECRETS = Resource(
    group="",
    version="v1",
    kind="Secret",
    plural="secrets",
    singular="secret",
    namespaced=True,
    selectable=("type",),
    columns=(Column("Type", "string", ".type"), Column("Data", "string", ".data"), AGE),
    schema=_schema(
        "Secret",
        {
            "data": _STRING_MAP,
            "stringData": _STRING_MAP,
            "type": _STRING,
            "immutable": {"type": "boolean"},
        },
        description="Secret holds secret data of a certain type.",
    ),
)

LEASES = Resource(
    group="coordination.k8s.io",
    version="v1",
    kind="Lease",
    plural="leases",
    singular="lease",
    namespaced=True,
    columns=(Column("Holder", "string", ".spec.holderIdentity"), AGE),
    schema=_schema(
        "Lease",
        {
            "spec": {
                "type": "object",
                "properties": {
                    "acquireTime": _TIME,
                    "holderIdentity": _STRING,
                    "leaseDurationSeconds": _INTEGER,
                    "leaseTransitions": _INTEGER,
                    "preferredHolder": _STRING,
                    "renewTime": _TIME,
                    "strategy": _STRING,
                },
            }
        },
        description="Lease defines a lease concept.",
    ),
)

CRDS = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    singular="customresourcedefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    verbs=READ,
    has_status=True,
    read_only_reason="the resource definitions of this server are built in; `gpugrant crds` prints them for a cluster",
    columns=(Column("Created At", "string", ".metadata.creationTimestamp"),),
    schema=_schema(
        "CustomResourceDefinition",
        {"spec": _ANY, "status": _ANY},
        description="CustomResourceDefinition represents a resource that is exposed on the API server.",
    ),
)

CORE: tuple[Resource, ...] = (NAMESPACES, EVENTS, CONFIGMAPS, SECRETS, LEASES, CRDS)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All resources of a server, findable by URL parts and by kind."""

    resources: tuple[Resource, ...]

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        for resource in self.resources:
            if (resource.group, resource.version, resource.plural) == (group, version, plural):
                return resource
        return None

    def by_id(self, identity: str) -> Resource | None:
        return next((resource for resource in self.resources if resource.id == identity), None)

    def by_plural(self, plural: str) -> Resource | None:
        """The resource whose objects are files of this folder name."""
        return next((r for r in self.resources if r.desired and r.plural == plural), None)

    @property
    def groups(self) -> dict[str, str]:
        """Group → its one version, core first."""
        return {resource.group: resource.version for resource in self.resources}

    def of(self, group: str, version: str) -> tuple[Resource, ...]:
        return tuple(r for r in self.resources if (r.group, r.version) == (group, version))


def catalog(crds: Iterable[Mapping[str, Json]]) -> Catalog:
    return Catalog(CORE + tuple(from_crd(crd) for crd in crds))


def served_crd(crd: Mapping[str, Json], *, uid: str, created: str) -> Obj:
    """The CRD as the server shows it: established, with the names accepted."""
    names = crd["spec"]["names"]
    condition = {"status": "True", "lastTransitionTime": created}
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {
            **crd["metadata"],
            "uid": uid,
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": created,
        },
        "spec": crd["spec"],
        "status": {
            "acceptedNames": names,
            "conditions": [
                {
                    "type": "NamesAccepted",
                    **condition,
                    "reason": "NoConflicts",
                    "message": "no conflicts found",
                },
                {
                    "type": "Established",
                    **condition,
                    "reason": "InitialNamesAccepted",
                    "message": "the initial names have been accepted",
                },
            ],
            "storedVersions": [version["name"] for version in crd["spec"]["versions"]],
        },
    }
