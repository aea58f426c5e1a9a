"""Watches: no gap, no double, resumable, bounded, and closed at once when the server stops."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import pytest

WIDGETS = "/apis/test.example.com/v1/namespaces/default/widgets"
W1 = f"{WIDGETS}/w1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def seen(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


async def test_a_watch_tells_what_is_there_and_then_every_change(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        await api.client.post(WIDGETS, make_widget("w0"))
        async with api.client.watch(WIDGETS) as lines:
            assert seen(await lines.next()) == ("ADDED", "w0")
            made = await api.client.post(WIDGETS, make_widget())
            assert seen(await lines.next()) == ("ADDED", "w1")
            await api.client.merge(W1, {"spec": {"size": 4}})
            assert seen(await lines.next()) == ("MODIFIED", "w1")
            await api.client.delete(W1)
            last = await lines.next()
    assert seen(last) == ("DELETED", "w1")
    assert int(last["object"]["metadata"]["resourceVersion"]) > int(made.version) + 1


async def test_a_watch_resumes_where_a_list_ended(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        await api.client.post(WIDGETS, make_widget("w0"))
        version = (await api.client.get(WIDGETS)).version
        for number in range(1, 4):
            await api.client.post(WIDGETS, make_widget(f"w{number}"))
        async with api.client.watch(f"{WIDGETS}?resourceVersion={version}") as lines:
            names = [seen(await lines.next()) for _ in range(3)]
            middle = names[1]
        assert middle == ("ADDED", "w2")
    assert names == [("ADDED", f"w{number}") for number in (1, 2, 3)]


async def test_the_last_finalizer_gives_one_deleted_event_with_the_new_version(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        body = make_widget()
        body["metadata"]["finalizers"] = ["example.com/a"]
        await api.client.post(WIDGETS, body)
        await api.client.delete(W1)
        version = (await api.client.get(W1)).version
        async with api.client.watch(f"{WIDGETS}?resourceVersion={version}") as lines:
            await api.client.merge(W1, {"metadata": {"finalizers": None}})
            event = await lines.next()
    assert event["type"] == "DELETED"
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(version)


async def test_an_object_enters_and_leaves_a_selection(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        await api.client.post(WIDGETS, make_widget())
        version = (await api.client.get(WIDGETS)).version
        path = f"{WIDGETS}?resourceVersion={version}&labelSelector=on%3Dyes"
        async with api.client.watch(path) as lines:
            for labels in ({"on": "no"}, {"on": "yes"}, {"on": "yes", "a": "b"}, {"on": None}):
                await api.client.merge(W1, {"metadata": {"labels": labels}})
            types = [(await lines.next())["type"] for _ in range(3)]
    assert types == ["ADDED", "MODIFIED", "DELETED"]


@pytest.mark.parametrize("field", ["metadata.name%3Dw1", "metadata.name%3Dw1,metadata.namespace%3Ddefault"])
async def test_a_watch_of_one_object(serve: Any, make_widget: Any, field: str) -> None:
    async with serve() as api, api.client.watch(f"{WIDGETS}?fieldSelector={field}") as lines:
        await api.client.post(WIDGETS, make_widget("w0"))
        await api.client.post(WIDGETS, make_widget("w1"))
        assert seen(await lines.next()) == ("ADDED", "w1")


async def test_bookmarks_come_without_changes_and_carry_the_version(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        await api.client.post(WIDGETS, make_widget())
        version = (await api.client.get(WIDGETS)).version
        async with api.client.watch(f"{WIDGETS}?resourceVersion={version}&allowWatchBookmarks=true") as lines:
            await api.client.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
            mark = await lines.until(
                lambda event: (
                    event["type"] == "BOOKMARK" and int(event["object"]["metadata"]["resourceVersion"]) > int(version)
                )
            )
    assert mark["object"]["kind"] == "Widget"


@pytest.mark.parametrize("version", ["2", "99999999"])
async def test_a_version_that_is_not_known_is_an_error_in_the_stream(
    serve: Any, make_widget: Any, version: str
) -> None:
    async with serve() as api:
        await api.client.post(WIDGETS, make_widget())
        await api.client.post(WIDGETS, make_widget("w2"))
    async with serve() as api, api.client.watch(f"{WIDGETS}?resourceVersion={version}") as lines:
        event = await lines.next()
        assert await lines.ended()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_a_watch_goes_on_over_a_restart_from_the_last_version(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        await api.client.post(WIDGETS, make_widget())
        version = (await api.client.get(WIDGETS)).version
    async with serve() as api, api.client.watch(f"{WIDGETS}?resourceVersion={version}") as lines:
        await api.client.post(WIDGETS, make_widget("w2"))
        assert seen(await lines.next()) == ("ADDED", "w2")


async def test_a_table_watch_has_its_columns_once(serve: Any, make_widget: Any) -> None:
    async with serve() as api, api.client.watch(WIDGETS, TABLE) as lines:
        await api.client.post(WIDGETS, make_widget())
        await api.client.post(WIDGETS, make_widget("w2"))
        first, second = await lines.next(), await lines.next()
    assert first["object"]["columnDefinitions"][0]["name"] == "Name"
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][0] == "w2"


async def test_a_watch_ends_after_the_time_that_the_client_named(serve: Any) -> None:
    async with serve() as api, api.client.watch(f"{WIDGETS}?timeoutSeconds=1") as lines:
        assert await lines.ended()


async def test_watches_end_at_once_and_in_good_order_when_the_server_stops(serve: Any) -> None:
    async with serve() as api, api.client.watch(WIDGETS) as lines:
        began = time.monotonic()
        reader = asyncio.create_task(lines.ended())
        await asyncio.sleep(0)
        api.server.watches.close()
        assert await reader
    assert time.monotonic() - began < 5


async def test_a_watcher_that_does_not_read_is_cut_off(serve: Any, make_widget: Any, eventually: Any) -> None:
    big = {"data": {"text": "x" * 200_000}}
    path = "/api/v1/namespaces/default/configmaps"
    async with serve(watch_buffer=20) as api:
        slow = aiohttp.TCPConnector(ssl=False)
        headers = dict(api.client.session.headers)
        async with (
            aiohttp.ClientSession(connector=slow, headers=headers, read_bufsize=1024) as session,
            session.get(f"{api.client.url}{path}?watch=1") as stuck,
        ):
            await eventually(lambda: len(api.server.watches.feeds) == 1)
            for number in range(120):
                await api.client.post(path, {"metadata": {"name": f"c{number}"}, **big})
            await eventually(lambda: not api.server.watches.feeds)
            with pytest.raises(aiohttp.ClientError):
                await stuck.content.read()
        assert (await api.client.post(WIDGETS, make_widget())).code == 201


async def test_a_client_that_leaves_leaves_nothing_behind(serve: Any, eventually: Any) -> None:
    async with serve() as api:
        async with api.client.watch(WIDGETS):
            await eventually(lambda: len(api.server.watches.feeds) == 1)
        await eventually(lambda: not api.server.watches.feeds)


async def test_fifty_watchers_see_every_change_once_and_in_the_order_of_the_versions(
    serve: Any, make_widget: Any
) -> None:
    async with serve() as api:
        version = (await api.client.get(WIDGETS)).version

        async def follow() -> list[int]:
            async with api.client.watch(f"{WIDGETS}?resourceVersion={version}") as lines:
                events = [await lines.next() for _ in range(20)]
            return [int(event["object"]["metadata"]["resourceVersion"]) for event in events]

        followers = [asyncio.create_task(follow()) for _ in range(50)]
        answers = await asyncio.gather(*(api.client.post(WIDGETS, make_widget(f"w{number}")) for number in range(20)))
        orders = await asyncio.gather(*followers)
    assert orders == [sorted(int(answer.version) for answer in answers)] * 50
