"""Processes as /proc shows them: who holds a lock, who was started as what, and how one is ended.

A process is held by a pidfd before it is judged, so that its number can't come to mean another one in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PROC = Path("/proc")

HANDING = Path(__file__).with_name("handing.py")
"""Run by its path: it needs nothing of ours."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a part's lock, as far as it says."""

    pid: int
    since: str
    """RFC 3339; empty: it has not written it yet."""


class Process:
    """One process, alive or ended; a context manager that closes the pidfd and leaves the process as it is."""

    def __init__(self, pid: int, child: subprocess.Popen[bytes] | None = None) -> None:
        """Raises ProcessLookupError when there is no such process."""
        self.pid = pid
        self.child = child
        self._fd = os.pidfd_open(pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within that time; a child is reaped."""
        ready, _, _ = select.select([self._fd], [], [], max(0.0, seconds))
        if ready and self.child is not None:
            self.child.wait()
        return bool(ready)

    async def ended(self) -> int | None:
        """Waits for its end; the exit status of a child (negative: by that signal), None for others."""
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(self._fd, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(self._fd)
        return None if self.child is None else self.child.wait()

    def end(self, patience: float) -> None:
        """Asks it to end, and kills it when it still runs after `patience` seconds."""
        self.signal(signal.SIGTERM)
        if not self.wait(patience):
            self.signal(signal.SIGKILL)
            self.wait(patience)


def launch(
    argv: Sequence[str], *, environ: Mapping[str, str], log: Path, sockets: Mapping[str, int] | None = None
) -> subprocess.Popen[bytes]:
    """A process in a session of its own, which writes to `log` and outlives its starter; it inherits the sockets."""
    command, env = [*argv], dict(environ)
    fds = [*(sockets or {}).values()]
    if sockets:
        env["LISTEN_FDNAMES"] = ":".join(sockets)
        command = [sys.executable, "-I", "-S", str(HANDING), ",".join(map(str, fds)), *argv]
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=env,
            start_new_session=True,
            pass_fds=fds,
        )


def holder(lock: Path, proc: Path = PROC) -> Holder | None:
    """Who holds the lock; None: nobody. The lock itself is not touched: a part could just be taking it.

    Raises PermissionError when the process can't be looked at.
    """
    try:
        identity = lock.stat()
        text = lock.read_text()
    except FileNotFoundError:
        return None
    told = _told(text)
    if told is not None and _holds(told.pid, identity, proc):
        return told
    # A part killed while it wrote, or one whose child kept the lock.
    for pid in _pids(proc):
        with contextlib.suppress(PermissionError):
            if _holds(pid, identity, proc):
                return Holder(pid, "")
    return None


def holders(lock: Path, proc: Path = PROC) -> Iterator[int]:
    """All processes that have a shared lock on the file."""
    if lock.exists():
        for pid in _pids(proc):
            with contextlib.suppress(PermissionError):
                if has(pid, lock, proc):
                    yield pid


def has(pid: int, lock: Path, proc: Path = PROC) -> bool:
    """Whether the process has the lock, be it shared; raises PermissionError."""
    try:
        return _holds(pid, lock.stat(), proc)
    except FileNotFoundError:
        return False


def of(signature: Sequence[str], proc: Path = PROC) -> Iterator[int]:
    """The processes with these arguments in a row."""
    wanted = tuple(signature)
    for pid in _pids(proc):
        argv = arguments(pid, proc)
        if any(argv[start : start + len(wanted)] == wanted for start in range(len(argv))):
            yield pid


def arguments(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """The command line; empty when the process has ended or can't be looked at."""
    return tuple(_strings(proc / str(pid) / "cmdline"))


def variable(pid: int, name: str, proc: Path = PROC) -> str | None:
    """A variable of the environment that the process was started with."""
    for entry in _strings(proc / str(pid) / "environ"):
        key, _, value = entry.partition("=")
        if key == name:
            return value
    return None


def _told(text: str) -> Holder | None:
    try:
        data = json.loads(text)
        return Holder(int(data["pid"]), str(data.get("since", "")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _holds(pid: int, identity: os.stat_result, proc: Path) -> bool:
    """Whether the process has the file open and locked (proc(5): `lock:` lines of fdinfo)."""
    folder = proc / str(pid)
    try:
        return any(_is_lock(opened, folder, identity) for opened in (folder / "fd").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return False


def _is_lock(opened: Path, folder: Path, identity: os.stat_result) -> bool:
    try:
        if not os.path.samestat(opened.stat(), identity):
            return False
        return "FLOCK" in (folder / "fdinfo" / opened.name).read_text()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False  # closed by now, or a process of a namespace that is closed to us: none of our parts


def _pids(proc: Path) -> list[int]:
    return sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())


def _strings(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
    except OSError:
        return []
    return [item.decode(errors="replace") for item in data.split(b"\0")[:-1]]
