"""Client libraries at a gate: each program of `programs/` does what people do with its library and says what came of
it; here is what must have come of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rig
from clientstand import GRANTED, IMAGE, UNGRANTED, Stand

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parent / "programs"
WITHIN = 120
"""Seconds for one program; they take 2 to 5."""
RYUK = "testcontainers/ryuk:here"
NO_RYUK = {"TESTCONTAINERS_RYUK_DISABLED": "true"}
OF_RYUK = {
    "RYUK_CONTAINER_IMAGE": RYUK,
    "TESTCONTAINERS_RYUK_CONTAINER_IMAGE": RYUK,
    "TESTCONTAINERS_RYUK_PRIVILEGED": "true",  # Java's own default
}


@dataclass(frozen=True, slots=True)
class Library:
    """A program, and the set of libraries that it runs with."""

    libraries: str
    program: str
    generations: tuple[str, ...] = ("28",)

    def told(self, stand: Stand, home: Path, more: Mapping[str, str]) -> dict[str, Any]:
        """What the program says at this repo's gate; skips where its libraries can't be had."""
        brought = rig.script("tools", "library", self.libraries)
        if brought.returncode:
            pytest.skip(brought.stderr.strip().splitlines()[-1])
        command, environ = self._how(Path(brought.stdout.strip()))
        # Ports are looked for at this host; without it, those who think they run in a container ask for its network.
        given = {**stand.environ(home), "TESTCONTAINERS_HOST_OVERRIDE": "localhost", **environ, **more}
        done = subprocess.run(
            [*command, GRANTED, UNGRANTED],
            env=given,
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def _how(self, brought: Path) -> tuple[list[str], dict[str, str]]:
        program = str(PROGRAMS / self.program)
        match self.libraries:
            case "python":
                return [sys.executable, "-P", "-W", "ignore", program], {"PYTHONPATH": str(brought)}
            case "node":
                return ["node", program], {"LIBRARIES": str(brought)}
            case _:
                return ["java", "-cp", f"{brought}/*", program], {}


CLIENTS = {
    "docker-py": Library("python", "docker_py.py", ("26", "28")),
    "dockerode": Library("node", "dockerode.mjs"),
    "docker-java": Library("java", "DockerJava.java"),
}
CONTAINERS = {
    "testcontainers-python": Library("python", "testcontainers_py.py"),
    "testcontainers-node": Library("node", "testcontainers.mjs"),
    "testcontainers-java": Library("java", "Testcontainers.java"),
}
LIBRARIES = {**CLIENTS, **CONTAINERS}


@pytest.fixture(scope="session")
def memory() -> dict[tuple[str, str], dict[str, Any]]:
    """What each program said at each repo: it is asked once."""
    return {}


@pytest.fixture
def stand(request: pytest.FixtureRequest, stands: dict[str, Stand]) -> Iterator[Stand]:
    made = stands[request.param]
    before = made.judge.look()
    yield made
    made.judge.clear(before)


@pytest.fixture
def told(name: str, stand: Stand, memory: dict[tuple[str, str], dict[str, Any]], tmp_path: Path) -> dict[str, Any]:
    key = (name, stand.daemon.engine)
    if key not in memory:
        memory[key] = LIBRARIES[name].told(stand, tmp_path, NO_RYUK)
    return memory[key]


def each(libraries: Mapping[str, Library]) -> pytest.MarkDecorator:
    """The library's name and the repo, for each generation of Docker that it is tried on."""
    cases = [
        pytest.param(name, generation, id=f"{name} on {generation}")
        for name, library in libraries.items()
        for generation in library.generations
    ]
    return pytest.mark.parametrize(("name", "stand"), cases, indirect=["stand"])


ANSWERS: Mapping[str, Any] = {
    "run": "hi\n",
    "exit_status": 7,
    "exec": ["inside\n", 5],
    "exec_stdin": "fed\nlate\n",
    "logs": "one\ntwo\n",
    "events": ["create", "start", "die"],
    "archive": ["file", "data"],
    "commit": "committed\n",
    "build": "built\n",
}


@pytest.mark.req("R4")
@pytest.mark.parametrize("step", ANSWERS)
@each(CLIENTS)
def test_gets_the_daemons_answers(told: dict[str, Any], name: str, step: str) -> None:
    expected = ANSWERS[step]
    if (name, step) == ("docker-java", "exec_stdin"):
        expected = "fed\n"  # it does not pass the end of its input on, at a daemon's socket neither
    assert told[step] == expected


@pytest.mark.req("R4")
@each(CLIENTS)
def test_agrees_with_the_daemon_on_a_version(told: dict[str, Any], stand: Stand) -> None:
    daemons = rig.succeeded(stand.daemon.docker("version", "-f", "{{.Server.APIVersion}}"))
    assert told["version"] == {"api": daemons, "os": "linux", "ping": True}


@pytest.mark.req("R4")
@each(CLIENTS)
def test_connects_networks(told: dict[str, Any]) -> None:
    assert "alias" in told["network"]


BOXES: Mapping[str, Any] = {"exec": ["inside\n", 5], "environment": "b\n", "files": "data"}


@pytest.mark.req("R4")
@each(CONTAINERS)
def test_has_throwaway_containers(told: dict[str, Any]) -> None:
    assert {step: told[step] for step in BOXES} == BOXES
    assert "ready\n" in told["run"]
    assert "error" not in told["network"], told["network"]
    assert told["network"]


@pytest.mark.req("R4")
@each(CONTAINERS)
def test_takes_its_containers_away_itself(told: dict[str, Any], stand: Stand) -> None:
    assert not rig.succeeded(stand.daemon.docker("ps", "-aq")).split()


@pytest.mark.req("R5", "R23")
@each(LIBRARIES)
def test_gets_a_granted_device(told: dict[str, Any]) -> None:
    assert "No such device or address" in told["device"]


FORMS = f"write docker run --device {GRANTED}, or in a Compose file devices: [{GRANTED}]"
REFUSALS = {
    "gpus": FORMS,
    "gpus_by_cdi": FORMS,
    "raw_device": "write docker run --device nvidia.com/gpu=0",
    "privileged": "privileged is refused: it opens every device of the machine",
}


@pytest.mark.req("R24")
@each(LIBRARIES)
def test_shows_which_grant_is_missing(told: dict[str, Any], stand: Stand) -> None:
    assert stand.no_grant in told["ungranted"]["said"]


@pytest.mark.req("R30", "R34", "R45", "R46")
@each(LIBRARIES)
def test_shows_what_to_write_instead(told: dict[str, Any], name: str) -> None:
    asked = REFUSALS if name in CLIENTS else {step: REFUSALS[step] for step in ("gpus", "privileged")}
    wrong = {step: told[step] for step, sentence in asked.items() if sentence not in told[step]["said"]}
    assert not wrong


@pytest.mark.req("R4")
@each({"docker-java": CLIENTS["docker-java"]})
def test_hears_that_a_compressed_archive_is_refused(told: dict[str, Any]) -> None:
    """docker-java packs what it copies from the machine's disk; from a stream it sends a tar."""
    assert "send the tar itself" in told["compressed"]["said"]


@pytest.mark.req("R45")
@each(CONTAINERS)
def test_ryuk_hears_what_to_set(name: str, stand: Stand, tmp_path: Path) -> None:
    """Its helper is privileged and holds the Docker socket: both are refused in one sentence."""
    rig.succeeded(stand.daemon.docker("tag", IMAGE, RYUK))
    try:
        said = LIBRARIES[name].told(stand, tmp_path, OF_RYUK)["run"]["said"]
    finally:
        rig.succeeded(stand.daemon.docker("rmi", RYUK))
    assert "for testcontainers set TESTCONTAINERS_RYUK_CONTAINER_PRIVILEGED=false" in said
    assert "a bind of the Docker socket" in said
    assert "for testcontainers set TESTCONTAINERS_RYUK_DISABLED=true" in said
