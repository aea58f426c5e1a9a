"""`rdc machine setup`: asks for a detection and follows it (R10)."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from gpugrant_crds import conditions, names, timestamps
from gpugrant_crds.layout import Layout
from gpugrant_crds.reasons import Reason
from gpugrant_crds.v1alpha1 import DETECT_ANNOTATION, GpuMachine
from gpugrant_gate import settings
from gpugrant_gate.life.documents import Broken
from gpugrant_operator.cli import console, progress, session, waiting
from gpugrant_operator.cli.api import Exists, Gone
from gpugrant_operator.cli.console import Failure, NotReady
from gpugrant_operator.cli.session import Session
from gpugrant_operator.gateclient import GateError


@dataclass(frozen=True, slots=True)
class Course:
    """How far a detection has come."""

    ready: str | None = None
    """It is done and well: the sentence."""
    failed: str | None = None
    """It is done and not well: the sentence."""
    message: str = "asked for a detection"


NOWHERE = (Reason.NODE_UNREACHABLE, Reason.NODE_CLAIMED)
"""Nobody looks for GPUs there, however long one waits."""


def leaving(machine: GpuMachine) -> str | None:
    """Why nothing is detected there any more; None: it is not being deleted. Pure."""
    if machine.metadata.deletion_timestamp is None:
        return None
    ready = conditions.find(machine.status.conditions, conditions.READY)
    said = "" if ready is None else ready.message or ready.reason
    sentence = f"machine {machine.metadata.name} is being deleted, so it can't be set up"
    return f"{sentence}; its Ready condition says: {said}" if said else sentence


def course(machine: GpuMachine, request: str) -> Course:
    """What the status says of the detection of that request. Pure."""
    gone = leaving(machine)
    if gone is not None:
        return Course(failed=gone)
    status = machine.status
    ready = conditions.find(status.conditions, conditions.READY)
    detected = conditions.find(status.conditions, conditions.DETECTED)
    stalled = conditions.find(status.conditions, conditions.STALLED)
    said = "" if ready is None else ready.message or ready.reason
    current = ready is not None and ready.observed_generation == machine.metadata.generation
    if ready is not None and ready.reason in NOWHERE and current:
        return Course(failed=said if stalled is None else stalled.message or said)
    if status.detection is None or status.detection.request != request:
        detecting = detected is not None and detected.status != "True"
        return Course(message=detected.message or detected.reason) if detected and detecting else Course()
    if status.detection.succeeded is False:
        problem = next((problem.message for problem in status.problems or ()), "")
        why = detected.message if detected is not None and detected.status == "False" else problem
        return Course(failed=why or said or "the detection failed")
    if ready is not None and ready.status == "True":
        return Course(ready=said)
    if stalled is not None and stalled.status == "True":
        return Course(failed=stalled.message or stalled.reason)
    return Course(message=said or "detected; not ready yet")


def setup(name: str, timeout: timedelta) -> None:
    """Returns when the machine is Ready after a detection of now."""
    try:
        names.check_machine(name)
    except names.InvalidName as error:
        raise Failure(str(error)) from error
    ours = session.begin(os.environ)
    _ensure(name, ours)
    request = f"{timestamps.write(datetime.now(UTC))}-{secrets.token_hex(4)}"
    ours.api.annotate_machine(name, DETECT_ANNOTATION, request)
    _follow(name, request, ours, timeout)


def _ensure(name: str, ours: Session) -> None:
    """The GpuMachine is there to stay; it is made when it is this machine."""
    try:
        gone = leaving(ours.api.machine(name))
    except Gone as error:
        world = ours.world()
        own = this_machine(ours)
        if name != own:
            known = [machine.metadata.name for machine in world.machines] + ([own] if own else [])
            hint = names.did_you_mean(name, known)
            listed = f"; there are {', '.join(sorted(set(known)))}" if known else ""
            raise Failure(f"there is no machine {name}{hint or listed}") from error
        try:
            ours.api.create_machine(name)
        except Exists:
            return
        console.note(f"made the GpuMachine {name}")
        return
    if gone is not None:
        raise Failure(gone)


def this_machine(ours: Session) -> str | None:
    """The name of the machine that this command runs on: as its gate says, else as it would say."""
    answer = ours.gate.answer()
    if not isinstance(answer, GateError) and answer.status.machine:
        return answer.status.machine
    layout: Layout = ours.gate.layout
    try:
        return settings.load(layout.gate_settings, settings.host_name(Path("/"), socket.gethostname()), cores=1).machine
    except Broken:
        return None


def _follow(name: str, request: str, ours: Session, timeout: timedelta) -> None:
    said = [""]
    with progress.following(sys.stderr) as say:

        def look() -> Course | None:
            now = course(ours.api.machine(name), request)
            if now.ready is not None or now.failed is not None:
                return now
            if now.message != said[0]:
                said[0] = now.message
                say(f"{name}: {now.message}")
            return None

        outcome = waiting.until(look, timeout.total_seconds())
    if outcome is None:
        raise NotReady(f"machine {name} is not ready after {timeout.total_seconds():g} s: {said[0]}")
    if outcome.failed is not None:
        raise Failure(outcome.failed)
    click.echo(f"machine {name} is ready: {outcome.ready}" if outcome.ready else f"machine {name} is ready")
