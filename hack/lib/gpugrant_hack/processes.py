"""Finds the processes of one sealed daemon, by what no other process has, and ends them and no others.

A daemon, its containerd and its shims share a mount namespace in which the daemon's own run folder lies at RUN: a
process that sees that very folder there belongs to it. Containers have mount namespaces of their own and are found as
children of the shims.
"""

import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

RUN = "/run/containerd"
"""containerd's shims make their sockets here, whatever they are told; so each daemon gets its own."""

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of /proc."""

    pid: int
    parent: int
    name: str


@dataclass(frozen=True, slots=True)
class Members:
    """What runs of one daemon."""

    own: tuple[Process, ...]
    """dockerd, containerd, shims"""
    containers: tuple[Process, ...]

    @property
    def daemon(self) -> int | None:
        """The daemon's pid, or None when it does not run."""
        return next((process.pid for process in self.own if process.name == "dockerd"), None)


def members(run: Path) -> Members:
    """The processes of the daemon whose run folder this is."""
    try:
        identity = run.stat()
    except FileNotFoundError:
        return Members((), ())
    table = {pid: process for pid in _pids() if (process := _process(pid))}
    own = tuple(process for pid, process in table.items() if _sees(pid, identity))
    return Members(own, _descendants(table, own))


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def _process(pid: int) -> Process | None:
    """None when the process has ended; the name may hold spaces and brackets (proc(5))."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(") ")
    fields = rest.split()
    return None if fields[0] in "ZX" else Process(pid, int(fields[1]), name)


def _sees(pid: int, identity: os.stat_result) -> bool:
    try:
        seen = Path(f"{PROC}/{pid}/root{RUN}").stat()
    except OSError:
        return False
    return os.path.samestat(seen, identity)


def _descendants(table: Mapping[int, Process], own: Iterable[Process]) -> tuple[Process, ...]:
    mine = {process.pid for process in own}
    found: list[Process] = []
    for process in table.values():
        parent: int | None = process.pid if process.pid not in mine else None
        while parent is not None and parent not in mine:
            parent = table[parent].parent if parent in table else None
        if parent is not None:
            found.append(process)
    return tuple(found)


def end(run: Path, *, patience: float = 20.0, containers_after: float = 2.0) -> bool:
    """Ends a daemon and its containers; False when nothing ran.

    The daemon is asked first and waited for (seconds); containers that ignore it are killed early, since the daemon
    waits ten seconds for each; what is left in the end is killed.
    """
    found = members(run)
    if not found.own:
        return False
    begun = time.monotonic()
    if found.daemon is not None:
        _signal([found.daemon], signal.SIGTERM)
    while (found := members(run)).own:
        waited = time.monotonic() - begun
        if waited > containers_after or found.daemon is None:
            _signal([process.pid for process in found.containers], signal.SIGKILL)
        if waited > patience or found.daemon is None:
            _signal([process.pid for process in found.own], signal.SIGKILL)
        time.sleep(0.05)
    return True


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
