"""`gpugrant gate rules`: what each rule of the gate prevents, and what an operator can open for a repo."""

from __future__ import annotations

import json
from typing import Any

import click

from gpugrant_crds import openings
from gpugrant_gate.policy import catalog
from gpugrant_gate.policy.catalog import Entry
from gpugrant_operator.cli import console

_HOW = """
Open for one repo, in its file in repos.d: `open: [NAME, …]` with names from below, or `profile: PROFILE`.
It counts a moment after the file is written; no device comes of it, alone or together.
"""


def show(output: str) -> None:
    entries = catalog.entries()
    if output == "json":
        click.echo(json.dumps(_data(entries), indent=2))
        return
    console.show(("RULE", "PREVENTS", "CAN BE OPENED"), [(e.id, e.prevents, _how(e)) for e in entries])
    click.echo(_HOW)
    console.show(("NAME", "WHAT IT COSTS"), [(o.name, o.costs) for o in openings.OPENINGS])
    click.echo()
    console.show(("NEVER", "WHY"), list(openings.NEVER.items()))
    click.echo()
    console.show(("PROFILE", "OPENS"), [(name, ", ".join(items)) for name, items in openings.PROFILES.items()])


def _how(entry: Entry) -> str:
    if not entry.opens:
        return f"no: {entry.closed}"
    return "yes" if entry.opens[0].value == "" else "yes, one value at a time"


def _data(entries: tuple[Entry, ...]) -> dict[str, Any]:
    return {
        "rules": [
            {
                "id": entry.id,
                "prevents": entry.prevents,
                "opens": [{"name": opening.name, "costs": opening.costs} for opening in entry.opens],
                "closed": entry.closed,
            }
            for entry in entries
        ],
        "never": dict(openings.NEVER),
        "profiles": {name: list(items) for name, items in openings.PROFILES.items()},
    }
