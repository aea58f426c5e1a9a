"""What people see of a whole gate: audit, metrics, decisions live, and workers that had to be replaced."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import rig
from gateprocess import DEVICE, PATIENCE, GateProcess, made

SERIES = re.compile(r"^(gpugrant_gate_\w+)(\{[^}]*\})? (\S+)$", re.MULTILINE)


@pytest.fixture
def root() -> Iterator[Path]:
    path = rig.short_folder()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def more() -> str:
    """Settings of the gate."""
    return ""


@pytest.fixture
async def gate(root: Path, more: str) -> AsyncIterator[GateProcess]:
    process = GateProcess(root)
    process.prepare()
    with process.layout.gate_settings.open("a") as settings:
        settings.write(more.format(root=root))
    await process.add_repo("a")
    await process.add_repo("b")
    await process.start()
    await process.until_served("a")
    await process.until_served("b")
    yield process
    await process.close()


async def text_of(gate: GateProcess, path: str = "/metrics") -> str:
    connector = aiohttp.UnixConnector(path=str(gate.layout.control("gate")))
    async with aiohttp.ClientSession(connector=connector) as session, session.get(f"http://gate{path}") as response:
        assert response.status == 200
        return await response.text()


async def metrics(gate: GateProcess) -> dict[str, float]:
    """Every series by its name with its labels."""
    return {name + labels: float(value) for name, labels, value in SERIES.findall(await text_of(gate))}


@pytest.mark.req("D12")
async def test_metrics_count_over_all_workers(gate: GateProcess) -> None:
    await gate.put(made(3, DEVICE))
    for repo in ("a", "b"):
        await gate.create(repo)
    await gate.daemons["b"].stop()
    await gate.ask("b", b"GET /v1.45/info HTTP/1.0\r\n\r\n")
    found = await metrics(gate)
    assert found['gpugrant_gate_decisions_total{repo="a",route="container.create",verdict="admitted"}'] == 1
    assert found['gpugrant_gate_refusals_total{repo="b",rule="hw.grant"}'] >= 1
    assert found['gpugrant_gate_upstream_errors_total{repo="b"}'] == 1
    assert found['gpugrant_gate_repos{fit="true"}'] == 1
    assert found['gpugrant_gate_grants{repo="a"}'] == 1
    assert found["gpugrant_gate_snapshot_epoch"] == 3
    assert 0 <= found["gpugrant_gate_snapshot_age_seconds"] < PATIENCE
    assert found['gpugrant_gate_bytes_total{direction="received",repo="a"}'] > 100
    assert found['gpugrant_gate_bytes_total{direction="sent",repo="a"}'] > 100
    assert found['gpugrant_gate_connections{repo="a"}'] == 0
    assert found["gpugrant_gate_audit_lines_lost_total"] == 0
    assert found["gpugrant_gate_older_gate"] == 0
    assert 'gpugrant_gate_request_duration_seconds_bucket{le="+Inf",verdict="admitted"} ' in await text_of(gate)


async def test_counters_never_go_down_when_a_worker_dies(gate: GateProcess) -> None:
    for repo in ("a", "b"):
        await gate.create(repo)
    before = await metrics(gate)
    workers = gate.workers()
    for pid in workers:
        os.kill(pid, signal.SIGKILL)

    async def back() -> bool:
        return len(set(gate.workers()) - set(workers)) == 2

    await gate.until(back)
    await gate.until_served("a")
    after = await metrics(gate)
    counters = [name for name in before if "_total" in name or "_count" in name]
    assert all(after.get(name, 0) >= before[name] for name in counters if "bytes" not in name)
    assert sum(after[f'gpugrant_gate_worker_restarts_total{{reason="died",worker="{n}"}}'] for n in (0, 1)) == 2
    _, status = await gate.control("GET", "/v1/status")
    assert [worker["died"] for worker in status["workers"]] == [1, 1]


async def test_a_worker_that_hangs_is_replaced_and_the_other_repos_are_not_touched(gate: GateProcess) -> None:
    _, status = await gate.control("GET", "/v1/status")
    by_repo = {repo: worker["pid"] for worker in status["workers"] for repo in worker["repos"]}
    reader, writer = await asyncio.open_unix_connection(str(gate.layout.repo_socket("b")))
    os.kill(by_repo["a"], signal.SIGSTOP)
    waiting = asyncio.create_task(gate.ask("a", b"GET /version HTTP/1.0\r\n\r\n"))
    writer.write(b"GET /version HTTP/1.1\r\nHost: d\r\n\r\n")
    async with asyncio.timeout(PATIENCE):
        await reader.readuntil(b"\r\n\r\n")
        # whatever it had accepted is lost, what waited in the socket is not
        assert b"200 OK" in await waiting or not waiting.result()
    assert b"200 OK" in await gate.ask("a", b"GET /version HTTP/1.0\r\n\r\n")
    _, status = await gate.control("GET", "/v1/status")
    hung = {repo: (worker["hung"], worker["pid"]) for worker in status["workers"] for repo in worker["repos"]}
    assert hung["a"][0] == 1
    assert hung["a"][1] not in (0, by_repo["a"])
    assert hung["b"] == (0, by_repo["b"])
    assert not reader.at_eof()
    writer.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]


@pytest.mark.parametrize("more", ["audit: {root}/audit.log\n"])
async def test_decisions_go_to_a_file_that_may_be_rotated(gate: GateProcess) -> None:
    path = gate.root / "audit.log"
    await gate.create("a")

    async def written(repo: str) -> bool:
        return path.exists() and any(line["repo"] == repo for line in lines(path))

    await gate.until(lambda: written("a"))
    path.rename(gate.root / "audit.log.1")
    await gate.create("b")
    await gate.until(lambda: written("b"))
    assert [line["repo"] for line in lines(path)] == ["b"]
    path.rename(gate.root / "audit.log.2")
    os.kill(gate.pid, signal.SIGHUP)
    await gate.create("a")
    await gate.until(lambda: written("a"))
    await gate.create("b")
    assert await gate.stop() == 0
    assert [line["repo"] for line in lines(path)] == ["a", "b"]
    assert '"event":"request"' not in (gate.root / "log").read_text()


@pytest.mark.parametrize("more", ["audit: {root}/none/audit.log\n"])
async def test_a_file_that_can_not_be_written_is_a_problem_and_stops_nothing(gate: GateProcess) -> None:
    await gate.put(made(1, DEVICE))
    assert (await gate.create())[0] == 201

    async def said() -> bool:
        _, health = await gate.control("GET", "/healthz")
        return "audit.log can't be written: no such file" in health["message"]

    await gate.until(said)
    (gate.root / "none").mkdir()

    async def written() -> bool:
        return (gate.root / "none/audit.log").exists()

    await gate.until(written)


async def followed(gate: GateProcess, query: str = "") -> AsyncIterator[dict[str, Any]]:
    """Decisions from now on; the first item says that they come."""
    connector = aiohttp.UnixConnector(path=str(gate.layout.control("gate")))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(f"http://gate/v1/decisions{query}") as response,
    ):
        yield {}
        async for line in response.content:
            yield json.loads(line)


async def test_decisions_are_seen_live_and_the_stream_ends_with_the_gate(gate: GateProcess) -> None:
    every, refused = followed(gate), followed(gate, "?refused=1&repo=b")
    async with asyncio.timeout(PATIENCE):
        await anext(every)
        await anext(refused)
        await gate.create("b")
        assert (await anext(every))["verdict"] == "refused"
        await gate.put(made(1, DEVICE))
        await gate.create("a")
        await gate.create("b")
        assert [(await anext(every))["repo"], (await anext(every))["repo"]] == ["a", "b"]
        assert [(await anext(refused))["repo"] for _ in range(2)] == ["b", "b"]
        stopping = asyncio.create_task(gate.stop())
        assert [line async for line in every] == []
        assert [line async for line in refused] == []
        assert await stopping == 0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


PORT = free_port()


@pytest.mark.parametrize("more", [f"metrics: 127.0.0.1:{PORT}\n"], ids=["metrics"])
async def test_the_port_for_metrics_wants_the_token(gate: GateProcess) -> None:
    token = gate.layout.metrics_token
    assert token.stat().st_mode & 0o777 == 0o600
    url = f"http://127.0.0.1:{PORT}"
    async with aiohttp.ClientSession() as session:
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": token.read_text().strip()}):
            async with session.get(f"{url}/metrics", headers=headers) as response:
                assert response.status == 401
                assert str(token) in (await response.json())["message"]
        right = {"Authorization": f"Bearer {token.read_text().strip()}"}
        async with session.get(f"{url}/metrics", headers=right) as response:
            assert response.status == 200
            assert "gpugrant_gate_repos" in await response.text()
        async with session.get(f"{url}/v1/status", headers=right) as response:
            assert response.status == 404
        second = GateProcess(gate.root, gate.daemons)
        await second.start()
        async with session.get(f"{url}/metrics", headers=right) as response:
            assert response.status == 200
    await second.close()


@pytest.mark.parametrize("more", [f"metrics: 127.0.0.1:{PORT}\n"], ids=["metrics"])
async def test_a_port_that_is_taken_is_a_problem_and_no_end(root: Path, more: str) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", PORT))
        other.listen()
        process = GateProcess(root)
        process.prepare()
        process.layout.gate_settings.write_text(more)
        await process.start()
        _, health = await process.control("GET", "/healthz")
        assert f"metrics can't be served at 127.0.0.1 port {PORT}" in health["message"]
        await process.close()


@pytest.mark.parametrize("more", ["connections: 2\nidleTimeout: 1s\nbodyMax: 64KiB\n"])
async def test_limits_of_the_file_count_in_the_workers(gate: GateProcess) -> None:
    path = str(gate.layout.repo_socket("a"))
    async with asyncio.timeout(PATIENCE):
        held = [await asyncio.open_unix_connection(path) for _ in range(2)]
        reader, writer = await asyncio.open_unix_connection(path)
        assert b"has 2 open connections" in await reader.read()
        writer.close()
        for reader, writer in held:
            assert await reader.read() == b""
            writer.close()
        body = json.dumps({"Image": "x", "Labels": {"a": "x" * 70_000}}).encode()
        head = b"POST /v1.45/containers/create HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\n"
        said = await gate.ask("a", head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert b"longer than 65536 bytes" in said
