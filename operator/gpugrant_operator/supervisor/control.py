"""The supervisor's control socket: how the whole instance is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

Answer = dict[str, Any]


@contextlib.asynccontextmanager
async def served(socket: Path, healthz: Callable[[], Awaitable[Answer]]) -> AsyncIterator[None]:
    """Serves `GET /healthz` on the socket, readable by the owner alone. Only the lock's holder may call this."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(await healthz())

    app = web.Application()
    app.router.add_get("/healthz", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        socket.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            await web.UnixSite(runner, str(socket)).start()
        finally:
            os.umask(before)
        yield
    finally:
        await runner.cleanup()
        socket.unlink(missing_ok=True)
