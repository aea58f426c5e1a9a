"""A small Docker daemon that speaks raw bytes, a policy with one route of each kind, and a gate's core between them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from gpugrant_crds.layout import Layout
from gpugrant_crds.snapshot import RepoStatus
from gpugrant_gate.life.grants import Enforced, Grant
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net import listener
from gpugrant_gate.net.core import Core, World
from gpugrant_gate.net.session import Policy
from gpugrant_gate.policy.model import (
    Admission,
    Body,
    ContainerFact,
    Decision,
    Exchange,
    Facts,
    Head,
    Needs,
    Outgoing,
    Refusal,
    RepoView,
    Routed,
    Violation,
)
from gpugrant_gate.settings import Limits

DEVICE = "vendor.com/gpu=0"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class OneOfEach:
    """A policy with one route of each kind; `/hw` needs the device, `/restart` is two requests, `/facts` asks; what
    ends in `/refused` is refused by its judge."""

    KINDS: ClassVar = {
        "judged": (Body.JUDGED, Exchange.PLAIN),
        "stream": (Body.STREAM, Exchange.PLAIN),
        "hijack": (Body.JUDGED, Exchange.HIJACK),
    }

    def route(self, head: Head, repo: RepoView) -> Routed | Refusal:
        kind = head.target.split("/")[1]
        if kind == "refused":
            return Refusal(403, (Violation("test.refused", "not here"),), "refused")
        body, exchange = self.KINDS.get(kind, (Body.NONE, Exchange.PLAIN))
        segments = tuple(head.target.strip("/").split("/"))
        return Routed(kind, head.method, "", segments, (), head.headers, body, exchange)

    def needs(self, routed: Routed, body: bytes | None, repo: RepoView, facts: Facts) -> Needs | Refusal:
        return Needs((ContainerFact(routed.segments[1]),)) if routed.route == "facts" else Needs()

    def seen(self, inspected: Mapping[str, Any], repo: RepoView) -> tuple[str, ...]:
        return ()

    def judge(self, routed: Routed, body: bytes | None, facts: Facts, repo: RepoView) -> Decision:
        if routed.route == "hw" and DEVICE not in repo.granted:
            message = repo.unfit or repo.withheld or f"no grant for {DEVICE}"
            return Refusal(403, (Violation("hw.grant", message),), "hw", (DEVICE,))
        if routed.segments[-1] == "refused":
            return Refusal(403, (Violation("test.refused", "not here"),), routed.route)
        if routed.route == "facts" and not any(facts.values()):
            return Refusal(404, (Violation("test.none", "no such container"),), "facts")
        target = "/" + "/".join(routed.segments)
        given = b"" if routed.body is Body.NONE else body
        outgoing = Outgoing(routed.method, target, (), given, routed.exchange)
        if routed.route == "restart":
            following = replace(routed, route="hw", segments=("hw", "start"))
            return Admission("restart", replace(outgoing, target="/stop"), then=following)
        return Admission(routed.route, outgoing, (DEVICE,) if routed.route == "hw" else ())


Handler = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

INFO = {"CDISpecDirs": ["/etc/cdi"], "DefaultRuntime": "runc", "SecurityOptions": ["name=seccomp,profile=builtin"]}
VERSION = {"Version": "28.5.2", "ApiVersion": "1.51"}


def reply(body: bytes = b"", status: str = "200 OK", headers: bytes = b"") -> bytes:
    """A whole answer of a length."""
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status.encode(), headers, len(body), body)


@dataclass(slots=True)
class FakeDaemon:
    """Answers `/version` and `/info` as a fit daemon and everything else by `handlers`, by the target's first part."""

    path: Path
    info: dict[str, Any] = field(default_factory=lambda: dict(INFO))
    version: dict[str, Any] = field(default_factory=lambda: dict(VERSION))
    handlers: dict[str, Handler] = field(default_factory=dict)
    heads: list[bytes] = field(default_factory=list)
    """Of every request but the gate's own questions about fitness."""
    open: int = 0
    """Connections that are open now."""
    made: int = 0
    """Connections that there were, those for the gate's own questions included."""
    keeps: bool = False
    """A connection takes another request behind one that did not say `Connection: close`."""
    server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        self.server = await asyncio.start_unix_server(self._serve, self.path)

    async def stop(self) -> None:
        if self.server is not None:
            self.server.close()
            self.path.unlink(missing_ok=True)

    def answers(self, first: str, data: bytes) -> None:
        """From now on requests for `/first…` get exactly these bytes, then the connection is closed."""

        async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(data)

        self.handlers[first] = handler

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.made += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                head = b""
                while not head or (self.keeps and b"Connection: close" not in head):
                    head = await reader.readuntil(b"\r\n\r\n")
                    await self._answer(head, reader, writer)
        finally:
            self.open -= 1
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = head.split(b" ")[1].decode()
        if target.endswith("/version"):
            writer.write(reply(json.dumps(self.version).encode()))
        elif target.endswith("/info"):
            writer.write(reply(json.dumps(self.info).encode()))
        else:
            self.heads.append(head)
            first = target.split("/")[1]
            await self.handlers.get(first, _not_found)(head, reader, writer)
        await writer.drain()


async def _not_found(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(b'{"message":"page not found"}\n', "404 Not Found"))


@dataclass(slots=True)
class Bench:
    """A core with one repo `a` (id `id-a`) before a fake daemon."""

    core: Core
    daemon: FakeDaemon
    listen: Path
    repo: Repo
    statuses: list[RepoStatus]

    def grant(self, *devices: str, epoch: int = 1) -> None:
        self.core.apply(Enforced("m", epoch, tuple(Grant("a", "id-a", device) for device in devices)))

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self.listen), limit=1 << 20)

    async def ask(self, data: bytes, *, eof: bool = False) -> bytes:
        """All bytes that come back until the gate closes; with `eof` the writing side is closed first."""
        reader, writer = await self.connect()
        writer.write(data)
        if eof:
            writer.write_eof()
        async with asyncio.timeout(10):
            said = await reader.read()
        writer.close()
        return said

    async def until(self, true: Callable[[], bool]) -> None:
        """Lets the loop run until it is so."""
        async with asyncio.timeout(10):
            while not true():  # noqa: ASYNC110  # what is waited for is another's doing
                await asyncio.sleep(0)


@asynccontextmanager
async def bench_of(folder: Path, limits: Limits, policy: Policy, **world: Any) -> AsyncIterator[Bench]:
    """A core that serves repo `a` in `folder`, before a daemon that is fit; nothing is granted. `world`: more of it."""
    daemon = FakeDaemon(folder / "d.sock")
    await daemon.start()
    repo = Repo("a", "id-a", daemon.path, folder / "a.sock")
    statuses: list[RepoStatus] = []
    around = World(
        layout=Layout(Path("/")),
        limits=limits,
        policy=policy,
        now=lambda: NOW,
        monotonic=time.monotonic,
        jitter=lambda: 0.0,
        changed=statuses.append,
        **world,
    )
    core = Core(around, "m")
    opened = listener.listen(repo.listen, uid=-1, gid=-1, mode=0o600)
    await core.serve(repo, opened.sock)
    made = Bench(core, daemon, repo.listen, repo, statuses)
    made.grant()
    yield made
    await core.stop(0)
    await daemon.stop()
    opened.close()
