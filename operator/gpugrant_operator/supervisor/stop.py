"""Ends what runs below a root: the supervisor and its parts, in order, and nothing else."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Sequence

from gpugrant_crds.layout import Layout
from gpugrant_operator.supervisor import parts, processes
from gpugrant_operator.supervisor.processes import Process

PATIENCE = 10.0
"""Seconds that a part is given to end by itself."""

SUPERVISOR_PATIENCE = PATIENCE * (len(parts.NAMES) + 1)
"""Seconds; the supervisor ends its parts one after the other."""

ROUNDS = 3
"""A part's own children may come to light when it has ended; what outlives so many rounds can't be ended."""


class StillRuns(Exception):
    """A process that can't be ended; the message is a sentence."""


def everything(layout: Layout, signatures: Sequence[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """The names of what ran and was ended; the data stays.

    `signatures` are the parts in the order of their starts. Raises StillRuns, and PermissionError for processes of
    another user.
    """
    before = running(layout, signatures)
    _end(layout, parts.SUPERVISOR, (), SUPERVISOR_PATIENCE)
    parts_only(layout, signatures)
    return before


def parts_only(layout: Layout, signatures: Iterable[tuple[str, tuple[str, ...]]]) -> None:
    """As `everything`, without the supervisor."""
    for name, signature in reversed(tuple(signatures)):
        _end(layout, name, signature, PATIENCE)


def running(layout: Layout, signatures: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Which of the supervisor and the parts run."""
    found = [parts.SUPERVISOR] if _pids(layout, parts.SUPERVISOR, ()) else []
    return (*found, *(name for name, signature in signatures if _pids(layout, name, signature)))


def _end(layout: Layout, name: str, signature: tuple[str, ...], patience: float) -> None:
    """Raises StillRuns."""
    left = _pids(layout, name, signature)
    for _ in range(ROUNDS):
        with contextlib.ExitStack() as held:
            running = []
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    running.append(held.enter_context(Process(pid)))
            # Looked at again with the processes held: a number can't come to mean another one any more.
            still = _pids(layout, name, signature)
            ending = [process for process in running if process.pid in still]
            for process in ending:
                process.signal(signal.SIGTERM)
            for process in ending:
                process.end(patience)
        left = _pids(layout, name, signature)
        if not left:
            return
    raise StillRuns(f"{name} (process {left[0]}) does not end, not even when it is killed")


def _pids(layout: Layout, name: str, signature: tuple[str, ...]) -> tuple[int, ...]:
    held = processes.holder(layout.lock(name))
    first = () if held is None else (held.pid,)
    started = processes.of(signature) if signature else ()
    return tuple(dict.fromkeys((*first, *started, *processes.holders(layout.leaving(name)))))
