"""The documents by which clients learn what is served: legacy lists and aggregated discovery (v2 and v2beta1).

The content type of an aggregated answer must name exactly the version that is sent: kubectl 1.27 takes v2 for
nonsense, and 1.37 no longer asks for v2beta1.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpugrant_operator.apiserver.objects.resources import Catalog, Resource
from gpugrant_operator.apiserver.objects.status import Json, Obj

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"

REVIEWS: tuple[tuple[str, str, str, str], ...] = (
    ("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview"),
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
)
"""Questions that are answered and never stored: (group, version, plural, kind)."""


def api_versions() -> Obj:
    return {"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups(catalog: Catalog) -> dict[str, str]:
    """Group → version of everything but core, in a stable order."""
    found = {group: version for group, version in catalog.groups.items() if group}
    found.update({group: version for group, version, _, _ in REVIEWS})
    return dict(sorted(found.items()))


def group_list(catalog: Catalog) -> Obj:
    entries = [group(name, version) for name, version in groups(catalog).items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": entries}


def group(name: str, version: str) -> Obj:
    entry = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [entry], "preferredVersion": entry}


def resource_list(catalog: Catalog, group_name: str, version: str) -> Obj:
    rows: list[Obj] = []
    for resource in catalog.of(group_name, version):
        rows.append(_row(resource))
        if resource.has_status:
            rows.append(_status_row(resource))
    for review_group, review_version, plural, kind in REVIEWS:
        if (review_group, review_version) == (group_name, version):
            rows.append(
                {
                    "name": plural,
                    "singularName": kind.lower(),
                    "namespaced": False,
                    "kind": kind,
                    "verbs": ["create"],
                }
            )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group_name}/{version}" if group_name else version,
        "resources": rows,
    }


def _row(resource: Resource) -> Obj:
    row: Obj = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    return row


def _status_row(resource: Resource) -> Obj:
    return {
        "name": f"{resource.plural}/status",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _status_verbs(resource),
    }


def _status_verbs(resource: Resource) -> list[str]:
    return [verb for verb in ("get", "patch", "update") if verb in resource.verbs]


def aggregated(catalog: Catalog, *, core: bool, version: str) -> Obj:
    """The APIGroupDiscoveryList of `/api` (core) or `/apis`."""
    names = {"": "v1"} if core else groups(catalog)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [_aggregated_group(catalog, name, found) for name, found in names.items()],
    }


def _aggregated_group(catalog: Catalog, name: str, version: str) -> Obj:
    resources = [_aggregated_resource(resource) for resource in catalog.of(name, version)]
    resources.extend(_aggregated_reviews(name))
    entry = {"version": version, "resources": resources, "freshness": "Current"}
    return {"metadata": {"name": name, "creationTimestamp": None}, "versions": [entry]}


def _aggregated_resource(resource: Resource) -> Obj:
    row: Obj = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource.group, resource.version, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    if resource.has_status:
        row["subresources"] = [
            {
                "subresource": "status",
                "responseKind": _response_kind(resource.group, resource.version, resource.kind),
                "verbs": _status_verbs(resource),
            }
        ]
    return row


def _aggregated_reviews(group_name: str) -> list[Obj]:
    return [
        {
            "resource": plural,
            "responseKind": _response_kind(group_name, version, kind),
            "scope": "Cluster",
            "singularResource": kind.lower(),
            "verbs": ["create"],
        }
        for name, version, plural, kind in REVIEWS
        if name == group_name
    ]


def _response_kind(group_name: str, version: str, kind: str) -> Obj:
    return {"group": group_name, "version": version, "kind": kind}


def wanted_version(accept: Sequence[str]) -> tuple[str, str] | None:
    """The (version, content type) of the first aggregated form that the client accepts; None: the legacy lists."""
    for entry in accept:
        compact = entry.replace(" ", "").split(";q=")[0]
        if compact.startswith(V2):
            return "v2", V2
        if compact.startswith(V2BETA1):
            return "v2beta1", V2BETA1
        if compact in ("application/json", "*/*", "application/*"):
            return None
    return None


def version_info(release: str) -> Json:
    return {
        "major": "1",
        "minor": "32",
        "gitVersion": f"v1.32.0+gpugrant.{release}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "python",
        "platform": "linux/amd64",
    }
