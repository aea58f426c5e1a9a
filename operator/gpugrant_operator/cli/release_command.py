"""`gpugrant machine release DEVICE --force`: nobody waits any more for a device that can't be taken back."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from gpugrant_crds import names
from gpugrant_crds.decide import conflicts, silence
from gpugrant_crds.reasons import Reason
from gpugrant_crds.v1alpha1 import GpuMachine
from gpugrant_operator.cli import api, console, session
from gpugrant_operator.cli.console import Failure
from gpugrant_operator.cli.session import Session
from gpugrant_operator.reconcile.transitions import Occurrence

TRIES = 10
"""Times that the operator may write the ledger in between."""


def release(root: Path, device: str, *, machine: str | None) -> None:
    """Takes the debt out of the machine's ledger by compare-and-swap, says so in an Event, and what it may cost."""
    try:
        names.parse_device(device)
    except names.InvalidName as error:
        raise Failure(str(error)) from error
    its = session.begin({**os.environ, "GPUGRANT_ROOT": str(root)})
    name = choose(its.api.machines(), machine)
    found, repos = _given_up(its, name, device)
    said = warning(device, name, repos)
    meta = found.metadata
    message = f"{said} (gpugrant machine release {device} --force)"
    occurrence = Occurrence("GpuMachine", "", name, meta.uid, "Warning", Reason.RELEASE_UNVERIFIED, message)
    try:
        its.api.record(occurrence, datetime.now(UTC))
    except api.ApiProblem as problem:
        console.note(f"note: no Event could be written: {problem.message}")
    click.echo(f"{device} on {name} is free for others")
    console.note(f"warning: {said}")


def _given_up(its: Session, name: str, device: str) -> tuple[GpuMachine, tuple[str, ...]]:
    for _ in range(TRIES):
        found = its.api.machine(name)
        answer = its.gate.of((found,)).get(name)
        status, repos = silence.give_up(found.status, device, None if answer is None else answer.status)
        if not repos:
            raise Failure(_nothing(found, device))
        try:
            its.api.put_machine_status(found, status)
        except api.Changed:
            continue
        return found, repos
    raise Failure(f"machine {name} is written all the time: try again")


def choose(machines: tuple[GpuMachine, ...], wanted: str | None) -> str:
    """The machine's name; raises Failure. Pure."""
    known = sorted(machine.metadata.name for machine in machines)
    if wanted is None and len(known) == 1:
        return known[0]
    if wanted is None:
        raise Failure(f"say which with --machine: there are {', '.join(known)}" if known else "there is no machine")
    if wanted not in known:
        raise Failure(f"there is no machine {wanted}{names.did_you_mean(wanted, known)}")
    return wanted


def warning(device: str, machine: str, repos: tuple[str, ...]) -> str:
    """What it may cost, as a sentence."""
    whose = f"repo {repos[0]}" if len(repos) == 1 else f"the repos {', '.join(repos)}"
    return f"containers of {whose} may still use {device} on {machine}: end them, or start the machine anew"


def _nothing(machine: GpuMachine, device: str) -> str:
    name, known = machine.metadata.name, machine.device_names or ()
    if device not in known and all(its.device != device for its in machine.status.allocations):
        return conflicts.no_such_device(device, name, known)
    return f"nobody waits for {device} on {name}: it is not being taken from any repo"
