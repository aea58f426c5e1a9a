"""What broke clients of other gates (the table in README.md), each on a real daemon; those that are a whole client's
are with that client."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import intruder
import rig
from clientstand import GRANTED, IMAGE, Stand
from intruder import chunked, lines, raw

pytestmark = [pytest.mark.real, pytest.mark.req("R4"), pytest.mark.timeout(120)]

API = "/v1.45"


@pytest.fixture
def web(stand: Stand) -> str:
    """The id of a container that runs."""
    return stand.ok("run", "-d", "--name", "web", IMAGE, "sleep", "600")


@contextmanager
def connected(path: Path, request: bytes) -> Iterator[socket.socket]:
    """A connection on which the request was sent."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(30)
        sock.connect(str(path))
        sock.sendall(request)
        yield sock


def head_of(sock: socket.socket) -> tuple[bytes, bytes]:
    """The head of an answer, and what came with it."""
    got = b""
    while b"\r\n\r\n" not in got:
        piece = sock.recv(65536)
        assert piece, f"closed in the head: {got!r}"
        got += piece
    head, _, rest = got.partition(b"\r\n\r\n")
    return head, rest


def exec_of(stand: Stand, *command: str, **more: Any) -> str:
    body = {"AttachStdin": True, "AttachStdout": True, "Cmd": list(command), **more}
    status, made = intruder.ask(stand.socket, "POST", f"{API}/containers/web/exec", body)
    assert status == 201, made
    return str(made["Id"])


def sockets_of_the_gate(stand: Stand) -> int:
    """How many its processes hold, to clients and to daemons."""
    fds = (fd for pid in intruder.workers(stand.gate.root) for fd in Path(f"/proc/{pid}/fd").iterdir())
    return sum(_is_socket(fd) for fd in fds)


def _is_socket(fd: Path) -> bool:
    try:
        return str(fd.readlink()).startswith("socket:")
    except FileNotFoundError:
        return False


UPGRADE = ("Connection: Upgrade", "Upgrade: tcp", intruder.JSON)
RUNS = {"Detach": False, "Tty": False}


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("asked", "status"),
    [(UPGRADE, b"HTTP/1.1 101 "), ((intruder.JSON,), b"HTTP/1.1 200 ")],
    ids=["with Upgrade", "without"],
)
def test_c01_c02_exec_in_both_forms(stand: Stand, asked: tuple[str, ...], status: bytes) -> None:
    """What is sent right behind the head arrives, the end of input too, and the output after it."""
    id_ = exec_of(stand, "sh", "-c", "cat; echo late")
    request = raw("POST", f"{API}/exec/{id_}/start", RUNS, *asked, close=False)
    with connected(stand.socket, request + b"early\n") as sock:
        head, said = head_of(sock)
        sock.sendall(b"more\n")
        sock.shutdown(socket.SHUT_WR)
        while piece := sock.recv(65536):
            said += piece
    assert head.startswith(status)
    assert (b"Upgrade" in head) == (asked == UPGRADE)
    assert b"early\nmore\n" in said
    assert b"late\n" in said


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("upgrade", [True, False], ids=["with Upgrade", "without"])
def test_c01_attach_in_both_forms(stand: Stand, upgrade: bool) -> None:
    stand.ok("run", "-di", "--name", "echo", IMAGE, "sh", "-c", "read line; echo got $line")
    asked = ("Connection: Upgrade", "Upgrade: tcp") if upgrade else ()
    target = f"{API}/containers/echo/attach?stream=1&stdin=1&stdout=1"
    with connected(stand.socket, raw("POST", target, None, *asked, close=False)) as sock:
        head, said = head_of(sock)
        sock.sendall(b"it\n")
        while b"got it" not in said:
            piece = sock.recv(65536)
            assert piece, said
            said += piece
    assert head.startswith(b"HTTP/1.1 101 " if upgrade else b"HTTP/1.1 200 ")


EMPTY = {
    "nothing": b"",
    "{}": b"{}",
    "null": b"null",
    "a length of 0": b"",
    "chunks of nothing": chunked(),
    "chunks of {}": chunked(b"{}"),
}


@pytest.mark.parametrize("form", EMPTY)
@pytest.mark.parametrize("word", ["start", "restart"])
def test_c03_a_start_with_an_empty_body_in_any_form(stand: Stand, form: str, word: str) -> None:
    """The daemon itself takes no chunks and at most seven bytes."""
    stand.ok("create", "--name", "web", IMAGE, "sleep", "600")
    target = f"{API}/containers/web/{word}" + ("?t=0" if word == "restart" else "")
    head = [f"POST {target} HTTP/1.1", "Host: docker", "Connection: close"]
    if "chunks" in form:
        head += ["Transfer-Encoding: chunked", "Content-Type: application/json"]
    elif EMPTY[form]:
        head += [f"Content-Length: {len(EMPTY[form])}", "Content-Type: application/json"]
    elif form != "nothing":
        head += ["Content-Length: 0"]
    request = "\r\n".join(head).encode() + b"\r\n\r\n" + EMPTY[form]
    assert intruder.statuses(intruder.talk(stand.socket, request)) == (204,)
    assert stand.ok("inspect", "-f", "{{.State.Running}}", "web") == "true"


def test_c06_head_then_get_on_one_connection(stand: Stand) -> None:
    """The answer to HEAD has no body and keeps the connection; both tell the version."""
    asked = b"HEAD /_ping HTTP/1.1\r\nHost: d\r\n\r\n"
    with connected(stand.socket, asked) as sock:
        first, rest = head_of(sock)
        assert rest == b""
        sock.sendall(
            b"GET /_ping HTTP/1.1\r\nHost: d\r\n\r\nHEAD /_ping HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n"
        )
        said = b""
        while piece := sock.recv(65536):
            said += piece
    assert intruder.statuses(first + b"\r\n" + said) == (200, 200, 200)
    assert said.partition(b"\r\n\r\n")[2].startswith(b"OKHTTP/1.1")
    assert first.lower().count(b"api-version: ") == 1


HOSTS = ("", "docker", "localhost", "api.moby.localhost", "/var/run/docker.sock", "%2Fvar%2Frun%2Fdocker.sock")


@pytest.mark.parametrize("host", HOSTS)
def test_c08_any_host(stand: Stand, host: str) -> None:
    said = intruder.talk(stand.socket, lines("GET /version HTTP/1.1", f"Host: {host}", "Connection: close"))
    assert intruder.statuses(said) == (200,)


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("size", [15, 17, 64, 1024], ids=lambda size: f"{size} KiB")
def test_c11_an_exec_with_a_large_body(stand: Stand, size: int) -> None:
    """As an editor sends it that puts its whole environment in."""
    env = [f"A{index}={'x' * 1000}" for index in range(size)]
    id_ = exec_of(stand, "true", Env=env)
    assert intruder.ask(stand.socket, "GET", f"{API}/exec/{id_}/json")[0] == 200


def test_c11_a_create_with_a_large_body(stand: Stand) -> None:
    labels = {f"label{index}": "x" * 1000 for index in range(200)}
    body = {"Image": IMAGE, "Env": [f"A{index}={'x' * 1000}" for index in range(200)], "Labels": labels}
    status, made = intruder.ask(stand.socket, "POST", f"{API}/containers/create?name=web", body)
    assert status == 201, made
    config = json.loads(stand.ok("inspect", "-f", "{{json .Config}}", "web"))
    assert config["Labels"]["label199"] == "x" * 1000
    assert len(config["Env"]) > 200


def test_c13_headers_of_ones_own(stand: Stand, desk: dict[str, str], tmp_path: Path) -> None:
    """`HttpHeaders` of docker's config.json are harmless and make nobody another."""
    (tmp_path / "config.json").write_text(json.dumps({"HttpHeaders": {"X-Meta-Who": "me", "X-Other": "x"}}))
    done = subprocess.run(
        ["docker", "run", "--rm", IMAGE, "echo", "hi"],
        env={**desk, "DOCKER_CONFIG": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert rig.succeeded(done) == "hi"


def test_c15_the_head_of_wait_comes_at_once(stand: Stand, web: str) -> None:
    """`docker run` sends its start only once it is there."""
    with connected(stand.socket, raw("POST", f"{API}/containers/{web}/wait?condition=next-exit")) as sock:
        head, rest = head_of(sock)
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"StatusCode" not in rest
        stand.ok("kill", "web")
        while piece := sock.recv(65536):
            rest += piece
    assert b'"StatusCode":137' in rest


def test_c16_progress_comes_as_it_is_made(stand: Stand, tmp_path: Path) -> None:
    """Lines of a build that are made half a second apart do not arrive together."""
    steps = "; ".join(f"echo step{index}; sleep 0.5" for index in range(4))
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN {steps}\n")
    subprocess.run(["tar", "-C", str(tmp_path), "-cf", str(tmp_path / "tar"), "Dockerfile"], check=True)
    request = raw(
        "POST", f"{API}/build?networkmode=none", (tmp_path / "tar").read_bytes(), "Content-Type: application/x-tar"
    )
    seen: dict[str, float] = {}
    said = b""
    with connected(stand.socket, request) as sock:
        while piece := sock.recv(65536):
            said += piece
            for index in range(4):
                if b'{"stream":"step%d' % index in said:
                    seen.setdefault(f"step{index}", time.monotonic())
    assert len(seen) == 4, said
    gaps = [later - earlier for earlier, later in zip(seen.values(), list(seen.values())[1:], strict=False)]
    assert min(gaps) > 0.1


def test_c20_a_node_container_of_kind(stand: Stand) -> None:
    """Those of kind, k3d and minikube are privileged, and see the machine's modules: all is said at once."""
    options = (
        "--privileged --security-opt seccomp=unconfined --security-opt apparmor=unconfined --tmpfs /tmp --tmpfs /run"
    )
    options += " --volume /var --volume /lib/modules:/lib/modules:ro --cgroupns=private"
    said = stand.refused("run", "-d", *options.split(), IMAGE)
    assert "privileged is refused: it opens every device of the machine" in said
    assert "/lib/modules" in said
    assert "unconfined" in said


def test_the_stat_of_a_path(stand: Stand, web: str) -> None:
    """HEAD archive, which `docker cp` asks first, on a connection that goes on."""
    target = f"{API}/containers/{web}/archive?path=/etc/group"
    asked = f"HEAD {target} HTTP/1.1\r\nHost: d\r\n\r\n".encode()
    with connected(stand.socket, asked) as sock:
        first, rest = head_of(sock)
        assert rest == b""
        sock.sendall(f"GET {target} HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n".encode())
        second, _ = head_of(sock)
    for head in (first, second):
        stat = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"x-docker-container-path-stat: "))
        assert json.loads(base64.b64decode(stat.split(b" ")[1]))["name"] == "group"


STREAMS = {
    "logs": ("GET", f"{API}/containers/web/logs?follow=1&stdout=1"),
    "events": ("GET", f"{API}/events"),
    "stats": ("GET", f"{API}/containers/web/stats?stream=1"),
    "attach": ("POST", f"{API}/containers/web/attach?stream=1&stdout=1"),
    "wait": ("POST", f"{API}/containers/web/wait"),
}


MANY = 20
KEPT = 8
"""Idle connections to daemons that a gate may hold for the next requests."""


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.usefixtures("web")
def test_c05_a_client_that_goes_away_ends_its_stream_at_the_daemon(stand: Stand, stream: str) -> None:
    before = sockets_of_the_gate(stand)
    with ExitStack() as stack:
        for _ in range(MANY):
            sock = stack.enter_context(connected(stand.socket, raw(*STREAMS[stream], close=False)))
            assert head_of(sock)[0].startswith(b"HTTP/1.1 ")
        assert sockets_of_the_gate(stand) >= before + 2 * MANY - KEPT
    rig.wait_for(lambda: sockets_of_the_gate(stand) <= before + KEPT, seconds=5)


def test_200_creates_at_once(stand: Stand) -> None:
    def create(index: int) -> int:
        asked = [{"Driver": "cdi", "DeviceIDs": [GRANTED]}]
        body = {"Image": IMAGE, "Cmd": ["true"], "HostConfig": {"DeviceRequests": asked}}
        return intruder.ask(stand.socket, "POST", f"{API}/containers/create?name=many{index}", body)[0]

    with ThreadPoolExecutor(50) as pool:
        assert set(pool.map(create, range(200))) == {201}
    assert len(stand.ok("ps", "-aq", "--filter", "name=many").split()) == 200
    stand.daemon.docker("rm", *(f"many{index}" for index in range(200)))


def test_500_log_streams_at_once(stand: Stand) -> None:
    """Each gets every line, and while they are open others are served."""
    stand.ok(
        "run", "-d", "--name", "web", IMAGE, "sh", "-c", "echo one; until [ -e /go ]; do sleep 0.2; done; echo two"
    )
    with ExitStack() as stack:
        request = raw(*STREAMS["logs"])
        socks = [stack.enter_context(connected(stand.socket, request)) for _ in range(500)]
        stand.ok("exec", "web", "touch", "/go")
        said = [_whole(sock) for sock in socks]
    assert [(text.count(b"one\n"), text.count(b"two\n")) for text in said] == [(1, 1)] * 500


def _whole(sock: socket.socket) -> bytes:
    said = b""
    while piece := sock.recv(65536):
        said += piece
    return said
