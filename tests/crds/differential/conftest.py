"""Builds the judges; see cdijudges."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from cdijudges import RELEASES, Judge

HERE = Path(__file__).parent
PLACES = f"{os.environ.get('PATH', '')}:/usr/local/go/bin"


@pytest.fixture(scope="session")
def judges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Judge]]:
    """Every release by its version; skipped where there is no Go or its modules can't be had."""
    compiler = shutil.which("go", path=PLACES)
    if compiler is None:
        pytest.skip("no Go here: install it, or put it into PATH")
    built = tmp_path_factory.mktemp("judges")
    with ExitStack() as running:
        found: dict[str, Judge] = {}
        for release in RELEASES:
            program = _build(compiler, release, built)
            scratch = tmp_path_factory.mktemp("specs")
            process = running.enter_context(
                subprocess.Popen([str(program), str(scratch)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            assert process.stdin is not None
            assert process.stdout is not None
            running.callback(process.stdin.close)
            found[release] = Judge(release, process.stdin, process.stdout)
        yield found


def _build(compiler: str, release: str, built: Path) -> Path:
    folder = built / release
    shutil.copytree(HERE / "judges" / f"v{release}", folder)
    shutil.copy(HERE / "main.go", folder)
    environ = {"HOME": str(built), **os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    done = subprocess.run(
        [compiler, "build", "-o", "judge", "."], cwd=folder, env=environ, capture_output=True, text=True, timeout=200
    )
    if done.returncode and ("dial tcp" in done.stderr or "lookup" in done.stderr):
        pytest.skip(f"the CDI library's modules can't be had here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return folder / "judge"
