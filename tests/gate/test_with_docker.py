"""The gate between real docker clients and real, sealed daemons: what people do all day, and what they must not do."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import rig
from gateprocess import RUN, GateProcess, made

pytestmark = pytest.mark.real

IMAGE = "ubuntu:24.04"
DEVICE = "nvidia.com/gpu=all"
OFFLINE = ("--network", "none")


@dataclass(slots=True)
class Gated:
    """A sealed daemon behind a gate."""

    daemon: rig.Daemon
    gate: GateProcess

    @property
    def socket(self) -> Path:
        return self.gate.layout.repo_socket(self.daemon.name)

    def docker(self, *words: str, text: str = "") -> rig.Result:
        return self.daemon.docker(*words, socket=self.socket, text=text)

    def ok(self, *words: str, text: str = "") -> str:
        return rig.succeeded(self.docker(*words, text=text))

    def popen(self, *words: str) -> subprocess.Popen[bytes]:
        tools = rig.tools_of(self.daemon.engine)
        return subprocess.Popen(
            [str(tools / "docker"), "--host", f"unix://{self.socket}", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def grant(self, *devices: str) -> None:
        """The repo has exactly these from now on."""
        sent = made(time.time_ns(), *devices, repo=self.daemon.name, repo_id=self.daemon.repo_id)
        status, answer = asyncio.run(self.gate.put(sent))
        assert status == 200, answer


@pytest.fixture(scope="module")
def gate(daemons: rig.Daemons) -> Iterator[GateProcess]:
    """One gate for the root of all daemons, with a stand-in device that opens with ENXIO where it is granted."""
    process = GateProcess(daemons.root)
    layout = process.layout
    for folder in (layout.repos, layout.cdi):
        folder.mkdir(parents=True, exist_ok=True)
    node = daemons.root / "nvidia0"
    if not node.exists():
        os.mknod(node, 0o666 | 0o020000, os.makedev(195, 0))
    (layout.cdi / "nvidia.yaml").write_text(
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits:\n"
        f"    deviceNodes: [{{path: /dev/nvidia0, hostPath: {node}}}]\n"
    )
    with (daemons.root / "gate.log").open("wb") as log:
        running = subprocess.Popen([sys.executable, "-P", "-c", RUN, str(daemons.root)], stderr=log)
    yield process
    running.send_signal(signal.SIGTERM)
    assert running.wait(10) == 0


@pytest.fixture
def gated(gate: GateProcess, daemon: rig.Daemon) -> Iterator[Gated]:
    """The session's daemon of each generation behind the gate; every container is removed afterwards."""
    gate.write_repo(daemon.name, id=daemon.repo_id, upstream=str(daemon.socket), sealed="true")
    made_here = Gated(daemon, gate)

    def served() -> bool:
        return made_here.docker("version").returncode == 0

    rig.wait_for(served, seconds=60)
    yield made_here
    left = daemon.docker("ps", "-aq").stdout.split()
    if left:
        rig.succeeded(daemon.docker("rm", "-f", *left))


@pytest.mark.req("R4", "D9")
def test_runs_containers_and_passes_their_exit_status(gated: Gated) -> None:
    assert gated.ok("run", "--rm", *OFFLINE, IMAGE, "echo", "hi") == "hi"
    assert gated.docker("run", "--rm", *OFFLINE, IMAGE, "sh", "-c", "exit 42").returncode == 42


def test_the_end_of_stdin_arrives_and_the_output_after_it_too(gated: Gated) -> None:
    said = gated.ok("run", "-i", "--rm", *OFFLINE, IMAGE, "sh", "-c", "cat; sleep 0.3; echo late", text="hi\n")
    assert said == "hi\nlate"


def test_attaches_by_websocket(gated: Gated) -> None:
    """RFC 6455 as a browser speaks it: a handshake, one masked frame in, one frame out."""
    shell = ("sh", "-c", "read line; echo got $line")
    container = gated.ok("create", "-i", *OFFLINE, IMAGE, *shell)
    gated.ok("start", container)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(gated.socket))
        client.sendall(
            f"GET /containers/{container}/attach/ws?stream=1&stdin=1&stdout=1 HTTP/1.1\r\nHost: d\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://d\r\n\r\n".encode()
        )
        head = client.recv(4096)
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"Sec-Websocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in head
        client.sendall(b"\x82\x83\0\0\0\0hi\n")
        said = head.partition(b"\r\n\r\n")[2]
        while b"got hi" not in said:
            piece = client.recv(4096)
            assert piece, said
            said += piece


def test_runs_the_long_lived_things(gated: Gated) -> None:
    """exec, attach, logs -f, events, wait, restart: open streams, and none left behind."""
    script = "trap 'exit 3' TERM; i=0; while true; do i=$((i+1)); echo line $i; sleep 0.05; done"
    gated.ok("run", "-d", "--name", "worker", *OFFLINE, IMAGE, "sh", "-c", script)
    assert gated.ok("exec", "worker", "echo", "inside") == "inside"
    assert gated.ok("exec", "-i", "worker", "cat", text="x" * 300_000) == "x" * 300_000
    for words in (("logs", "-f", "worker"), ("attach", "--no-stdin", "--sig-proxy=false", "worker"), ("events",)):
        stream = gated.popen(*words)
        assert stream.stdout is not None
        if words == ("events",):
            time.sleep(0.2)
            gated.ok("exec", "worker", "true")
        assert stream.stdout.readline()
        stream.kill()
        stream.communicate()
    gated.ok("restart", "-t", "1", "worker")
    waiting = gated.popen("wait", "worker")
    gated.ok("stop", "-t", "5", "worker")
    assert waiting.communicate(timeout=30)[0].strip() == b"3"


def test_copies_and_loads_whole(gated: Gated, tmp_path: Path) -> None:
    data = os.urandom(20_000_000)
    (tmp_path / "in").write_bytes(data)
    gated.ok("create", "--name", "box", *OFFLINE, IMAGE, "true")
    gated.ok("cp", str(tmp_path / "in"), "box:/file")
    gated.ok("cp", "box:/file", str(tmp_path / "out"))
    assert hashlib.sha256((tmp_path / "out").read_bytes()).digest() == hashlib.sha256(data).digest()
    gated.ok("commit", "box", "saved:1")
    gated.ok("save", "-o", str(tmp_path / "tar"), "saved:1")
    gated.ok("rm", "box")
    gated.ok("rmi", "saved:1")
    assert "saved:1" in gated.ok("load", "-i", str(tmp_path / "tar"))
    gated.ok("rmi", "saved:1")


def test_builds_with_the_classic_builder(gated: Gated, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY data /data\nRUN cat /data\n")
    (tmp_path / "data").write_text("built here\n")
    tools = rig.tools_of(gated.daemon.engine)
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "DOCKER_BUILDKIT": "0"}
    docker = [str(tools / "docker"), "--host", f"unix://{gated.socket}"]
    done = rig.run([*docker, "build", "--network", "none", "-t", "built:1", str(tmp_path)], environ=environ)
    assert "built here" in rig.succeeded(done)
    gated.ok("rmi", "built:1")


@pytest.mark.req("R5", "R6", "R51")
def test_a_device_comes_with_its_grant_and_goes_with_it(gated: Gated) -> None:
    opened = ("sh", "-c", "(cat </dev/nvidia0) 2>&1; true")
    with_device = ("--device", DEVICE, *OFFLINE, IMAGE)
    gated.grant()
    refused = gated.docker("run", "--rm", *with_device, *opened)
    assert refused.returncode == 125
    command = f"rdc repo gpu grant {gated.daemon.name}@wsl-gpu --device {DEVICE}"
    assert command in refused.stderr
    gated.grant(DEVICE)
    assert "No such device or address" in gated.ok("run", "--rm", *with_device, *opened)
    gated.ok("run", "-d", "--name", "user", *with_device, "sleep", "1000")
    _, status = asyncio.run(gated.gate.control("GET", "/v1/status?inUse=1"))
    assert [(entry["device"], entry["name"]) for entry in status["inUse"]] == [(DEVICE, "user")]
    gated.grant()
    gated.ok("stop", "-t", "0", "user")
    for word in ("start", "restart"):
        again = gated.docker(word, "user")
        assert again.returncode == 1
        assert command in again.stderr
    gated.grant(DEVICE)
    gated.ok("start", "user")


@pytest.mark.req("R43", "R1")
def test_the_raw_socket_gives_nothing_that_was_not_granted(gated: Gated) -> None:
    """The second lock: the daemon itself has never heard of other devices."""
    gated.grant()
    past = gated.daemon.docker("run", "--rm", "--device", DEVICE, *OFFLINE, IMAGE, "true")
    assert past.returncode != 0
    assert "unresolvable CDI devices" in past.stderr
    _, status = asyncio.run(gated.gate.control("GET", "/v1/status"))
    mine = next(repo for repo in status["repos"] if repo["name"] == gated.daemon.name)
    assert (mine["fit"], mine["sealed"]) == (True, True)


@pytest.mark.req("R4", "R45")
def test_what_follows_a_failed_attach_is_no_request(gated: Gated) -> None:
    head = b"POST /v1.45/containers/none/attach?stream=1 HTTP/1.1\r\nHost: d\r\n"
    head += b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    hidden = b"POST /v1.45/containers/none/kill HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\n\r\n"

    async def ask() -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(gated.socket))
        writer.write(head + hidden)
        async with asyncio.timeout(30):
            said = await reader.read()
        writer.close()
        return said

    assert re.findall(rb"HTTP/1\.1 ([0-9]+)", asyncio.run(ask())) == [b"404"]
