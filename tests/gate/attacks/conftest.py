"""One system for all attacks: gpu-a holds one device and has a folder to bind, gpu-b has nothing."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import intruder
import rig
from intruder import Ground, Judge

GRANTED = "nvidia.com/gpu=0"


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """The folder that gpu-a may bind, with what a tenant can put into it."""
    made = rig.short_folder()
    (made / "sub").mkdir()
    (made / "link").symlink_to("/")
    (made / "dev").symlink_to("/dev")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(made / "sock"))
    if os.geteuid() == 0:
        os.mknod(made / "null", 0o20666, os.makedev(1, 3))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="session")
def system(folder: Path) -> Iterator[rig.System]:
    if os.geteuid() != 0:
        pytest.skip("hack/up needs root")
    root = rig.short_folder()
    try:
        made = rig.bring_up(root, rig.CHECKOUT / "examples/machines/workstation")
        rig.succeeded(made.rdc("repo", "gpu", "grant", "gpu-a", "--device", GRANTED))
        _open_folder(root, folder)
        before = intruder.workers(root)
        yield made
        assert intruder.workers(root) == before, "a process of the gate was replaced"
        assert intruder.faults(root) == []
    finally:
        rig.succeeded(rig.script("down", "--root", root))
    shutil.rmtree(root)


def _open_folder(root: Path, folder: Path) -> None:
    file = root / "etc/rediacc/gpu/repos.d/gpu-a.yaml"
    file.write_text(f"{file.read_text()}binds: [{folder}]\n")
    gate = root / "run/rediacc/gpu/repos/gpu-a.sock"
    intruder.until(gate, "/containers/create?name=opened", 201, intruder.host(Binds=[f"{folder}:/w"]))
    intruder.ask(gate, "DELETE", "/containers/opened")


@pytest.fixture(scope="session")
def other_engine(system: rig.System) -> str:
    """The generation that `system` is not."""
    _, said = intruder.ask(system.root / "daemons/gpu-a/docker.sock", "GET", "/version")
    return "26" if int(said["Version"].partition(".")[0]) >= 28 else "28"


@pytest.fixture(scope="session")
def other_system(other_engine: str, folder: Path) -> Iterator[rig.System]:
    """The same beside it on the other generation of Docker."""
    root = rig.short_folder()
    try:
        tree = rig.CHECKOUT / "examples/machines/workstation"
        environ = {"GPUGRANT_ENGINE": other_engine}
        rig.succeeded(rig.script("up", "--detach", "--root", root, "--hardware", tree, environ=environ))
        made = rig.System(root, rig.read_env(root))
        rig.succeeded(made.rdc("repo", "gpu", "grant", "gpu-a", "--device", GRANTED))
        _open_folder(root, folder)
        yield made
        assert intruder.faults(root) == []
    finally:
        rig.succeeded(rig.script("down", "--root", root))
    shutil.rmtree(root)


@pytest.fixture(params=["gpu-a", "gpu-b"])
def ground(request: pytest.FixtureRequest, system: rig.System, folder: Path) -> Ground:
    return _ground(system, folder, str(request.param))


@pytest.fixture
def ground_a(system: rig.System, folder: Path) -> Ground:
    """Of the repo that holds something, for attacks in which that makes no difference."""
    return _ground(system, folder, "gpu-a")


@pytest.fixture
def other_ground(other_system: rig.System, folder: Path) -> Ground:
    return _ground(other_system, folder, "gpu-a")


def _ground(system: rig.System, folder: Path, repo: str) -> Ground:
    holds = repo == "gpu-a"
    judge = Judge(
        system.root / "daemons" / repo / "docker.sock",
        frozenset({GRANTED} if holds else ()),
        (str(folder),) if holds else (),
    )
    return Ground(system.root, repo, system.root / "run/rediacc/gpu/repos" / f"{repo}.sock", judge, folder)
