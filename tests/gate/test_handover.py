"""Gates that follow one another: no connection is refused, open streams go on, a revocation counts in all of them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import rig
from gatebench import reply
from gateprocess import DEVICE, PATIENCE, RUN, GateProcess, alive, made
from gpugrant_gate.net import handover, leaving
from knocking import Knocking

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def root() -> Iterator[Path]:
    path = rig.short_folder()
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def gate(root: Path) -> AsyncIterator[GateProcess]:
    process = GateProcess(root)
    process.prepare()
    for name in ("a", "b"):
        await process.add_repo(name)
    await process.start()
    await process.until_served("a")
    yield process
    for started in (*SUCCESSORS, process):
        await started.close()
    SUCCESSORS.clear()


SUCCESSORS: list[GateProcess] = []
"""Of the gate of one test."""


def successor_of(gate: GateProcess) -> GateProcess:
    """Another gate of the same root, before the same daemons; it ends with the test."""
    SUCCESSORS.append(GateProcess(gate.root, gate.daemons))
    return SUCCESSORS[-1]


class Stream:
    """An endless answer of a daemon, a line at a time, and the client that reads it."""

    def __init__(self, gate: GateProcess, path: str = "/v1.45/events") -> None:
        self._gate = gate
        self._path = path
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        gate.daemons["a"].handlers["v1.45"] = self._serve

    async def _serve(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while line := await self._lines.get():
            writer.write(b"%x\r\n%b\r\n" % (len(line), line))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_unix_connection(str(self._gate.layout.repo_socket("a")))
        self.writer.write(b"GET %b HTTP/1.1\r\nHost: d\r\n\r\n" % self._path.encode())
        async with asyncio.timeout(PATIENCE):
            await self.reader.readuntil(b"\r\n\r\n")

    async def passes(self, line: bytes) -> None:
        """Fails unless the line goes through."""
        self._lines.put_nowait(line)
        async with asyncio.timeout(PATIENCE):
            await self.reader.readuntil(line)

    async def end(self) -> bytes:
        """What still comes until the gate closes the connection."""
        self._lines.put_nowait(b"")
        async with asyncio.timeout(PATIENCE):
            rest = await self.reader.read()
        self.writer.close()
        return rest


async def gone(pid: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while alive(pid):  # noqa: ASYNC110  # what is waited for is another process
            await asyncio.sleep(0.02)


async def answered(knocking: Knocking) -> None:
    async with asyncio.timeout(PATIENCE):
        while not knocking.more():  # noqa: ASYNC110  # threads count
            await asyncio.sleep(0.02)


@pytest.mark.req("R6")
async def test_a_second_gate_takes_over_and_nobody_notices(gate: GateProcess) -> None:
    await gate.put(made(3, DEVICE))
    stream = Stream(gate)
    await stream.open()
    inodes = [gate.layout.repo_socket(name).stat().st_ino for name in ("a", "b")]
    async with Knocking(gate.layout.repo_socket("a")) as one, Knocking(gate.layout.repo_socket("b")) as other:
        await answered(one)
        second = successor_of(gate)
        await second.start()
        await answered(one)
        await answered(other)
        await stream.passes(b"after the first")
        third = successor_of(gate)
        await third.start()
        await answered(one)
        await answered(other)
        await stream.passes(b"after the second")
    assert (one.refused, other.refused, one.cut + other.cut) == ([], [], 0)
    assert [gate.layout.repo_socket(name).stat().st_ino for name in ("a", "b")] == inodes
    assert Path(f"/proc/{gate.pid}/comm").read_text().strip() == leaving.TITLE
    _, status = await third.control("GET", "/v1/status")
    assert (status["epoch"], [worker["died"] for worker in status["workers"]]) == (3, [0, 0])
    _, health = await third.control("GET", "/healthz")
    assert "finishes what is open" in health["message"]
    assert (await stream.end()).endswith(b"0\r\n\r\n")
    for older in (gate, second):
        assert older.process is not None
        async with asyncio.timeout(PATIENCE):
            assert await older.process.wait() == 0
    gate.daemons["a"].answers("v1.45", reply(json.dumps({"Id": "c" * 64}).encode(), "201 Created"))
    assert (await third.create())[0] == 201
    await third.stop()
    assert not gate.layout.repo_socket("a").exists()
    assert not gate.layout.control("gate").exists()


async def test_an_older_gate_cuts_what_is_open_when_its_time_is_over(gate: GateProcess) -> None:
    await gate.stop()
    with gate.layout.gate_settings.open("a") as settings:
        settings.write("drain: 1s\n")
    await gate.start()
    await gate.until_served("a")
    stream = Stream(gate)
    await stream.open()
    second = successor_of(gate)
    await second.start()
    assert gate.process is not None
    async with asyncio.timeout(PATIENCE):
        assert await gate.process.wait() == 0
        with suppress(ConnectionError):
            assert await stream.reader.read() == b""
    stream.writer.close()
    assert b"200 OK" in await second.ask("a", b"GET /version HTTP/1.0\r\n\r\n")


async def test_an_idle_connection_ends_and_a_request_that_is_open_is_answered(gate: GateProcess) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await answer.wait()
        writer.write(reply(b"{}"))

    gate.daemons["a"].handlers["v1.45"] = slow
    path = str(gate.layout.repo_socket("a"))
    idle, idle_writer = await asyncio.open_unix_connection(path)
    busy, busy_writer = await asyncio.open_unix_connection(path)
    idle_writer.write(b"GET /version HTTP/1.1\r\nHost: d\r\n\r\n")
    busy_writer.write(b"GET /v1.45/containers/json HTTP/1.1\r\nHost: d\r\n\r\n")
    async with asyncio.timeout(PATIENCE):
        await idle.readuntil(b"\r\n\r\n")
        await asked.wait()
        second = successor_of(gate)
        await second.start()
        await idle.read()
        answer.set()
        assert (await busy.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        # and none after it: what is asked from now on is the successor's
        assert await busy.read() == b"{}"
        assert gate.process is not None
        assert await gate.process.wait() == 0
    for writer in (idle_writer, busy_writer):
        writer.close()


@pytest.mark.req("R51", "D8")
async def test_a_revocation_is_answered_only_when_it_counts_in_the_older_gate_too(gate: GateProcess) -> None:
    await gate.put(made(1, DEVICE))
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await answer.wait()
        writer.write(reply(b'{"Id": "x"}', "201 Created"))

    gate.daemons["a"].handlers["v1.45"] = slow
    underway = asyncio.create_task(gate.create())
    async with asyncio.timeout(PATIENCE):
        await asked.wait()
    second = successor_of(gate)
    await second.start()
    status, said = await second.put(made(2))
    assert (status, [(one["repo"], one["device"]) for one in said["pending"]]) == (200, [("a", DEVICE)])
    answer.set()
    assert (await underway)[0] == 201

    async def nothing_pending() -> bool:
        _, status = await second.control("GET", "/v1/status")
        return status["pending"] == []

    await second.until(nothing_pending)
    assert (await second.create())[0] == 403


@pytest.mark.req("R51")
async def test_an_older_gate_without_its_successor_gives_all_hardware_up(gate: GateProcess) -> None:
    await gate.put(made(1, DEVICE))
    stream = Stream(gate)
    await stream.open()
    asked = asyncio.Event()

    async def silent(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        with suppress(ConnectionError):
            await reader.read()

    gate.daemons["a"].handlers["v1.45"] = silent
    body = json.dumps({"Image": "x", "HostConfig": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [DEVICE]}]}})
    reader, writer = await asyncio.open_unix_connection(str(gate.layout.repo_socket("a")))
    head = "POST /v1.45/containers/create HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    async with asyncio.timeout(PATIENCE):
        await asked.wait()
    second = successor_of(gate)
    await second.start()
    await second.stop(signal.SIGKILL)
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
    third = successor_of(gate)
    await third.start()
    await third.until_served("a")
    assert (await third.put(made(2)))[0] == 200
    stream.writer.close()


async def test_a_successor_that_dies_on_the_way_changes_nothing(gate: GateProcess) -> None:
    await gate.put(made(1, DEVICE))
    async with Knocking(gate.layout.repo_socket("a")) as knocking:
        await answered(knocking)
        for last in (None, handover.READY):
            channel = await handover.ask(gate.layout.control("gate"))
            assert handover.peer_pid(channel) == gate.pid
            if last is not None:
                channel.send({"kind": last})
                async with asyncio.timeout(PATIENCE):
                    await channel.receive()
            channel.close()
            await answered(knocking)
    assert (knocking.refused, knocking.cut) == ([], 0)
    assert (await gate.create())[0] == 201
    assert (await gate.put(made(2)))[0] == 200
    assert len(gate.workers()) == 2


async def test_a_gate_that_does_not_hand_over_is_named(gate: GateProcess) -> None:
    os.kill(gate.pid, signal.SIGSTOP)
    second = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", RUN, str(gate.root), stderr=asyncio.subprocess.PIPE
    )
    _, said = await second.communicate()
    os.kill(gate.pid, signal.SIGCONT)
    assert second.returncode == 1
    assert f"by process {gate.pid}, and it does not answer" in json.loads(said)["message"]
    await gate.until_served("a")


@pytest.fixture
def keeper(root: Path) -> Iterator[socket.socket]:
    """A stand-in for systemd's notification socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(root / "notify"))
        sock.settimeout(PATIENCE)
        yield sock


def told(keeper: socket.socket) -> tuple[dict[str, str], list[int]]:
    data, fds, _, _ = socket.recv_fds(keeper, 8192, 4)
    pairs = (line.partition("=") for line in data.decode().split("\n"))
    return {key: value for key, _, value in pairs}, list(fds)


async def kept_by(keeper: socket.socket, count: int) -> dict[str, int]:
    """The first sockets that a gate hands over, and its word that it is ready."""
    found: dict[str, int] = {}
    ready = False
    while len(found) < count or not ready:
        said, fds = await asyncio.to_thread(told, keeper)
        ready = ready or said.get("READY") == "1"
        if said.get("FDSTORE") == "1":
            found[said["FDNAME"]] = fds[0]
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_sockets_that_are_kept_refuse_nobody_while_no_gate_runs(
    gate: GateProcess, keeper: socket.socket, number: int
) -> None:
    await gate.stop()
    notify = {"NOTIFY_SOCKET": str(gate.root / "notify")}
    await gate.start(**notify)
    kept = await kept_by(keeper, 2)
    await gate.until_served("a")
    await gate.put(made(4, DEVICE))
    inode = gate.layout.repo_socket("a").stat().st_ino
    async with Knocking(gate.layout.repo_socket("a")) as knocking:
        await answered(knocking)
        await gate.stop(number)
        await gate.start(kept=kept, **notify)
        await answered(knocking)
    assert knocking.refused == []
    assert gate.layout.repo_socket("a").stat().st_ino == inode
    await gate.until_served("a")
    assert (await gate.create())[0] == 201
    for fd in kept.values():
        os.close(fd)


async def test_kept_sockets_of_repos_that_are_gone_or_changed_are_not_served(
    gate: GateProcess, keeper: socket.socket
) -> None:
    await gate.stop()
    notify = {"NOTIFY_SOCKET": str(gate.root / "notify")}
    await gate.start(**notify)
    kept = await kept_by(keeper, 2)
    await gate.stop(signal.SIGKILL)
    (gate.layout.repos / "b.yaml").unlink()
    gate.write_repo("a", mode="0600")
    inode = gate.layout.repo_socket("a").stat().st_ino
    await gate.start(kept=kept, **notify)
    await gate.until_served("a")
    assert not gate.layout.repo_socket("b").exists()
    assert gate.layout.repo_socket("a").stat().st_mode & 0o777 == 0o600
    assert gate.layout.repo_socket("a").stat().st_ino != inode
    dropped = set()
    while len(dropped) < 2:
        said, fds = await asyncio.to_thread(told, keeper)
        dropped |= {said["FDNAME"]} if said.get("FDSTOREREMOVE") == "1" else set()
        for fd in fds:
            os.close(fd)
    assert dropped == set(kept)
    for fd in kept.values():
        os.close(fd)


async def test_a_socket_that_systemd_made_is_served(gate: GateProcess) -> None:
    await gate.stop()
    path = gate.layout.repo_socket("a")
    with socket.socket(socket.AF_UNIX) as made_by_systemd:
        made_by_systemd.bind(str(path))
        path.chmod(0o660)
        made_by_systemd.listen()
        inode = path.stat().st_ino
        await gate.start(kept={"gpu-a.socket": made_by_systemd.fileno()})
    await gate.until_served("a")
    assert path.stat().st_ino == inode
    assert b"200 OK" in await gate.ask("a", b"GET /version HTTP/1.0\r\n\r\n")
