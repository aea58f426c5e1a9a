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
FOLDER = "/tmp/gg-attacks"
"""The folder that gpu-a may bind; fixed, for the attacks are constants."""


@pytest.fixture(scope="session")
def system() -> Iterator[rig.System]:
    if os.geteuid() != 0:
        pytest.skip("hack/up needs root")
    root = rig.short_folder()
    _folder()
    try:
        made = rig.bring_up(root, rig.CHECKOUT / "examples/machines/workstation")
        rig.succeeded(made.rdc("repo", "gpu", "grant", "gpu-a", "--device", GRANTED))
        _open_folder(root)
        before = intruder.workers(root)
        yield made
        assert intruder.workers(root) == before, "a process of the gate was replaced"
        assert intruder.faults(root) == []
    finally:
        rig.succeeded(rig.script("down", "--root", root))
        shutil.rmtree(FOLDER)
    shutil.rmtree(root)


def _folder() -> None:
    """What a tenant can put into a folder that it may bind."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    place = Path(FOLDER)
    (place / "sub").mkdir(parents=True)
    (place / "link").symlink_to("/")
    (place / "dev").symlink_to("/dev")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(place / "sock"))
    os.mknod(place / "null", 0o20666, os.makedev(1, 3))


def _open_folder(root: Path) -> None:
    file = root / "etc/rediacc/gpu/repos.d/gpu-a.yaml"
    file.write_text(f"{file.read_text()}binds: [{FOLDER}]\n")
    gate = root / "run/rediacc/gpu/repos/gpu-a.sock"
    intruder.until(gate, "/containers/create?name=opened", 201, intruder.host(Binds=[f"{FOLDER}:/w"]))
    intruder.ask(gate, "DELETE", "/containers/opened")


@pytest.fixture(params=["gpu-a", "gpu-b"])
def ground(request: pytest.FixtureRequest, system: rig.System) -> Ground:
    repo = str(request.param)
    holds = repo == "gpu-a"
    judge = Judge(
        system.root / "daemons" / repo / "docker.sock",
        frozenset({GRANTED} if holds else ()),
        (FOLDER,) if holds else (),
    )
    return Ground(system.root, repo, system.root / "run/rediacc/gpu/repos" / f"{repo}.sock", judge)
