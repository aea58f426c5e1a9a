"""Where ours answers other than Kubernetes' own API server, and why. docs/api-differences.md is made of it.

A place is a part of the answer in normal form, two or three names of its JSON pointer deep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

DEPTH = {"details": 2, "columnDefinitions": 2, "resources": 2, "items": 2, "rows": 2, "properties": 2}
"""Names below `body` that are not looked into."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`answers`: the places that differ, by `chapter: step`."""

    title: str
    reason: str
    answers: Mapping[str, tuple[str, ...]]


def places(pointers: Iterable[str]) -> set[str]:
    """The places of these JSON pointers; a body of another kind is one place."""
    found = {_place(pointer) for pointer in pointers}
    if "body/kind" in found:
        found = {at for at in found if not at.startswith("body/")} | {"body"}
    return found


def _place(pointer: str) -> str:
    parts = pointer.strip("/").split("/")
    shallow = len(parts) > 1 and (parts[1] in DEPTH or parts[1].isdigit())
    return "/".join(parts[: 2 if shallow else 3])


def listed(chapter: str, step: str) -> set[str]:
    """The places that may differ, and must."""
    key = f"{chapter}: {step}"
    return {at for difference in DIFFERENCES for at in difference.answers.get(key, ())}


def steps() -> set[tuple[str, str]]:
    """All (chapter, step) that have a difference."""
    pairs = (key.split(": ", 1) for difference in DIFFERENCES for key in difference.answers)
    return {(chapter, step) for chapter, step in pairs}


def document() -> str:
    """docs/api-differences.md."""
    lines = [HEAD]
    for difference in DIFFERENCES:
        lines += [f"## {difference.title}", "", difference.reason, ""]
        lines += [f"- {key}: {', '.join(f'`{at}`' for at in places)}" for key, places in difference.answers.items()]
        lines.append("")
    return "\n".join(lines)


HEAD = """\
# Where our API server answers other than Kubernetes' own

Made from `tests/operator/apiserver/differential/api_differences.py`, which the differential test reads: 370 requests go
to both servers, and an answer that differs elsewhere fails it, as does an entry that is no longer true. An entry is
`chapter: step` of the script beside it, with the parts of the answer that differ.
"""

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "Worded by us",
        "The code and the reason are equal. The text says what to do where the real one tells an error "
        "of Go, or its texts for a name, a selector or a JSON patch are shorter here.",
        {
            "apply: another kind": ("body/message",),
            "apply: no YAML": ("body/message",),
            "apply: no kind": ("body/message",),
            "apply: two of another's": (
                "body/details",
                "body/message",
            ),
            "core: a secret that is no base64": ("body/message",),
            "create: a bad annotation": (
                "body/details",
                "body/message",
            ),
            "create: a bad label": ("body/details",),
            "create: a number as a name": ("body/message",),
            "create: a rule of a name": (
                "body/details",
                "body/message",
            ),
            "create: an empty repo": (
                "body/details",
                "body/message",
            ),
            "create: an owner without a uid": (
                "body/details",
                "body/message",
            ),
            "create: duplicate key, strict": ("body/message",),
            "create: no kind": ("body/message",),
            "create: no name": (
                "body/details",
                "body/message",
            ),
            "create: too long a name": (
                "body/details",
                "body/message",
            ),
            "delete: an unknown policy": (
                "body/details",
                "body/message",
            ),
            "delete: another uid": (
                "body/details",
                "body/message",
            ),
            "delete: another version": (
                "body/details",
                "body/message",
            ),
            "delete: no new finalizer": (
                "body/details",
                "body/message",
            ),
            "delete: policy and orphanDependents": (
                "body/details",
                "body/message",
            ),
            "delete: the name is taken": ("body/message",),
            "discovery: a body behind the body": ("body/message",),
            "discovery: a form": ("body/message",),
            "discovery: a list": ("body/message",),
            "discovery: a string": ("body/message",),
            "discovery: an empty body": ("body/message",),
            "discovery: no JSON": ("body/message",),
            "discovery: no YAML": ("body/message",),
            "list: a continue that is none": ("body/message",),
            "list: a limit that is no number": ("body/message",),
            "list: a version that is none": ("body/message",),
            "list: field that can't be read": ("body/message",),
            "list: field that can't be selected": ("body/message",),
            "list: label greater": ("body/message",),
            "list: label that can't be read": ("body/message",),
            "list: label with a bad key": ("body/message",),
            "patch: json below what is not there": (
                "body/details",
                "body/message",
            ),
            "patch: json index out of range": (
                "body/details",
                "body/message",
            ),
            "patch: json that is no list": ("body/message",),
            "patch: json that removes what is not there": (
                "body/details",
                "body/message",
            ),
            "patch: json with a failed test": (
                "body/details",
                "body/message",
            ),
            "patch: merge that is a list": ("body/message",),
            "patch: merge that is no JSON": ("body/message",),
            "update: another uid": ("body/message",),
            "update: no such subresource": (
                "body/details",
                "body/message",
            ),
            "watch: timeoutSeconds that is no number": ("body/0",),
        },
    ),
    Difference(
        "A client's fault is none of the server's",
        "The real server answers 500 to what a client sent; ours answers 400, 409 or 422 with the same "
        "text or a clearer one.",
        {
            "apply: a double key": (
                "body/code",
                "body/message",
                "body/reason",
                "code",
            ),
            "apply: a wrong type": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "code",
            ),
            "apply: an unknown field": (
                "body/code",
                "body/message",
                "body/reason",
                "code",
            ),
            "apply: an unknown field, strict": (
                "body/code",
                "body/message",
                "body/reason",
                "code",
            ),
            "apply: no key": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "code",
            ),
            "create: with a resourceVersion": (
                "body/code",
                "body/reason",
                "code",
            ),
            "delete: a body that is no JSON": (
                "body/code",
                "body/message",
                "body/reason",
                "code",
            ),
            "update: a version that is none": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "code",
            ),
            "watch: a version that is none": (
                "body/0",
                "code",
            ),
        },
    ),
    Difference(
        "No such path",
        "The real server writes a page of plain text for a path that no handler has; ours a Status with "
        "the same reason, which every client can read. A write without a namespace is 405 here.",
        {
            "delete: a collection of all namespaces": (
                "body",
                "code",
                "headers/content-type",
            ),
            "discovery: a cluster kind in a namespace": (
                "body",
                "headers/content-type",
            ),
            "discovery: a namespaced kind by name alone": (
                "body",
                "headers/content-type",
            ),
            "discovery: no group": (
                "body",
                "headers/content-type",
            ),
            "discovery: no kind": (
                "body",
                "headers/content-type",
            ),
            "discovery: no kind in a namespace": (
                "body",
                "headers/content-type",
            ),
            "discovery: no path": (
                "body",
                "headers/content-type",
            ),
            "discovery: no version": (
                "body",
                "headers/content-type",
            ),
            "discovery: without a namespace": (
                "body",
                "code",
                "headers/content-type",
            ),
        },
    ),
    Difference(
        "Stricter, or remembers more",
        "A POST to a name, a negative limit and a JSON patch that replaces what is not there are taken "
        "by the real server and refused here. Our log of changes goes back further than its watch cache.",
        {
            "create: to a name": (
                "body",
                "code",
            ),
            "list: a negative limit": (
                "body",
                "code",
            ),
            "patch: json that replaces what is not there": (
                "body",
                "code",
                "headers/warning",
            ),
            "watch: too old a version": ("body",),
        },
    ),
    Difference(
        "Only JSON is written",
        "Objects are not written as YAML or protobuf: a client that lists JSON beside them gets JSON. An "
        "unknown method is refused by the HTTP parser.",
        {
            "discovery: an unknown method": (
                "body",
                "code",
                "headers/cache-control",
                "headers/content-type",
            ),
            "discovery: another media type": ("body/message",),
            "list: another media type": ("body/message",),
            "list: protobuf": (
                "body",
                "headers/content-type",
            ),
            "list: yaml": (
                "body",
                "code",
                "headers/content-type",
            ),
        },
    ),
    Difference(
        "Built-in kinds",
        "Namespaces, config maps, secrets, events and leases are served by schema and not by typed code: "
        "a few texts, cells, empty fields and owned fields differ, and events.k8s.io is not served. Our "
        "programs and kubectl use what is equal.",
        {
            "apply: namespace": ("body/metadata/managedFields",),
            "core: a bad namespace": (
                "body/details",
                "body/message",
            ),
            "core: a config map of numbers": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "code",
            ),
            "core: a label of the namespace": ("body/metadata/managedFields",),
            "core: a lease": ("body/metadata/managedFields",),
            "core: a namespace with a dot": (
                "body/details",
                "body/message",
            ),
            "core: an event": (
                "body/eventTime",
                "body/firstTimestamp",
                "body/lastTimestamp",
                "body/metadata/managedFields",
                "body/reportingComponent",
                "body/reportingInstance",
            ),
            "core: an event of the new group": (
                "body",
                "code",
            ),
            "core: config maps": ("body/items",),
            "core: config maps as a table": (
                "body/columnDefinitions",
                "body/rows",
            ),
            "core: events as a table": (
                "body/columnDefinitions",
                "body/rows",
            ),
            "core: events by their object": ("body/items",),
            "core: leases as a table": (
                "body/columnDefinitions",
                "body/rows",
            ),
            "core: namespace": ("body/metadata/managedFields",),
            "core: namespaces as a table": (
                "body/columnDefinitions",
                "body/rows",
            ),
            "core: renewed": ("body/metadata/managedFields",),
            "core: secrets as a table": (
                "body/columnDefinitions",
                "body/rows",
            ),
            "core: the namespace": ("body/metadata/managedFields",),
            "create: namespace": ("body/metadata/managedFields",),
            "delete: namespace": ("body/metadata/managedFields",),
            "list: namespace": ("body/metadata/managedFields",),
            "patch: namespace": ("body/metadata/managedFields",),
            "update: namespace": ("body/metadata/managedFields",),
            "watch: namespace": ("body/metadata/managedFields",),
        },
    ),
    Difference(
        "One token that may do everything",
        "There are no users and no anonymous requests; a review says so in its reason, and carries no "
        "metadata of its own.",
        {
            "rights: may I": (
                "body/metadata",
                "body/status/reason",
            ),
            "rights: may I, of a path": (
                "body/metadata",
                "body/status/reason",
            ),
            "rights: may I, of nothing": (
                "body",
                "code",
            ),
            "rights: no token": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "code",
            ),
            "rights: reviews can't be read": (
                "body/details",
                "body/message",
            ),
            "rights: who am I": (
                "body/metadata",
                "body/status/userInfo",
            ),
        },
    ),
    Difference(
        "Discovery and schemas",
        "Verbs come in another order and without hashes of storage versions; descriptions of metadata in "
        "the OpenAPI documents are shorter; CRDs are part of the program, so they have no managed "
        "fields.",
        {
            "discovery: aggregated": (
                "body/items",
                "headers/cache-control",
            ),
            "discovery: crds as a table": (
                "body/columnDefinitions",
                "body/rows",
            ),
            "discovery: openapi of a grant": (
                "body/properties",
                "body/x-kubernetes-selectable-fields",
            ),
            "discovery: openapi of a widget": (
                "body/properties",
                "body/x-kubernetes-selectable-fields",
            ),
            "discovery: our crd": (
                "body/metadata/managedFields",
                "body/spec/conversion",
            ),
            "discovery: our resources": ("body/resources",),
            "discovery: the resources of the widgets": ("body/resources",),
            "discovery: versions": (
                "body/apiVersion",
                "body/serverAddressByClientCIDRs",
            ),
        },
    ),
    Difference(
        "Health",
        "The health answers of the real server carry other headers.",
        {
            "discovery: alive": ("headers/cache-control",),
            "discovery: ready": ("headers/cache-control",),
        },
    ),
    Difference(
        "Without a controller manager",
        "The real server ran alone: an orphaned object waits there for the garbage collector, which is a part of ours.",
        {
            "delete: all": ("body/items",),
            "delete: left": ("body/items",),
            "delete: none left": ("body/items",),
        },
    ),
    Difference(
        "Not done: a watch that begins with a list",
        "sendInitialEvents is refused; clients fall back to a list and a watch on exactly this answer.",
        {
            "watch: initial events": (
                "body",
                "code",
            ),
            "watch: initial events of a version": (
                "body",
                "code",
            ),
            "watch: initial events, told not to": (
                "body",
                "code",
            ),
        },
    ),
    Difference(
        "Not done: managed fields in rare cases",
        "The owner of labels that were set through the status, and the time of an entry that lost its last field.",
        {
            "delete: applied while it goes": ("body/metadata/managedFields",),
            "delete: the last finalizer": ("body/metadata/managedFields",),
            "patch: status by the main resource": ("body/metadata/managedFields",),
            "patch: the status, json": ("body/metadata/managedFields",),
            "patch: the status, metadata": ("body/metadata/managedFields",),
        },
    ),
    Difference(
        "Not done: rare refusals",
        "What the real server refuses or warns of in these steps, ours takes, or refuses with another code.",
        {
            "create: a bad finalizer": ("headers/warning",),
            "create: duplicate key, warned": ("headers/warning",),
            "create: labels of a wrong type": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "code",
            ),
            "create: many faults at once": ("headers/warning",),
            "create: the wrong kind": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "code",
            ),
            "create: the wrong version": ("headers/warning",),
            "delete: a body of another kind": (
                "body/code",
                "body/details",
                "body/message",
                "body/status",
                "code",
            ),
            "delete: a negative grace": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "body/status",
                "code",
            ),
            "discovery: machines as a table": ("body/rows",),
            "discovery: of a collection": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "code",
            ),
            "discovery: of a collection by patch": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "code",
            ),
            "list: a table with an unknown includeObject": (
                "body",
                "code",
            ),
            "list: a table without objects": ("body/rows",),
            "list: get with a version that is none": (
                "body",
                "code",
            ),
            "patch: json of an unknown operation": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "code",
            ),
            "patch: merge of the kind": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "code",
            ),
            "patch: merge of the uid": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "code",
            ),
            "patch: merge, strict": (
                "body/code",
                "body/details",
                "body/message",
                "body/reason",
                "code",
            ),
        },
    ),
)
