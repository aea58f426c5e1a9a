"""The child process that detects: its end, its sentence, its bounds."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from pathlib import Path

import pytest

import gen
from gpugrant_operator.controller import detector
from gpugrant_operator.controller.detector import Detector


def child(code: str, *, limit: float = 60.0) -> Detector:
    return Detector((sys.executable, "-c", code), lambda: gen.NOW, limit=limit)


ENDS = {
    "a success says nothing": ("import sys; print('progress', file=sys.stderr)", True, ""),
    "a failure says what renet said": (
        "import sys; print('asking\\nrenet: no toolkit\\nrenet: no spec', file=sys.stderr); sys.exit(1)",
        False,
        "no toolkit; no spec",
    ),
    "a usage error says its last line": (
        "import sys; print('Usage: renet\\n\\nError: no such option', file=sys.stderr); sys.exit(2)",
        False,
        "no such option",
    ),
    "silence is said": ("import sys; sys.exit(3)", False, "renet setup ended with exit code 3 and said nothing"),
    "a signal is a failure": (
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        False,
        "renet setup ended with exit code -9 and said nothing",
    ),
    "a flood is cut to its end": (
        "import sys; print('x' * 3_000_000 + '\\nrenet: the end', file=sys.stderr); sys.exit(1)",
        False,
        "the end",
    ),
}


@pytest.mark.req("D5", "R10")
@pytest.mark.parametrize(("code", "succeeded", "message"), ENDS.values(), ids=ENDS.keys())
async def test_how_it_ends(code: str, succeeded: bool, message: str) -> None:
    """One sentence for a failure, from what it said last."""
    run = child(code)

    outcome = await run.detect("request-1", ())

    assert (outcome.succeeded, outcome.message, outcome.request) == (succeeded, message, "request-1")
    assert (run.last, run.running, run.failures) == (outcome, False, 0 if succeeded else 1)


async def test_failures_are_counted_until_a_success() -> None:
    """In a row."""
    run = Detector((sys.executable, "-c", "import sys; sys.exit(int(sys.argv[1]))"), lambda: gen.NOW)

    for code, count in (("1", 1), ("1", 2), ("0", 0), ("1", 1)):
        await run.detect(None, (code,))
        assert run.failures == count


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    """A sentence, not a traceback."""
    outcome = await Detector((str(tmp_path / "nothing"),), lambda: gen.NOW).detect(None, ())

    assert not outcome.succeeded
    assert "can't be started" in outcome.message


STARTS_ANOTHER = """
import subprocess, sys, time
inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(inner.pid, file=open(sys.argv[1], "w"), flush=True)
time.sleep(600)
"""


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """A FIFO in which a child says the pid of what it started."""
    os.mkfifo(tmp_path / "told")
    return tmp_path / "told"


async def test_a_hang_is_ended_with_all_that_it_started(told: Path) -> None:
    """The whole session gets the signal."""
    run = child(STARTS_ANOTHER, limit=2.0)
    inner = asyncio.ensure_future(asyncio.to_thread(told.read_text))

    outcome = await run.detect(None, (str(told),))

    assert "did not end in 2 s" in outcome.message
    assert _ends(int(await inner))


async def test_the_operators_end_is_the_childs(told: Path) -> None:
    """A cancelled run leaves nothing behind."""
    run = child(STARTS_ANOTHER)
    task = asyncio.ensure_future(run.detect(None, (str(told),)))
    inner = int(await asyncio.to_thread(told.read_text))
    assert run.running

    task.cancel()
    ended = await asyncio.gather(task, return_exceptions=True)

    assert isinstance(ended[0], asyncio.CancelledError)
    assert not run.running
    assert _ends(inner)


def test_the_command(tmp_path: Path) -> None:
    """This installation's renet; a live machine is not named, so that its programs are found as usual."""
    live = detector.command(tmp_path, Path("/"))
    tree = detector.command(tmp_path, Path("/tree"))

    assert live[:4] == (sys.executable, "-m", "gpugrant_operator.cli.renet", "setup")
    assert live[4:] == ("--root", str(tmp_path), "-o", "json")
    assert tree[4:] == ("--root", str(tmp_path), "--hardware", "/tree", "-o", "json")


def _ends(pid: int) -> bool:
    """Whether a process that nobody here is the parent of ends within some seconds."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ended, _, _ = select.select([handle], [], [], 10)
        return bool(ended)
    finally:
        os.close(handle)
