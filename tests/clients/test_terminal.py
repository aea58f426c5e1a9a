"""`docker run -it`, `exec -it` and `attach` at a gate: a terminal on both sides, its size, its keys."""

from __future__ import annotations

import fcntl
import os
import pty
import shutil
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

import rig
from clientstand import GRANTED, IMAGE, Stand

pytestmark = [pytest.mark.real, pytest.mark.req("R4"), pytest.mark.timeout(120)]

WITHIN = 30.0
"""Seconds for one answer on a machine under load."""
DETACH = b"\x10\x11"
"""Ctrl-p Ctrl-q"""


@dataclass(slots=True)
class Terminal:
    """The side of the person."""

    pid: int
    side: int
    said: str = ""

    def resize(self, rows: int, columns: int) -> None:
        """As a window does: the kernel tells the program in front."""
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def types(self, text: str | bytes) -> None:
        os.write(self.side, text.encode() if isinstance(text, str) else text)

    def until(self, wanted: str) -> None:
        """Reads until it says so."""
        end = time.monotonic() + WITHIN
        while wanted not in self.said:
            assert time.monotonic() < end, f"no {wanted!r} in {self.said!r}"
            piece = self._read()
            assert piece, f"ended without {wanted!r}: {self.said!r}"
            self.said += piece

    def ends(self) -> int:
        """Its exit status."""
        while piece := self._read():
            self.said += piece
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> str:
        try:
            return os.read(self.side, 4096).decode(errors="replace")
        except OSError:  # the other side of a pty is gone
            return ""


@contextmanager
def terminal(desk: dict[str, str], *words: str) -> Iterator[Terminal]:
    """docker in a terminal of 30 lines of 100 characters."""
    docker = shutil.which("docker", path=desk["PATH"])
    assert docker is not None
    pid, side = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        os.execve(docker, [docker, *words], {**desk, "TERM": "xterm"})
    try:
        yield Terminal(pid, side)
    finally:
        os.close(side)


def sizes(shell: Terminal) -> None:
    """The program inside knows the window's size, and hears when it changes."""
    shell.types("busybox stty size\n")
    shell.until("\n30 100")
    shell.resize(41, 123)
    shell.types("until busybox stty size | grep '41 123'; do sleep 0.1; done\n")
    shell.until("\n41 123")


@pytest.mark.req("R23")
def test_run(desk: dict[str, str]) -> None:
    with terminal(desk, "run", "-it", "--rm", "--device", GRANTED, IMAGE, "sh") as shell:
        shell.until("#")
        sizes(shell)
        shell.types("tty; ls /dev/nvidia0\n")
        shell.until("/dev/pts/0")
        shell.types("exit 3\n")
        assert shell.ends() == 3
    assert "\n/dev/nvidia0" in shell.said


def test_exec(stand: Stand, desk: dict[str, str]) -> None:
    stand.ok("run", "-d", "--name", "web", IMAGE, "sleep", "600")
    with terminal(desk, "exec", "-it", "-e", "A=b", "web", "sh") as shell:
        shell.until("#")
        sizes(shell)
        shell.types("echo $A$A\n")
        shell.until("bb")
        shell.types("exit 4\n")
        assert shell.ends() == 4


def test_ctrl_c_reaches_the_program_inside(desk: dict[str, str]) -> None:
    with terminal(desk, "run", "-it", "--rm", IMAGE, "sh", "-c", "trap 'exit 5' INT; echo up; sleep 600") as shell:
        shell.until("up")
        shell.types(b"\x03")
        assert shell.ends() in (5, 130)


def test_detach_and_attach(stand: Stand, desk: dict[str, str]) -> None:
    with terminal(desk, "run", "-it", "--name", "web", IMAGE, "sh") as shell:
        shell.until("#")
        shell.types("echo before\n")
        shell.until("\nbefore")
        shell.types(DETACH)
        assert shell.ends() == 0
    assert stand.ok("inspect", "-f", "{{.State.Running}}", "web") == "true"
    with terminal(desk, "attach", "web") as again:
        again.types("echo after\n")
        again.until("\nafter")
        again.types("exit 6\n")
        assert again.ends() == 6
    assert rig.wait_for(lambda: stand.ok("inspect", "-f", "{{.State.ExitCode}}", "web")) == "6"


def test_other_detach_keys(stand: Stand, desk: dict[str, str]) -> None:
    stand.ok("run", "-d", "--name", "web", IMAGE, "sleep", "600")
    with terminal(desk, "exec", "-it", "--detach-keys", "ctrl-x", "web", "sh") as shell:
        shell.until("#")
        shell.types(b"\x18")
        shell.until("read escape sequence")
        assert shell.ends() == 1  # docker's own
