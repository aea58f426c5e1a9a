"""Grants at the door: what the gate has now, exclusive conflicts under concurrency, and what is never asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gpugrant_operator.apiserver import admission

GRANTS = "/apis/gpu.rediacc.io/v1alpha1/namespaces/default/repogpugrants"
MACHINES = "/apis/gpu.rediacc.io/v1alpha1/gpumachines"
ALL = "nvidia.com/gpu=all"


def grant(name: str, repo: str = "gpu-a", device: str = ALL, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.rediacc.io/v1alpha1",
        "kind": "RepoGpuGrant",
        "metadata": {"name": name},
        "spec": {"machine": "m1", "repo": repo, "device": device, **spec},
    }


async def detected(api: Any, *devices: str) -> None:
    """A machine whose last detection found these devices."""
    body = {"apiVersion": "gpu.rediacc.io/v1alpha1", "kind": "GpuMachine", "metadata": {"name": "m1"}}
    assert (await api.client.post(MACHINES, body)).code == 201
    status = {"observedGeneration": 1, "devices": [{"name": name} for name in devices]}
    assert (await api.client.merge(f"{MACHINES}/m1/status", {"status": status})).code == 200


@asynccontextmanager
async def gate(path: Path, machine: str, *devices: str, delay: float = 0.0) -> AsyncIterator[None]:
    """A small gate: it answers the two questions that admission asks."""

    async def status(_: web.Request) -> web.Response:
        await asyncio.sleep(delay)
        return web.json_response({"machine": machine, "epoch": 1})

    async def names(_: web.Request) -> web.Response:
        return web.json_response({"devices": list(devices), "problems": []})

    app = web.Application()
    app.add_routes([web.get("/v1/status", status), web.get("/v1/devices", names)])
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    path.parent.mkdir(parents=True, exist_ok=True)
    await web.UnixSite(runner, str(path)).start()
    try:
        yield
    finally:
        await runner.cleanup()


@pytest.mark.req("R8")
async def test_a_misspelt_device_is_refused_with_the_nearest_name(serve: Any) -> None:
    async with serve() as api:
        await detected(api, ALL, "nvidia.com/gpu=0")
        refused = await api.client.post(GRANTS, grant("a", device="nvidia.com/gpu=al"))
        assert (await api.client.get(f"{GRANTS}/a")).code == 404
    assert (refused.code, refused.body["reason"]) == (403, "DeviceNotFound")
    assert refused.message.startswith('admission webhook "grants.gpu.rediacc.io" denied the request: ')
    assert ALL in refused.message


@pytest.mark.req("R8")
async def test_the_gate_knows_better_than_the_last_detection(serve: Any) -> None:
    async with serve() as api:
        await detected(api, "nvidia.com/gpu=0")
        socket = api.server.settings.layout.control("gate")
        async with gate(socket, "m1", "nvidia.com/gpu=1"):
            new = await api.client.post(GRANTS, grant("new", device="nvidia.com/gpu=1"))
            old = await api.client.post(GRANTS, grant("old", device="nvidia.com/gpu=0"))
        async with gate(socket, "another", "nvidia.com/gpu=2"):
            other = await api.client.post(GRANTS, grant("other", device="nvidia.com/gpu=2"))
        down = await api.client.post(GRANTS, grant("down", device="nvidia.com/gpu=0"))
    assert [answer.code for answer in (new, old, other, down)] == [201, 403, 403, 201]


async def test_a_gate_that_does_not_answer_in_time_is_no_obstacle(serve: Any) -> None:
    async with serve(live_timeout=0.05) as api:
        await detected(api, "nvidia.com/gpu=0")
        async with gate(api.server.settings.layout.control("gate"), "m1", "nvidia.com/gpu=1", delay=5):
            made = await api.client.post(GRANTS, grant("a", device="nvidia.com/gpu=0"))
    assert made.code == 201


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"machine": 3}', b'{"machine": "m1", "epoch": "x"}', b"x" * 100_000]
)
async def test_a_gate_that_talks_nonsense_counts_as_none(tmp_path: Path, text: bytes) -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    path = tmp_path / "gate.sock"
    async with await asyncio.start_unix_server(nonsense, str(path)):
        assert await admission.ask_gate(path, 1.0) is None
    assert await admission.ask_gate(tmp_path / "none.sock", 1.0) is None


async def test_what_is_not_known_yet_is_a_warning(serve: Any) -> None:
    async with serve() as api:
        made = await api.client.post(GRANTS, grant("a"))
    assert made.code == 201
    assert made.headers["Warning"] == ('299 - "there is no machine m1 yet: the grant waits for it (MachineNotFound)"')


@pytest.mark.req("R26", "R27", "R28")
@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive first", "shared first"])
async def test_an_exclusive_conflict_is_refused_and_names_the_holder(serve: Any, exclusive: bool) -> None:
    async with serve() as api:
        await detected(api, ALL)
        await api.client.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
        assert (await api.client.post(GRANTS, grant("a", exclusive=exclusive))).code == 201
        elsewhere = GRANTS.replace("default", "other")
        refused = await api.client.post(elsewhere, grant("b", repo="gpu-b", exclusive=not exclusive))
        upgrade = await api.client.post(elsewhere, grant("c", repo="gpu-a", exclusive=True))
    assert (refused.code, refused.body["reason"]) == (403, "ExclusiveHeld" if exclusive else "SharedHeld")
    assert "gpu-a" in refused.message
    assert upgrade.code == 201


@pytest.mark.req("R28")
async def test_of_fifty_exclusive_grants_at_once_one_is_taken(serve: Any) -> None:
    async with serve() as api:
        await detected(api, ALL)
        asked = [api.client.post(GRANTS, grant(f"g{n}", repo=f"r{n}", exclusive=True)) for n in range(50)]
        answers = await asyncio.gather(*asked)
        stored = (await api.client.get(GRANTS)).body["items"]
    assert sorted(answer.code for answer in answers) == [201] + [403] * 49
    assert len(stored) == 1


async def test_without_admission_all_are_stored(serve: Any) -> None:
    async with serve(admission=False) as api:
        await detected(api, ALL)
        asked = [api.client.post(GRANTS, grant(f"g{n}", repo=f"r{n}", exclusive=True)) for n in range(5)]
        assert [answer.code for answer in await asyncio.gather(*asked)] == [201] * 5


async def test_status_labels_and_deletion_are_never_refused(serve: Any) -> None:
    async with serve(admission=False) as api:
        await detected(api, ALL)
        for name, repo in (("a", "gpu-a"), ("b", "gpu-b")):
            body = grant(name, repo=repo, exclusive=True)
            body["metadata"]["finalizers"] = ["gpu.rediacc.io/enforced"]
            await api.client.post(GRANTS, body)
    async with serve() as api:
        path = f"{GRANTS}/b"
        assert (await api.client.merge(f"{path}/status", {"status": {"observedGeneration": 1}})).code == 200
        assert (await api.client.merge(path, {"metadata": {"labels": {"a": "b"}}})).code == 200
        assert (await api.client.merge(path, {"spec": {"expiresAt": "2020-01-01T00:00:00Z"}})).code == 403
        assert (await api.client.delete(path)).code == 200
        assert (await api.client.merge(path, {"metadata": {"finalizers": None}})).code == 200
        assert (await api.client.get(path)).code == 404


async def test_a_grant_written_by_hand_passes_the_same_door(serve: Any, eventually: Any) -> None:
    async with serve() as api:
        await detected(api, ALL)
        await api.client.post(GRANTS, grant("a", exclusive=True))
        path = api.file("b", plural="repogpugrants")
        path.write_text(json.dumps(grant("b", repo="gpu-b")))
        await eventually(lambda: path in api.server.manifests.problems)
        assert "is reserved for repo gpu-a" in api.server.manifests.problems[path]
        assert (await api.client.get(f"{GRANTS}/b")).code == 404
        await api.client.delete(f"{GRANTS}/a")
        await api.server.manifests.scan()
        assert (await api.client.get(f"{GRANTS}/b")).code == 200
