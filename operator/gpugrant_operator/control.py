"""A part's lock and control socket: one of a kind a root, and an answer to "how are you" for the supervisor."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from gpugrant_crds.layout import checked_socket

Action = Callable[[], Awaitable[Any]]
"""What a POST does; its answer as JSON."""

NO_ACTIONS: Mapping[str, Action] = {}


class AlreadyRunning(Exception):
    """Another process of this kind holds the lock; the text says which."""


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of `GET /healthz`. `since` is RFC 3339: the start of this process."""

    ok: bool
    message: str
    since: str


@contextmanager
def locked(path: Path, since: str, *, kind: str) -> Iterator[None]:
    """Holds the lock file of `kind` ("an operator"); raises AlreadyRunning or OSError.

    The file stays: removing it would race.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(f"{kind} already runs here ({_holder(path)})") from error
        said = json.dumps({"pid": os.getpid(), "since": since}).encode() + b"\n"
        # written over, then cut: whoever reads meanwhile never finds nothing, or the end of an older text
        os.pwrite(descriptor, said.ljust(os.fstat(descriptor).st_size), 0)
        os.ftruncate(descriptor, len(said))
        yield
    finally:
        os.close(descriptor)


def _holder(path: Path) -> str:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return f"pid {value['pid']} since {value['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "its pid is not known"


@asynccontextmanager
async def served(
    path: Path, health: Callable[[], Health], actions: Mapping[str, Action] = NO_ACTIONS
) -> AsyncIterator[None]:
    """Serves `GET /healthz` and `POST` of the actions on the socket (0600). With the lock held: a left-over socket is
    replaced."""
    checked_socket(path)

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response(asdict(health()))

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    for name, action in actions.items():
        app.router.add_post(name, _posted(action))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.SockSite(runner, _bound(path)).start()
        yield
    finally:
        await runner.cleanup()
        path.unlink(missing_ok=True)


def _posted(action: Action) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(await action())

    return answer


def _bound(path: Path) -> socket.socket:
    """A socket that never exists with wider rights than 0600."""
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        made.bind(str(path))
    finally:
        os.umask(mask)
    return made
