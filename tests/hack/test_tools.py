"""Which set of Docker programs is taken."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from gpugrant_hack import tools
from gpugrant_hack.say import Trouble

import rig

VERSIONS = {
    "Docker's own build": ("Docker version 28.2.2, build e6534b4", 28),
    "Debian's build": ("Docker version 26.1.5+dfsg1, build a72d7cd", 26),
    "an old one": ("Docker version 20.10.24+dfsg1, build 297e128", 20),
    "podman's stand-in": ("podman version 4.3.1", 4),
    "no version": ("no such program", None),
}


@pytest.mark.parametrize(("text", "expected"), VERSIONS.values(), ids=VERSIONS)
def test_docker_version(text: str, expected: int | None) -> None:
    assert tools.docker_version(text) == expected


def programs(folder: Path, version: str, names: tuple[str, ...] = tools.PROGRAMS) -> str:
    folder.mkdir()
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\necho 'Docker version {version}, build 1'\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_a_machine_s_docker_that_is_too_old_does_not_serve(tmp_path):
    assert tools.own_engine(programs(tmp_path / "bin", "20.10.24")) == (
        None,
        "this machine's Docker is 20, older than 25",
    )


def test_what_is_missing_is_named(tmp_path):
    search = programs(tmp_path / "bin", "28.0.0", ("docker", "dockerd", "containerd"))

    assert tools.own_engine(search) == (None, "containerd-shim-runc-v2, runc are not on this machine")


def test_without_a_debian_mirror_one_sentence_says_what_to_do(tmp_path):
    (tmp_path / "etc").mkdir()
    offline = tools.Tools(tmp_path / "cache", search=str(tmp_path), etc=tmp_path / "etc")

    with pytest.raises(Trouble) as trouble:
        offline.engine()

    assert "Docker with CDI is not on this machine and can't be brought" in str(trouble.value)
    assert "or install Docker 25 or newer with Compose v2" in str(trouble.value)


def test_an_unknown_generation_is_refused_with_those_there_are(tmp_path):
    done = rig.script("tools", "engine", "25", environ={"GPUGRANT_CACHE": str(tmp_path)})

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "no engine '25': it is one of 26, 28, own\n"


@pytest.mark.real
@pytest.mark.timeout(rig.PATIENCE)
@pytest.mark.parametrize("tool", ["kubectl", "busybox", "registry", "pip", "certificates", "etcd"])
def test_what_a_bare_debian_lacks_is_brought(tmp_path, tool):
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        pytest.skip("packages are brought on Debian only")
    (tmp_path / "etc").mkdir()
    shutil.copytree("/etc/apt", tmp_path / "etc/apt")
    shutil.copy("/etc/os-release", tmp_path / "etc")
    bare = tools.Tools(tmp_path / "cache", search=str(tmp_path), etc=tmp_path / "etc")

    found = getattr(bare, tool)()

    assert found.is_relative_to(tmp_path / "cache")
    assert found.stat().st_size > 100_000
