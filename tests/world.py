"""A small world for the operator's tests: an API and a gate in memory that behave, a clock, and a fuse.

The API keeps Kubernetes' rules that the operator relies on (resourceVersion preconditions, finalizers, generations);
the gate keeps the fencing of design 4. Both watch over the safety of every write: see `Api.put_machine_status` and
`Gate.put_snapshot`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web
from pydantic import ValidationError

import gen
from gpugrant_crds import snapshot, timestamps
from gpugrant_crds.decide.ledger import read as read_ledger
from gpugrant_crds.inventory import Cdi, CdiDevice, Gpu, Health, Inventory
from gpugrant_crds.layout import Layout
from gpugrant_crds.snapshot import (
    DevicesAnswer,
    GateStatus,
    GrantInForce,
    Pending,
    RepoStatus,
    Snapshot,
    SnapshotAnswer,
)
from gpugrant_crds.v1alpha1 import FINALIZER, GpuMachine, GpuMachineStatus, RepoGpuGrant, RepoGpuGrantStatus
from gpugrant_operator.controller.api import read_grant, read_machine
from gpugrant_operator.controller.cache import Cache
from gpugrant_operator.controller.controller import Controller
from gpugrant_operator.controller.detector import Detector
from gpugrant_operator.controller.gatelink import GateLink
from gpugrant_operator.controller.node import LocalNode
from gpugrant_operator.controller.reconciler import Again, Reconciler
from gpugrant_operator.controller.recorder import Recorder
from gpugrant_operator.controller.workqueue import WorkQueue
from gpugrant_operator.gateclient import GateError
from gpugrant_operator.kubeclient import ApiUnreachable, Conflict, JsonObject, NotFound
from gpugrant_operator.reconcile.transitions import Occurrence

API_ID = "api-1"
T = TypeVar("T")
Listener = Callable[[str, str, JsonObject], None]
Key = tuple[str, str, str]
"""Plural, namespace, name."""


class Stopped(Exception):
    """The process ended here."""


@dataclass
class Clock:
    """Wall clock and monotonic clock that move only when they are told to."""

    moment: datetime = gen.NOW

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return (self.moment - gen.NOW).total_seconds() + 1000

    def forward(self, **by: float) -> None:
        self.moment += timedelta(**by)


@dataclass
class Fuse:
    """Ends the process at one of its effects: before it happens, or after, when its answer is lost."""

    at: int | None = None
    after: bool = False
    count: int = 0
    blown: bool = False

    async def effect(self, act: Callable[[], T]) -> T:
        if self.blown:
            raise Stopped
        self.count += 1
        hit = self.count == self.at
        if hit and not self.after:
            self.blown = True
            raise Stopped
        result = act()
        if hit:
            self.blown = True
            raise Stopped
        return result


@dataclass
class Api:
    """controller.api.Api in memory."""

    clock: Clock
    fuse: Fuse = field(default_factory=Fuse)
    objects: dict[Key, JsonObject] = field(default_factory=dict)
    events: list[Occurrence] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    reachable: bool = True
    id: str = API_ID
    version: int = 0
    above: int = 0
    """A gate's epoch that the ledger may be raised above: that gate is ahead."""

    # --- what people do -----------------------------------------------------------------------------------------

    def create(self, plural: str, body: JsonObject) -> JsonObject:
        meta = body["metadata"]
        key = (plural, meta.get("namespace", ""), meta["name"])
        assert key not in self.objects
        stored = copy.deepcopy(body)
        stored.setdefault("status", {})
        stored["metadata"] |= {
            "uid": meta.get("uid") or f"uid-{self.version}",
            "generation": 1,
            "creationTimestamp": timestamps.write(self.clock.now()),
        }
        self._store(key, stored, "ADDED")
        return stored

    def machine_made(self, name: str = gen.MACHINE, **spec: Any) -> JsonObject:
        return self.create("gpumachines", {"metadata": {"name": name, "uid": f"uid-of-{name}"}, "spec": spec})

    def granted(self, name: str, repo: str, device: str, *, namespace: str = "default", **spec: Any) -> JsonObject:
        wanted = {"machine": gen.MACHINE, "repo": repo, "device": device} | spec
        return self.create("repogpugrants", {"metadata": {"name": name, "namespace": namespace}, "spec": wanted})

    def edit(self, plural: str, name: str, change: Mapping[str, Any], *, namespace: str = "default") -> None:
        """Merges `change` into spec and annotations."""
        key = (plural, "" if plural == "gpumachines" else namespace, name)
        stored = copy.deepcopy(self.objects[key])
        if change.get("spec"):
            stored["spec"] |= change["spec"]
            stored["metadata"]["generation"] += 1
        stored["metadata"].setdefault("annotations", {}).update(change.get("annotations", {}))
        self._store(key, stored, "MODIFIED")

    def delete(self, plural: str, name: str, *, namespace: str = "default") -> None:
        key = (plural, "" if plural in ("gpumachines", "namespaces") else namespace, name)
        stored = copy.deepcopy(self.objects[key])
        stored["metadata"].setdefault("deletionTimestamp", timestamps.write(self.clock.now()))
        self._store(key, stored, "MODIFIED")

    def of_machine(self, name: str = gen.MACHINE) -> GpuMachine:
        return read_machine(self.objects["gpumachines", "", name])

    def of_grant(self, name: str, namespace: str = "default") -> RepoGpuGrant:
        return read_grant(self.objects["repogpugrants", namespace, name])

    def has_grant(self, name: str, namespace: str = "default") -> bool:
        return ("repogpugrants", namespace, name) in self.objects

    def says(self, name: str, namespace: str = "default") -> str:
        """`status reason` of a grant's Ready condition; empty: none yet."""
        return ready(self.of_grant(name, namespace))

    # --- what the operator asks ---------------------------------------------------------------------------------

    async def api_id(self) -> str:
        return await self._asked(lambda: self.id)

    async def machines(self) -> list[JsonObject]:
        return await self._asked(lambda: self._of("gpumachines"))

    async def grants(self) -> list[JsonObject]:
        return await self._asked(lambda: self._of("repogpugrants"))

    async def namespaces(self) -> list[JsonObject]:
        return await self._asked(lambda: self._of("namespaces"))

    async def machine(self, name: str) -> GpuMachine | None:
        raw = await self._asked(lambda: self.objects.get(("gpumachines", "", name)))
        return None if raw is None else read_machine(copy.deepcopy(raw))

    async def grant(self, namespace: str, name: str) -> RepoGpuGrant | None:
        raw = await self._asked(lambda: self.objects.get(("repogpugrants", namespace, name)))
        return None if raw is None else read_grant(copy.deepcopy(raw))

    async def put_machine_status(self, machine: GpuMachine, status: GpuMachineStatus) -> GpuMachine:
        """Also asserts design 4: one exclusive repo a device, every holder guarded, the epoch never falls."""

        def act() -> JsonObject:
            stored = self._current("gpumachines", machine)
            self._assert_sound(read_machine(stored), status)
            stored["status"] = status.to_json()
            return self._store(("gpumachines", "", machine.metadata.name), stored, "MODIFIED")

        return read_machine(await self._written("machine status", act))

    async def put_grant_status(self, grant: RepoGpuGrant, status: RepoGpuGrantStatus) -> RepoGpuGrant:
        def act() -> JsonObject:
            stored = self._current("repogpugrants", grant)
            stored["status"] = status.to_json()
            return self._store(_key("repogpugrants", grant), stored, "MODIFIED")

        return read_grant(await self._written("grant status", act))

    async def set_machine_finalizers(self, machine: GpuMachine, finalizers: tuple[str, ...]) -> GpuMachine:
        act = self._finalizing("gpumachines", machine, finalizers)
        return read_machine(await self._written("machine finalizers", act))

    async def set_grant_finalizers(self, grant: RepoGpuGrant, finalizers: tuple[str, ...]) -> RepoGpuGrant:
        act = self._finalizing("repogpugrants", grant, finalizers)
        return read_grant(await self._written("grant finalizers", act))

    async def record(self, occurrence: Occurrence, moment: str) -> None:
        del moment
        await self._asked(lambda: self.events.append(occurrence))

    # --- inside -------------------------------------------------------------------------------------------------

    async def _asked(self, act: Callable[[], T]) -> T:
        if not self.reachable:
            raise ApiUnreachable("the API does not answer")
        if self.fuse.blown:
            raise Stopped
        return act()

    async def _written(self, what: str, act: Callable[[], JsonObject]) -> JsonObject:
        if not self.reachable:
            raise ApiUnreachable("the API does not answer")
        result = await self.fuse.effect(act)
        self.writes.append(what)
        return copy.deepcopy(result)

    def _of(self, plural: str) -> list[JsonObject]:
        return [copy.deepcopy(raw) for key, raw in self.objects.items() if key[0] == plural]

    def _current(self, plural: str, item: GpuMachine | RepoGpuGrant) -> JsonObject:
        stored = self.objects.get(_key(plural, item))
        if stored is None:
            raise NotFound(404, "NotFound", f"{plural} {item.metadata.name} not found")
        seen = (item.metadata.resource_version, item.metadata.uid)
        if seen != (stored["metadata"]["resourceVersion"], stored["metadata"]["uid"]):
            raise Conflict(409, "Conflict", "the object has been modified")
        return copy.deepcopy(stored)

    def _finalizing(
        self, plural: str, item: GpuMachine | RepoGpuGrant, finalizers: tuple[str, ...]
    ) -> Callable[[], JsonObject]:
        def act() -> JsonObject:
            stored = self._current(plural, item)
            before = stored["metadata"].get("finalizers", [])
            added = set(finalizers) - set(before)
            assert not (added and stored["metadata"].get("deletionTimestamp")), "no new finalizers on a deleted object"
            stored["metadata"]["finalizers"] = list(finalizers)
            return self._store(_key(plural, item), stored, "MODIFIED")

        return act

    def _store(self, key: Key, stored: JsonObject, kind: str) -> JsonObject:
        self.version += 1
        stored["metadata"]["resourceVersion"] = str(self.version)
        gone = stored["metadata"].get("deletionTimestamp") and not stored["metadata"].get("finalizers")
        if gone and key[0] != "namespaces":
            del self.objects[key]
            kind = "DELETED"
        else:
            self.objects[key] = stored
        for listener in self.listeners:
            listener(key[0], kind, copy.deepcopy(stored))
        return stored

    def _assert_sound(self, before: GpuMachine, after: GpuMachineStatus) -> None:
        raised = (before.status.ledger_epoch + 1, self.above + 1)
        assert after.ledger_epoch in (before.status.ledger_epoch, max(raised))
        for allocation in after.allocations:
            repos = {holder.repo for holder in allocation.repos}
            reserved = any(grant.exclusive for holder in allocation.repos for grant in holder.grants)
            assert not reserved or len(repos) == 1, f"{allocation.device} is reserved and held by {repos}"
            for holder in allocation.repos:
                for held in holder.grants:
                    raw = self.objects.get(("repogpugrants", held.namespace, held.name))
                    guarded = raw is not None and FINALIZER in raw["metadata"].get("finalizers", ())
                    assert guarded or raw is None or raw["metadata"]["uid"] != held.uid, f"{held.name} has no finalizer"


@dataclass
class Gate:
    """gatelink.Gate in memory. `exclusive` are devices that never two repos may have at once.

    Without an `api` in memory what is stored there isn't looked at.
    """

    api: Api | None
    clock: Clock
    fuse: Fuse = field(default_factory=Fuse)
    repos: dict[str, str] = field(default_factory=lambda: dict(gen.REPOS))
    held: Snapshot | None = None
    retired: tuple[str, ...] = ()
    reachable: bool = True
    pending: list[Pending] = field(default_factory=list)
    unfit: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    bytes_of_inventory: bytes | None = None
    fingerprint: str = ""
    exclusive: frozenset[str] = frozenset()
    pushes: list[int] = field(default_factory=list)
    questions: int = 0
    broken: list[str] = field(default_factory=list)
    """What a snapshot that was sent over a socket broke."""
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with every snapshot that is taken."""

    async def put_snapshot(self, sent: Snapshot) -> SnapshotAnswer:
        """Also asserts that the ledger was stored before, and that no reserved device has two repos."""
        self._reach()

        def act() -> SnapshotAnswer:
            why = snapshot.fence(self.held, self.retired, sent)
            if why is not None:
                raise GateError(why, f"the gate does not take it: {why}")
            self._assert_stored(sent)
            if self.held is not None and self.held.machine_uid != sent.machine_uid:
                self.retired = (*self.retired, self.held.machine_uid)
            self.held = sent
            self.pushes.append(sent.epoch)
            self.moved.set()
            return SnapshotAnswer(
                epoch=sent.epoch, applied_at=self.clock.now(), repos=self._repos(), pending=tuple(self.pending)
            )

        return await self.fuse.effect(act)

    async def status(self, *, in_use: bool = False) -> GateStatus:
        self._reach()
        held = self.held
        return GateStatus(
            machine=gen.MACHINE,
            machine_uid="" if held is None else held.machine_uid,
            api_id="" if held is None else held.api_id,
            epoch=-1 if held is None else held.epoch,
            digest="" if held is None else held.digest,
            grants=tuple(GrantInForce(repo=repo, device=device) for repo, device in self.enforced()),
            repos=self._repos(),
            pending=tuple(self.pending),
            in_use=() if in_use else None,
            fingerprint=self.fingerprint,
            problems=self.problems,
        )

    async def devices(self, *, timeout: float = 1.0) -> DevicesAnswer:  # noqa: ASYNC109  # the protocol's
        del timeout
        self._reach()
        return DevicesAnswer(devices=gen.DEVICES)

    async def inventory(self) -> bytes:
        self._reach()
        if self.bytes_of_inventory is None:
            raise GateError("NotDetected", "there is no inventory")
        return self.bytes_of_inventory

    def enforced(self) -> list[tuple[str, str]]:
        """(repo, device) that the gate lets pass now."""
        grants = () if self.held is None else self.held.grants
        return [(grant.repo, grant.device) for grant in grants if grant.in_force(self.clock.now())]

    def _reach(self) -> None:
        self.questions += 1
        if self.fuse.blown:
            raise Stopped
        if not self.reachable:
            raise GateError("GateUnreachable", "the gate does not answer: connection refused")

    def _repos(self) -> tuple[RepoStatus, ...]:
        return tuple(
            RepoStatus(name=name, id=repo_id, fit=name not in self.unfit, sealed=True, reason=self.unfit.get(name, ""))
            for name, repo_id in self.repos.items()
        )

    def _assert_stored(self, sent: Snapshot) -> None:
        if self.api is not None:
            stored = self.api.of_machine(sent.machine)
            assert sent.epoch <= stored.status.ledger_epoch, "a snapshot is sent before its ledger is stored"
            if sent.epoch == stored.status.ledger_epoch:
                assert sent.grants == read_ledger(stored.status).snapshot_grants()
        for device in self.exclusive:
            repos = {grant.repo for grant in sent.grants if grant.device == device}
            assert len(repos) <= 1, f"{device} is enforced for {repos}"


@asynccontextmanager
async def served(gate: Gate, socket: Path) -> AsyncIterator[None]:
    """The gate on a real socket, as design 6 says."""

    async def put(request: web.Request) -> web.Response:
        try:
            sent = Snapshot.model_validate_json(await request.read())
        except ValidationError as error:
            return _error(422, "Malformed", str(error))
        try:
            return web.json_response((await gate.put_snapshot(sent)).to_json())
        except GateError as error:
            return _error(409, error.reason, error.message)
        except AssertionError as error:
            gate.broken.append(str(error))
            return _error(500, "Broken", str(error))

    async def status(request: web.Request) -> web.Response:
        return web.json_response((await gate.status(in_use=request.query.get("inUse") == "1")).to_json())

    async def devices(_: web.Request) -> web.Response:
        return web.json_response((await gate.devices()).to_json())

    async def the_inventory(_: web.Request) -> web.Response:
        if gate.bytes_of_inventory is None:
            return _error(404, "NotDetected", "there is no inventory")
        return web.Response(body=gate.bytes_of_inventory)

    app = web.Application()
    app.router.add_put("/v1/snapshot", put)
    app.router.add_get("/v1/status", status)
    app.router.add_get("/v1/devices", devices)
    app.router.add_get("/v1/inventory", the_inventory)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    socket.parent.mkdir(parents=True, exist_ok=True)
    try:
        await web.UnixSite(runner, str(socket)).start()
        yield
    finally:
        await runner.cleanup()
        socket.unlink(missing_ok=True)


def _error(status: int, reason: str, message: str) -> web.Response:
    return web.json_response({"reason": reason, "message": message}, status=status)


def inventory(
    devices: tuple[str, ...] = gen.DEVICES,
    *,
    gpus: tuple[Gpu, ...] | None = None,
    made: datetime = gen.NOW,
    **more: Any,
) -> Inventory:
    """An inventory with these grantable names and one card."""
    return Inventory(
        generated_at=timestamps.write(made),
        hostname=gen.MACHINE,
        platform="native",
        gpus=(gpu(),) if gpus is None else gpus,
        **({"cdi": Cdi(devices=tuple(CdiDevice(name=name, usable=True) for name in devices))} | more),
    )


def gpu(name: str = "NVIDIA L40S", vendor: str = "nvidia", driver_version: str | None = "580.1", **more: Any) -> Gpu:
    return Gpu.model_validate(
        {
            "id": f"pci:{name}",
            "vendor": vendor,
            "name": name,
            "name_source": "sysfs",
            "driver_version": driver_version,
            "health": Health(state="ok", reason="Ok"),
        }
        | more
    )


def ready(item: GpuMachine | RepoGpuGrant, kind: str = "Ready") -> str:
    """`status reason` of a condition; empty: there is none."""
    return next((f"{c.status} {c.reason}" for c in item.status.conditions if c.type == kind), "")


def _key(plural: str, item: GpuMachine | RepoGpuGrant) -> Key:
    return (plural, item.metadata.namespace, item.metadata.name)


class Operator:
    """One operator process in this world: what it knows is its own and ends with it; it hears of every change."""

    def __init__(self, api: Api, gate: Gate, clock: Clock, root: Path, *, run: tuple[str, ...] = ()) -> None:
        self.cache = Cache()
        self.queue = WorkQueue(clock.monotonic, lambda: 0.5)
        self.link = GateLink(gate, clock.monotonic)
        self.node = LocalNode(Layout(root), root, gen.MACHINE, self.link)
        self.detector = Detector(run, clock.now)
        self.recorder = Recorder(api, clock.now, clock.monotonic)
        self.reconciler = Reconciler(
            api=api,
            api_id=api.id,
            cache=self.cache,
            node=self.node,
            detector=self.detector,
            recorder=self.recorder,
            now=clock.now,
        )
        self.controller = Controller(
            api=api,
            api_id=api.id,
            cache=self.cache,
            queue=self.queue,
            node=self.node,
            detector=self.detector,
            recorder=self.recorder,
            reconciler=self.reconciler,
            now=clock.now,
            random=lambda: 0.5,
            hear_patience=0.0,
        )
        self._api = api

    def listen(self) -> None:
        """From now on its watches tell it everything at once."""
        self._api.listeners[:] = [self.controller.heard]

    async def start(self) -> None:
        self.listen()
        await self.controller.sync()

    async def reconcile(self, name: str = gen.MACHINE) -> Again:
        return await self.reconciler.reconcile(name)


@dataclass
class World:
    """The parts that outlive an operator."""

    root: Path
    clock: Clock = field(default_factory=Clock)
    fuse: Fuse = field(default_factory=Fuse)

    def __post_init__(self) -> None:
        self.api = Api(self.clock, self.fuse)
        self.gate = Gate(self.api, self.clock, self.fuse)
        self.gate.bytes_of_inventory = inventory().dump().encode()

    async def operator(self, *, run: tuple[str, ...] = ()) -> Operator:
        """A fresh process that has read its lists; an older one hears nothing any more."""
        made = Operator(self.api, self.gate, self.clock, self.root, run=run)
        await made.start()
        return made

    async def settled(self, *names: str) -> Operator:
        """A fresh process that has brought these machines to rest."""
        made = await self.operator()
        for name in names or (gen.MACHINE,):
            await made.reconcile(name)
        return made
