"""One running API server: opens the store, serves it, and closes both in the right order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import metadata

import structlog
from aiohttp import web

from gpugrant_crds import timestamps
from gpugrant_operator import control
from gpugrant_operator.apiserver import collector, tls, upkeep
from gpugrant_operator.apiserver.objects import changes
from gpugrant_operator.apiserver.objects.resources import CRDS, NAMESPACES, catalog, served_crd
from gpugrant_operator.apiserver.registry import Options, Registry
from gpugrant_operator.apiserver.routes import Routes
from gpugrant_operator.apiserver.settings import Settings
from gpugrant_operator.apiserver.sources.follow import Sources
from gpugrant_operator.apiserver.store.journal import Journal
from gpugrant_operator.apiserver.store.store import Store
from gpugrant_operator.apiserver.sync import ManifestSync
from gpugrant_operator.apiserver.watch import Watches

PART = "apiserver"
SHUTDOWN_TIMEOUT = 2.0
"""Seconds that requests have to end; watches are ended first and at once."""
RENEWAL_CHECK = 6 * 3600.0

log = structlog.get_logger(__name__)


@dataclass
class Server:
    """A server that is being served; `url` and `identity` are what a client needs."""

    settings: Settings
    store: Store
    registry: Registry
    manifests: ManifestSync
    sources: Sources
    watches: Watches
    identity: tls.Identity
    since: str
    port: int = 0
    stopping: bool = False

    @property
    def url(self) -> str:
        return f"https://{tls.HOST}:{self.port}"

    def why_not_ready(self) -> str:
        if self.stopping:
            return "the API server is stopping"
        return f"the store takes no writes: {self.store.failure}" if self.store.failure else ""

    def health(self) -> control.Health:
        why = self.why_not_ready()
        late = f"{len(self.store.late)} manifests could not be written yet" if self.store.late else ""
        told = [text for text in (why, late, self.manifests.message, self.sources.message) if text]
        return control.Health(not why, "; ".join(told) or "serving", self.since)


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Server]:
    """Serves until the block ends.

    Raises AlreadyRunning, DamagedStore, SocketPathTooLong or OSError, each with a sentence, when it can't start.
    """
    since = timestamps.write(settings.now())
    with control.locked(settings.layout.lock(PART), since, kind="an API server"):
        store = _opened(settings, since)
        try:
            async with asyncio.TaskGroup() as group, _committing(store, group):
                server = await _prepared(settings, store, since)
                async with _served(server, group):
                    yield server
        except BaseExceptionGroup as errors:
            # A single failure is told as what it is: callers match on it.
            if len(errors.exceptions) == 1:
                raise errors.exceptions[0] from None
            raise


@asynccontextmanager
async def _committing(store: Store, group: asyncio.TaskGroup) -> AsyncIterator[None]:
    """The store takes writes within the block; at its end every submitted one is durable or has failed."""
    committer = group.create_task(store.run())
    try:
        yield
        await store.settled()
    finally:
        committer.cancel()
        await asyncio.wait([committer])
        await store.close()


def _opened(settings: Settings, since: str) -> Store:
    """The store as its files say; see Journal.open for what it raises."""
    journal = Journal(settings.layout.store, settings.disk)
    contents = journal.open(store_id=settings.new_uid(), created=since)
    store = Store(
        catalog=catalog(settings.crds),
        root=settings.layout.manifests,
        journal=journal,
        disk=settings.disk,
        compact_bytes=settings.compact_bytes,
    )
    store.load(contents)
    for crd in settings.crds:
        uid = f"{store.store_id[:-12]}{_short_hash(crd['metadata']['name'])}"
        store.put_static(CRDS, served_crd(crd, uid=uid, created=store.created))
    return store


def _short_hash(text: str) -> str:
    """Twelve hex digits: the last group of a uid that is the same at every start."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


async def _prepared(settings: Settings, store: Store, since: str) -> Server:
    registry = Registry(store, settings)
    manifests = ManifestSync(registry, settings.layout.manifests)
    sources = Sources(registry, settings.sources)
    sources.release()
    await manifests.scan()
    for name in changes.SYSTEM_NAMESPACES:
        if store.head(NAMESPACES, "", name) is None:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await registry.create(NAMESPACES, "", body, Options())
    identity = await asyncio.to_thread(tls.ensure, settings.layout.store / "pki", settings.disk, settings.now())
    watches = Watches(store, settings.watch_buffer, settings.bookmark_interval)
    return Server(settings, store, registry, manifests, sources, watches, identity, since)


@asynccontextmanager
async def _served(server: Server, group: asyncio.TaskGroup) -> AsyncIterator[None]:
    settings = server.settings
    routes = Routes(
        registry=server.registry,
        store=server.store,
        settings=settings,
        token=server.identity.token,
        release=metadata.version("gpugrant"),
        ready=server.why_not_ready,
        watches=server.watches,
    )
    runner = web.AppRunner(
        routes.application(), access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT, handler_cancellation=True
    )
    await runner.setup()
    stop = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []
    try:
        listening = _listen(settings)
        context = tls.context(server.identity)
        await web.SockSite(runner, listening, ssl_context=context).start()
        server.port = listening.getsockname()[1]
        tls.write_kubeconfig(settings.layout.kubeconfig, server.identity, server.port, settings.disk)
        tasks = [
            group.create_task(server.manifests.follow(stop)),
            group.create_task(server.manifests.rescan(settings.rescan_interval)),
            group.create_task(server.sources.follow()),
            group.create_task(upkeep.Namespaces(server.registry).run()),
            group.create_task(collector.Collector(server.registry).run()),
            group.create_task(upkeep.expire_events(server.registry)),
            group.create_task(_renew(server, context)),
        ]
        async with control.served(
            settings.layout.control(PART), server.health, {"/accept-deletes": server.sources.accept_deletes}
        ):
            log.info("serving", url=server.url, objects=server.store.size)
            yield
    finally:
        server.stopping = True
        stop.set()
        for task in tasks:
            task.cancel()
        server.watches.close()
        await _closed(runner)


async def _closed(runner: web.AppRunner) -> None:
    """Ends all connections. A client that does not answer a TLS goodbye would keep its socket for 30 s."""
    handlers = runner.server.connections if runner.server is not None else []
    transports = [handler.transport for handler in handlers]
    await runner.cleanup()
    for transport in transports:
        if isinstance(transport, asyncio.WriteTransport):
            # Python 3.11.2, which is Debian 12's, has no guard for a TLS transport that is closed already.
            with contextlib.suppress(AttributeError):
                transport.abort()
    await asyncio.sleep(0)


async def _renew(server: Server, context: ssl.SSLContext) -> None:
    """Certificates are looked at a few times a day and loaded into the running listener."""
    settings = server.settings
    while True:
        await asyncio.sleep(RENEWAL_CHECK)
        if server.identity.due(settings.now()):
            server.identity = await asyncio.to_thread(
                tls.ensure, settings.layout.store / "pki", settings.disk, settings.now()
            )
            context.load_cert_chain(server.identity.certificate, server.identity.key)
            tls.write_kubeconfig(settings.layout.kubeconfig, server.identity, server.port, settings.disk)
            log.info("certificate renewed", expires=timestamps.write(server.identity.expires))


def _listen(settings: Settings) -> socket.socket:
    """A listening socket: the port asked for, else the one that clients know, else any."""
    known = tls.known_port(settings.layout.kubeconfig)
    for port in (settings.port,) if settings.port else (known, 0) if known else (0,):
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((tls.HOST, port))
        except OSError as error:
            made.close()
            if error.errno == errno.EADDRINUSE and port and not settings.port:
                log.warning("port taken, another is chosen", port=port)
                continue
            raise OSError(error.errno, f"port {port} on {tls.HOST} can't be used: {error.strerror}") from error
        return made
    raise OSError(errno.EADDRINUSE, f"no port on {tls.HOST} can be used")
