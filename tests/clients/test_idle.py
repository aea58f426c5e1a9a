"""C05: what says nothing for longer than the gate waits for a request, and goes on all the same."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import clientstand
from clientstand import Stand

pytestmark = [pytest.mark.real, pytest.mark.req("R4"), pytest.mark.timeout(120)]

LIMITS = "headTimeout: 2s\nidleTimeout: 2s\nbodyTimeout: 2s\n"


@pytest.fixture(scope="module")
def idle() -> Iterator[Stand]:
    with clientstand.opened(("28",), LIMITS) as made:
        yield made["28"]


def test_nothing_is_cut(idle: Stand, tmp_path: Path) -> None:
    """All of them at once, as they only wait."""
    idle.ok("run", "-d", "--name", "web", clientstand.IMAGE, "sleep", "600")
    cases = {case.id: case.values for case in clientstand.plays(Path(__file__).parent / "idle.txt")}
    running = {}
    for number, (name, (script, _)) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        command = ["sh", "-ec", script]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running[name] = subprocess.Popen(command, env=idle.environ(tmp_path), cwd=folder, text=True, **pipes)
    said = {name: (*process.communicate(timeout=60), process.returncode) for name, process in running.items()}
    wrong = {name: found for name, found in said.items() if (found[0], found[2]) != (cases[name][1], 0)}
    assert not wrong
