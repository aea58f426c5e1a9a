"""`rdc repo gpu list` and `rdc machine gpu list`."""

from __future__ import annotations

import json
import os
from typing import Any

import click
import yaml

from gpugrant_crds import inventory
from gpugrant_crds.v1alpha1 import GpuMachine
from gpugrant_operator.cli import console, explaining, listing, session
from gpugrant_operator.cli.console import Failure
from gpugrant_operator.cli.grant_commands import parsed
from gpugrant_operator.cli.live import Answer
from gpugrant_operator.cli.refs import Refused, World, no_such_machine, unknown
from gpugrant_operator.cli.session import Session
from gpugrant_operator.gateclient import GateError


def repo_grants(ref_text: str | None, output: str) -> None:
    """Prints the stored grants with what the gate says of them; exits 1 when a gate can't be asked, and when nothing
    is stored for a repo that no machine has."""
    ref = None if ref_text is None else parsed(ref_text)
    world = session.begin(os.environ).world()
    shown = listing.grants(
        world, repo=None if ref is None else ref.repo, machine_name=None if ref is None else ref.machine
    )
    # What is stored is listed, also of a repo or a machine that is gone.
    amiss = unknown(ref, world) if ref is not None and not shown else None
    if amiss is not None:
        raise Failure(amiss)
    if output == "table":
        if shown:
            console.show(listing.GRANT_COLUMNS, [listing.grant_row(grant, world) for grant in shown])
            for sentence in filter(None, map(listing.moved, shown)):
                console.note(sentence)
        else:
            console.note("no grants" if ref is None else f"repo {ref} has no grants")
    else:
        _print([listing.document(grant, world) for grant in shown], output)
    silent = listing.silent(shown, world)
    if silent:
        raise Failure("; ".join(silent))


def explain(ref_text: str, device: str, output: str) -> None:
    """Prints whether the repo may use the device right now, link by link; exits 1 unless it may."""
    found = explaining.explain(parsed(ref_text), device, session.begin(os.environ).world())
    if isinstance(found, Refused):
        raise Failure(found.message)
    if output == "table":
        words = {True: "yes", False: "no", None: "unknown"}
        console.show(explaining.COLUMNS, [(link.name, words[link.holds], link.because) for link in found.links])
    else:
        links = [{"name": link.name, "holds": link.holds, "because": link.because} for link in found.links]
        where = {"repo": found.repo, "machine": found.machine, "device": found.device}
        _print({**where, "may": found.may, "message": found.sentence, "links": links}, output)
    if not found.may:
        raise Failure(found.sentence)
    if output == "table":
        click.echo(found.sentence)


def machine_gpus(name: str, output: str) -> None:
    """Prints one machine's GPUs and devices; exits 1 when it was never set up or its gate can't be asked."""
    ours = session.begin(os.environ)
    world = ours.world()
    machine = world.machine(name)
    if machine is None:
        raise Failure(no_such_machine(name, world))
    if machine.device_names is None:
        raise Failure(f"machine {name} was never set up; run: rdc machine setup {name}")
    live = world.live.get(name)
    raw = _inventory(ours, live)
    if output != "table":
        _print_inventory(raw, machine, output, world)
        return
    found = None if isinstance(raw, GateError) else _read(raw, name)
    amiss = next((error.message for error in (raw, found) if isinstance(error, GateError)), "")
    found = None if isinstance(found, GateError) else found
    devices = world.devices(machine) or ()
    shown = listing.machine(machine, found, None if live is None else live.status, devices, world.now)
    _print_machine(shown)
    if live is None:
        raise Failure(listing.last_known(machine, world.now))
    if amiss:
        raise Failure(f"{amiss}; the GPUs are shown as they were last recorded")


def _inventory(ours: Session, live: Answer | None) -> bytes | GateError:
    """The inventory of the machine that this gate serves; another machine's can't be read from here."""
    if live is None:
        return GateError("GateUnreachable", "the machine's gate can't be asked")
    return ours.gate.inventory()


def _read(raw: bytes, name: str) -> inventory.Inventory | GateError:
    """The inventory, or why the file is none."""
    try:
        return inventory.parse(raw)
    except inventory.InventoryUnreadable as error:
        message = (
            f"the inventory of machine {name} can't be read ({error}); to write it anew, run: rdc machine setup {name}"
        )
        return GateError("NotRead", message)


def _print_inventory(raw: bytes | GateError, machine: GpuMachine, output: str, world: World) -> None:
    if isinstance(raw, GateError):
        age = listing.age_of(machine.status.inventory_time, world.now)
        raise Failure(f"{raw.message}; the last inventory that is known is {age} old")
    found = _read(raw, machine.metadata.name)
    if output == "json":
        click.echo(raw, nl=False)  # byte for byte (R20), whatever they are
    elif not isinstance(found, GateError):
        _print(json.loads(raw), output)
    if isinstance(found, GateError):
        raise Failure(found.message)


def _print_machine(shown: listing.Machine) -> None:
    for line in shown.head:
        click.echo(line)
    click.echo()
    if shown.gpus:
        console.show(listing.GPU_COLUMNS, shown.gpus)
    else:
        click.echo("this machine has no GPU")
    if shown.devices:
        click.echo()
        console.show(listing.DEVICE_COLUMNS, shown.devices)
    for problem in shown.problems:
        click.echo(problem)


def _print(value: Any, output: str) -> None:
    if output == "json":
        click.echo(json.dumps(value, indent=2))
    else:
        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)


__all__ = ["explain", "machine_gpus", "repo_grants"]
