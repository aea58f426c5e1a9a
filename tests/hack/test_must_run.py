"""A must-run test that is skipped fails the run that asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

import rig

TESTS = """\
import pytest

@pytest.mark.must_run
def test_must_run():
    pytest.skip("no daemon")

def test_may_be_skipped():
    pytest.skip("no luck")

@pytest.mark.must_run
def test_runs():
    pass
"""
CASES = {
    "asked for": (["--must-run"], 1, "1 failed, 1 passed, 1 skipped"),
    "asked for, on two workers": (["--must-run", "-n", "2"], 1, "1 failed, 1 passed, 1 skipped"),
    "not asked for": ([], 0, "1 passed, 2 skipped"),
}


WAITING = """\
import pathlib, signal
import pytest

@pytest.fixture(scope="session")
def part():
    yield
    pathlib.Path("ended").touch()

def test_waits(part):
    pathlib.Path("waits").touch()
    signal.pause()
"""


@pytest.mark.parametrize(("words", "code", "summary"), CASES.values(), ids=CASES)
def test_a_skip(tmp_path, words: list[str], code: int, summary: str) -> None:
    for name in ("conftest.py", "rig.py"):
        shutil.copy(rig.CHECKOUT / "tests" / name, tmp_path)
    (tmp_path / "test_x.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = must_run\n")

    done = rig.run([sys.executable, "-m", "pytest", "-q", *words, str(tmp_path)], environ=os.environ)

    assert done.returncode == code
    assert summary in done.stdout.splitlines()[-1]
    assert ("this test must run and was skipped: Skipped: no daemon" in done.stdout) is bool(words)


def test_a_run_that_is_ended_ends_what_its_fixtures_started(tmp_path):
    shutil.copy(rig.CHECKOUT / "tests/conftest.py", tmp_path)
    shutil.copy(rig.CHECKOUT / "tests/rig.py", tmp_path)
    (tmp_path / "test_x.py").write_text(WAITING)

    with subprocess.Popen([sys.executable, "-m", "pytest", "-q", "test_x.py"], cwd=tmp_path) as run:
        rig.wait_for((tmp_path / "waits").exists)
        run.terminate()
        run.wait()

    assert (tmp_path / "ended").exists()
