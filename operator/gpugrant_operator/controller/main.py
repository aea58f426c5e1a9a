"""The process `gpugrant operator`: where time, randomness, signals and the environment are real."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog
from structlog.typing import Processor

from gpugrant_crds import timestamps
from gpugrant_crds.layout import Layout, SocketPathTooLong
from gpugrant_operator import control
from gpugrant_operator.control import AlreadyRunning, Health
from gpugrant_operator.controller import detector, node, watches
from gpugrant_operator.controller.api import KubeApi
from gpugrant_operator.controller.cache import Cache
from gpugrant_operator.controller.controller import UNAUTHORIZED, Controller, WatchesDead
from gpugrant_operator.controller.gatelink import GateLink
from gpugrant_operator.controller.reconciler import Reconciler
from gpugrant_operator.controller.recorder import Recorder
from gpugrant_operator.controller.workqueue import WorkQueue
from gpugrant_operator.gateclient import GateClient
from gpugrant_operator.kubeclient import Access, ApiError, KubeClient, KubeconfigUnusable, read_kubeconfig

API_RETRY = 0.3
"""Seconds between two tries while there is no kubeconfig or no API yet."""

ACCESS_CHECK = 1.0
"""Seconds between two looks at the kubeconfig while the API is in trouble."""

KOPF_PATIENCE = 1.0
"""Seconds for kopf to end; the whole stop takes less than 2 s."""

log = structlog.get_logger(__name__)


def run(root: Path, *, hardware: Path) -> int:
    """Runs until SIGTERM or SIGINT; the exit code. Ends with 1 when it can't start, or can't go on."""
    _log_to_stderr()
    try:
        process = Process(Layout(root), hardware, _kubeconfigs(Layout(root)))
        with control.locked(process.layout.lock("operator"), process.since, kind="an operator"):
            return asyncio.run(process.run())
    except (AlreadyRunning, SocketPathTooLong, node.Unnamed) as error:
        return _refused(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refused(f"{where}{error.strerror or error}")


def _kubeconfigs(layout: Layout) -> tuple[Path, ...]:
    """KUBECONFIG wins; it may name several files, as for kubectl."""
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return tuple(named) or (layout.kubeconfig,)


def _refused(why: str) -> int:
    log.error("not started", reason=why)
    sys.stderr.write(f"gpugrant operator: {why}\n")
    return 1


class OtherAccess(Exception):
    """The kubeconfig has changed."""


class Process:
    """One operator process: it waits for the API, then runs until it is stopped or can't go on."""

    def __init__(self, layout: Layout, hardware: Path, kubeconfigs: tuple[Path, ...]) -> None:
        self.layout = layout
        self.since = timestamps.write(_now())
        self._hardware = hardware
        self._kubeconfigs = kubeconfigs
        self._name = node.local_name(layout, hardware)
        self._stage = "starting"
        self._controller: Controller | None = None
        self._watches: watches.Watches | None = None

    async def run(self) -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with control.served(self.layout.control("operator"), self.health):
            work = asyncio.create_task(self._work())
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
            code = _ended(work) if work.done() else 0
            for task in (work, stopped):
                task.cancel()
            await asyncio.gather(work, stopped, return_exceptions=True)
        log.info("stopped", code=code)
        return code

    def health(self) -> Health:
        """Ok when the watches live and the last reconcile of every machine succeeded."""
        if self._controller is None or self._watches is None:
            return Health(False, self._stage, self.since)
        if not self._watches.alive:
            return Health(False, self._watches.failure or "the watches are starting", self.since)
        trouble = self._controller.trouble
        return Health(not trouble, trouble, self.since)

    async def _work(self) -> None:
        access, api_id = await self._reach_api()
        async with KubeClient(access) as client, GateClient(self.layout.control("gate")) as gate:
            await self._operate(access, KubeApi(client), api_id, gate)

    async def _reach_api(self) -> tuple[Access, str]:
        """Waits patiently: the API server may be starting, or its kubeconfig not written yet."""
        while True:
            try:
                access = read_kubeconfig(self._kubeconfigs)
                async with KubeClient(access) as client:
                    return access, await KubeApi(client).api_id()
            except (KubeconfigUnusable, ApiError, OSError, ValueError) as error:
                self._wait_for(str(error))
                await asyncio.sleep(API_RETRY)

    def _wait_for(self, stage: str) -> None:
        if self._stage != stage:
            log.info("waiting", reason=stage)
        self._stage = stage

    async def _first_lists(self, controller: Controller) -> None:
        """Waits for our resources too: in a cluster the CRDs may come after the operator."""
        while True:
            try:
                await controller.sync()
            except ApiError as error:
                if error.status == UNAUTHORIZED:
                    raise
                self._wait_for(f"our resources can't be listed: {error.message}")
                await asyncio.sleep(API_RETRY)
            else:
                return

    async def _operate(self, access: Access, api: KubeApi, api_id: str, gate: GateClient) -> None:
        loop = asyncio.get_running_loop()
        controller = self._assemble(api, api_id, GateLink(gate, time.monotonic))
        await self._first_lists(controller)
        dead = asyncio.Event()

        def deliver(resource: str, kind: str | None, raw: Mapping[str, Any]) -> None:
            loop.call_soon_threadsafe(controller.heard, resource, kind, raw)

        def ended() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(dead.set)

        kopf = watches.Watches(access, deliver, ended)
        self._controller, self._watches = controller, kopf
        kopf.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(controller.run())
                group.create_task(_until_dead(dead, kopf))
                group.create_task(self._until_other_access(access, controller))
        finally:
            if not await asyncio.to_thread(kopf.stop, KOPF_PATIENCE):
                log.warning("watches.hang")

    async def _until_other_access(self, access: Access, controller: Controller) -> None:
        """A server that was set up anew has another port, token or authority: the next process takes them."""
        while True:
            await asyncio.sleep(ACCESS_CHECK)
            if not controller.trouble:
                continue
            with contextlib.suppress(KubeconfigUnusable):
                if read_kubeconfig(self._kubeconfigs) != access:
                    raise OtherAccess("the kubeconfig names another access than before")

    def _assemble(self, api: KubeApi, api_id: str, link: GateLink) -> Controller:
        cache = Cache()
        local = node.LocalNode(self.layout, self._hardware, self._name, link)
        detection = detector.Detector(detector.command(self.layout.root, self._hardware), _now)
        recorder = Recorder(api, _now, time.monotonic)
        reconciler = Reconciler(
            api=api, api_id=api_id, cache=cache, node=local, detector=detection, recorder=recorder, now=_now
        )
        return Controller(
            api=api,
            api_id=api_id,
            cache=cache,
            queue=WorkQueue(time.monotonic, random.random),
            node=local,
            detector=detection,
            recorder=recorder,
            reconciler=reconciler,
            now=_now,
            random=random.random,
        )


async def _until_dead(dead: asyncio.Event, kopf: watches.Watches) -> None:
    await dead.wait()
    await asyncio.to_thread(kopf.stop, KOPF_PATIENCE)
    raise WatchesDead(f"the watches ended: {kopf.failure or 'no reason given'}")


def _ended(work: asyncio.Task[None]) -> int:
    """The exit code of work that ended by itself: it never does so well."""
    error = work.exception()
    log.error("can't go on", error=_reasons(error), exc_info=error)
    return 1


def _reasons(error: BaseException | None) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_reasons(part) for part in error.exceptions)
    return str(error)


def _now() -> datetime:
    return datetime.now(UTC)


def _log_to_stderr() -> None:
    """JSON lines on stderr, kopf's warnings among them."""
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    # kopf repeats each failed request of each watch, and that signals are none of its business; the heartbeat says it
    logging.getLogger("kopf._cogs.clients").setLevel(logging.CRITICAL)
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
