"""Server-side apply over HTTP, and who owns what after every other kind of write."""

from __future__ import annotations

from typing import Any

import pytest

WIDGETS = "/apis/test.example.com/v1/namespaces/default/widgets"
APPLY = "application/apply-patch+yaml"
pytestmark = pytest.mark.req("D3", "D10", "D11")


def config(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "test.example.com/v1", "kind": "Widget", "metadata": {"name": "w1"}, "spec": spec}


async def apply(api: Any, body: Any, manager: str = "m", *, path: str = f"{WIDGETS}/w1", force: bool = False) -> Any:
    query = f"fieldManager={manager}{'&force=true' if force else ''}"
    return await api.client.ask("PATCH", f"{path}?{query}", body, kind=APPLY)


def managers(obj: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (entry["manager"], entry["operation"], entry.get("subresource", ""))
        for entry in obj["metadata"]["managedFields"]
    ]


async def test_an_apply_makes_the_object_and_changes_it(serve: Any) -> None:
    async with serve() as api:
        made = await apply(api, config(size=3, tags=["a"]))
        again = await apply(api, config(size=3, tags=["a"]))
        yaml = b"{apiVersion: test.example.com/v1, kind: Widget, metadata: {name: w1}, spec: {size: 4}}"
        changed = await apply(api, yaml)

        assert (made.code, again.code, changed.code) == (201, 200, 200)
        assert again.body == made.body
        assert made.body["metadata"]["managedFields"][0]["fieldsV1"] == {
            "f:spec": {"f:size": {}, "f:tags": {'v:"a"': {}}}
        }
        assert changed.body["spec"] == {"size": 4, "colour": "Red"}
        assert changed.body["metadata"]["generation"] == 2
        assert "managedFields" not in api.file("w1").read_text()


async def test_each_door_has_its_owner(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        await api.client.post(f"{WIDGETS}?fieldManager=maker", make_widget())
        await api.client.merge(f"{WIDGETS}/w1/status?fieldManager=checker", {"status": {"observedGeneration": 1}})
        status = {**config(), "status": {"observedGeneration": 2}}
        del status["spec"]
        refused = await apply(api, status, path=f"{WIDGETS}/w1/status")
        taken = await apply(api, status, path=f"{WIDGETS}/w1/status", force=True)
        kept = await api.client.merge(f"{WIDGETS}/w1", {"spec": {"size": 4}})
        missing = await apply(api, config(size=1), path=f"{WIDGETS}/w2/status")

        assert refused.message == (
            'Apply failed with 1 conflict: conflict with "checker" with subresource "status" using '
            "test.example.com/v1: .status.observedGeneration"
        )
        assert (refused.code, refused.body["reason"]) == (409, "Conflict")
        assert managers(taken.body) == [("m", "Apply", "status"), ("maker", "Update", "")]
        assert ("Python", "Update", "") in managers(kept.body)  # the program of the User-Agent
        assert missing.code == 400  # another name than the URL's


async def test_the_file_of_a_person_is_an_owner_too(serve: Any) -> None:
    async with serve() as api:
        await apply(api, config(size=3))
        path = api.file("w1")
        path.write_text(path.read_text().replace("size: 3", "size: 5"))
        await api.server.manifests.scan()
        refused = await apply(api, config(size=3))

        assert 'conflict with "gpugrant-manifests"' in refused.message


async def test_owners_outlive_a_restart_and_can_be_cleared(serve: Any) -> None:
    async with serve() as api:
        made = await apply(api, config(size=3))
    async with serve() as api:
        assert (await api.client.get(f"{WIDGETS}/w1")).body == made.body
        cleared = await api.client.merge(f"{WIDGETS}/w1", {"metadata": {"managedFields": [{}]}})
        first = await apply(api, config(size=4), force=True)

        assert "managedFields" not in cleared.body["metadata"]
        assert managers(first.body) == [("m", "Apply", ""), ("before-first-apply", "Update", "")]


@pytest.mark.parametrize(
    ("query", "kind", "told"),
    [
        pytest.param("", APPLY, "fieldManager: Required value: is required for apply patch", id="no manager"),
        pytest.param("force=true", "application/merge-patch+json", "may not be specified for non-apply", id="force"),
        pytest.param(f"fieldManager={'x' * 129}", APPLY, "may not be more than 128", id="a long manager"),
        pytest.param("fieldManager=a%0Ab", APPLY, "printable characters", id="a manager of two lines"),
    ],
)
async def test_what_the_options_must_be(serve: Any, query: str, kind: str, told: str) -> None:
    async with serve() as api:
        refused = await api.client.ask("PATCH", f"{WIDGETS}/w1?{query}", config(size=3), kind=kind)

        assert refused.code == 422
        assert told in refused.message


async def test_an_apply_with_another_uid_makes_nothing(serve: Any) -> None:
    body = config(size=3)
    body["metadata"]["uid"] = "0"
    async with serve() as api:
        refused = await apply(api, body)

        assert refused.code == 409
        assert "uid mismatch" in refused.message
        assert (await api.client.get(f"{WIDGETS}/w1")).code == 404


async def test_the_name_is_checked_behind_the_conflicts(serve: Any) -> None:
    other, nameless = config(size=4), config(size=4)
    other["metadata"]["name"] = "w2"
    nameless["metadata"].pop("name")
    async with serve() as api:
        not_there = [await apply(api, body) for body in (other, nameless)]
        first = await apply(api, config(size=3), "first")
        conflicting = await apply(api, other)
        forced = await apply(api, other, force=True)
        without = await apply(api, nameless, force=True)

        assert [answer.code for answer in not_there] == [400, 400]
        assert not_there[0].message == "the name of the object (w2) does not match the name on the URL (w1)"
        assert "undeterminable: name must be provided" in not_there[1].message
        assert first.code == 201
        assert conflicting.code == 409
        assert (forced.code, forced.message) == (400, not_there[0].message)
        assert (without.code, without.body["metadata"]["name"], without.body["spec"]["size"]) == (200, "w1", 4)
