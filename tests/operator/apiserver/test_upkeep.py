"""What the server does by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from gpugrant_operator.apiserver import upkeep

NAMESPACES = "/api/v1/namespaces"


async def test_a_namespace_goes_when_the_last_of_its_objects_is_gone(
    serve: Any, make_widget: Any, eventually: Any
) -> None:
    async with serve() as api:
        widgets = "/apis/test.example.com/v1/namespaces/team/widgets"
        await api.client.post(NAMESPACES, {"metadata": {"name": "team"}})
        held = make_widget("held")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await api.client.post(widgets, held)
        await api.client.post(widgets, make_widget("free"))
        marked = await api.client.delete(f"{NAMESPACES}/team")
        assert marked.body["status"]["phase"] == "Terminating"

        async def only_held() -> bool:
            items = (await api.client.get(widgets)).body["items"]
            return [item["metadata"]["name"] for item in items if "deletionTimestamp" in item["metadata"]] == [
                "held"
            ] and len(items) == 1

        await eventually(only_held)
        refused = await api.client.post(widgets, make_widget("late"))
        assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
        assert "because it is being terminated" in refused.message
        assert (await api.client.get(f"{NAMESPACES}/team")).code == 200
        await api.client.merge(f"{widgets}/held", {"metadata": {"finalizers": None}})

        async def gone() -> bool:
            return bool((await api.client.get(f"{NAMESPACES}/team")).code == 404)

        await eventually(gone)
        missing = await api.client.post(widgets, make_widget("late"))
        assert (missing.code, missing.message) == (404, 'namespaces "team" not found')


async def test_a_terminating_namespace_is_finished_after_a_restart(
    serve: Any, make_widget: Any, eventually: Any
) -> None:
    async with serve() as api:
        await api.client.post(NAMESPACES, {"metadata": {"name": "team", "finalizers": ["example.com/hold"]}})
        await api.client.delete(f"{NAMESPACES}/team")
    async with serve() as api:
        assert (await api.client.get(f"{NAMESPACES}/team")).body["status"]["phase"] == "Terminating"
        await api.client.merge(f"{NAMESPACES}/team", {"metadata": {"finalizers": None}})

        async def gone() -> bool:
            return bool((await api.client.get(f"{NAMESPACES}/team")).code == 404)

        await eventually(gone)


async def test_kube_system_keeps_its_uid(serve: Any) -> None:
    uids = set()
    for _ in range(2):
        async with serve() as api:
            uids.add((await api.client.get(f"{NAMESPACES}/kube-system")).body["metadata"]["uid"])
    assert len(uids) == 1


async def test_events_go_after_their_time(serve: Any) -> None:
    events = "/api/v1/namespaces/default/events"
    async with serve() as api:
        now = api.server.settings.now()
        for name, seen in (("old", now - timedelta(hours=2)), ("new", now)):
            body = {
                "metadata": {"name": name},
                "involvedObject": {"kind": "Widget", "name": "w1", "namespace": "default"},
                "lastTimestamp": seen.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            assert (await api.client.post(events, body)).code == 201
        selected = await api.client.get(f"{events}?fieldSelector=involvedObject.name%3Dw1,involvedObject.kind%3DWidget")
        assert len(selected.body["items"]) == 2
        later = replace(api.server.settings, now=lambda: now + timedelta(minutes=61))
        api.server.registry.settings = replace(later, now=lambda: now + timedelta(minutes=30))
        await upkeep.expire_old_events(api.server.registry)
        assert len((await api.client.get(events)).body["items"]) == 2
        api.server.registry.settings = later
        await upkeep.expire_old_events(api.server.registry)
        assert (await api.client.get(events)).body["items"] == []
