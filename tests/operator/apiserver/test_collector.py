"""The garbage collector: what goes with its owner, what stays, and who waits for whom."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.req("D1", "D10")

CORE = "/api/v1/namespaces/default"
MAPS = f"{CORE}/configmaps"
WIDGETS = "/apis/test.example.com/v1/namespaces/default/widgets"


def owner(obj: dict[str, Any], *, blocks: bool = False, **changes: str) -> dict[str, Any]:
    named = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": obj["metadata"]["name"]}
    return {**named, "uid": obj["metadata"]["uid"], "blockOwnerDeletion": blocks, **changes}


async def a_map(
    api: Any, name: str, *owners: dict[str, Any], path: str = MAPS, finalizers: tuple[str, ...] = ()
) -> Any:
    metadata = {"name": name, "ownerReferences": list(owners), "finalizers": list(finalizers)}
    made = await api.client.post(MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    assert made.code == 201, made.body
    return made.body


async def maps(api: Any) -> list[str]:
    return [item["metadata"]["name"] for item in (await api.client.get(MAPS)).body["items"]]


async def test_a_chain_goes_with_its_owner(serve: Any, make_widget: Any, eventually: Any) -> None:
    async with serve() as api:
        top = (await api.client.post(WIDGETS, make_widget())).body
        middle = await a_map(api, "middle", owner(top))
        await a_map(api, "leaf", owner(middle))
        await a_map(api, "other")
        gone = await api.client.delete(f"{WIDGETS}/w1", {"propagationPolicy": "Background"})

        async def only_other() -> bool:
            return await maps(api) == ["other"]

        await eventually(only_other)
        assert gone.body["status"] == "Success"
        assert not api.file("leaf", "configmaps").exists()


async def test_what_has_another_owner_or_one_that_cannot_be_judged_stays(serve: Any, eventually: Any) -> None:
    async with serve() as api:
        first, second = await a_map(api, "first"), await a_map(api, "second")
        await a_map(api, "both", owner(first), owner(second))
        foreign = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "0"}
        await a_map(api, "foreign", foreign)
        await a_map(api, "elsewhere", owner(first, uid="0"))
        await api.client.delete(f"{MAPS}/first")

        async def released() -> bool:
            both = (await api.client.get(f"{MAPS}/both")).body
            return [ref["name"] for ref in both["metadata"]["ownerReferences"]] == ["second"]

        await eventually(released)

        async def left() -> bool:
            return await maps(api) == ["both", "foreign", "second"]

        await eventually(left)


async def test_orphans_lose_their_owner_and_stay(serve: Any, eventually: Any) -> None:
    async with serve() as api:
        top = await a_map(api, "top")
        await a_map(api, "child", owner(top))
        marked = await api.client.delete(f"{MAPS}/top", {"propagationPolicy": "Orphan"})

        async def orphaned() -> bool:
            return await maps(api) == ["child"]

        await eventually(orphaned)
        child = (await api.client.get(f"{MAPS}/child")).body
        assert marked.body["metadata"]["finalizers"] == ["orphan"]
        assert "ownerReferences" not in child["metadata"]


async def test_an_owner_waits_in_the_foreground(serve: Any, eventually: Any) -> None:
    """Also over a restart: what waits stands in the object."""
    async with serve() as api:
        top = await a_map(api, "top")
        await a_map(api, "child", owner(top, blocks=True), finalizers=("example.com/hold",))
        await a_map(api, "free", owner(top), finalizers=("example.com/hold",))
        marked = await api.client.delete(f"{MAPS}/top?propagationPolicy=Foreground")
        assert marked.body["metadata"]["finalizers"] == ["foregroundDeletion"]

        async def leaving() -> bool:
            child = (await api.client.get(f"{MAPS}/child")).body
            return "deletionTimestamp" in child["metadata"]

        await eventually(leaving)
    async with serve() as api:
        assert await maps(api) == ["child", "free", "top"]
        await api.client.merge(f"{MAPS}/child", {"metadata": {"finalizers": None}})

        async def gone() -> bool:
            return await maps(api) == ["free"]

        await eventually(gone)


async def test_two_that_own_each_other_both_go(serve: Any, eventually: Any) -> None:
    async with serve() as api:
        first = await a_map(api, "first")
        second = await a_map(api, "second", owner(first, blocks=True))
        await api.client.merge(f"{MAPS}/first", {"metadata": {"ownerReferences": [owner(second, blocks=True)]}})
        await api.client.delete(f"{MAPS}/first", {"propagationPolicy": "Foreground"})

        async def gone() -> bool:
            return await maps(api) == []

        await eventually(gone)


async def test_a_later_delete_changes_the_policy(serve: Any, eventually: Any) -> None:
    async with serve() as api:
        top = await a_map(api, "top")
        await a_map(api, "child", owner(top, blocks=True), finalizers=("example.com/hold",))
        await api.client.delete(f"{MAPS}/top", {"propagationPolicy": "Foreground"})
        assert (await api.client.get(f"{MAPS}/top")).code == 200
        await api.client.delete(f"{MAPS}/top", {"propagationPolicy": "Background"})

        assert (await api.client.get(f"{MAPS}/top")).code == 404


@pytest.mark.parametrize(
    ("options", "code"),
    [
        pytest.param({"propagationPolicy": "Sideways"}, 422, id="an unknown policy"),
        pytest.param({"propagationPolicy": 3}, 422, id="a number"),
        pytest.param({"propagationPolicy": "Orphan", "orphanDependents": True}, 422, id="two policies"),
        pytest.param({"orphanDependents": "yes"}, 400, id="a word for a boolean"),
    ],
)
async def test_options_that_mean_nothing(serve: Any, options: Any, code: int) -> None:
    async with serve() as api:
        await a_map(api, "top")

        assert (await api.client.delete(f"{MAPS}/top", options)).code == code
        assert await maps(api) == ["top"]
