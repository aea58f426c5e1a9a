"""The control socket: the operator's snapshot comes in here, and what this gate enforces is read here (design 6).

Only root reaches it (0600). Every answer is JSON except the inventory, which is the file's own bytes, metrics, and
decisions, which are a line each.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime

from aiohttp import web
from pydantic import ValidationError

from gpugrant_crds import timestamps
from gpugrant_crds.snapshot import ErrorAnswer, Snapshot, sound
from gpugrant_gate.net import feed, handover
from gpugrant_gate.net.audit import log
from gpugrant_gate.net.channel import Channel
from gpugrant_gate.net.feed import Feed
from gpugrant_gate.net.gate import Gate, NotStored, Refused

_BODY_MAX = 16 * 1024 * 1024
"""Bytes of a snapshot: 2,000 grants are about 500 KiB."""
_LOOK_AROUND = 5.0
"""Seconds after which a reader of decisions that gets none is looked at: it may have gone."""

_NOT_STORED = "NotStored"
_MALFORMED = "Malformed"
_NOT_FOUND = "NotFound"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Control:
    """What the control socket answers."""

    def __init__(self, gate: Gate, watched: Feed, since: datetime) -> None:
        self.successors: asyncio.Queue[Channel] = asyncio.Queue()
        """Gates that want to take over from this one."""
        self.since = since
        self._gate = gate
        self._feed = watched

    def application(self) -> web.Application:
        app = web.Application(client_max_size=_BODY_MAX, middlewares=[errors])
        app.router.add_get("/healthz", self._healthz)
        app.router.add_put("/v1/snapshot", self._put)
        app.router.add_get("/v1/status", self._status)
        app.router.add_get("/v1/devices", self._devices)
        app.router.add_get("/v1/inventory", self._inventory)
        app.router.add_get("/v1/decisions", self._decisions)
        app.router.add_post("/v1/sockets/keep", self._keep)
        app.router.add_post(handover.PATH, self._hand_over)
        return app

    async def _healthz(self, request: web.Request) -> web.Response:
        health = self._gate.health()
        since = timestamps.write(self.since)
        return web.json_response({"ok": health.ok, "message": health.message, "since": since})

    async def _put(self, request: web.Request) -> web.Response:
        try:
            snapshot = Snapshot.model_validate_json(await request.read())
        except ValidationError as error:
            return _error(422, _MALFORMED, f"the snapshot is malformed: {_first(error)}")
        if not sound(snapshot):
            return _error(422, _MALFORMED, "the snapshot's digest is not that of its contents")
        try:
            answer = await self._gate.put(snapshot)
        except Refused as error:
            log.warning("snapshot refused", epoch=snapshot.epoch, reason=error.reason, message=str(error))
            return _error(409, error.reason, str(error))
        except (NotStored, OSError) as error:
            log.error("snapshot not stored", epoch=snapshot.epoch, message=str(error))
            return _error(500, _NOT_STORED, str(error))
        log.info("snapshot enforced", epoch=answer.epoch, grants=len(snapshot.grants), pending=len(answer.pending))
        return web.json_response(answer.to_json())

    async def _status(self, request: web.Request) -> web.Response:
        in_use = request.query.get("inUse", "") in ("1", "true")
        return web.json_response((await self._gate.status(in_use=in_use)).to_json())

    async def _devices(self, request: web.Request) -> web.Response:
        return web.json_response(self._gate.devices().to_json())

    async def _inventory(self, request: web.Request) -> web.Response:
        data = self._gate.inventory()
        if data is None:
            path, name = self._gate.layout.inventory, self._gate.settings.machine
            return _error(
                404, _NOT_FOUND, f"there is no inventory at {path}; to write it, run: rdc machine setup {name}"
            )
        return web.Response(body=data, content_type="application/json")

    async def _decisions(self, request: web.Request) -> web.StreamResponse:
        """A JSON line a decision, from now on, of all repos or of `repo`, all or the `refused` ones."""
        only = feed.wanted(request.query.get("repo", ""), refused=request.query.get("refused", "") in ("1", "true"))
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        with self._feed.read(only) as reader, suppress(ConnectionError):
            await response.prepare(request)
            while (lines := await reader.lines(_LOOK_AROUND)) is not None:
                if request.transport is None or request.transport.is_closing():
                    break
                await response.write(lines)
        return response

    async def _keep(self, request: web.Request) -> web.Response:
        """Whoever keeps the sockets has just started and has none."""
        self._gate.store.keep_all_again()
        return web.json_response({})

    async def _hand_over(self, request: web.Request) -> web.StreamResponse:
        """Another gate wants to take over: from here on the connection is a channel of the two."""
        transport = request.transport
        ours = None if transport is None else transport.get_extra_info("socket")
        if transport is None or ours is None or ours.family != socket.AF_UNIX or not _asks_to_take_over(request):
            return _error(400, _MALFORMED, "this is for another gate of this root, over the control socket")
        transport.pause_reading()
        response = web.StreamResponse(status=101, headers={"Connection": "Upgrade", "Upgrade": handover.PROTOCOL})
        await response.prepare(request)
        taken = socket.socket(fileno=os.dup(ours.fileno()))
        self.successors.put_nowait(Channel(taken))
        return response


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The framework's own errors (unknown path, wrong method, body too large) in the form of all others."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        reason = "".join(word.capitalize() for word in error.reason.split())
        return _error(error.status, reason, f"{request.method} {request.path}: {error.reason.lower()}")


def _asks_to_take_over(request: web.Request) -> bool:
    return request.headers.get("Upgrade") == handover.PROTOCOL


def _error(status: int, reason: str, message: str) -> web.Response:
    return web.json_response(ErrorAnswer(reason=str(reason), message=message).to_json(), status=status)


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])
