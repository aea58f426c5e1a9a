"""Progress on a terminal and elsewhere."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

from gpugrant_operator.cli import progress
from machines import EXAMPLES


def test_elsewhere_each_step_is_a_plain_line() -> None:
    """A log, a pipe: nothing but the lines."""
    stream = io.StringIO()
    with progress.following(stream) as say:
        say("one [x]")
        say("two")
    assert stream.getvalue() == "one [x]\ntwo\n"


def on_a_terminal(*command: str) -> tuple[int, str, str]:
    """Exit code, stdout, and what the terminal of stderr got."""
    ours, theirs = pty.openpty()
    environ = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environ, text=True) as running:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            shown += piece
            if not piece:
                break
        os.close(ours)
        assert running.stdout is not None
        said = running.stdout.read()
    return running.wait(), said, shown.decode()


def test_on_a_terminal_the_running_step_has_a_spinner_and_the_steps_stay(tmp_path: Path) -> None:
    """The spinner's frames and the cursor's return; a path in brackets is no markup; the result is on stdout alone."""
    root = tmp_path / "[root]"
    renet = (sys.executable, "-m", "gpugrant_operator.cli.renet", "setup", "--root", str(root))
    code, said, shown = on_a_terminal(*renet, "--hardware", str(EXAMPLES / "no-gpu"), "-o", "json")
    assert code == 0
    assert said == (root / "etc/rediacc/gpu/inventory.json").read_text()
    assert any(frame in shown for frame in "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
    assert "\x1b[?25l" in shown
    assert "\x1b[?25h" in shown
    assert "no units are set up: systemd does not run here" in shown
