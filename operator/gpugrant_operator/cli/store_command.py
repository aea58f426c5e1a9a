"""`gpugrant store …`: the standalone store checked, backed up and put back, and a person's word on what vanished."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import click

from gpugrant_crds import schema, timestamps
from gpugrant_crds.layout import Layout
from gpugrant_operator import control
from gpugrant_operator.apiserver.objects.resources import Catalog, catalog
from gpugrant_operator.apiserver.store import backup, restore, verify
from gpugrant_operator.apiserver.store.backup import BadBackup
from gpugrant_operator.apiserver.store.disk import Disk
from gpugrant_operator.apiserver.store.journal import DamagedStore
from gpugrant_operator.cli.console import Failure

TIMEOUT = 30.0
"""Seconds for the answer; a look at large folders comes first."""


def check(root: Path) -> bool:
    """Prints what is wrong with the store and what to do; True: nothing is."""
    layout = Layout(root)
    report = verify.verify(layout.store, layout.manifests, _catalog())
    for found in report.findings:
        click.echo(f"{found.place}: {found.what}")
        click.echo(f"  do: {found.do}")
    if report.contents is not None and not report.findings:
        held = report.contents
        click.echo(f"the store {held.store_id} is sound: {_objects(len(held.records))}, resourceVersion {held.version}")
        if held.cut:
            click.echo(f"a last line of {held.cut} bytes was never acknowledged; the next start cuts it off")
    return not report.findings


def back_up(root: Path, file: Path) -> None:
    """Writes the backup, whole or not at all."""
    layout = Layout(root)
    try:
        contents = backup.look(layout.store).contents
    except DamagedStore as error:
        raise Failure(f"a damaged store can't be backed up: {error}") from error
    if contents is None:
        raise Failure(f"there is no store in {layout.store}: start one with gpugrant up")
    made = timestamps.write(datetime.now(UTC))
    Disk().replace(file, backup.pack(contents, layout.manifests, _catalog(), made))
    click.echo(
        f"{file}: {_objects(len(contents.records))} of the store {contents.store_id}, "
        f"resourceVersion {contents.version}"
    )


def put_back(root: Path, file: Path) -> None:
    """Makes the store what the backup says; what it was is kept beside it."""
    layout, now = Layout(root), datetime.now(UTC)
    try:
        found = backup.unpack(file.read_bytes(), _catalog())
    except BadBackup as error:
        raise Failure(f"{file} can't be restored: {error}") from error
    place = restore.Place(layout.store, layout.manifests, layout.state / f"replaced-{now:%Y%m%dT%H%M%S.%f}")
    try:
        with control.locked(layout.lock("apiserver"), timestamps.write(now), kind="an API server"):
            done = restore.restore(found, place, _catalog(), Disk())
    except control.AlreadyRunning as error:
        raise Failure(f"{error}: stop it first (gpugrant down), nothing is changed") from error
    click.echo(f"{_objects(done.objects)} of {found.made} are restored, resourceVersion {done.version}")
    if done.kept is not None:
        click.echo(f"what was replaced is kept in {done.kept}")
    click.echo("start the API server (gpugrant up): the operator decides again from what is stored")


def _catalog() -> Catalog:
    return catalog(schema.crds())


def _objects(count: int) -> str:
    return "1 object" if count == 1 else f"{count} objects"


def accept_deletes(root: Path) -> None:
    """Prints what may go now, by folder."""
    accepted = asyncio.run(_ask(Layout(root).control("apiserver")))["accepted"]
    if not accepted:
        click.echo("nothing is held back")
    for source in accepted:
        click.echo(f"accepted: {len(source['objects'])} objects of {source['source']} go")
        for name in source["objects"]:
            click.echo(f"  {name}")


async def _ask(socket: Path) -> dict[str, Any]:
    try:
        async with (
            asyncio.timeout(TIMEOUT),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
            session.post("http://control/accept-deletes") as response,
        ):
            response.raise_for_status()
            answer: dict[str, Any] = await response.json()
            return answer
    except (OSError, TimeoutError, ValueError, aiohttp.ClientError) as error:
        raise Failure(f"the API server does not answer at {socket}: start it with gpugrant up") from error
