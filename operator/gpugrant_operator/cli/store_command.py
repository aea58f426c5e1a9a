"""`gpugrant store accept-deletes`: a person's word to the running API server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import click

from gpugrant_crds.layout import Layout
from gpugrant_operator.cli.console import Failure

TIMEOUT = 30.0
"""Seconds for the answer; a look at large folders comes first."""


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
