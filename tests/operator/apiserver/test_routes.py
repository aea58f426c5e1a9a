"""HTTP against a running server: what clients rely on, verb by verb."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
from typing import Any

import aiohttp
import pytest

WIDGETS = "/apis/test.example.com/v1/namespaces/default/widgets"
W1 = f"{WIDGETS}/w1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def test_an_object_lives_from_create_to_delete(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        made = await api.client.post(WIDGETS, make_widget(label="abc"))
        assert made.code == 201
        metadata = made.body["metadata"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
        assert metadata["generation"] == 1
        assert made.body["spec"]["colour"] == "Red"
        assert made.body["status"] == {"observedGeneration": -1}
        assert (await api.client.get(W1)).body == made.body

        gone = await api.client.delete(W1, {"propagationPolicy": "Background"})
        assert (gone.code, gone.body["status"]) == (200, "Success")
        assert gone.body["details"] == {
            "name": "w1",
            "kind": "widgets",
            "uid": metadata["uid"],
            "group": "test.example.com",
        }
        missing = await api.client.get(W1)
        assert (missing.code, missing.body["reason"]) == (404, "NotFound")
        assert missing.message == 'widgets.test.example.com "w1" not found'

        again = await api.client.post(WIDGETS, make_widget())
        assert again.body["metadata"]["uid"] != metadata["uid"]
        assert int(again.version) > int(made.version)


async def test_a_second_object_of_the_name_is_refused(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        await api.client.post(WIDGETS, make_widget())
        twice = await api.client.post(WIDGETS, make_widget())
    assert (twice.code, twice.body["reason"]) == (409, "AlreadyExists")
    assert twice.body["details"] == {"name": "w1", "group": "test.example.com", "kind": "widgets"}


async def test_a_name_is_generated(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        made = await api.client.post(WIDGETS, make_widget(None))
    assert re.fullmatch("w-[b-z2-9]{5}", made.body["metadata"]["name"])


async def test_an_update_needs_the_version_that_was_read(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        made = (await api.client.post(WIDGETS, make_widget())).body
        bare = await api.client.put(W1, make_widget(size=4))
        assert (bare.code, bare.body["reason"]) == (422, "Invalid")
        assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in bare.message

        changed = await api.client.put(W1, {**made, "spec": {"size": 4}})
        assert (changed.code, changed.body["metadata"]["generation"]) == (200, 2)
        stale = await api.client.put(W1, {**made, "spec": {"size": 5}})
        assert (stale.code, stale.body["reason"]) == (409, "Conflict")
        assert stale.message == (
            'Operation cannot be fulfilled on widgets.test.example.com "w1": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )
        held = await api.client.merge(W1, {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}})
        assert held.code == 409


async def test_a_write_that_changes_nothing_keeps_the_version(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        made = await api.client.post(WIDGETS, make_widget())
        same = await api.client.merge(W1, {"spec": {"size": 3}})
        listed = await api.client.get(WIDGETS)
    assert same.body == made.body
    assert listed.version == made.version


async def test_status_and_spec_keep_apart(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        body = make_widget() | {"status": {"observedGeneration": 7}}
        made = await api.client.post(WIDGETS, body)
        assert made.body["status"] == {"observedGeneration": -1}
        written = await api.client.merge(
            f"{W1}/status",
            {"status": {"observedGeneration": 1}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}},
        )
        assert written.body["status"] == {"observedGeneration": 1}
        assert written.body["spec"]["size"] == 3
        assert written.body["metadata"]["generation"] == 1
        assert "labels" not in written.body["metadata"]
        main = await api.client.merge(W1, {"status": {"observedGeneration": 9}, "spec": {"size": 4}})
        assert main.body["status"] == {"observedGeneration": 1}
        assert main.body["metadata"]["generation"] == 2
        stale = await api.client.put(f"{W1}/status", made.body)
        assert (stale.code, stale.body["reason"]) == (409, "Conflict")


async def test_finalizers_hold_an_object_until_the_last_is_gone(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        await api.client.post(WIDGETS, make_widget())
        await api.client.merge(W1, {"metadata": {"finalizers": ["example.com/a"]}})
        marked = await api.client.delete(W1)
        assert (marked.code, marked.body["kind"]) == (200, "Widget")
        stamp = marked.body["metadata"]["deletionTimestamp"]
        assert marked.body["metadata"]["generation"] == 2
        twice = await api.client.delete(W1)
        assert twice.body == marked.body

        added = await api.client.merge(W1, {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}})
        assert added.code == 422
        assert "no new finalizers can be added if the object is being deleted" in added.message
        kept = await api.client.merge(W1, {"metadata": {"deletionTimestamp": None, "labels": {"x": "y"}}})
        assert kept.body["metadata"]["deletionTimestamp"] == stamp

        last = await api.client.json_patch(
            W1,
            [
                {"op": "test", "path": "/metadata/resourceVersion", "value": kept.version},
                {"op": "remove", "path": "/metadata/finalizers"},
            ],
        )
        assert last.code == 200
        assert (await api.client.get(W1)).code == 404


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param({"preconditions": {"uid": "another"}}, 409, id="refuses another uid"),
        pytest.param({"preconditions": {"resourceVersion": "1"}}, 409, id="refuses another version"),
        pytest.param({"dryRun": ["All"]}, 200, id="takes a dry run"),
        pytest.param({"dryRun": ["Some"]}, 422, id="refuses an unknown dry run"),
        pytest.param({"preconditions": 3}, 400, id="refuses a body that is no DeleteOptions"),
    ],
)
async def test_delete_options_are_obeyed(serve: Any, make_widget: Any, body: Any, code: int) -> None:
    async with serve() as api:
        await api.client.post(WIDGETS, make_widget())
        assert (await api.client.delete(W1, body)).code == code
        assert (await api.client.get(W1)).code == 200


async def test_a_dry_run_stores_nothing(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        made = await api.client.post(f"{WIDGETS}?dryRun=All", make_widget())
        assert made.code == 201
        assert made.body["spec"]["colour"] == "Red"
        assert (await api.client.get(W1)).code == 404
        assert not api.file("w1").exists()
        await api.client.post(WIDGETS, make_widget())
        patched = await api.client.merge(f"{W1}?dryRun=All", {"spec": {"size": 5}})
        assert patched.body["spec"]["size"] == 5
        assert (await api.client.get(W1)).body["spec"]["size"] == 3


@pytest.mark.parametrize(
    ("query", "code", "told"),
    [
        pytest.param("?fieldValidation=Strict", 400, "", id="strict refuses"),
        pytest.param("?fieldValidation=Warn", 201, '299 - "unknown field \\"spec.foo\\""', id="warn says so"),
        pytest.param("", 201, '299 - "unknown field \\"spec.foo\\""', id="warn is the default"),
        pytest.param("?fieldValidation=Ignore", 201, "", id="ignore is silent"),
    ],
)
async def test_unknown_fields(serve: Any, make_widget: Any, query: str, code: int, told: str) -> None:
    async with serve() as api:
        made = await api.client.post(f"{WIDGETS}{query}", make_widget(foo=1))
    assert made.code == code
    assert made.headers.get("Warning", "") == told
    if code == 400:
        assert made.message == (
            'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.foo"'
        )
    else:
        assert "foo" not in made.body["spec"]


async def test_a_key_that_stands_twice_is_a_strict_error(serve: Any) -> None:
    body = b'{"apiVersion":"test.example.com/v1","kind":"Widget","metadata":{"name":"w1"},"spec":{"size":1,"size":2}}'
    async with serve() as api:
        strict = await api.client.post(f"{WIDGETS}?fieldValidation=Strict", body)
        warned = await api.client.post(WIDGETS, body)
    assert strict.code == 400
    assert 'duplicate field "size"' in strict.message
    assert (warned.code, warned.body["spec"]["size"]) == (201, 2)


async def test_an_invalid_object_lists_every_cause(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        refused = await api.client.post(WIDGETS, make_widget(size=0, colour="Green"))
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")
    assert refused.message == (
        'Widget.test.example.com "w1" is invalid: [spec.size: Invalid value: 0: spec.size in body should be greater '
        'than or equal to 1, spec.colour: Unsupported value: "Green": supported values: "Red", "Blue", '
        "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct "
        "the existing errors to complete validation]"
    )
    fields = {cause["field"] for cause in refused.body["details"]["causes"]}
    assert fields == {"spec.colour", "spec.size", "<nil>"}


BAD_REQUESTS = [
    pytest.param("POST", WIDGETS, b"{", "application/json", 400, id="JSON that ends early"),
    pytest.param("POST", WIDGETS, b"[]", "application/json", 400, id="a list"),
    pytest.param("POST", WIDGETS, b"null", "application/json", 400, id="null"),
    pytest.param("POST", WIDGETS, b'{"metadata":3}', "application/json", 400, id="metadata that is a number"),
    pytest.param("POST", WIDGETS, b'{"kind":"Widget"}', "application/json", 400, id="no apiVersion"),
    pytest.param("POST", WIDGETS, b"\xff\xfe", "application/json", 400, id="not UTF-8"),
    pytest.param("POST", WIDGETS, b'{"a":NaN}', "application/json", 400, id="NaN"),
    pytest.param("POST", WIDGETS, b'{"a":1e999}', "application/json", 400, id="an infinite number"),
    pytest.param("POST", WIDGETS, b'{"a":"\\ud800"}', "application/json", 400, id="a lone surrogate"),
    pytest.param("POST", WIDGETS, b"[" * 100_000, "application/json", 400, id="endless nesting"),
    pytest.param("POST", WIDGETS, b"k8s\x00abc", "application/vnd.kubernetes.protobuf", 400, id="damaged protobuf"),
    pytest.param("POST", WIDGETS, b"a: &a [*a]", "application/yaml", 400, id="YAML with an alias"),
    pytest.param("POST", WIDGETS, b"{}", "text/plain", 415, id="plain text"),
    pytest.param("PATCH", W1, b"{}", "application/apply-patch+yaml", 422, id="an apply without a manager"),
    pytest.param("PATCH", W1, b"{}", "application/strategic-merge-patch+json", 415, id="strategic merge"),
    pytest.param("PATCH", W1, b"[]", "application/merge-patch+json", 400, id="a list as merge patch"),
    pytest.param("PATCH", W1, b"{}", "application/json-patch+json", 400, id="an object as JSON patch"),
    pytest.param("PATCH", W1, b'[{"op":"no"}]', "application/json-patch+json", 400, id="an unknown operation"),
    pytest.param(
        "PATCH",
        W1,
        b'[{"op":"test","path":"/spec/size","value":9}]',
        "application/json-patch+json",
        422,
        id="a failed test",
    ),
    pytest.param(
        "PATCH", W1, b'[{"op":"remove","path":"/spec/no"}]', "application/json-patch+json", 422, id="a missing path"
    ),
    pytest.param(
        "PATCH", W1, b'[{"op":"replace","path":"","value":3}]', "application/json-patch+json", 422, id="no object left"
    ),
    pytest.param("PATCH", W1, b'{"metadata":{"name":"x"}}', "application/merge-patch+json", 400, id="another name"),
    pytest.param("PATCH", W1, b'{"kind":"Other"}', "application/merge-patch+json", 400, id="another kind"),
    pytest.param("PATCH", W1, b'{"metadata":null}', "application/merge-patch+json", 200, id="metadata is put back"),
    pytest.param("PATCH", W1, b'{"spec":null}', "application/merge-patch+json", 422, id="no spec"),
    pytest.param("PATCH", W1, b'{"metadata":{"labels":{"a":1}}}', "application/merge-patch+json", 422, id="a label 1"),
    pytest.param("PATCH", W1, b'{"metadata":{"labels":[]}}', "application/merge-patch+json", 200, id="empty labels"),
    pytest.param("PATCH", W1, b'{"metadata":{"uid":"x"}}', "application/merge-patch+json", 409, id="another uid"),
    pytest.param("PATCH", W1, b'{"metadata":{"uid":3}}', "application/merge-patch+json", 400, id="a number as uid"),
    pytest.param("PUT", f"{WIDGETS}/other", b'{"apiVersion":"v9"}', "application/json", 400, id="another version"),
    pytest.param("POST", W1, b"{}", "application/json", 405, id="a POST on an object"),
    pytest.param("PUT", WIDGETS, b"{}", "application/json", 405, id="a PUT on a collection"),
    pytest.param("GET", f"{W1}/scale", None, "", 404, id="an unknown subresource"),
    pytest.param("GET", "/apis/test.example.com/v2/widgets", None, "", 404, id="an unknown version"),
    pytest.param("GET", "/apis/test.example.com/v1/things", None, "", 404, id="an unknown resource"),
    pytest.param("GET", "/nothing", None, "", 404, id="an unknown path"),
    pytest.param("GET", f"{WIDGETS}?limit=x", None, "", 400, id="a limit that is no number"),
    pytest.param("GET", f"{WIDGETS}?continue=x", None, "", 400, id="a made-up continue token"),
    pytest.param("GET", f"{WIDGETS}?labelSelector=a+in", None, "", 400, id="half a label selector"),
    pytest.param("GET", f"{WIDGETS}?fieldSelector=spec.size%3D3", None, "", 400, id="a field that can't be selected"),
    pytest.param("GET", f"{WIDGETS}?resourceVersion=99999999", None, "", 504, id="a version from the future"),
    pytest.param(
        "GET", f"{WIDGETS}?watch=1&sendInitialEvents=true", None, "", 422, id="a streamed list, so that kubectl lists"
    ),
    pytest.param("DELETE", "/api/v1/namespaces/default", None, "", 403, id="the default namespace"),
    pytest.param(
        "DELETE",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.test.example.com",
        None,
        "",
        405,
        id="a built-in CRD",
    ),
    pytest.param("POST", f"{WIDGETS}?dryRun=x", b"{}", "application/json", 422, id="an unknown dry run"),
    pytest.param("POST", f"{WIDGETS}?fieldValidation=x", b"{}", "application/json", 422, id="an unknown validation"),
]


@pytest.mark.parametrize(("method", "path", "body", "kind", "code"), BAD_REQUESTS)
async def test_a_request_that_cannot_be_served_gets_a_status(
    serve: Any, make_widget: Any, method: str, path: str, body: bytes | None, kind: str, code: int
) -> None:
    async with serve() as api:
        await api.client.post(WIDGETS, make_widget())
        answer = await api.client.ask(method, path, body, kind=kind)
        after = await api.client.get(W1)
    assert answer.code == code
    if code >= 400:
        assert answer.body["kind"] == "Status"
        assert answer.body["code"] == code
        assert answer.body["reason"]
        assert "Traceback" not in answer.message
        assert after.body["spec"] == {"size": 3, "colour": "Red"}


async def test_a_body_over_the_limit_is_refused(serve: Any, make_widget: Any) -> None:
    async with serve(max_body=10_000) as api:
        answer = await api.client.post(WIDGETS, make_widget(label="a" * 20_000))
    assert (answer.code, answer.body["reason"]) == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize("header", [None, "Bearer x", "Basic abc", "Bearer "])
@pytest.mark.parametrize("path", ["/version", "/healthz", "/apis", WIDGETS])
async def test_without_the_token_nothing_is_served(serve: Any, header: str | None, path: str) -> None:
    async with serve() as api:
        headers = {} if header is None else {"Authorization": header}
        connector = aiohttp.TCPConnector(ssl=False)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(api.server.url + path, headers=headers) as answer,
        ):
            body = await answer.json()
    assert (answer.status, body["reason"]) == (401, "Unauthorized")


async def test_a_token_that_is_no_text_is_refused_like_any_other(serve: Any) -> None:
    async with serve() as api:
        address = api.server.url.removeprefix("https://").partition(":")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(address[0], int(address[2]), ssl=context)
        writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n")
        line = await reader.readline()
        writer.close()
    assert line.startswith(b"HTTP/1.1 401 ")


async def test_lists_are_paged(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        for number in range(5):
            await api.client.post(WIDGETS, make_widget(f"w{number}"))
        first = await api.client.get(f"{WIDGETS}?limit=2")
        names, page = [item["metadata"]["name"] for item in first.body["items"]], first
        await api.client.post(WIDGETS, make_widget("w9"))
        while token := page.body["metadata"].get("continue"):
            page = await api.client.get(f"{WIDGETS}?limit=2&continue={token}")
            assert page.version == first.version
            names += [item["metadata"]["name"] for item in page.body["items"]]
    assert names[:5] == ["w0", "w1", "w2", "w3", "w4"]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        pytest.param("resourceVersionMatch=Exact", "unless resourceVersion is provided", id="no version"),
        pytest.param("resourceVersion=1&resourceVersionMatch=Any", 'Unsupported value: "Any"', id="unknown"),
        pytest.param("resourceVersion=0&resourceVersionMatch=Exact", 'is forbidden for resourceVersion "0"', id="zero"),
        pytest.param("resourceVersion=1&resourceVersionMatch=Exact&continue=x", "continue is provided", id="continue"),
        pytest.param("sendInitialEvents=true", "sendInitialEvents is forbidden for list", id="initial events"),
        pytest.param("watch=1&continue=x", "forbidden when continue is provided", id="watch and continue"),
        pytest.param("watch=1&resourceVersionMatch=NotOlderThan", "unless sendInitialEvents", id="watch and match"),
        pytest.param("watch=1&sendInitialEvents=true", "requires setting resourceVersionMatch", id="events, no match"),
        pytest.param(
            "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact",
            'Unsupported value: "Exact": supported values: "NotOlderThan"',
            id="events of one version",
        ),
        pytest.param(
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch: list first, then watch",
            id="events, which are not sent",
        ),
    ],
)
async def test_what_the_options_of_a_list_must_be(serve: Any, query: str, told: str) -> None:
    async with serve() as api:
        refused = await api.client.get(f"{WIDGETS}?{query}")
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")
    assert told in refused.message


async def test_a_page_has_the_version_of_its_list(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        for name in ("a", "b"):
            await api.client.post(WIDGETS, make_widget(name))
        first = (await api.client.get(f"{WIDGETS}?limit=1")).body["metadata"]
        following = f"{WIDGETS}?limit=1&continue={first['continue']}&resourceVersion="
        zero = await api.client.get(f"{following}0")
        refused = await api.client.get(following + first["resourceVersion"])
    assert [item["metadata"]["name"] for item in zero.body["items"]] == ["b"]
    assert refused.code == 400
    assert refused.message == "specifying resource version is not allowed when using continue"


async def test_a_continue_token_of_another_life_is_gone(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        await api.client.post(WIDGETS, make_widget())
    old = base64.urlsafe_b64encode(b'{"rv":1,"after":["default","a"]}').decode()
    async with serve() as api:
        answer = await api.client.get(f"{WIDGETS}?limit=2&continue={old}")
    assert (answer.code, answer.body["reason"]) == (410, "Expired")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        pytest.param("labelSelector=tier%3Da", ["w1"], id="a label that equals"),
        pytest.param("labelSelector=tier+in+(a,b)", ["w1", "w2"], id="a label in a set"),
        pytest.param("labelSelector=!tier", ["w3"], id="a label that is absent"),
        pytest.param("labelSelector=tier!%3Da", ["w2", "w3"], id="a label that differs"),
        pytest.param("fieldSelector=metadata.name%3Dw2", ["w2"], id="a name"),
        pytest.param("fieldSelector=metadata.namespace%3Dother", [], id="a namespace"),
        pytest.param("fieldSelector=spec.colour%3DBlue", ["w2"], id="a selectable field"),
        pytest.param("fieldSelector=spec.colour!%3DBlue,metadata.name!%3Dw1", ["w3"], id="two fields"),
    ],
)
async def test_selectors(serve: Any, make_widget: Any, query: str, names: list[str]) -> None:
    async with serve() as api:
        for name, tier, colour in (("w1", "a", "Red"), ("w2", "b", "Blue"), ("w3", "", "Red")):
            body = make_widget(name, colour=colour)
            if tier:
                body["metadata"]["labels"] = {"tier": tier}
            await api.client.post(WIDGETS, body)
        listed = await api.client.get(f"{WIDGETS}?{query}")
        assert [item["metadata"]["name"] for item in listed.body["items"]] == names
        gone = await api.client.delete(f"{WIDGETS}?{query}")
        assert [item["metadata"]["name"] for item in gone.body["items"]] == names
        left = await api.client.get(WIDGETS)
    assert len(left.body["items"]) == 3 - len(names)


async def test_a_table_has_the_columns_of_the_crd(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        await api.client.post(WIDGETS, make_widget())
        conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
        await api.client.merge(f"{W1}/status", {"status": {"conditions": conditions}})
        table = (await api.client.get(WIDGETS, TABLE)).body
    assert table["kind"] == "Table"
    assert [(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Ready", "string", 0),
        ("Colour", "string", 1),
        ("Age", "date", 0),
    ]
    cells = table["rows"][0]["cells"]
    assert cells[:4] == ["w1", 3, "True", "Red"]
    assert re.fullmatch(r"\d+s", cells[4])
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


async def test_only_json_is_written(serve: Any) -> None:
    async with serve() as api:
        refused = await api.client.get(WIDGETS, "application/vnd.kubernetes.protobuf")
        mixed = await api.client.get(WIDGETS, "application/vnd.kubernetes.protobuf,application/json")
        partial = await api.client.get(WIDGETS, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
    assert refused.code == 406
    assert mixed.body["kind"] == "WidgetList"
    assert partial.body["kind"] == "PartialObjectMetadataList"


async def test_discovery_speaks_the_version_that_was_asked_for(serve: Any) -> None:
    v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    beta = v2.replace("v=v2", "v=v2beta1")
    async with serve() as api:
        for accept, version in ((f"{v2},{beta},application/json", "v2"), (f"{beta},application/json", "v2beta1")):
            answer = await api.client.get("/apis", accept)
            assert answer.headers["Content-Type"] == v2.replace("v=v2", f"v={version}")
            assert answer.body["apiVersion"] == f"apidiscovery.k8s.io/{version}"
            groups = {item["metadata"]["name"]: item for item in answer.body["items"]}
            row = groups["test.example.com"]["versions"][0]["resources"][0]
            assert (row["resource"], row["shortNames"], row["categories"]) == ("widgets", ["wd"], ["things"])
            assert row["subresources"][0]["subresource"] == "status"
        legacy = await api.client.get("/apis/")
        rows = await api.client.get("/apis/test.example.com/v1")
        core = await api.client.get("/api/v1")
    assert legacy.body["kind"] == "APIGroupList"
    assert [row["name"] for row in rows.body["resources"]] == ["widgets", "widgets/status"]
    assert {"namespaces", "events"} <= {row["name"] for row in core.body["resources"]}


async def test_openapi_documents(serve: Any) -> None:
    async with serve() as api:
        index = (await api.client.get("/openapi/v3")).body["paths"]
        url = index["apis/test.example.com/v1"]["serverRelativeURL"]
        document = await api.client.get(url)
        schema = document.body["components"]["schemas"]["com.example.test.v1.Widget"]
        assert schema["x-kubernetes-group-version-kind"] == [
            {"group": "test.example.com", "version": "v1", "kind": "Widget"}
        ]
        path = document.body["paths"]["/apis/test.example.com/v1/namespaces/{namespace}/widgets/{name}"]
        assert "fieldValidation" in [parameter["name"] for parameter in path["patch"]["parameters"]]
        assert "x-kubernetes-validations" not in json.dumps(document.body)
        again = api.client.session.get(api.client.url + url, headers={"If-None-Match": document.headers["ETag"]})
        async with again as answer:
            assert answer.status == 304
        old = await api.client.get("/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
        assert (old.code, old.body) == (200, b"")
        assert "@" not in old.headers["Content-Type"]
        assert (await api.client.get("/openapi/v2")).body["swagger"] == "2.0"


async def test_reviews_allow_the_bearer_of_the_token(serve: Any) -> None:
    async with serve() as api:
        access = await api.client.post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {}},
        )
        who = await api.client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert access.body["status"]["allowed"] is True
    assert who.body["status"]["userInfo"]["username"]


async def test_the_crds_are_shown_as_established(serve: Any) -> None:
    async with serve() as api:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        crd = (await api.client.get(f"{path}/widgets.test.example.com")).body
        refused = await api.client.merge(f"{path}/widgets.test.example.com", {})
    assert {c["type"]: c["status"] for c in crd["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert "built in" in refused.message


async def test_fifty_creates_of_one_name_make_one_object(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        answers = await asyncio.gather(*(api.client.post(WIDGETS, make_widget()) for _ in range(50)))
        many = await asyncio.gather(*(api.client.post(WIDGETS, make_widget(f"x{n}")) for n in range(50)))
        versions = [int(answer.version) for answer in many]
    assert sorted(answer.code for answer in answers) == [201] + [409] * 49
    assert [answer.code for answer in many] == [201] * 50
    assert len(set(versions)) == 50


async def test_a_secret_never_becomes_a_manifest(serve: Any) -> None:
    secrets = "/api/v1/namespaces/default/secrets"
    body = {"metadata": {"name": "s"}, "stringData": {"password": "hidden"}}
    async with serve() as api:
        made = await api.client.post(secrets, body)
        assert made.body["data"] == {"password": base64.b64encode(b"hidden").decode()}
        assert "stringData" not in made.body
        assert not list(api.manifests.rglob("s.yaml"))
    async with serve() as api:
        assert (await api.client.get(f"{secrets}/s")).body == made.body
