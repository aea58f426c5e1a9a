"""Child programs that may hang, flood or fork: a time limit, an output limit, and the whole process group ends."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OUTPUT_MAX = 8 * 1024 * 1024
"""Bytes of each stream: as much as a CDI spec may have."""

_KILL_PATIENCE = 2.0
"""Seconds after SIGKILL."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended; `code` is None when it was killed for its time or its output."""

    code: int | None
    stdout: str
    stderr: str
    why: str = ""
    """One clause where the code is None, or where it could not be started."""

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def last_line(self) -> str:
        """What it said last, on stderr before stdout."""
        lines = [line.strip() for line in (self.stdout + "\n" + self.stderr).splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""


def run(
    program: Path, args: Sequence[str], *, timeout: float, env: Mapping[str, str], name: str | None = None
) -> Ended:
    """Runs it to its end; `timeout` in seconds. `name` is what it is called in clauses. Never raises for what the
    program does."""
    name = name or program.name
    try:
        child = subprocess.Popen(
            [str(program), *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": PATH, "LC_ALL": "C", **env},
            start_new_session=True,
        )
    except OSError as error:
        return Ended(127, "", "", f"{program} can't be started: {(error.strerror or str(error)).lower()}")
    try:
        return _follow(child, name, time.monotonic() + timeout, timeout)
    finally:
        _end(child)


def _follow(child: subprocess.Popen[bytes], name: str, deadline: float, timeout: float) -> Ended:
    kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    why = ""
    with selectors.DefaultSelector() as selector:
        for kind, stream in (("stdout", child.stdout), ("stderr", child.stderr)):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, kind)
        while selector.get_map() and not why:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            for key, _ in ready:
                piece = os.read(key.fd, 65536)
                kept[key.data] += piece
                if not piece:
                    selector.unregister(key.fileobj)
                if len(kept[key.data]) > OUTPUT_MAX:
                    why = f"{name} wrote more than {OUTPUT_MAX} bytes and was stopped"
            if not ready:
                why = f"{name} did not answer in {timeout:g} s and was stopped"
    code = None if why else _code(child, deadline)
    if code is None and not why:
        why = f"{name} did not end in {timeout:g} s and was stopped"
    texts = {kind: bytes(data).decode("utf-8", "replace") for kind, data in kept.items()}
    return Ended(code, texts["stdout"], texts["stderr"], why)


def _code(child: subprocess.Popen[bytes], deadline: float) -> int | None:
    try:
        return child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the group, also what the program left behind in it. One that a driver holds in the kernel can't be ended:
    it is left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_KILL_PATIENCE)
