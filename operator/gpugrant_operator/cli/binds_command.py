"""`gpugrant gate binds restore`: pins a repo's bind sources before its daemon starts."""

from __future__ import annotations

from pathlib import Path

import click

from gpugrant_crds.layout import Layout
from gpugrant_gate.life import pins
from gpugrant_operator import repos
from gpugrant_operator.cli import console
from gpugrant_operator.cli.console import Failure


def restore(root: Path, name: str) -> None:
    """Pins what the repo's containers had bound; raises Failure where one source can't be pinned."""
    layout = Layout(root)
    try:
        named = repos.read(layout).named(name)
    except OSError as error:
        raise console.os_error(error, f"can't read {layout.repos}") from error
    if named is None or named[1].id is None:
        raise Failure(f"there is no repo {name} with an id in {layout.repos}: gpugrant repo list shows those that are")
    _, file = named
    socket = file.listens(layout) if "host.docker-socket" in file.opened else None
    allowed = pins.Allowed(layout.pins / str(file.id), file.binds or (), socket)
    made, faults = pins.restore(allowed, layout.pin_notes(str(file.id)))
    click.echo(f"{made} bind source{'' if made == 1 else 's'} of repo {name} pinned")
    if faults:
        raise Failure("; ".join(faults))
