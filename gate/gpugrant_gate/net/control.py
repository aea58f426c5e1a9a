"""The control socket: the operator's snapshot comes in here, and what this gate enforces is read here (design 6).

Only root reaches it (0600). Every answer is JSON except the inventory, which is the file's own bytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from pydantic import ValidationError

from gpugrant_crds import timestamps
from gpugrant_crds.snapshot import ErrorAnswer, Snapshot, sound
from gpugrant_gate.net import listener
from gpugrant_gate.net.audit import log
from gpugrant_gate.net.gate import Gate, NotStored, Refused

_BODY_MAX = 16 * 1024 * 1024
"""Bytes of a snapshot: 2,000 grants are about 500 KiB."""

_NOT_STORED = "NotStored"
_MALFORMED = "Malformed"
_NOT_FOUND = "NotFound"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(gate: Gate, since: Any) -> AsyncIterator[None]:
    """The control socket is there while the context is open; `since` is when this gate started."""
    opened = listener.listen(gate.layout.control("gate"), uid=-1, gid=-1, mode=0o600)
    runner = web.AppRunner(application(gate, timestamps.write(since)), access_log=None)
    await runner.setup()
    site = web.SockSite(runner, opened.sock, shutdown_timeout=0.5)
    try:
        await site.start()
        yield
    finally:
        await runner.cleanup()
        opened.close()


def application(gate: Gate, since: str) -> web.Application:
    app = web.Application(client_max_size=_BODY_MAX, middlewares=[_errors])
    app.router.add_get("/healthz", lambda request: _healthz(gate, since))
    app.router.add_put("/v1/snapshot", lambda request: _put(gate, request))
    app.router.add_get("/v1/status", lambda request: _status(gate, request))
    app.router.add_get("/v1/devices", lambda request: _devices(gate))
    app.router.add_get("/v1/inventory", lambda request: _inventory(gate))
    return app


async def _healthz(gate: Gate, since: str) -> web.Response:
    health = gate.health()
    return web.json_response({"ok": health.ok, "message": health.message, "since": since})


async def _put(gate: Gate, request: web.Request) -> web.Response:
    try:
        snapshot = Snapshot.model_validate_json(await request.read())
    except ValidationError as error:
        return _error(422, _MALFORMED, f"the snapshot is malformed: {_first(error)}")
    if not sound(snapshot):
        return _error(422, _MALFORMED, "the snapshot's digest is not that of its contents")
    try:
        answer = await gate.put(snapshot)
    except Refused as error:
        log.warning("snapshot refused", epoch=snapshot.epoch, reason=error.reason, message=str(error))
        return _error(409, error.reason, str(error))
    except (NotStored, OSError) as error:
        log.error("snapshot not stored", epoch=snapshot.epoch, message=str(error))
        return _error(500, _NOT_STORED, str(error))
    log.info("snapshot enforced", epoch=answer.epoch, grants=len(snapshot.grants), pending=len(answer.pending))
    return web.json_response(answer.to_json())


async def _status(gate: Gate, request: web.Request) -> web.Response:
    in_use = request.query.get("inUse", "") in ("1", "true")
    return web.json_response((await gate.status(in_use=in_use)).to_json())


async def _devices(gate: Gate) -> web.Response:
    return web.json_response(gate.devices().to_json())


async def _inventory(gate: Gate) -> web.Response:
    data = gate.inventory()
    if data is None:
        path = gate.layout.inventory
        return _error(404, _NOT_FOUND, f"there is no inventory at {path}: run renet setup on this machine")
    return web.Response(body=data, content_type="application/json")


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The framework's own errors (unknown path, wrong method, body too large) in the form of all others."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        reason = "".join(word.capitalize() for word in error.reason.split())
        return _error(error.status, reason, f"{request.method} {request.path}: {error.reason.lower()}")


def _error(status: int, reason: str, message: str) -> web.Response:
    return web.json_response(ErrorAnswer(reason=str(reason), message=message).to_json(), status=status)


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])
