"""The operator's loop: news from watches, lists and the gate become work items, one a machine.

It keeps the parts together and holds no rule of its own. An exception that leaves `run` ends the process; the
supervisor starts it again, and nothing but time is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import structlog
from pydantic import ValidationError

from gpugrant_crds.snapshot import GateStatus
from gpugrant_crds.v1alpha1 import GpuMachine, Metadata, RepoGpuGrant
from gpugrant_operator.controller.api import (
    MACHINES,
    NAMESPACES,
    Api,
    Unreadable,
    read_grant,
    read_machine,
)
from gpugrant_operator.controller.cache import Cache, Known
from gpugrant_operator.controller.detector import Detector
from gpugrant_operator.controller.node import LocalNode
from gpugrant_operator.controller.reconciler import Again, Reconciler, Unsettled
from gpugrant_operator.controller.recorder import Recorder
from gpugrant_operator.controller.workqueue import WorkQueue
from gpugrant_operator.kubeclient import ApiError, ApiUnreachable, JsonObject
from gpugrant_operator.reconcile import detection, transitions

WORKERS = 8
"""Machines at once."""

RESYNC = 120.0
"""Seconds between two lists of everything, with jitter: they find what watches lost, deletions above all."""

RESYNC_SOON = 2.0
"""Seconds after which a list follows when a watch began anew: a relist tells nothing of deletions."""

HEAR_PATIENCE = 10.0
"""Seconds in which the watches must tell what a list shows, else they count as deaf."""

HEARTBEAT = 5.0
HEARTBEAT_TROUBLED = 0.5
"""Seconds between two looks at whether the API is there and still the same; while it is not there."""

_DEAF_MAX = 2
"""Lists in a row that had to tell what the watches did not; then the process ends, to start with new watches."""

UNAUTHORIZED = 401
"""The access is refused for good: the process ends, and the next one reads the kubeconfig again."""

Stored = GpuMachine | RepoGpuGrant
T = TypeVar("T")

log = structlog.get_logger(__name__)


class WatchesDead(Exception):
    """The watches ended, or tell nothing any more."""


class OtherApi(Exception):
    """Behind the same address is another store: all that is known is of the old one."""


class Controller:
    """`sync` once, then `run`. `heard` is called on the loop for every watch event."""

    def __init__(
        self,
        *,
        api: Api,
        api_id: str,
        cache: Cache,
        queue: WorkQueue,
        node: LocalNode,
        detector: Detector,
        recorder: Recorder,
        reconciler: Reconciler,
        now: Callable[[], datetime],
        random: Callable[[], float],
        hear_patience: float = HEAR_PATIENCE,
    ) -> None:
        self._api = api
        self._api_id = api_id
        self._cache = cache
        self._queue = queue
        self._node = node
        self._detector = detector
        self._recorder = recorder
        self._reconciler = reconciler
        self._now = now
        self._random = random
        self._hear_patience = hear_patience
        self._relist = asyncio.Event()
        self._deaf = 0
        self._troubles: dict[str, str] = {}
        self._api_trouble = ""
        self._told: GateStatus | None = None
        """The gate's report whose cases were told last."""

    @property
    def trouble(self) -> str:
        """Why not all is well, as a sentence; empty: the last reconciles and the last list succeeded."""
        told = [f"machine {name}: {why}" for name, why in sorted(self._troubles.items())]
        return "; ".join([self._api_trouble, *told] if self._api_trouble else told)

    def heard(self, resource: str, kind: str | None, raw: Mapping[str, Any]) -> None:
        """One watch event; `kind` None comes from a list that a watch began with."""
        if kind is None:
            self._relist.set()
        try:
            affected = self._take(resource, kind, dict(raw))
        except Unreadable as error:
            log.warning("object.unreadable", error=str(error))
            return
        for name in affected:
            self._queue.add(name)

    async def sync(self) -> None:
        """Everything from lists; all machines become due."""
        for machine in await self._machines():
            self._cache.put_machine(machine)
        for grant in await self._grants():
            self._cache.put_grant(grant)
        for raw in await self._api.namespaces():
            self._take(NAMESPACES, None, raw)
        for name in self._cache.names:
            self._queue.add(name)

    async def run(self) -> None:
        """Until it is cancelled, or something can't go on."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work(group))
            group.create_task(self._poll_gate())
            group.create_task(self._resync_often())
            group.create_task(self._heartbeats())
            group.create_task(self._recorder.run())

    async def resync(self) -> None:
        """Lists everything and heals what the watches did not tell; raises WatchesDead when that happens again."""
        known = self._cache.known()
        machines, grants = await self._machines(), await self._grants()
        listed: list[Stored] = [*machines, *grants]
        news = [item for item in listed if self._cache.lacks(item)]
        gone = _gone(known, listed)
        if news or gone.machines or gone.grants:
            await asyncio.sleep(self._hear_patience)
            self._heal([item for item in news if self._cache.lacks(item)], gone)
        else:
            self._deaf = 0
        for raw in await self._api.namespaces():
            self._take(NAMESPACES, None, raw)
        for name in self._cache.names:
            self._queue.add(name)

    async def look_at_gate(self) -> None:
        """Asks the gate and looks at the node's files; what is new there makes this machine due."""
        link = self._node.link
        before = link.news
        await link.refresh()
        self._tell_cases()
        changed = await self._node.look()
        if changed or before != link.news:
            self._local_due()

    def _tell_cases(self) -> None:
        """What the gate found among containers is an Event of its machine."""
        report, told = self._node.link.report, self._told
        if report is None or report == told:
            return
        served = [machine for machine in self._cache.machines if machine.metadata.uid == report.machine_uid]
        for machine in served:
            self._recorder.note(transitions.of_cases(machine, told, report, self._now()))
        if served:
            self._told = report

    async def look_at_api(self) -> None:
        """Raises ApiError where the API does not answer, OtherApi where it is another one."""
        if await self._api.api_id() != self._api_id:
            raise OtherApi("the API has another store than before")
        self._api_trouble = ""

    async def work_on(self, name: str, group: asyncio.TaskGroup) -> None:
        """One reconcile, and what follows from it."""
        again = await self._reconciler.reconcile(name)
        self._later(name, again)
        if again.detect is not None and again.detect.cause is not None:
            self._start_detection(name, again.detect.cause, group)

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            name = await self._queue.take()
            failed = True
            try:
                await self.work_on(name, group)
                failed = False
                self._troubles.pop(name, None)
            except (ApiError, Unreadable, Unsettled) as error:
                self._failed(name, error)
            finally:
                self._queue.done(name, failed=failed)

    def _failed(self, name: str, error: Exception) -> None:
        """A work item that comes again. An access that is refused for good ends the process: a new one may be there."""
        if isinstance(error, ApiError) and error.status == UNAUTHORIZED:
            raise error
        if isinstance(error, ApiUnreachable):
            self._relist.set()
        if self._troubles.get(name) != str(error):
            log.warning("reconcile.failed", machine=name, error=str(error))
        self._troubles[name] = str(error)

    def _later(self, name: str, again: Again) -> None:
        if again.recheck_at is not None:
            self._queue.add(name, (again.recheck_at - self._now()).total_seconds())
        if again.delay is not None:
            self._queue.add(name, again.delay)
        if again.detect is not None and again.detect.at is not None:
            self._queue.add(name, (again.detect.at - self._now()).total_seconds())

    def _start_detection(self, name: str, cause: str, group: asyncio.TaskGroup) -> None:
        machine = self._cache.machine(name)
        if machine is None or self._detector.running:
            return
        self._detector.reserve()
        self._node.tried = self._node.fingerprint
        log.info("detection.started", machine=name, cause=cause, fault=self._node.inventory_fault)
        group.create_task(self._detect(machine))
        self._queue.add(name)

    async def _detect(self, machine: GpuMachine) -> None:
        name = machine.metadata.name
        request = detection.requested(machine, self._detector.last)
        outcome = await self._detector.detect(request, detection.arguments(machine))
        await self._node.look(again=True)
        self._node.settled = dict(self._node.specs)
        log.info("detection.ended", machine=name, succeeded=outcome.succeeded, why=outcome.message)
        self._queue.add(name)

    async def _poll_gate(self) -> None:
        while True:
            await self.look_at_gate()
            await asyncio.sleep(self._node.link.pause * self._jitter())

    async def _resync_often(self) -> None:
        while True:
            try:
                async with asyncio.timeout(RESYNC * self._jitter()):
                    await self._relist.wait()
                await asyncio.sleep(RESYNC_SOON)
            except TimeoutError:
                pass
            self._relist.clear()
            try:
                await self.resync()
            except ApiError as error:
                self._api_failed(error)

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep((HEARTBEAT_TROUBLED if self._api_trouble else HEARTBEAT) * self._jitter())
            try:
                await self.look_at_api()
            except ApiError as error:
                self._api_failed(error)

    def _api_failed(self, error: ApiError) -> None:
        """A list follows when it is back."""
        if error.status == UNAUTHORIZED:
            raise error
        if not self._api_trouble:
            log.warning("api.failed", error=error.message)
        self._api_trouble = error.message
        self._relist.set()

    def _jitter(self) -> float:
        return 0.8 + 0.4 * self._random()

    def _local_due(self) -> None:
        for machine in self._cache.machines:
            if machine.node == self._node.name:
                self._queue.add(machine.metadata.name)

    def _heal(self, news: list[Stored], gone: Known) -> None:
        affected = frozenset[str]()
        for item in news:
            put = self._cache.put_machine(item) if isinstance(item, GpuMachine) else self._cache.put_grant(item)
            affected |= put
        for name, uid in gone.machines.items():
            affected |= self._cache.drop_machine(name, uid)
        for key, uid in gone.grants.items():
            affected |= self._cache.drop_grant(key, uid)
        self._deaf = self._deaf + 1 if affected else 0
        if affected:
            log.warning("watches.missed", machines=sorted(affected))
        if self._deaf >= _DEAF_MAX:
            raise WatchesDead("the watches tell nothing any more")

    def _take(self, resource: str, kind: str | None, raw: JsonObject) -> frozenset[str]:
        deleted = kind == "DELETED"
        if resource == NAMESPACES:
            return self._take_namespace(raw, deleted=deleted)
        if not deleted and not self._is_news(resource, raw):
            return frozenset()
        if resource == MACHINES:
            machine = read_machine(raw)
            meta = machine.metadata
            return self._cache.drop_machine(meta.name, meta.uid) if deleted else self._cache.put_machine(machine)
        grant = read_grant(raw)
        key = (grant.metadata.namespace, grant.metadata.name)
        return self._cache.drop_grant(key, grant.metadata.uid) if deleted else self._cache.put_grant(grant)

    def _is_news(self, resource: str, raw: JsonObject) -> bool:
        """Most events are echoes of our own writes, and a machine's ledger takes long to read."""
        try:
            meta = Metadata.model_validate(raw.get("metadata"))
        except ValidationError:
            return True
        return self._cache.lacks_machine(meta) if resource == MACHINES else self._cache.lacks_grant(meta)

    def _take_namespace(self, raw: JsonObject, *, deleted: bool) -> frozenset[str]:
        metadata = raw.get("metadata") or {}
        phase = (raw.get("status") or {}).get("phase")
        terminating = not deleted and (phase == "Terminating" or bool(metadata.get("deletionTimestamp")))
        return self._cache.set_terminating(str(metadata.get("name", "")), terminating)

    async def _machines(self) -> list[GpuMachine]:
        return _readable(await self._api.machines(), read_machine)

    async def _grants(self) -> list[RepoGpuGrant]:
        return _readable(await self._api.grants(), read_grant)


def _gone(known: Known, listed: list[Stored]) -> Known:
    """What was known before the lists and is not in them."""
    uids = {item.metadata.uid for item in listed}
    return Known(
        machines={name: uid for name, uid in known.machines.items() if uid not in uids},
        grants={key: uid for key, uid in known.grants.items() if uid not in uids},
    )


def _readable(raws: list[JsonObject], read: Callable[[JsonObject], T]) -> list[T]:
    """Those that this version can read; one that it can't holds nothing and is said."""
    found = []
    for raw in raws:
        try:
            found.append(read(raw))
        except Unreadable as error:
            log.warning("object.unreadable", error=str(error))
    return found
