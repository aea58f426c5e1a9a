"""A clean copy of the project gets its environment from the locks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import rig

SCRIPTS = ("gpugrant", "rdc", "renet", "kubectl-gpugrant")


@pytest.fixture(scope="module")
def copy() -> Path:
    """The project as a clone has it: what Git knows, at another place, with a blank in its name."""
    if shutil.which("git") is None:
        pytest.skip("git says what a clone holds, and is not here")
    place = rig.short_folder() / "a clone"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=rig.CHECKOUT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(rig.CHECKOUT / name, target, follow_symlinks=False)
    yield place
    shutil.rmtree(place.parent)


def run_setup(copy: Path, **environ: str) -> rig.Result:
    return rig.run([str(copy / "hack/setup")], environ={**os.environ, **environ})


@pytest.mark.real
@pytest.mark.must_run
@pytest.mark.timeout(rig.PATIENCE)
def test_setup_makes_an_environment_and_leaves_it_alone_the_second_time(copy):
    rig.succeeded(run_setup(copy))
    where = "import gpugrant_crds, pytest; print(gpugrant_crds.__file__)"
    found = rig.succeeded(rig.run([str(copy / ".venv/bin/python"), "-c", where], environ=os.environ))
    made = (copy / ".venv/made-from").stat().st_mtime_ns
    again = run_setup(copy)

    assert found == str(copy / "crds/gpugrant_crds/__init__.py")
    assert all((copy / ".venv/bin" / name).exists() for name in SCRIPTS)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert (copy / ".venv/made-from").stat().st_mtime_ns == made


@pytest.mark.real
@pytest.mark.timeout(rig.PATIENCE)
def test_what_is_no_longer_locked_goes(copy):
    rig.succeeded(run_setup(copy))
    lock = copy / "requirements/dev.txt"
    whole = lock.read_text()
    lock.write_text(re.sub(r"^types-pyyaml==.*?(?=^\S)", "", whole, flags=re.MULTILINE | re.DOTALL))

    rig.succeeded(run_setup(copy))

    assert not list((copy / ".venv/lib").glob("*/site-packages/types_pyyaml*"))
    lock.write_text(whole)


@pytest.mark.parametrize("name", ["run", "dev"])
def test_the_locks_hold_hashes_and_no_address(name):
    text = (rig.CHECKOUT / f"requirements/{name}.txt").read_text()
    pinned = re.findall(r"^[a-z0-9].*", text, re.MULTILINE)

    assert pinned
    assert all(re.match(r"[a-z0-9._-]+==\S+ (;.*)?\\$", line) for line in pinned)
    assert "--hash=sha256:" in text
    assert "://" not in text
    assert "--index-url" not in text


@pytest.mark.req("D1")
def test_the_locks_are_of_what_pyproject_asks_for():
    project = tomllib.loads((rig.CHECKOUT / "pyproject.toml").read_text())
    asked = {re.match(r"[A-Za-z0-9._-]+", item)[0].lower() for item in project["project"]["dependencies"]}
    locked = set(re.findall(r"^([a-z0-9._-]+)==", (rig.CHECKOUT / "requirements/run.txt").read_text(), re.MULTILINE))

    assert {"kopf", "kubernetes", "pydantic", "pyyaml", "watchfiles", "structlog"} <= asked
    assert asked <= locked
