"""Asks a part's control socket how it is."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import BaseModel, ConfigDict, ValidationError

TIMEOUT = 2.0
"""Seconds for one answer; a part that is well answers in milliseconds."""


class Health(BaseModel):
    """`GET /healthz` of a control socket; what else a part says is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ok: bool
    message: str = ""
    since: str = ""
    hardware: str = ""
    """Only the supervisor's: what the parts were told."""
    manifests: tuple[str, ...] = ()
    """Only the supervisor's: the folders that its API server takes objects from."""
    version: str = ""
    """Only the supervisor's."""


async def ask(socket: Path, *, timeout: float = TIMEOUT) -> Health | None:  # noqa: ASYNC109  (the bound of one question)
    """What it says; None: nobody answers, or not in a way that can be understood."""
    try:
        async with asyncio.timeout(timeout):
            return Health.model_validate(await _get(socket))
    except (OSError, TimeoutError, ValueError, ValidationError, aiohttp.ClientError):
        return None


async def tell(socket: Path, path: str, *, timeout: float = TIMEOUT) -> None:  # noqa: ASYNC109  (as above)
    """Posts to the control socket; a part that does not know the path, or does not answer, is left as it is."""
    with contextlib.suppress(OSError, TimeoutError, aiohttp.ClientError):
        async with (
            asyncio.timeout(timeout),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
            session.post(f"http://control{path}") as response,
        ):
            await response.read()


async def _get(socket: Path) -> Any:
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
        session.get("http://control/healthz") as response,
    ):
        return await response.json()
