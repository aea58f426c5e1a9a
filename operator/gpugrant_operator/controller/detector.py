"""Runs `renet setup` as a bounded child process (D5, D6): one at a time, and never inside the operator.

It says how the run ended; what was found is read from the node afterwards, since the files are the result.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from gpugrant_operator.reconcile.detection import Outcome

LIMIT = 1800.0
"""Seconds: an installation of the toolkit over a slow line takes minutes; what takes longer hangs."""

_SAID_MAX = 65_536
"""Bytes kept of what the child says: its last sentences."""

_END_PATIENCE = 5.0
"""Seconds between SIGTERM, after which renet ends its own programs, and SIGKILL."""

_STOP_PATIENCE = 1.0
"""The same when the operator itself is being stopped: it has 2 s in all."""

_SENTENCE_MAX = 2000


def command(root: Path, hardware: Path) -> tuple[str, ...]:
    """`renet setup` of this installation, for this root and hardware."""
    tree = () if hardware == Path("/") else ("--hardware", str(hardware))
    return (sys.executable, "-m", "gpugrant_operator.cli.renet", "setup", "--root", str(root), *tree, "-o", "json")


class Detector:
    """At most one run at a time; `now` stamps its end."""

    def __init__(self, run: tuple[str, ...], now: Callable[[], datetime], *, limit: float = LIMIT) -> None:
        self._run = run
        self._now = now
        self._limit = limit
        self._running = False
        self.last: Outcome | None = None
        self.failures = 0

    @property
    def running(self) -> bool:
        return self._running

    def reserve(self) -> None:
        """Marks the run as begun, so that nothing starts a second one before the first has a process."""
        self._running = True

    async def detect(self, request: str | None, arguments: tuple[str, ...]) -> Outcome:
        """Runs to the end; `request` is what it answers."""
        self._running = True
        try:
            why = await self._child((*self._run, *arguments))
        finally:
            self._running = False
        self.failures = self.failures + 1 if why else 0
        self.last = Outcome(request=request, succeeded=not why, message=why, ended=self._now())
        return self.last

    async def _child(self, argv: tuple[str, ...]) -> str:
        """Why it failed, as a sentence; empty: it succeeded."""
        try:
            child = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return f"renet setup can't be started: {error}"
        try:
            async with asyncio.timeout(self._limit):
                said = await _tail(child)
                code = await child.wait()
        except TimeoutError:
            await _end(child, _END_PATIENCE)
            return f"renet setup did not end in {self._limit:g} s and was stopped"
        except asyncio.CancelledError:
            await _end(child, _STOP_PATIENCE)
            raise
        return "" if code == 0 else _sentence(said, code)


async def _tail(child: asyncio.subprocess.Process) -> bytes:
    said = b""
    while child.stderr is not None and (chunk := await child.stderr.read(8192)):
        said = (said + chunk)[-_SAID_MAX:]
    return said


async def _end(child: asyncio.subprocess.Process, patience: float) -> None:
    """Ends the child and all that it started; `patience` is seconds."""
    _signal(child, signal.SIGTERM)
    try:
        async with asyncio.timeout(patience):
            await child.wait()
    except TimeoutError:
        _signal(child, signal.SIGKILL)
        await child.wait()


def _signal(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """To the child's own session, so that what it started ends with it."""
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return


def _sentence(said: bytes, code: int) -> str:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    told = [line.removeprefix("renet: ") for line in lines if line.startswith("renet: ")]
    last = "; ".join(told) or (lines[-1].removeprefix("Error: ") if lines else "")
    return last[:_SENTENCE_MAX] if last else f"renet setup ended with exit code {code} and said nothing"
