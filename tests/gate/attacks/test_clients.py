"""What a gate must not break: each line of a script is what people type, each answer is the daemon's own."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import intruder
import rig

pytestmark = [pytest.mark.real, pytest.mark.req("R4", "R5", "R36", "R37"), pytest.mark.timeout(300)]

U = "ubuntu:24.04"
PLAYS = (Path(__file__).parent / "clients.txt").read_text().split("\n## ")[1:]


def scripts() -> list[Any]:
    """Each script of clients.txt with what it prints."""
    made = []
    for play in PLAYS:
        id_, *rows = play.rstrip("\n").split("\n")
        script = "\n".join(row for row in rows if not row.startswith("> "))
        expected = "".join(f"{row[2:]}\n" for row in rows if row.startswith("> "))
        made.append(pytest.param(script, expected, id=id_))
    return made


@pytest.fixture
def desk(tmp_path: Path, system: rig.System, folder: Path) -> Iterator[dict[str, str]]:
    """The environment of a person in an empty folder; what they left in the daemon is taken away."""
    gate = system.root / "run/rediacc/gpu/repos/gpu-a.sock"
    judge = intruder.Judge(system.root / "daemons/gpu-a/docker.sock", frozenset())
    before = judge.look()
    yield {**system.environ, "DOCKER_HOST": f"unix://{gate}", "FOLDER": str(folder), "HOME": str(tmp_path)}
    judge.clear(before)


@pytest.mark.parametrize(("script", "expected"), scripts())
def test_script(desk: dict[str, str], tmp_path: Path, script: str, expected: str) -> None:
    done = subprocess.run(
        ["sh", "-ec", script], env=desk, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stdout + done.stderr


def test_a_terminal(desk: dict[str, str]) -> None:
    """`docker run -it`: a pty on both sides, typed input, its size, its exit code."""
    docker = shutil.which("docker", path=desk["PATH"])
    assert docker is not None
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(docker, [docker, "run", "-it", "--rm", U, "sh", "-c", "read line; echo got $line; tty; exit 3"], desk)
    os.write(terminal, b"typed\n")
    said = _all_of(terminal)
    _, status = os.waitpid(pid, 0)
    assert "got typed" in said
    assert "/dev/pts/0" in said
    assert os.waitstatus_to_exitcode(status) == 3


def _all_of(terminal: int) -> str:
    said = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other side of a pty is gone
            return said.decode(errors="replace")
        if not piece:
            return said.decode(errors="replace")
        said += piece


COMPOSE = """\
services:
  web:
    image: ubuntu:24.04
    command: sh -c 'echo here; ls /dev/nvidia0; sleep 600'
    devices: [nvidia.com/gpu=0]
    group_add: [video]
    init: true
    restart: unless-stopped
    stop_grace_period: 0s
    environment: {A: b}
    ports: ["127.0.0.1::80"]
    volumes: ["data:/data"]
    networks: {net: {aliases: [www]}}
    ulimits: {nofile: 100}
    healthcheck: {test: ["CMD", "true"], interval: 1s}
    depends_on: {job: {condition: service_completed_successfully}}
  job:
    image: ubuntu:24.04
    command: sh -c 'echo done >/data/f'
    volumes: ["data:/data"]
    networks: [net]
volumes: {data: {labels: {a: b}}}
networks: {net: {}}
"""


@pytest.mark.parametrize("client", ["26", "28"], ids=["Compose 2.26.1", "Compose 2.40.3"])
def test_compose(desk: dict[str, str], system: rig.System, tmp_path: Path, client: str) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE)
    project = ("-p", f"p{client}", "-f", str(file))

    def compose(*words: str) -> str:
        return rig.succeeded(system.compose(client, "gpu-a", *project, *words))

    compose("up", "-d", "--wait")
    assert "web" in compose("ps", "--services")
    assert compose("exec", "-T", "web", "cat", "/data/f") == "done"
    assert "/dev/nvidia0" in rig.wait_for(lambda: compose("logs", "--no-color", "web"))
    compose("up", "-d")
    compose("restart", "web")
    compose("stop")
    compose("start")
    compose("down", "-v")
    assert compose("ps", "-q") == ""


def test_other_clients_of_a_granted_repo_hear_the_sentence(desk: dict[str, str], system: rig.System) -> None:
    said = system.docker("gpu-b", "run", "--rm", "--device", "nvidia.com/gpu=0", U, "true")
    assert said.returncode != 0
    assert "repo gpu-b has no grant for nvidia.com/gpu=0" in said.stderr
