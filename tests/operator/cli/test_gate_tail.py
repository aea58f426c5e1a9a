"""`gpugrant gate tail`: one line a decision, for people and for programs, until it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click import unstyle

import rig
import standalone
from gpugrant_crds.layout import Layout
from gpugrant_operator.cli import gate_tail
from gpugrant_operator.supervisor import processes

SAID: dict[str, Any] = {
    "time": "2026-03-01T12:00:00.123456Z",
    "event": "request",
    "repo": "gpu-b",
    "uid": 1000,
    "pid": 7,
    "method": "POST",
    "route": "container.create",
    "verdict": "refused",
    "status": 403,
    "rules": ["hw.grant", "hw.gpus"],
    "names": ["v.com/gpu=0"],
    "ms": 1.26,
}
ELSE = "gpu-b  refused 403  POST container.create  v.com/gpu=0  [hw.grant]  [hw.gpus]  1.3 ms  (uid 1000, pid 7)"


def test_a_decision_is_one_line() -> None:
    said = gate_tail.text(SAID)
    assert unstyle(said).split("  ", 1)[1] == ELSE
    assert unstyle(said)[2] == ":"
    assert said != unstyle(said)


@pytest.mark.parametrize("field", ["repo", "method", "route", "verdict"])
def test_what_a_client_sent_moves_no_cursor(field: str) -> None:
    said = unstyle(gate_tail.text(SAID | {field: "\x1b[2J\n\u202ex", "names": ["\r\x07"]}))
    assert said.isprintable()
    assert "\\x1b[2J\\n\\u202ex" in said


def test_what_was_dropped_is_said() -> None:
    assert unstyle(gate_tail.text({"event": "lines dropped", "lines": 30})) == "(30 lines dropped)"


def test_what_the_sweep_found_is_said() -> None:
    """Nothing in it moves a terminal's cursor: a container's name is its tenant's."""
    found = {"event": "sweep", "time": "", "repo": "gpu-b", "reason": "ContainerStopped", "message": "c\x1b[2J was"}
    assert unstyle(gate_tail.text(found)) == "-  gpu-b  ContainerStopped  c\\x1b[2J was"


def test_without_a_gate_a_sentence_says_how_to_start_one(tmp_path: Path) -> None:
    done = standalone.program("gate", "tail", "--root", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: no gate runs below {tmp_path}: start it with gpugrant up\n"


@pytest.fixture(scope="module")
def instance() -> Iterator[standalone.Instance]:
    with standalone.up() as made:
        yield made


def _at_a_terminal() -> None:
    """What a shell starts in the background ignores ^C, and so do its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def tail(root: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process; it ends with the block."""
    command = [sys.executable, "-m", "gpugrant_operator.cli.gpugrant", "gate", "tail", "--root", str(root), *words]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, preexec_fn=_at_a_terminal
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def ask(layout: Layout, repo: str, request: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(layout.repo_socket(repo)))
        client.sendall(f"{request} HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n".encode())
        while client.recv(65536):
            pass


def followed(running: subprocess.Popen[str], layout: Layout, repo: str, request: str) -> str:
    """The first line that the command prints, of a request that is sent until it follows."""
    assert running.stdout is not None
    os.set_blocking(running.stdout.fileno(), False)

    def seen() -> str:
        ask(layout, repo, request)
        assert running.stdout is not None
        return running.stdout.readline()

    first = rig.wait_for(seen, seconds=60)
    os.set_blocking(running.stdout.fileno(), True)
    return first


@pytest.mark.req("D12")
def test_follows_until_it_is_interrupted(instance: standalone.Instance) -> None:
    with tail(instance.root) as running:
        said = followed(running, instance.layout, "gpu-a", "GET /version")
        assert "  gpu-a  admitted 200  GET system.version  " in said
        assert "\x1b" not in said
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 0
        assert running.stderr is not None
        assert running.stderr.read() == ""


def test_shows_what_was_asked_for_as_json(instance: standalone.Instance) -> None:
    with tail(instance.root, "--repo", "gpu-b", "--refused", "-o", "json") as running:

        def both(request: str) -> str:
            ask(instance.layout, "gpu-a", request)
            ask(instance.layout, "gpu-b", "GET /version")
            return request

        said = json.loads(followed(running, instance.layout, "gpu-b", both("POST /swarm/init")))
        assert (said["repo"], said["verdict"]) == ("gpu-b", "refused")


def test_goes_on_with_the_next_gate(instance: standalone.Instance) -> None:
    with tail(instance.root, "--repo", "gpu-a") as running:
        followed(running, instance.layout, "gpu-a", "GET /version")
        held = processes.holder(instance.layout.lock("gate"))
        assert held is not None
        os.kill(held.pid, signal.SIGKILL)
        assert "gpu-a" in followed(running, instance.layout, "gpu-a", "GET /version")
        assert running.stderr is not None
        assert "waiting for the next one" in running.stderr.readline()


def test_a_repo_that_is_not_served_is_said(instance: standalone.Instance) -> None:
    with tail(instance.root, "--repo", "gpu-z") as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "repo gpu-z is not served now; there is gpu-a, gpu-b\n"
