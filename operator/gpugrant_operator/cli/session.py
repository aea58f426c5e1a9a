"""What every `rdc` command starts with: the API that counts, this machine's gate, and the world as it is now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from gpugrant_crds.layout import Layout
from gpugrant_operator.cli import api, console, options
from gpugrant_operator.cli.api import Api
from gpugrant_operator.cli.live import Gate
from gpugrant_operator.cli.refs import World


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
    layout = Layout(options.absolute(environ.get("GPUGRANT_ROOT") or "/"))
    chosen = api.choose(environ.get("KUBECONFIG"), layout.kubeconfig, exists=layout.kubeconfig.exists())
    if chosen.note:
        console.note(chosen.note)
    opened = Api(chosen.kubeconfig)
    click.get_current_context().call_on_close(opened.close)
    return Session(opened, Gate(layout))
