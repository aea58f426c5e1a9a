from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gpugrant_operator.node import programs


def script(folder: Path, body: str) -> Path:
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_output_code_and_environment(tmp_path: Path) -> None:
    tool = script(tmp_path, 'echo "$1 $GPUGRANT_ROOT $LC_ALL"; echo oops >&2; exit 3')
    ended = programs.run(tool, ["a b"], timeout=10, env={"GPUGRANT_ROOT": "/r"})
    assert (ended.code, ended.stdout, ended.stderr) == (3, "a b /r C\n", "oops\n")
    assert not ended.ok
    assert ended.last_line == "oops"


def test_nothing_of_our_own_environment_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", "/etc/cdi/other.yaml")
    ended = programs.run(script(tmp_path, "env"), [], timeout=10, env={})
    assert "NVIDIA_CTK" not in ended.stdout


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    tool = script(tmp_path, f"sleep 600 & echo $! >{tmp_path}/child; wait")
    started = time.monotonic()
    ended = programs.run(tool, [], timeout=0.5, env={})
    assert ended.code is None
    assert ended.why == "tool did not answer in 0.5 s and was stopped"
    assert time.monotonic() - started < 30
    assert _gone(int((tmp_path / "child").read_text()))


def _gone(pid: int) -> bool:
    """Whether the process ends within ten seconds; a killed one that nobody has reaped counts as ended."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        os.sched_yield()
    return False


def test_a_program_that_floods_is_ended(tmp_path: Path) -> None:
    ended = programs.run(script(tmp_path, "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxx; done"), [], timeout=60, env={})
    assert ended.code is None
    assert "wrote more than" in ended.why


def test_a_program_that_closes_its_output_and_stays_is_ended(tmp_path: Path) -> None:
    ended = programs.run(script(tmp_path, "exec >&- 2>&-; sleep 600"), [], timeout=0.5, env={})
    assert (ended.code, ended.why) == (None, "tool did not end in 0.5 s and was stopped")


def test_what_is_no_program_is_a_failure(tmp_path: Path) -> None:
    ended = programs.run(tmp_path / "nothing", [], timeout=1, env={})
    assert ended.code == 127
    assert "can't be started: no such file or directory" in ended.why
