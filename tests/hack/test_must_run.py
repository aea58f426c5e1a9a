"""A must-run test that is skipped fails the run that asks for it."""

from __future__ import annotations

import os
import shutil
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
