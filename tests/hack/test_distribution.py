"""The wheel and the sdist: what they hold, and that what is installed from them runs without a checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import rig

UV = Path(sys.executable).parent / "uv"
PACKAGES = {"gpugrant_crds", "gpugrant_gate", "gpugrant_operator"}

pytestmark = [pytest.mark.real, pytest.mark.timeout(rig.PATIENCE)]


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """Both, the wheel made from the sdist."""
    place = rig.short_folder()
    command = [str(UV), "build", "-q", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(place)]
    rig.succeeded(rig.run([*command, str(rig.CHECKOUT)], environ=os.environ))
    yield place
    shutil.rmtree(place)


def test_the_wheel_holds_the_packages_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entries,) = (archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    others = {name for name in names if not name.endswith(".py") and ".dist-info/" not in name}
    assert others == {f"{package}/py.typed" for package in PACKAGES} | {
        "gpugrant_operator/node/nvidia-container-toolkit.asc"
    }
    for program in ("gpugrant", "rdc", "renet", "kubectl-gpugrant"):
        assert f"{program} = " in entries


def test_the_sdist_holds_the_sources_and_no_tests(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    tops = {name.partition("/")[0] for name in names}
    assert tops == {
        *("crds", "gate", "operator", "examples", "README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"),
        *("pyproject.toml", "PKG-INFO", ".gitignore"),
    }
    assert not [name for name in names if ":" in name]


def test_an_installed_one_runs_without_a_checkout(built: Path) -> None:
    """As after `uv tool install`: a whole instance, on a machine that is a recorded tree."""
    if os.geteuid() != 0:
        pytest.skip("the stand-in device nodes need root")
    (wheel,) = built.glob("*.whl")
    place = built / "tool"
    rig.succeeded(rig.run([str(UV), "venv", "-q", "--python", sys.executable, str(place)], environ=os.environ))
    python = place / "bin/python"
    locked = rig.CHECKOUT / "requirements/run.txt"
    install = [str(UV), "pip", "install", "-q", "--python", str(python)]
    rig.succeeded(rig.run([*install, "--require-hashes", "-r", str(locked)], environ=os.environ))
    rig.succeeded(rig.run([*install, "--no-deps", str(wheel)], environ=os.environ))
    root, tree = rig.short_folder(), rig.CHECKOUT / "examples/machines/workstation"
    clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(built)}

    def program(name: str, *words: str) -> rig.Result:
        return subprocess.run(
            [place / "bin" / name, *words], env=clean, cwd=root, capture_output=True, text=True, check=False
        )

    try:
        assert program("gpugrant", "--version").stdout.startswith("gpugrant, version ")
        rig.succeeded(program("renet", "setup", "--root", str(root), "--hardware", str(tree)))
        rig.succeeded(program("gpugrant", "up", "--detach", "--root", str(root), "--hardware", str(tree)))
        parts = json.loads(rig.succeeded(program("gpugrant", "status", "--root", str(root), "-o", "json")))["parts"]
        assert [part["ok"] for part in parts] == [True] * 4
    finally:
        program("gpugrant", "down", "--root", str(root))
        shutil.rmtree(root)
