"""Where a gate is asked: its control socket, and a port for metrics where one is configured. Both are shut for the
moment in which a successor takes them over, and opened again when it does not."""

from __future__ import annotations

import hmac
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from gpugrant_crds.layout import Layout
from gpugrant_crds.snapshot import ErrorAnswer
from gpugrant_gate.net import listener, metrics
from gpugrant_gate.net.control import Control, errors
from gpugrant_gate.net.gate import Gate
from gpugrant_gate.net.handover import Estate
from gpugrant_gate.net.listener import Inherited, Listener
from gpugrant_gate.net.metrics import Observed

_SHUTDOWN = 0.5
"""Seconds for questions that are being answered when the gate ends."""
_PATH = "/metrics"


class Doors:
    """The two of them; both are served by `runner`s of their own."""

    def __init__(self, control: Listener, port: socket.socket | None) -> None:
        self.control = control
        self.port = port
        self._runners: list[tuple[web.AppRunner, socket.socket]] = []
        self._sites: list[web.SockSite] = []
        self._given = False

    async def serve(self, app: web.Application, sock: socket.socket) -> None:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN)
        await runner.setup()
        self._runners.append((runner, sock))

    async def open(self) -> None:
        for runner, sock in self._runners:
            # a copy: shutting a site closes its socket
            site = web.SockSite(runner, sock.dup(), backlog=listener.BACKLOG)
            await site.start()
            self._sites.append(site)

    async def shut(self) -> None:
        """No question is taken any more; those that come wait."""
        for site in self._sites:
            await site.stop()
        self._sites.clear()

    def give_away(self) -> None:
        """They are another gate's: their paths stay."""
        self._given = True

    async def close(self) -> None:
        for runner, _ in self._runners:
            await runner.cleanup()
        if self._given:
            self.control.let_go()
        else:
            self.control.close()
        if self.port is not None:
            self.port.close()


@asynccontextmanager
async def opened(gate: Gate, control: Control, estate: Estate) -> AsyncIterator[Doors]:
    """Both are there while the context is open; a port that can't be had is a problem of the gate's, not its end."""
    doors = Doors(_control_socket(gate.layout, estate), _port(gate, estate))
    try:
        app = control.application()
        app.router.add_get(_PATH, lambda request: _metrics(gate, control))
        await doors.serve(app, doors.control.sock)
        if doors.port is not None:
            await doors.serve(_metrics_application(gate, control), doors.port)
        await doors.open()
        yield doors
    finally:
        await doors.close()


def _control_socket(layout: Layout, estate: Estate) -> Listener:
    path = layout.control("gate")
    inherited = Inherited([] if estate.control is None else [estate.control])
    found = inherited.take(path, uid=-1, gid=-1, mode=0o600)
    inherited.close()
    return found or listener.listen(path, uid=-1, gid=-1, mode=0o600)


def _port(gate: Gate, estate: Estate) -> socket.socket | None:
    wanted = gate.settings.metrics
    if estate.metrics is not None:
        before = socket.socket(fileno=estate.metrics)
        if before.getsockname()[:2] == wanted:
            return before
        before.close()
    if wanted is None:
        return None
    sock = socket.socket(socket.AF_INET6 if ":" in wanted[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(wanted)
    except OSError as error:
        sock.close()
        gate.notes.append(f"metrics can't be served at {wanted[0]} port {wanted[1]}: {error.strerror}")
        return None
    return sock


async def _metrics(gate: Gate, control: Control) -> web.Response:
    counted = await gate.pool.count()
    observed = Observed(
        status=await gate.status(in_use=False),
        counters=counted,
        connections=gate.pool.connections(),
        older_gate=gate.pool.elder is not None and not gate.pool.elder.gone,
        now=gate.clock(),
        started=control.since,
    )
    return web.Response(body=metrics.render(observed), headers={"Content-Type": metrics.CONTENT_TYPE})


def _metrics_application(gate: Gate, control: Control) -> web.Application:
    """Every process of the machine reaches the port, so it answers only who can read the token (design 8)."""
    said = f"Bearer {metrics.token(gate.layout.metrics_token)}".encode()

    async def answer(request: web.Request) -> web.Response:
        if hmac.compare_digest(request.headers.get("Authorization", "").encode(errors="replace"), said):
            return await _metrics(gate, control)
        message = f"the header Authorization: Bearer TOKEN is wanted, with the token of {gate.layout.metrics_token}"
        answer = ErrorAnswer(reason="Unauthorized", message=message)
        return web.json_response(answer.to_json(), status=401, headers={"WWW-Authenticate": "Bearer"})

    app = web.Application(middlewares=[errors])
    app.router.add_get(_PATH, answer)
    return app
