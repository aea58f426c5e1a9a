"""What every `rdc` command starts with: the API that counts, this machine's gate, and the world as it is now."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click

from gpugrant_crds.layout import Layout
from gpugrant_operator.cli import api, console
from gpugrant_operator.cli.api import Api
from gpugrant_operator.cli.live import Gate
from gpugrant_operator.cli.refs import World

FIRST_LOOK = 0.05
"""Seconds between two looks at what is on its way, at first."""

LAST_LOOK = 0.5
"""Seconds, in the end: a thousand waiting commands don't wear out an API."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Session:
    """One command's view."""

    api: Api
    gate: Gate

    def world(self) -> World:
        """Gathered now. Raises ApiProblem."""
        machines = self.api.machines()
        return World(machines, self.api.grants(), datetime.now(UTC), self.gate.of(machines))


def begin(environ: Mapping[str, str]) -> Session:
    """The session of this environment, for the command that runs; raises Failure where no API is known."""
    layout = Layout(Path(environ.get("GPUGRANT_ROOT") or "/").absolute())
    chosen = api.choose(environ.get("KUBECONFIG"), layout.kubeconfig, exists=layout.kubeconfig.exists())
    if chosen.note:
        console.note(chosen.note)
    opened = Api(chosen.kubeconfig)
    click.get_current_context().call_on_close(opened.close)
    return Session(opened, Gate(layout))


def until(look: Callable[[], T | None], seconds: float) -> T | None:
    """The first value that `look` gives within that time, asked ever more seldom; None: it gave none."""
    deadline = time.monotonic() + seconds
    pause = FIRST_LOOK
    while (found := look()) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, LAST_LOOK)
    return found
