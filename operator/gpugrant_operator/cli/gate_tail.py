"""`gpugrant gate tail`: the gate's decisions as it makes them."""

from __future__ import annotations

import asyncio
import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from gpugrant_crds.layout import Layout
from gpugrant_operator.cli import console
from gpugrant_operator.cli.console import Failure
from gpugrant_operator.gateclient import GateClient, GateError

BACK_WITHIN = 10.0
"""Seconds for another gate to be there when the one that was followed has ended."""
LOOK_EVERY = 0.2
"""Seconds between two looks for it."""

COLOURS = {"admitted": "green", "refused": "red", "malformed": "yellow", "failed": "yellow"}


def tail(root: Path, *, repo: str | None, refused: bool, as_json: bool) -> None:
    """Prints a line a decision until it is interrupted; raises Failure when no gate runs, or none any more."""
    follower = _Follower(Layout(root), repo or "", refused=refused, as_json=as_json)
    try:
        asyncio.run(follower.follow())
    except KeyboardInterrupt:
        return  # the usual end


class _Follower:
    def __init__(self, layout: Layout, repo: str, *, refused: bool, as_json: bool) -> None:
        self._layout = layout
        self._repo = repo
        self._refused = refused
        self._as_json = as_json
        self._followed = False

    async def follow(self) -> None:
        deadline = time.monotonic()
        while True:
            try:
                await self._one_gate()
            except GateError as error:
                if not error.unreachable:
                    raise Failure(str(error)) from error
                if not self._followed:
                    raise Failure(self._nobody()) from error
                if time.monotonic() > deadline:
                    raise Failure(f"the gate below {self._layout.root} has ended") from error
                await asyncio.sleep(LOOK_EVERY)
            else:
                console.note("this gate has ended or was replaced: waiting for the next one")
                deadline = time.monotonic() + BACK_WITHIN

    async def _one_gate(self) -> None:
        """Returns when this gate ends or hands over; raises GateError."""
        async with GateClient(self._layout.control("gate")) as gate:
            if self._repo and not self._followed:
                served = [its.name for its in (await gate.status()).repos]
                if self._repo not in served:
                    console.note(f"repo {self._repo} is not served now; there is {', '.join(served) or 'none'}")
            async for line in gate.decisions(repo=self._repo, refused=self._refused):
                self._followed = True
                if line:
                    self._print(line)

    def _print(self, line: bytes) -> None:
        if self._as_json:
            click.echo(line)
        else:
            plain = False if os.environ.get("NO_COLOR") else None
            click.echo(text(json.loads(line)), color=plain)

    def _nobody(self) -> str:
        path = self._layout.control("gate")
        if path.exists() and not os.access(path, os.W_OK):
            return f"the gate's control socket {path} is another user's: run this as root"
        return f"no gate runs below {self._layout.root}: start it with gpugrant up"


def text(said: dict[str, Any]) -> str:
    """One decision on one line, with colours; nothing that a client sent can move a terminal's cursor."""
    if said.get("event") == "sweep":
        reason, message = _printable(said.get("reason", "")), _printable(said.get("message", ""))
        when, repo = _local_time(str(said.get("time", ""))), _printable(said.get("repo", ""))
        return "  ".join((when, repo, click.style(reason, fg="yellow"), message))
    if said.get("event") != "request":
        return click.style(f"({said.get('lines', '?')} {_printable(said.get('event', ''))})", fg="yellow")
    verdict = str(said.get("verdict", ""))
    words = [
        _local_time(str(said.get("time", ""))),
        _printable(said.get("repo", "")),
        click.style(f"{_printable(verdict)} {said.get('status', 0)}", fg=COLOURS.get(verdict)),
        f"{_printable(said.get('method', ''))} {_printable(said.get('route', ''))}",
        *(_printable(name) for name in said.get("names", ())),
        *(f"[{_printable(rule)}]" for rule in said.get("rules", ())),
        f"{said.get('ms', 0):.1f} ms",
        f"(uid {said.get('uid', -1)}, pid {said.get('pid', 0)})",
    ]
    return "  ".join(words)


def _local_time(written: str) -> str:
    try:
        return datetime.fromisoformat(written).astimezone().strftime("%H:%M:%S.%f")[:-3]
    except ValueError:
        return "-"


def _printable(value: object) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(value))
