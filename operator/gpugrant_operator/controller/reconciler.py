"""One machine, from what is seen to what is done: gather, plan, carry out, until nothing is left (design 2).

The order is the safety: finalizers, then the ledger by compare-and-swap, then the snapshot, then statuses, then
finalizers that may go. A stop between any two steps is finished by the next run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import structlog

from gpugrant_crds.snapshot import Snapshot
from gpugrant_crds.v1alpha1 import FINALIZER, GpuMachine, RepoGpuGrant
from gpugrant_operator.controller.api import Api
from gpugrant_operator.controller.cache import Cache
from gpugrant_operator.controller.detector import Detector
from gpugrant_operator.controller.node import LocalNode
from gpugrant_operator.controller.recorder import Recorder
from gpugrant_operator.kubeclient import Conflict, NotFound
from gpugrant_operator.reconcile import detection, transitions
from gpugrant_operator.reconcile.detection import Due
from gpugrant_operator.reconcile.observed import Observed, unserved
from gpugrant_operator.reconcile.plan import GrantWrite, Plan, plan, plan_without_machine

ROUNDS = 12
"""Of one reconcile: a hand-over takes three. What takes more comes again after a pause."""

WRITES = 8
"""Status writes at once."""

FRESH = 0.25
"""Seconds that a gate's report may be old in the later rounds of one reconcile; the first asks anew: what made it due,
such as a grant for a repo that was just added, may be younger than any report."""

SOON = 1.0
"""Seconds until a gate that still has older requests open is asked again."""

Item = TypeVar("Item", RepoGpuGrant, GrantWrite)

log = structlog.get_logger(__name__)


class Unsettled(Exception):
    """The machine did not come to rest in ROUNDS rounds."""


@dataclass(frozen=True, slots=True)
class Again:
    """What comes next for a machine: `recheck_at` by the clock, `delay` in seconds, a detection that is due."""

    recheck_at: datetime | None = None
    delay: float | None = None
    detect: Due | None = None


class Reconciler:
    """Carries out plans. Only one `reconcile` of a machine may run at a time (the work queue sees to that)."""

    def __init__(
        self,
        *,
        api: Api,
        api_id: str,
        cache: Cache,
        node: LocalNode,
        detector: Detector,
        recorder: Recorder,
        now: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._api_id = api_id
        self._cache = cache
        self._node = node
        self._link = node.link
        self._detector = detector
        self._recorder = recorder
        self._now = now
        self._pushed_at: dict[str, datetime] = {}
        """By the machine's uid: when its gate last took a snapshot."""

    async def reconcile(self, name: str) -> Again:
        """Brings the machine to rest; raises kubeclient.ApiError, Unreadable or Unsettled where it can't."""
        may_push = True
        for turn in range(ROUNDS):
            machine = self._cache.machine(name)
            try:
                if machine is None:
                    return await self._without_machine(name)
                seen = await self._observe(machine, may_push=may_push, max_age=FRESH if turn else 0.0)
                if seen is None:
                    return Again(delay=SOON, detect=self._due(machine))
                planned = plan(seen, self._now())
                if not planned.before_answer:
                    return await self._conclude(machine, seen, planned)
                may_push = await self._prepare(machine, planned) and may_push
            except (Conflict, NotFound):
                await self._reread(name)
        raise Unsettled(f"machine {name} did not come to rest")

    async def _observe(self, machine: GpuMachine, *, may_push: bool, max_age: float) -> Observed | None:
        """All that is known of the machine; None: its gate is still to be heard."""
        name = machine.metadata.name
        elsewhere = unserved(machine, self._cache.machines, self._node.name)
        if elsewhere is None:
            await self._link.refresh(max_age=max_age)
            await self._node.look()
            if not self._link.settled:
                return None
        served = elsewhere is None
        return Observed(
            api_id=self._api_id,
            machine=machine,
            grants=self._cache.grants_of(name),
            gate=self._link.report if served else None,
            machines=frozenset(other.metadata.uid for other in self._cache.machines),
            pushed_at=self._pushed_at.get(machine.metadata.uid),
            refusal=self._link.refusal if served else None,
            may_push=served and may_push and self._link.answering,
            unserved=elsewhere,
            inventory=self._node.inventory if served else None,
            outcome=self._detector.last if served else None,
            detecting=served and self._detector.running,
            terminating=self._cache.terminating,
        )

    async def _prepare(self, machine: GpuMachine, planned: Plan) -> bool:
        """Finalizers, ledger, snapshot; False: the gate did not take it, so not to be sent again in this run."""
        if planned.guard_machine:
            guarded = (*machine.metadata.finalizers, FINALIZER)
            machine = await self._api.set_machine_finalizers(machine, guarded)
            self._cache.put_machine(machine)
        if planned.guard:
            await self._each(planned.guard, self._guard)
        if planned.ledger is not None:
            self._cache.put_machine(await self._api.put_machine_status(machine, planned.ledger))
            log.info("ledger.written", machine=machine.metadata.name, epoch=planned.ledger.ledger_epoch)
        return planned.push is None or await self._push(planned.push)

    async def _push(self, snapshot: Snapshot) -> bool:
        fields = {"machine": snapshot.machine, "epoch": snapshot.epoch, "grants": len(snapshot.grants)}
        if await self._link.push(snapshot):
            self._pushed_at = {snapshot.machine_uid: self._now()}
            log.info("snapshot.enforced", **fields)
            return True
        refusal = self._link.refusal
        log.warning("snapshot.refused", **fields, why=self._link.failure if refusal is None else refusal.message)
        return False

    async def _conclude(self, machine: GpuMachine, seen: Observed, planned: Plan) -> Again:
        """Statuses, then what may go."""
        if planned.machine is not None:
            stored = await self._api.put_machine_status(machine, planned.machine)
            self._cache.put_machine(stored)
            self._recorder.note(transitions.of_machine(machine, planned.machine))
            machine = stored
        await self._tell(planned)
        if planned.release_machine:
            await self._release_machine(machine)
            return Again(delay=0.0)
        if seen.unserved is None:
            self._link.watched = planned.watched
        delay = SOON if planned.owed and seen.gate is not None else None
        return Again(planned.recheck_at, delay, self._due(machine) if seen.unserved is None else None)

    async def _without_machine(self, name: str) -> Again:
        planned = plan_without_machine(self._cache.grants_of(name), self._now())
        await self._tell(planned)
        return Again(planned.recheck_at)

    async def _tell(self, planned: Plan) -> None:
        await self._each(planned.grants, self._write)
        await self._each(planned.release, self._release)

    async def _each(self, items: tuple[Item, ...], act: Callable[[Item], Awaitable[None]]) -> None:
        """`act` on every item, a few at once; an item that moved on is read again and the round starts over."""
        slots = asyncio.Semaphore(WRITES)
        stale: list[RepoGpuGrant] = []

        async def one(item: Item) -> None:
            async with slots:
                try:
                    await act(item)
                except (Conflict, NotFound):
                    stale.append(item.grant if isinstance(item, GrantWrite) else item)

        try:
            async with asyncio.TaskGroup() as group:
                for item in items:
                    group.create_task(one(item))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        for grant in stale:
            await self._reread_grant(grant)
        if stale:
            raise Conflict(409, "Conflict", f"{len(stale)} grants moved on")

    async def _guard(self, grant: RepoGpuGrant) -> None:
        guarded = (*grant.metadata.finalizers, FINALIZER)
        self._cache.put_grant(await self._api.set_grant_finalizers(grant, guarded))

    async def _write(self, write: GrantWrite) -> None:
        self._cache.put_grant(await self._api.put_grant_status(write.grant, write.status))
        self._recorder.note(transitions.of_grant(write.grant, write.status))

    async def _release(self, grant: RepoGpuGrant) -> None:
        meta = grant.metadata
        left = tuple(finalizer for finalizer in meta.finalizers if finalizer != FINALIZER)
        stored = await self._api.set_grant_finalizers(grant, left)
        if left:
            self._cache.put_grant(stored)
        else:
            self._cache.drop_grant((meta.namespace, meta.name), meta.uid)
        log.info("grant.released", namespace=meta.namespace, name=meta.name, machine=grant.spec.machine)

    async def _release_machine(self, machine: GpuMachine) -> None:
        meta = machine.metadata
        left = tuple(finalizer for finalizer in meta.finalizers if finalizer != FINALIZER)
        stored = await self._api.set_machine_finalizers(machine, left)
        if left:
            self._cache.put_machine(stored)
        else:
            self._cache.drop_machine(meta.name, meta.uid)
        log.info("machine.released", name=meta.name)

    async def _reread(self, name: str) -> None:
        """The machine from a live read, after somebody else wrote it."""
        known = self._cache.machine(name)
        stored = await self._api.machine(name)
        if stored is not None:
            if known is not None and known.metadata.uid != stored.metadata.uid:
                self._cache.drop_machine(name, known.metadata.uid)
            self._cache.put_machine(stored)
        elif known is not None:
            self._cache.drop_machine(name, known.metadata.uid)

    async def _reread_grant(self, grant: RepoGpuGrant) -> None:
        meta = grant.metadata
        stored = await self._api.grant(meta.namespace, meta.name)
        if stored is None or stored.metadata.uid != meta.uid:
            self._cache.drop_grant((meta.namespace, meta.name), meta.uid)
        if stored is not None:
            self._cache.put_grant(stored)

    def _due(self, machine: GpuMachine) -> Due:
        scene = detection.Scene(
            inventory=self._node.inventory,
            boot_id=self._node.boot_id,
            specs=self._node.specs,
            settled=self._node.settled,
            last=self._detector.last,
            failures=self._detector.failures,
            running=self._detector.running,
            fingerprint=self._node.fingerprint,
            tried=self._node.tried,
        )
        return detection.due(machine, scene, self._now())
