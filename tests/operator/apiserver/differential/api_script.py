"""One script of operations that both API servers are put through, as data: chapters of steps.

`${name}` in a path or a body stands for a value that an earlier step of the chapter kept. A chapter has a namespace of
its own, `NS` below, and needs no other chapter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

GPU = "/apis/gpu.rediacc.io/v1alpha1"
TEST = "/apis/test.example.com/v1"


@dataclass(frozen=True, slots=True)
class Step:
    """One request. `keep` names values of the answer by JSON pointer. `part` is the only part of the body that counts,
    and `groups` the only members of its items: the real server has much that is none of ours."""

    name: str
    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    keep: Mapping[str, str] = field(default_factory=dict)
    part: str = ""
    groups: tuple[str, ...] = ()

    @property
    def data(self) -> bytes | None:
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


YAML_GRANT = """\
apiVersion: gpu.rediacc.io/v1alpha1
kind: RepoGpuGrant
metadata: {name: y1}
spec: {machine: m1, repo: r1, device: nvidia.com/gpu=0}
"""

VERSION = {"rv": "/metadata/resourceVersion", "uid": "/metadata/uid"}
NEXT = {"next": "/metadata/continue", "rv": "/metadata/resourceVersion"}


def get(name: str, path: str, accept: str = JSON, **keep: str) -> Step:
    return Step(name, "GET", path, headers={"Accept": accept}, keep=keep)


def post(name: str, path: str, body: Any, kind: str = JSON, **keep: str) -> Step:
    return Step(name, "POST", path, body, {"Content-Type": kind, "User-Agent": "maker/1"}, keep)


def put(name: str, path: str, body: Any, **keep: str) -> Step:
    return Step(name, "PUT", path, body, {"Content-Type": JSON, "User-Agent": "maker/1"}, keep)


def patch(name: str, path: str, body: Any, kind: str = MERGE, **keep: str) -> Step:
    return Step(name, "PATCH", path, body, {"Content-Type": kind, "User-Agent": "maker/1"}, keep)


def apply(name: str, path: str, body: Any, manager: str = "a", force: str = "", **keep: str) -> Step:
    query = f"?fieldManager={manager}" + (f"&force={force}" if force else "")
    return patch(name, path + query, body, APPLY, **keep)


def delete(name: str, path: str, body: Any = None) -> Step:
    return Step(name, "DELETE", path, body, {"Content-Type": JSON} if body is not None else {})


def grant(name: str | None = "g1", *, metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    given = {"name": name} if name else {}
    base = {"machine": "m1", "repo": "r1", "device": "nvidia.com/gpu=0"}
    kind = {"apiVersion": "gpu.rediacc.io/v1alpha1", "kind": "RepoGpuGrant"}
    return {**kind, "metadata": {**given, **(metadata or {})}, "spec": {**base, **spec}}


def widget(name: str | None = "w1", *, metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    given = {"name": name} if name else {}
    kind = {"apiVersion": "test.example.com/v1", "kind": "Widget"}
    return {**kind, "metadata": {**given, **(metadata or {})}, "spec": {"size": 3, **spec}}


def applied(name: str = "w1", *, metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    kind = {"apiVersion": "test.example.com/v1", "kind": "Widget"}
    return {**kind, "metadata": {"name": name, **(metadata or {})}, "spec": spec}


def options(**fields: Any) -> dict[str, Any]:
    return {"kind": "DeleteOptions", "apiVersion": "v1", **fields}


def core(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


def _watch(name: str, path: str, accept: str = JSON) -> Step:
    """Ends after two seconds; what comes until then are its events."""
    separator = "&" if "?" in path else "?"
    return get(name, f"{path}{separator}watch=true&timeoutSeconds=2", accept)


def _space(chapter: str) -> Step:
    return post("namespace", "/api/v1/namespaces", core("Namespace", f"t-{chapter}"))


def _condition(kind: str, **fields: Any) -> dict[str, Any]:
    stamp = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": "True", "reason": "Ok", "message": "", "lastTransitionTime": stamp, **fields}


NS = "/namespaces/t-"


def _create() -> tuple[Step, ...]:
    g, w = f"{GPU}{NS}create/repogpugrants", f"{TEST}{NS}create/widgets"
    long = "a" * 254
    many = grant("many", machine="A B", repo="-x", device="gpu", expiresAt="soon", exclusive="yes", extra=1)
    return (
        _space("create"),
        post("a grant", g, grant()),
        post("again", g, grant()),
        post("a widget with its defaults", w, widget()),
        post("a name is generated", g, grant(None, metadata={"generateName": "gen-"})),
        post("no name", g, grant(None)),
        post("dry run", f"{g}?dryRun=All", grant("dry")),
        get("dry run left nothing", f"{g}/dry"),
        post("unknown dry run", f"{g}?dryRun=Some", grant("dry")),
        post("strict refuses an unknown field", f"{g}?fieldValidation=Strict", grant("s1", foo=1)),
        post("warn tells of an unknown field", f"{g}?fieldValidation=Warn", grant("s2", foo=1)),
        post("ignore is silent", f"{g}?fieldValidation=Ignore", grant("s3", foo=1)),
        post("the default warns", g, grant("s4", foo=1, bar={"a": 1})),
        post("unknown field validation", f"{g}?fieldValidation=Maybe", grant("s5")),
        post("unknown metadata, strict", f"{g}?fieldValidation=Strict", grant("s6", metadata={"foo": 1})),
        post(
            "duplicate key, strict",
            f"{w}?fieldValidation=Strict",
            b'{"apiVersion":"test.example.com/v1","kind":"Widget","metadata":{"name":"d1"},"spec":{"size":1,"size":2}}',
        ),
        post(
            "duplicate key, warned",
            w,
            b'{"apiVersion":"test.example.com/v1","kind":"Widget","metadata":{"name":"d2"},"spec":{"size":1,"size":2}}',
        ),
        post("with a resourceVersion", g, grant("v1", metadata={"resourceVersion": "5"})),
        post("with a uid", g, grant("v2", metadata={"uid": "mine"})),
        post("too long a name", g, grant(long)),
        post("a name with a slash", g, grant("a/b")),
        post("an upper-case name", g, grant("ABC")),
        post("a name that is two dots", g, grant("..")),
        post("a bad label", g, grant("l1", metadata={"labels": {"a b": "c", "x": "y z"}})),
        post("a bad annotation", g, grant("l2", metadata={"annotations": {"a b": "c"}})),
        post("a bad finalizer", g, grant("l3", metadata={"finalizers": ["nodomain"]})),
        post("labels of a wrong type", g, grant("l4", metadata={"labels": {"a": 1}})),
        post(
            "an owner without a uid",
            g,
            grant("o1", metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}]}),
        ),
        post(
            "two controllers",
            g,
            grant(
                "o2",
                metadata={
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "ConfigMap", "name": n, "uid": n, "controller": True}
                        for n in ("a", "b")
                    ]
                },
            ),
        ),
        post("many faults at once", g, many),
        post(
            "no spec", g, {"apiVersion": "gpu.rediacc.io/v1alpha1", "kind": "RepoGpuGrant", "metadata": {"name": "n"}}
        ),
        post("a spec of a wrong type", g, {**grant("n"), "spec": []}),
        post("a missing device", g, {**grant("n"), "spec": {"machine": "m", "repo": "r"}}),
        post("too long a repo", g, grant("n", repo="r" * 64)),
        post("an empty repo", g, grant("n", repo="")),
        post("a null device", g, grant("n", device=None)),
        post("a rule of a name", g, grant("n", device="nvidia.com/gpu")),
        post("a rule with a message expression", w, widget("n", size=1, label="abc")),
        post("minimum and maximum", w, widget("n", size=10)),
        post("minimum", w, widget("n", size=0)),
        post("an enum", w, widget("n", colour="Green")),
        post("a pattern", w, widget("n", label="A")),
        post("maxLength", w, widget("n", label="abcdefg")),
        post("a date", w, widget("n", when="yesterday")),
        post("a number with a fraction", w, widget("n", size=1.5)),
        post("int or string", w, widget("p1", port="http")),
        post("neither int nor string", w, widget("n", port=True)),
        post("null that may be", w, widget("p2", maybe=None)),
        post("a set with a double", w, widget("n", tags=["a", "a"])),
        post("a map list with a double key", w, widget("n", parts=[{"name": "a"}, {"name": "a"}])),
        post("a map list without its key", w, widget("n", parts=[{"weight": 1}])),
        post("unknown fields where they are kept", w, widget("p3", free={"a": {"b": [1, None]}})),
        post("a map with a wrong value", w, widget("n", limits={"a": "x"})),
        post("status is dropped", g, {**grant("st"), "status": {"observedGeneration": 9}}),
        post("the wrong kind", g, {**grant("n"), "kind": "GpuMachine"}),
        post("no kind", g, {"apiVersion": "gpu.rediacc.io/v1alpha1", "metadata": {"name": "n"}}),
        post("the wrong version", g, {**grant("n"), "apiVersion": "gpu.rediacc.io/v1"}),
        post("another namespace in the body", g, grant("n", metadata={"namespace": "default"})),
        post("a namespace that is not there", f"{GPU}/namespaces/none/repogpugrants", grant("n")),
        post(
            "yaml",
            g,
            YAML_GRANT,
            "application/yaml",
        ),
        post("a field manager", f"{g}?fieldManager=me", grant("fm")),
        post("too long a field manager", f"{g}?fieldManager={'m' * 129}", grant("n")),
        post("to a name", f"{g}/n", grant("n")),
        post("a number as a name", g, grant("n", metadata={"name": 5})),
        post("pretty", f"{g}?pretty=true", grant("pretty")),
    )


def _update() -> tuple[Step, ...]:
    g = f"{GPU}{NS}update/repogpugrants"
    held = {"resourceVersion": "${rv}"}
    return (
        _space("update"),
        post("made", g, grant(), **VERSION),
        put("without a version", f"{g}/g1", grant()),
        put(
            "labels and the spec",
            f"{g}/g1",
            grant(metadata={**held, "labels": {"a": "b"}}, exclusive=True),
            new="/metadata/resourceVersion",
        ),
        put("stale", f"{g}/g1", grant(metadata=held)),
        put("what can't be changed", f"{g}/g1", grant(metadata={"resourceVersion": "${new}"}, machine="m2")),
        put(
            "all that can't be changed",
            f"{g}/g1",
            grant(metadata={"resourceVersion": "${new}"}, machine="m2", repo="r2", device="amd.com/gpu=1", repoId="x"),
        ),
        put("another name", f"{g}/g1", grant("g2", metadata={"resourceVersion": "${new}"})),
        put("another namespace", f"{g}/g1", grant(metadata={"resourceVersion": "${new}", "namespace": "default"})),
        put("another uid", f"{g}/g1", grant(metadata={"resourceVersion": "${new}", "uid": "other"})),
        put("a version that is none", f"{g}/g1", grant(metadata={"resourceVersion": "abc"})),
        put(
            "nothing new",
            f"{g}/g1",
            grant(metadata={"resourceVersion": "${new}", "labels": {"a": "b"}}, exclusive=True),
        ),
        put(
            "status stays",
            f"{g}/g1",
            {**grant(metadata={"resourceVersion": "${new}"}, exclusive=True), "status": {"observedGeneration": 4}},
            new="/metadata/resourceVersion",
        ),
        put("of nothing", f"{g}/none", grant("none", metadata={"resourceVersion": "1"})),
        put("of nothing, without a version", f"{g}/none", grant("none")),
        put("dry run", f"{g}/g1?dryRun=All", grant(metadata={"resourceVersion": "${new}"}, exclusive=False)),
        get("after the dry run", f"{g}/g1"),
        put("strict", f"{g}/g1?fieldValidation=Strict", grant(metadata={"resourceVersion": "${new}"}, foo=1)),
        put(
            "the status",
            f"{g}/g1/status",
            {
                **grant(metadata={"resourceVersion": "${new}"}, exclusive=False),
                "status": {"observedGeneration": 2, "conditions": [_condition("Ready")]},
            },
            new="/metadata/resourceVersion",
        ),
        put("a stale status", f"{g}/g1/status", {**grant(metadata=held), "status": {"observedGeneration": 3}}),
        put(
            "a wrong status",
            f"{g}/g1/status",
            {
                **grant(metadata={"resourceVersion": "${new}"}),
                "status": {"conditions": [{"type": "Ready", "status": "Perhaps"}]},
            },
        ),
        get("the status by itself", f"{g}/g1/status"),
        post("to the status", f"{g}/g1/status", grant()),
        delete("of the status", f"{g}/g1/status"),
        get("no such subresource", f"{g}/g1/scale"),
    )


def _patch() -> tuple[Step, ...]:
    g, w = f"{GPU}{NS}patch/repogpugrants", f"{TEST}{NS}patch/widgets"
    return (
        _space("patch"),
        post("a grant", g, grant(), **VERSION),
        post(
            "a widget",
            w,
            widget(tags=["a", "b"], parts=[{"name": "p", "weight": 1}], limits={"x": 1}),
            wv="/metadata/resourceVersion",
        ),
        patch("merge", f"{w}/w1", {"spec": {"limits": {"x": None, "y": 2}, "tags": ["c"]}}),
        patch("merge that changes nothing", f"{w}/w1", {"spec": {"tags": ["c"]}}),
        patch("merge with a stale version", f"{w}/w1", {"metadata": {"resourceVersion": "${wv}"}, "spec": {"size": 4}}),
        patch("merge with an unknown field", f"{w}/w1", {"spec": {"foo": 1}}),
        patch("merge, strict", f"{w}/w1?fieldValidation=Strict", {"spec": {"foo": 1}}),
        patch("merge to a fault", f"{w}/w1", {"spec": {"size": 44}}),
        patch("merge of a wrong type", f"{w}/w1", {"spec": {"size": "four"}}),
        patch("merge takes a default", f"{w}/w1", {"spec": {"colour": None}}),
        patch("merge removes what is required", f"{w}/w1", {"spec": {"size": None}}),
        patch("merge of the name", f"{w}/w1", {"metadata": {"name": "other"}}),
        patch("merge of the uid", f"{w}/w1", {"metadata": {"uid": "other"}}),
        patch("merge of the time of making", f"{w}/w1", {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}}),
        patch("merge of the generation", f"{w}/w1", {"metadata": {"generation": 77}}),
        patch("merge of the kind", f"{w}/w1", {"kind": "Other"}),
        patch("merge that is a list", f"{w}/w1", []),
        patch("merge that is no JSON", f"{w}/w1", b"{"),
        patch("merge of nothing", f"{w}/none", {"spec": {"size": 1}}),
        patch("merge against a rule", f"{g}/g1", {"spec": {"machine": "m9"}}),
        patch("merge, dry run", f"{w}/w1?dryRun=All", {"spec": {"size": 5}}),
        patch(
            "json",
            f"{w}/w1",
            [{"op": "replace", "path": "/spec/size", "value": 6}, {"op": "add", "path": "/spec/tags/-", "value": "z"}],
            JSON_PATCH,
        ),
        patch(
            "json with a test",
            f"{w}/w1",
            [
                {"op": "test", "path": "/spec/size", "value": 6},
                {"op": "copy", "from": "/spec/size", "path": "/spec/limits/q"},
                {"op": "move", "from": "/spec/limits/q", "path": "/spec/limits/r"},
            ],
            JSON_PATCH,
        ),
        patch("json with a failed test", f"{w}/w1", [{"op": "test", "path": "/spec/size", "value": 7}], JSON_PATCH),
        patch(
            "json that replaces what is not there",
            f"{w}/w1",
            [{"op": "replace", "path": "/spec/none", "value": 7}],
            JSON_PATCH,
        ),
        patch("json that removes what is not there", f"{w}/w1", [{"op": "remove", "path": "/spec/none"}], JSON_PATCH),
        patch("json of an unknown operation", f"{w}/w1", [{"op": "jump", "path": "/spec/none"}], JSON_PATCH),
        patch("json that is no list", f"{w}/w1", {"op": "remove"}, JSON_PATCH),
        patch("json below what is not there", f"{w}/w1", [{"op": "add", "path": "/spec/a/b", "value": 1}], JSON_PATCH),
        patch("json index out of range", f"{w}/w1", [{"op": "add", "path": "/spec/tags/9", "value": "q"}], JSON_PATCH),
        patch("strategic", f"{w}/w1", {"spec": {"size": 4}}, STRATEGIC),
        patch("plain JSON", f"{w}/w1", {"spec": {"size": 4}}, JSON),
        patch("no media type of a patch", f"{w}/w1", {"spec": {"size": 4}}, "text/plain"),
        patch("the status", f"{g}/g1/status", {"status": {"observedGeneration": 1}, "spec": {"exclusive": True}}),
        patch("the status, metadata", f"{g}/g1/status", {"metadata": {"labels": {"l": "1"}}}),
        patch(
            "the status, json",
            f"{g}/g1/status",
            [{"op": "add", "path": "/status/conditions", "value": [_condition("Ready")]}],
            JSON_PATCH,
        ),
        patch("status by the main resource", f"{g}/g1", {"status": {"observedGeneration": 9}}),
        patch("status default comes back", f"{w}/w1/status", {"status": None}),
        patch("force without apply", f"{w}/w1?force=true", {"spec": {"size": 4}}),
        get("in the end", f"{w}/w1"),
    )


def _server_side_apply() -> tuple[Step, ...]:
    w = f"{TEST}{NS}apply/widgets"
    g = f"{GPU}{NS}apply/repogpugrants"
    return (
        _space("apply"),
        apply("makes", f"{w}/w1", applied(size=3, tags=["a"], parts=[{"name": "p", "weight": 1}], limits={"x": 1})),
        apply(
            "changes nothing",
            f"{w}/w1",
            applied(size=3, tags=["a"], parts=[{"name": "p", "weight": 1}], limits={"x": 1}),
        ),
        apply(
            "its own fields",
            f"{w}/w1",
            applied(size=4, tags=["a", "b"], parts=[{"name": "q", "weight": 2}, {"name": "p", "weight": 1}]),
        ),
        apply("another's field", f"{w}/w1", applied(size=5), "b"),
        apply("two of another's", f"{w}/w1", applied(size=5, parts=[{"name": "q", "weight": 7}]), "b"),
        apply("the same value is shared", f"{w}/w1", applied(size=4, tags=["c"]), "b"),
        apply("by force", f"{w}/w1", applied(size=5, tags=["c"]), "b", "true"),
        apply("left out is removed", f"{w}/w1", applied(size=5), "b", "true"),
        apply("given up", f"{w}/w1", applied(parts=[{"name": "p", "weight": 1}]), "a"),
        apply("labels", f"{w}/w1", applied(metadata={"labels": {"l": "1"}, "annotations": {"n": "2"}}), "c"),
        patch("an update beside it", f"{w}/w1", {"spec": {"limits": {"z": 3}}}),
        apply("against an update", f"{w}/w1", applied(limits={"z": 4}), "a"),
        apply("without a manager", f"{w}/w1", applied(size=5), ""),
        patch("no manager at all", f"{w}/w1", applied(size=5), APPLY),
        apply("another name", f"{w}/w1", applied("w2", size=1)),
        apply("no name", f"{w}/w4", {"apiVersion": "test.example.com/v1", "kind": "Widget", "spec": {"size": 1}}),
        apply("no kind", f"{w}/w1", {"spec": {"size": 1}}),
        apply("another kind", f"{w}/w1", {**applied(size=1), "kind": "Other"}),
        apply("an unknown field", f"{w}/w1", applied(foo=1)),
        patch("an unknown field, strict", f"{w}/w1?fieldManager=a&fieldValidation=Strict", applied(foo=1), APPLY),
        apply("managed fields given", f"{w}/w1", applied(metadata={"managedFields": [{"manager": "x"}]}, size=5)),
        apply("a fault", f"{w}/w1", applied(size=50), "a", "true"),
        apply("a wrong type", f"{w}/w1", applied(size="x"), "a", "true"),
        apply("a double key", f"{w}/w1", applied(parts=[{"name": "p"}, {"name": "p"}]), "a"),
        apply("no key", f"{w}/w1", applied(parts=[{"weight": 1}]), "a"),
        apply("no YAML", f"{w}/w1", b"{a: [", "a"),
        apply("a stale version", f"{w}/w1", applied(metadata={"resourceVersion": "1"}, size=5), "a", "true"),
        apply("a uid of a new one", f"{w}/w9", applied("w9", metadata={"uid": "x"}, size=5), "a"),
        patch("dry run", f"{w}/w5?fieldManager=a&dryRun=All", applied("w5", size=5), APPLY),
        get("dry run left nothing", f"{w}/w5"),
        apply(
            "yaml",
            f"{w}/w6",
            "apiVersion: test.example.com/v1\nkind: Widget\nmetadata: {name: w6}\nspec: {size: 2}\n",
            "y",
        ),
        apply("a grant", f"{g}/g1", grant()),
        apply(
            "the status",
            f"{g}/g1/status",
            {
                **{k: v for k, v in grant().items() if k != "spec"},
                "status": {"observedGeneration": 1, "conditions": [_condition("Ready")]},
            },
            "s",
        ),
        apply(
            "a condition of another",
            f"{g}/g1/status",
            {**{k: v for k, v in grant().items() if k != "spec"}, "status": {"conditions": [_condition("Accepted")]}},
            "t",
        ),
        apply(
            "a condition in conflict",
            f"{g}/g1/status",
            {
                **{k: v for k, v in grant().items() if k != "spec"},
                "status": {"conditions": [_condition("Ready", status="False")]},
            },
            "t",
        ),
        apply(
            "status of nothing",
            f"{g}/g9/status",
            {**{k: v for k, v in grant("g9").items() if k != "spec"}, "status": {"observedGeneration": 1}},
            "s",
        ),
        apply("the status by the main resource", f"{g}/g1", {**grant(), "status": {"observedGeneration": 8}}, "u"),
        patch("managed fields emptied", f"{g}/g1", {"metadata": {"managedFields": [{}]}}),
        get("in the end", f"{w}/w1"),
        delete("away", f"{w}/w1"),
    )


def _deletes() -> tuple[Step, ...]:
    w = f"{TEST}{NS}delete/widgets"
    marked = {"finalizers": ["example.com/hold"]}
    return (
        _space("delete"),
        post("one", w, widget("one"), **VERSION),
        delete("another uid", f"{w}/one", options(preconditions={"uid": "other"})),
        delete("another version", f"{w}/one", options(preconditions={"resourceVersion": "1"})),
        delete("dry run by query", f"{w}/one?dryRun=All"),
        delete("dry run by body", f"{w}/one", options(dryRun=["All"])),
        delete("an unknown dry run", f"{w}/one", options(dryRun=["Some"])),
        delete("an unknown policy", f"{w}/one", options(propagationPolicy="Sideways")),
        delete(
            "policy and orphanDependents", f"{w}/one", options(propagationPolicy="Background", orphanDependents=True)
        ),
        delete("a body of another kind", f"{w}/one", {"kind": "Widget", "apiVersion": "test.example.com/v1"}),
        delete("a body that is no JSON", f"{w}/one", b"{"),
        delete("a negative grace", f"{w}/one", options(gracePeriodSeconds=-5)),
        delete("with its uid", f"{w}/one", options(preconditions={"uid": "${uid}", "resourceVersion": "${rv}"})),
        delete("again", f"{w}/one"),
        post("held", w, widget("held", metadata=marked)),
        delete("marked", f"{w}/held"),
        delete("marked again", f"{w}/held"),
        patch("no new finalizer", f"{w}/held", {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}),
        patch("the mark stays", f"{w}/held", {"metadata": {"deletionTimestamp": None}}),
        patch("changes go on", f"{w}/held", {"spec": {"size": 4}}),
        apply("applied while it goes", f"{w}/held", applied("held", size=4), "x"),
        post("the name is taken", w, widget("held")),
        patch("the last finalizer", f"{w}/held", {"metadata": {"finalizers": None}}),
        get("gone", f"{w}/held"),
        post("orphan", w, widget("orphan")),
        delete("orphaned", f"{w}/orphan", options(propagationPolicy="Orphan")),
        post("many 1", w, widget("m1", metadata={"labels": {"set": "a"}})),
        post("many 2", w, widget("m2", metadata={"labels": {"set": "a"}})),
        post("many 3", w, widget("m3", metadata={"labels": {"set": "b"}})),
        delete("a collection, dry run", f"{w}?labelSelector=set%3Da&dryRun=All"),
        delete("a collection", f"{w}?labelSelector=set%3Da"),
        delete("a collection by field", f"{w}?fieldSelector=spec.colour%3DBlue"),
        get("left", w),
        delete("a collection of all namespaces", f"{TEST}/widgets"),
        delete("all", w),
        get("none left", w),
    )


def _lists() -> tuple[Step, ...]:
    g, w = f"{GPU}{NS}list/repogpugrants", f"{TEST}{NS}list/widgets"
    made = (
        post(f"grant {n}", g, grant(f"g{n}", repo=f"r{n % 2}", metadata={"labels": {"n": str(n), "odd": str(n % 2)}}))
        for n in range(5)
    )
    label, chosen = f"{g}?labelSelector=", f"{g}?fieldSelector="
    return (
        _space("list"),
        get("empty", g),
        *made,
        post("a widget", w, widget(colour="Blue"), wv="/metadata/resourceVersion"),
        get("all", g, rv="/metadata/resourceVersion"),
        get("two", f"{g}?limit=2", **NEXT),
        get("two more", f"{g}?limit=2&continue=${{next}}", next="/metadata/continue"),
        get("the last", f"{g}?limit=2&continue=${{next}}"),
        get("a continue that is none", f"{g}?limit=2&continue=xyz"),
        get("continue with a version", f"{g}?limit=2&continue=${{next}}&resourceVersion=5"),
        get("a limit that is no number", f"{g}?limit=x"),
        get("a negative limit", f"{g}?limit=-1"),
        get("label", f"{label}odd%3D1"),
        get("labels", f"{label}odd%3D1,n%3D3"),
        get("label in", f"{label}n+in+(1,2)"),
        get("label notin", f"{label}n+notin+(1,2)"),
        get("label exists", f"{label}n"),
        get("label exists not", f"{label}!n"),
        get("label unequal", f"{label}odd!%3D1"),
        get("label greater", f"{label}n+gt+2"),
        get("label that can't be read", f"{label}n+in+1"),
        get("label with a bad key", f"{label}a+b%3D1"),
        get("field name", f"{chosen}metadata.name%3Dg1"),
        get("field of the spec", f"{chosen}spec.repo%3Dr1"),
        get("field unequal", f"{chosen}spec.repo!%3Dr1"),
        get("field and label", f"{chosen}spec.repo%3Dr1&labelSelector=n%3D3"),
        get("field that can't be selected", f"{chosen}spec.exclusive%3Dtrue"),
        get("field that can't be read", f"{chosen}spec.repo"),
        get("namespace as a field", f"{GPU}/repogpugrants?fieldSelector=metadata.namespace%3Dt-list"),
        get("any version", f"{g}?resourceVersion=0"),
        get("not older than", f"{g}?resourceVersion=${{rv}}&resourceVersionMatch=NotOlderThan"),
        get("exactly", f"{g}?resourceVersion=${{rv}}&resourceVersionMatch=Exact"),
        get("exactly zero", f"{g}?resourceVersion=0&resourceVersionMatch=Exact"),
        get("match without a version", f"{g}?resourceVersionMatch=Exact"),
        get("an unknown match", f"{g}?resourceVersion=1&resourceVersionMatch=Any"),
        get("a version that is none", f"{g}?resourceVersion=abc"),
        get("get with version zero", f"{g}/g1?resourceVersion=0"),
        get("get with a version that is none", f"{g}/g1?resourceVersion=abc"),
        get("a table", g, TABLE),
        get("a table of one", f"{g}/g1", TABLE),
        get("a table with objects", f"{g}?includeObject=Object&limit=1", TABLE),
        get("a table without objects", f"{g}?includeObject=None&limit=1", TABLE),
        get("a table of widgets", w, TABLE),
        get("a table with an unknown includeObject", f"{g}?includeObject=All", TABLE),
        get("partial list", f"{g}?limit=1", PARTIAL_LIST),
        get("partial", f"{g}/g1", PARTIAL),
        get("in a namespace that is not there", f"{GPU}/namespaces/none/repogpugrants"),
        get("none of the name", f"{g}/none"),
        get("a table of none", f"{g}/none", TABLE),
        get("another media type", g, "application/xml"),
        get("protobuf", g, "application/vnd.kubernetes.protobuf"),
        get("protobuf or json", f"{g}/g1", "application/vnd.kubernetes.protobuf,application/json"),
        get("yaml", f"{g}/g1", "application/yaml"),
        get("any type", f"{g}/g1", "*/*"),
        get("an initial-events list", f"{g}?sendInitialEvents=true"),
    )


def _watches() -> tuple[Step, ...]:
    w = f"{TEST}{NS}watch/widgets"
    start = f"{w}?resourceVersion=${{rv}}"
    return (
        _space("watch"),
        get("begin", w, rv="/metadata/resourceVersion"),
        post("one", w, widget("one", metadata={"labels": {"on": "1"}})),
        post("two", w, widget("two", colour="Blue")),
        patch("one changes", f"{w}/one", {"spec": {"size": 4}}),
        patch("one leaves the selection", f"{w}/one", {"metadata": {"labels": {"on": "0"}}}),
        patch("two turns red", f"{w}/two", {"spec": {"colour": "Red"}}),
        delete("two goes", f"{w}/two"),
        _watch("from the beginning", start),
        _watch("by label", f"{start}&labelSelector=on%3D1"),
        _watch("by field", f"{start}&fieldSelector=spec.colour%3DBlue"),
        _watch("by name", f"{start}&fieldSelector=metadata.name%3Done"),
        _watch("one object", f"{w}/one?resourceVersion=${{rv}}"),
        _watch("without a version", w),
        _watch("version zero", f"{w}?resourceVersion=0"),
        _watch("as a table", start, TABLE),
        _watch("partial", start, PARTIAL),
        _watch(
            "initial events", f"{w}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        ),
        _watch(
            "initial events of a version",
            f"{w}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=${{rv}}",
        ),
        _watch("initial events without a match", f"{w}?sendInitialEvents=true"),
        _watch(
            "initial events, told not to",
            f"{w}?sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=${{rv}}&allowWatchBookmarks=true",
        ),
        _watch("a match without initial events", f"{w}?resourceVersionMatch=NotOlderThan&resourceVersion=${{rv}}"),
        _watch("too old a version", f"{w}?resourceVersion=1"),
        _watch("a version that is none", f"{w}?resourceVersion=abc"),
        _watch("a limit", f"{w}?limit=1&resourceVersion=0"),
        get("a watch with a continue", f"{w}?watch=true&timeoutSeconds=1&continue=xyz"),
        get("timeoutSeconds that is no number", f"{w}?watch=true&timeoutSeconds=x"),
    )


def _core() -> tuple[Step, ...]:
    at = f"/api/v1{NS}core"
    lease = f"/apis/coordination.k8s.io/v1{NS}core/leases"
    event = {
        "involvedObject": {"kind": "Widget", "namespace": "t-core", "name": "w"},
        "reason": "R",
        "message": "m",
        "type": "Normal",
        "source": {"component": "c"},
    }
    lease_body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"},
    }
    return (
        _space("core"),
        get("the namespace", "/api/v1/namespaces/t-core"),
        post("the namespace again", "/api/v1/namespaces", core("Namespace", "t-core")),
        post("a bad namespace", "/api/v1/namespaces", core("Namespace", "A_B")),
        post("a namespace with a dot", "/api/v1/namespaces", core("Namespace", "a.b")),
        get("namespaces as a table", "/api/v1/namespaces?labelSelector=kubernetes.io%2Fmetadata.name%3Dt-core", TABLE),
        patch("a label of the namespace", "/api/v1/namespaces/t-core", {"metadata": {"labels": {"a": "b"}}}),
        post("a config map", f"{at}/configmaps", core("ConfigMap", "c", data={"a": "b"}), **VERSION),
        patch("of a config map", f"{at}/configmaps/c", {"data": {"a": None, "c": "d"}}),
        put(
            "a stale config map",
            f"{at}/configmaps/c",
            {**core("ConfigMap", "c", data={"x": "y"}), "metadata": {"name": "c", "resourceVersion": "${rv}"}},
        ),
        put("a config map without a version", f"{at}/configmaps/c", core("ConfigMap", "c", data={"x": "y"})),
        post("a config map of numbers", f"{at}/configmaps", core("ConfigMap", "n", data={"a": 1})),
        post("a config map with a bad key", f"{at}/configmaps", core("ConfigMap", "k", data={"a b": "c"})),
        post("an immutable config map", f"{at}/configmaps", core("ConfigMap", "i", data={"a": "b"}, immutable=True)),
        patch("of an immutable one", f"{at}/configmaps/i", {"data": {"a": "c"}}),
        get("config maps as a table", f"{at}/configmaps", TABLE),
        get("config maps", f"{at}/configmaps"),
        post("a secret", f"{at}/secrets", core("Secret", "s", data={"a": "Yg=="})),
        post("a secret of strings", f"{at}/secrets", core("Secret", "t", stringData={"a": "b"})),
        post("a secret that is no base64", f"{at}/secrets", core("Secret", "u", data={"a": "???"})),
        get("secrets as a table", f"{at}/secrets", TABLE),
        patch("the type of a secret", f"{at}/secrets/s", {"type": "other"}),
        post("an event", f"{at}/events", {**core("Event", "e"), **event}),
        post(
            "an event of the new group",
            f"/apis/events.k8s.io/v1{NS}core/events",
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": "f"},
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": "c",
                "reportingInstance": "i",
                "action": "A",
                "reason": "R",
                "type": "Normal",
                "regarding": {"kind": "Widget", "namespace": "t-core", "name": "w"},
            },
        ),
        get("events by their object", f"{at}/events?fieldSelector=involvedObject.name%3Dw,reason%3DR"),
        get("events as a table", f"{at}/events?fieldSelector=metadata.name%3De", TABLE),
        post("a lease", lease, lease_body, lv="/metadata/resourceVersion"),
        put(
            "renewed",
            f"{lease}/l",
            {
                **lease_body,
                "metadata": {"name": "l", "resourceVersion": "${lv}"},
                "spec": {"holderIdentity": "you", "leaseDurationSeconds": 15},
            },
        ),
        put("renewed, stale", f"{lease}/l", {**lease_body, "metadata": {"name": "l", "resourceVersion": "${lv}"}}),
        get("leases as a table", lease, TABLE),
        delete("the config map goes", f"{at}/configmaps/c"),
        delete("the secret goes", f"{at}/secrets/s"),
        delete("the lease goes", f"{lease}/l"),
        delete("the event goes", f"{at}/events/e"),
    )


def _rights() -> tuple[Step, ...]:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "verb": "get",
                "resource": "widgets",
                "group": "test.example.com",
                "namespace": "default",
            }
        },
    }
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return (
        post("may I", reviews, review),
        post(
            "may I, of a path",
            reviews,
            {**review, "spec": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}},
        ),
        post("may I, of nothing", reviews, {**review, "spec": {}}),
        post(
            "who am I",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
        ),
        Step("another token", "GET", f"{GPU}/repogpugrants", headers={"Authorization": "Bearer wrong"}),
        Step("no token", "GET", f"{GPU}/repogpugrants", headers={"Authorization": ""}),
        get("reviews can't be read", reviews),
    )


def _discovery() -> tuple[Step, ...]:
    return (
        get("versions", "/api"),
        get("our group", "/apis/gpu.rediacc.io"),
        get("our resources", GPU),
        get("the resources of the widgets", TEST),
        get("leases", "/apis/coordination.k8s.io"),
        get("crds", "/apis/apiextensions.k8s.io"),
        get("our crd", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/repogpugrants.gpu.rediacc.io"),
        get("crds as a table", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", TABLE),
        replace(get("aggregated", "/apis", AGGREGATED), groups=("gpu.rediacc.io", "test.example.com")),
        replace(
            get("openapi of a grant", f"/openapi/v3{GPU}"),
            part="/components/schemas/io.rediacc.gpu.v1alpha1.RepoGpuGrant",
        ),
        replace(
            get("openapi of a widget", f"/openapi/v3{TEST}"), part="/components/schemas/com.example.test.v1.Widget"
        ),
        get("ready", "/readyz"),
        get("alive", "/livez"),
        get("no group", "/apis/none.example.com"),
        get("no version", "/apis/gpu.rediacc.io/v9"),
        get("no kind", f"{GPU}/nothings"),
        get("no kind in a namespace", f"{GPU}/namespaces/default/nothings"),
        get("no path", "/nothing"),
        get("a namespaced kind by name alone", f"{GPU}/repogpugrants/g1"),
        post("without a namespace", f"{GPU}/repogpugrants", grant()),
        put("of a collection", f"{GPU}/namespaces/default/repogpugrants", grant()),
        patch("of a collection by patch", f"{GPU}/namespaces/default/repogpugrants", {}),
        Step("an unknown method", "BREW", f"{GPU}/namespaces/default/repogpugrants"),
        Step("options", "OPTIONS", f"{GPU}/namespaces/default/repogpugrants"),
        Step("head", "HEAD", f"{GPU}/namespaces/default/repogpugrants"),
        post("no JSON", f"{GPU}/namespaces/default/repogpugrants", b"{"),
        post("an empty body", f"{GPU}/namespaces/default/repogpugrants", b""),
        post("a list", f"{GPU}/namespaces/default/repogpugrants", []),
        post("a string", f"{GPU}/namespaces/default/repogpugrants", b'"x"'),
        post(
            "a body behind the body",
            f"{GPU}/namespaces/default/repogpugrants",
            json.dumps(grant("tail")).encode() + b"x",
        ),
        post("another media type", f"{GPU}/namespaces/default/repogpugrants", grant(), "application/xml"),
        post("a form", f"{GPU}/namespaces/default/repogpugrants", b"a=b", "application/x-www-form-urlencoded"),
        post("no media type", f"{GPU}/namespaces/default/repogpugrants", grant("untyped"), ""),
        post("no YAML", f"{GPU}/namespaces/default/repogpugrants", b"a: [", "application/yaml"),
        post(
            "a cluster kind in a namespace",
            f"{GPU}/namespaces/default/gpumachines",
            {"apiVersion": "gpu.rediacc.io/v1alpha1", "kind": "GpuMachine", "metadata": {"name": "m"}, "spec": {}},
        ),
        post(
            "a machine is made",
            f"{GPU}/gpumachines",
            {"apiVersion": "gpu.rediacc.io/v1alpha1", "kind": "GpuMachine", "metadata": {"name": "m"}, "spec": {}},
        ),
        get("machines as a table", f"{GPU}/gpumachines", TABLE),
        get("a machine", f"{GPU}/gpumachines/m"),
        delete("the machine", f"{GPU}/gpumachines/m"),
    )


CHAPTERS: Mapping[str, tuple[Step, ...]] = {
    "create": _create(),
    "update": _update(),
    "patch": _patch(),
    "apply": _server_side_apply(),
    "delete": _deletes(),
    "list": _lists(),
    "watch": _watches(),
    "core": _core(),
    "rights": _rights(),
    "discovery": _discovery(),
}
