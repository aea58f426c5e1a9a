"""Who holds a lock, seen without touching it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpugrant_operator.cli import waiting
from gpugrant_operator.supervisor import locks, processes
from gpugrant_operator.supervisor.processes import Holder, Process

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def test_nobody_holds_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert processes.holder(tmp_path / "gate.lock") is None


def test_the_holder_says_who_and_since_when(tmp_path: Path) -> None:
    lock = tmp_path / "gate.lock"
    with locks.taken(lock, NOW):
        assert processes.holder(lock) == Holder(os.getpid(), "2026-03-01T12:00:00Z")
    assert processes.holder(lock) is None


def test_a_lock_that_is_held_can_not_be_taken(tmp_path: Path) -> None:
    lock = tmp_path / "gate.lock"
    with locks.taken(lock, NOW), pytest.raises(locks.Held), locks.taken(lock, NOW):
        raise AssertionError("taken twice")
    with locks.taken(lock, NOW):
        assert processes.holder(lock) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1, "since": ""}'], ids=repr)
def test_a_holder_is_found_whatever_the_file_says(tmp_path: Path, text: str) -> None:
    lock = tmp_path / "gate.lock"
    lock.write_text(text)
    with lock.open() as file:
        assert processes.holder(lock) is None, "open, but not locked"
        fcntl.flock(file, fcntl.LOCK_EX)
        assert processes.holder(lock) == Holder(os.getpid(), "")


def test_the_pid_of_a_process_that_has_ended_is_not_believed(tmp_path: Path) -> None:
    lock = tmp_path / "gate.lock"
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    lock.write_text(f'{{"pid": {child.pid}, "since": "2026-03-01T12:00:00Z"}}')
    assert processes.holder(lock) is None


def test_a_process_is_known_by_arguments_in_a_row() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert waiting.until(lambda: child.pid in processes.of(("sleep", "60")) or None, 10)
            assert child.pid not in processes.of(("60", "sleep"))
            assert processes.arguments(child.pid) == ("sleep", "60")
        finally:
            child.kill()


def test_a_variable_of_another_process_is_read() -> None:
    with subprocess.Popen(["sleep", "60"], env={"GPUGRANT_VERSION": "3=4"}) as child:
        try:
            assert waiting.until(lambda: processes.variable(child.pid, "GPUGRANT_VERSION"), 10) == "3=4"
            assert processes.variable(child.pid, "OTHER") is None
        finally:
            child.kill()
    assert processes.variable(child.pid, "GPUGRANT_VERSION") is None


def test_a_process_that_ignores_the_request_to_end_is_killed() -> None:
    ignoring = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", ignoring], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout as output, Process(child.pid, child) as process:
        output.readline()
        process.end(0.1)
        assert process.wait(0)
    assert child.returncode == -9


def test_a_process_that_is_not_there_can_not_be_held() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(ProcessLookupError):
        Process(child.pid)
