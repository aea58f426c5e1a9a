"""The devcontainers CLI at a gate; its folder is one that the repo may bind."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rig
from clientstand import GRANTED, IMAGE, UNGRANTED, Stand

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

Devcontainer = Callable[..., rig.Result]
OPTIONAL = {"hostRequirements": {"gpu": "optional"}}


@pytest.fixture
def stand(stands: dict[str, Stand]) -> Iterator[Stand]:
    made = stands["28"]
    before = made.judge.look()
    yield made
    made.judge.clear(before)
    shutil.rmtree(made.folder / ".devcontainer")


@pytest.fixture
def devcontainer(stand: Stand, tmp_path: Path) -> Devcontainer:
    """Runs the CLI on the folder, with the configuration that is given first."""
    brought = rig.script("tools", "library", "node")
    if brought.returncode:
        pytest.skip(brought.stderr.strip().splitlines()[-1])
    program = Path(brought.stdout.strip()) / "node_modules/.bin/devcontainer"
    (stand.folder / ".devcontainer").mkdir()

    def run(config: dict[str, Any] | None, word: str, *words: str) -> rig.Result:
        if config is not None:
            (stand.folder / ".devcontainer/devcontainer.json").write_text(json.dumps(config))
        command = ["node", str(program), word, "--workspace-folder", str(stand.folder), *words]
        return subprocess.run(
            command, env=stand.environ(tmp_path), capture_output=True, text=True, check=False, timeout=120
        )

    return run


def requests_of(stand: Stand) -> Any:
    """The device requests of the one container that runs."""
    (id_,) = stand.daemon.docker("ps", "-q").stdout.split()
    return json.loads(rig.succeeded(stand.daemon.docker("inspect", "-f", "{{json .HostConfig.DeviceRequests}}", id_)))


@pytest.mark.req("R23")
def test_comes_up_with_a_granted_device(devcontainer: Devcontainer, stand: Stand) -> None:
    config = {
        "image": IMAGE,
        "runArgs": ["--device", GRANTED],
        "containerEnv": {"A": "b"},
        "postCreateCommand": "touch /made",
    }
    said = rig.succeeded(devcontainer(config, "up"))
    assert json.loads(said.splitlines()[-1])["outcome"] == "success"
    inside = devcontainer(None, "exec", "sh", "-c", "echo $A; ls /made /dev/nvidia0; ls -d sub; exit 4")
    assert (inside.returncode, inside.stdout.split()) == (4, ["b", "/dev/nvidia0", "/made", "sub"])
    assert [request["DeviceIDs"] for request in requests_of(stand)] == [[GRANTED]]


@pytest.mark.req("R4")
def test_a_gpu_that_is_optional_stays_away(devcontainer: Devcontainer, stand: Stand) -> None:
    """It looks for an nvidia runtime, which no repo's daemon has: no `--gpus`, no refusal."""
    rig.succeeded(devcontainer({"image": IMAGE, **OPTIONAL}, "up"))
    assert not requests_of(stand)


@pytest.mark.req("R30")
def test_a_gpu_by_force_is_refused_with_what_to_write(devcontainer: Devcontainer) -> None:
    done = devcontainer({"image": IMAGE, **OPTIONAL}, "up", "--gpu-availability", "all")
    assert done.returncode != 0
    assert f"write docker run --device {GRANTED}" in done.stderr


@pytest.mark.req("R24")
def test_a_missing_grant_is_named(devcontainer: Devcontainer, stand: Stand) -> None:
    done = devcontainer({"image": IMAGE, "runArgs": ["--device", UNGRANTED]}, "up")
    assert done.returncode != 0
    assert stand.no_grant in done.stderr


@pytest.mark.req("R4")
def test_builds_with_the_classic_builder(devcontainer: Devcontainer, stand: Stand) -> None:
    (stand.folder / ".devcontainer/Dockerfile").write_text(f"FROM {IMAGE}\nRUN echo built >/f\n")
    rig.succeeded(devcontainer({"build": {"dockerfile": "Dockerfile"}}, "up", "--buildkit", "never"))
    assert rig.succeeded(devcontainer(None, "exec", "cat", "/f")) == "built"


@pytest.mark.req("R36")
def test_a_compose_service_with_devices(devcontainer: Devcontainer, stand: Stand) -> None:
    service = f"services: {{app: {{image: '{IMAGE}', command: sleep 600, devices: ['{GRANTED}']}}}}\n"
    (stand.folder / ".devcontainer/compose.yaml").write_text(service)
    config = {"dockerComposeFile": "compose.yaml", "service": "app", "workspaceFolder": "/"}
    rig.succeeded(devcontainer(config, "up", "--buildkit", "never"))
    assert rig.succeeded(devcontainer(None, "exec", "ls", "/dev/nvidia0")) == "/dev/nvidia0"
