"""The process: it starts, says why it can't, stops on a signal, and loses nothing when it is killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from gpugrant_crds.layout import Layout

GRANTS = "/apis/gpu.rediacc.io/v1alpha1/namespaces/default/repogpugrants"
START = "import sys; from pathlib import Path; from gpugrant_operator.apiserver.main import run; sys.exit(run({}))"


class Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.said: list[str] = []

    async def serving(self) -> None:
        """Returns when the server answers; its log is read so far."""
        while not any(line.get("event") == "serving" for line in self.lines):
            assert await self._read(), self.said

    async def _read(self) -> bool:
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            text = (await self.process.stderr.readline()).decode()
        if text.startswith("{"):
            self.lines.append(json.loads(text))
        elif text:
            self.said.append(text.strip())
        return bool(text)

    async def ended(self) -> int:
        while await self._read():
            pass
        return await self.process.wait()


@asynccontextmanager
async def started(root: Path, arguments: str = "Path(sys.argv[1])") -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", START.format(arguments), str(root), stderr=asyncio.subprocess.PIPE
    )
    made = Process(process)
    try:
        yield made
    finally:
        if process.returncode is None:
            process.kill()
        await made.ended()


async def health(root: Path) -> dict[str, Any]:
    connector = aiohttp.UnixConnector(path=str(Layout(root).control("apiserver")))
    async with aiohttp.ClientSession(connector=connector) as session, session.get("http://x/healthz") as answer:
        body: dict[str, Any] = await answer.json()
    return body


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.real
async def test_it_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    async with started(tmp_path) as server:
        await server.serving()
        lock = json.loads(layout.lock("apiserver").read_text())
        assert lock["pid"] == server.process.pid
        assert await health(tmp_path) == {"ok": True, "message": "serving", "since": lock["since"]}
        private = (layout.control("apiserver"), layout.kubeconfig, *(layout.store / "pki").iterdir())
        assert {mode(path) for path in private} == {0o600}
        assert mode(layout.store) == 0o700
        config = yaml.safe_load(layout.kubeconfig.read_text())
        assert config["current-context"] == "gpugrant"
        assert config["contexts"][0]["context"]["namespace"] == "default"

        async with started(tmp_path) as second:
            assert await second.ended() == 1
        assert second.said == [
            f"gpugrant apiserver: an API server already runs here (pid {lock['pid']} since {lock['since']})"
        ]
        server.process.send_signal(signal.SIGTERM)
        assert await server.ended() == 0
    assert server.lines[-1]["event"] == "stopped"
    assert not layout.control("apiserver").exists()


@pytest.mark.real
async def test_it_stops_at_once_with_open_watches(tmp_path: Path, connect: Any) -> None:
    async with started(tmp_path) as server:
        await server.serving()
        async with connect(Layout(tmp_path).kubeconfig) as client, client.watch("/api/v1/namespaces") as lines:
            assert (await lines.next())["type"] == "ADDED"
            server.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(10):  # aiohttp would wait 60 s for them
                assert await server.ended() == 0
            rest = await lines.answer.content.read()  # ends in good order: a cut stream would raise here
    assert rest.count(b"\n") == 1


@pytest.mark.real
async def test_a_restart_keeps_port_token_and_certificate(tmp_path: Path) -> None:
    texts = []
    for _ in range(2):
        async with started(tmp_path) as server:
            await server.serving()
            texts.append(Layout(tmp_path).kubeconfig.read_text())
    assert texts[0] == texts[1]


@pytest.mark.real
async def test_another_port_is_taken_when_the_known_one_is_not_free(tmp_path: Path) -> None:
    async with started(tmp_path) as server:
        await server.serving()
    before = yaml.safe_load(Layout(tmp_path).kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", int(before.rpartition(":")[2])))
        taken.listen()
        async with started(tmp_path) as server:
            await server.serving()
            after = yaml.safe_load(Layout(tmp_path).kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        async with started(tmp_path, f"Path(sys.argv[1]), port={before.rpartition(':')[2]}") as asked:
            assert await asked.ended() == 1
    assert after != before
    assert "can't be used: Address already in use" in asked.said[0]


@pytest.mark.real
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        pytest.param("journal", "journal.jsonl line 1 is damaged", id="a damaged journal"),
        pytest.param("snapshot", "snapshot.jsonl line 1 is damaged", id="a damaged snapshot"),
        pytest.param("path", "choose a shorter --root", id="a root that is too long for a socket"),
        pytest.param("folder", "Not a directory", id="a file where a folder must be"),
    ],
)
async def test_what_keeps_it_from_starting_is_one_sentence(tmp_path: Path, damage: str, told: str) -> None:
    root = tmp_path / ("x" * 120 if damage == "path" else "r")
    if damage == "folder":
        root.write_text("")
    if damage in ("journal", "snapshot"):
        async with started(root) as server:
            await server.serving()
        path = Layout(root).store / f"{damage}.jsonl"
        path.write_bytes(b"00000000 {}\n" + path.read_bytes())
    async with started(root) as server:
        assert await server.ended() == 1
    assert len(server.said) == 1
    assert told in server.said[0]


def grant(name: str, repo: str) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.rediacc.io/v1alpha1",
        "kind": "RepoGpuGrant",
        "metadata": {"name": name},
        "spec": {"machine": "m1", "repo": repo, "device": "nvidia.com/gpu=all"},
    }


async def _write(client: Any, worker: int, acknowledged: dict[str, Any], pending: dict[str, Any]) -> None:
    """One client that creates, changes and deletes its own objects until the server is gone."""
    for number in range(100_000):
        name = f"g{worker}-{number % 7}"
        path = f"{GRANTS}/{name}"
        held = acknowledged.get(name)
        if held is None:
            wanted: Any = "made"
            request = client.post(GRANTS, grant(name, f"r{worker}"))
        elif number % 3:
            wanted = f"v{number}"
            request = client.merge(path, {"metadata": {"labels": {"v": wanted}}})
        else:
            wanted = None
            request = client.delete(path)
        pending[name] = wanted
        try:
            answer = await request
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return
        assert answer.code in (200, 201), answer.body
        acknowledged[name] = wanted
        del pending[name]


def _value(body: dict[str, Any]) -> str:
    return str((body["metadata"].get("labels") or {}).get("v", "made"))


@pytest.mark.real
@pytest.mark.must_run
@pytest.mark.req("D1")
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_killed_at_any_moment_it_has_every_acknowledged_write(tmp_path: Path, seed: int, connect: Any) -> None:
    chance = random.Random(seed)
    acknowledged: dict[str, Any] = {}
    version = 0
    for _ in range(4):
        pending: dict[str, Any] = {}
        async with started(tmp_path) as server:
            await server.serving()
            async with connect(Layout(tmp_path).kubeconfig) as client:
                writers = [asyncio.create_task(_write(client, worker, acknowledged, pending)) for worker in range(8)]
                await asyncio.wait(writers, timeout=chance.uniform(0.05, 0.8))
                os.kill(server.process.pid, signal.SIGKILL)
                await asyncio.gather(*writers)
        async with started(tmp_path) as server:
            await server.serving()
            async with connect(Layout(tmp_path).kubeconfig) as client:
                listed = (await client.get(GRANTS)).body
                found = {item["metadata"]["name"]: _value(item) for item in listed["items"]}
                _compare(found, acknowledged, pending)
                assert int(listed["metadata"]["resourceVersion"]) >= version
                version = int(listed["metadata"]["resourceVersion"])
        files = {path.stem for path in (Layout(tmp_path).manifests / "objects/repogpugrants/default").glob("*.yaml")}
        assert files == set(found)
        acknowledged = dict(found)


def _compare(found: dict[str, str], acknowledged: dict[str, Any], pending: dict[str, Any]) -> None:
    assert acknowledged
    for name in set(found) | set(acknowledged) | set(pending):
        allowed = [acknowledged.get(name)] + ([pending[name]] if name in pending else [])
        assert found.get(name) in allowed, (name, found.get(name), allowed)
