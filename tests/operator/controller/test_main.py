"""The operator as a process: real kopf, a real API server over TLS, a gate on its socket, kill -9 and SIGTERM."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import gen
import rig
import world as worlds
from gpugrant_crds import schema
from gpugrant_crds.layout import Layout
from gpugrant_operator.apiserver import server
from gpugrant_operator.apiserver.settings import Settings
from gpugrant_operator.controller.api import KubeApi
from gpugrant_operator.kubeclient import ApiError, KubeClient, NotFound, read_kubeconfig
from gpugrant_operator.reconcile.transitions import Occurrence
from world import Clock, Gate

pytestmark = [pytest.mark.real]

ALL = "nvidia.com/gpu=all"
BASE = "/apis/gpu.rediacc.io/v1alpha1"
GRANTS = f"{BASE}/namespaces/default/repogpugrants"
MACHINE = f"{BASE}/gpumachines/{gen.MACHINE}"
RUN = """
import sys
from pathlib import Path
from gpugrant_operator.controller.main import run
sys.exit(run(Path(sys.argv[1]), hardware=Path(sys.argv[2])))
"""


@dataclass
class Process:
    """One `gpugrant operator`."""

    child: asyncio.subprocess.Process

    async def ended(self, number: signal.Signals) -> int:
        self.child.send_signal(number)
        return await self.child.wait()

    async def said(self) -> str:
        assert self.child.stderr is not None
        return (await self.child.stderr.read()).decode()


@dataclass
class Site:
    """One root with an API server, a gate and operators; `api` is a client with the kubeconfig's token."""

    root: Path
    stack: AsyncExitStack
    hardware: Path
    gate: Gate = field(default_factory=lambda: Gate(None, Clock()))
    processes: list[Process] = field(default_factory=list)
    api: KubeClient = field(init=False)

    @property
    def layout(self) -> Layout:
        return Layout(self.root)

    def settings(self, *, admission: bool = True) -> Settings:
        return Settings(root=self.root, crds=schema.crds(), admission=admission)

    async def serve(self, *, admission: bool = True) -> None:
        await self.stack.enter_async_context(server.running(self.settings(admission=admission)))
        await self.connect()

    async def connect(self) -> None:
        client = KubeClient(read_kubeconfig((self.layout.kubeconfig,)), agent="test")
        self.api = await self.stack.enter_async_context(client)

    async def open_gate(self) -> None:
        await self.stack.enter_async_context(worlds.served(self.gate, self.layout.control("gate")))

    async def operator(self) -> Process:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            RUN,
            str(self.root),
            str(self.hardware),
            env={"PATH": "/usr/bin:/bin"},
            stderr=asyncio.subprocess.PIPE,
        )
        self.processes.append(Process(child))
        return self.processes[-1]

    async def machine(self) -> None:
        await self.api.post(
            f"{BASE}/gpumachines",
            {"apiVersion": "gpu.rediacc.io/v1alpha1", "kind": "GpuMachine", "metadata": {"name": gen.MACHINE}},
        )

    async def grant(self, name: str, repo: str, device: str = ALL, **spec: Any) -> None:
        body = {"machine": gen.MACHINE, "repo": repo, "device": device} | spec
        metadata = {"name": name, "namespace": "default"}
        grant = {"apiVersion": "gpu.rediacc.io/v1alpha1", "kind": "RepoGpuGrant", "metadata": metadata, "spec": body}
        await self.api.post(GRANTS, grant)

    async def ready(self, path: str) -> str:
        """`status reason` of the Ready condition; `gone` where there is no such object."""
        try:
            status = (await self.api.get(path)).get("status") or {}
        except NotFound:
            return "gone"
        return next((f"{c['status']} {c['reason']}" for c in status.get("conditions", ()) if c["type"] == "Ready"), "")

    async def becomes(self, path: str, wanted: str) -> None:
        await until(lambda: self.ready(path), lambda said: said == wanted, f"{path} is not {wanted}")

    async def health(self) -> dict[str, Any]:
        connector = aiohttp.UnixConnector(str(self.layout.control("operator")))
        try:
            async with aiohttp.ClientSession(connector=connector) as session, session.get("http://o/healthz") as answer:
                said: dict[str, Any] = await answer.json()
                return said
        except aiohttp.ClientError:
            return {"ok": False, "message": "nobody there"}

    async def healthy(self) -> None:
        await until(self.health, lambda said: bool(said["ok"]), "the operator is not well")


async def until(ask: Callable[[], Any], holds: Callable[[Any], bool], otherwise: str) -> Any:
    """Asks until it is so."""
    deadline = time.monotonic() + 60
    while not holds(said := await ask()):
        assert time.monotonic() < deadline, f"{otherwise}: {said}"
        await asyncio.sleep(0.01)
    return said


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    root = rig.short_folder()
    hardware = root / "hardware"
    (hardware / "etc").mkdir(parents=True)
    (hardware / "etc/hostname").write_text(gen.MACHINE)
    try:
        async with AsyncExitStack() as stack:
            made = Site(root, stack, hardware)
            made.gate.bytes_of_inventory = worlds.inventory().dump().encode()
            try:
                yield made
            finally:
                for process in made.processes:
                    if process.child.returncode is None:
                        await process.ended(signal.SIGKILL)
                    await process.said()
    finally:
        shutil.rmtree(root)


@pytest.mark.req("D4", "D8", "D12", "R6", "R51")
async def test_from_a_grant_to_the_gate_and_back() -> None:
    """Create: enforced, Ready, an Event. Delete: gone from the gate, then from the API. At rest nothing is written."""
    async with site() as it:
        await it.serve()
        await it.open_gate()
        process = await it.operator()
        await it.machine()
        await it.becomes(MACHINE, "True Synced")
        await it.grant("g", "gpu-a")

        await it.becomes(f"{GRANTS}/g", "True Enforced")
        assert it.gate.enforced() == [("gpu-a", ALL)]
        await until(
            lambda: it.api.list("/api/v1/namespaces/default/events"),
            lambda events: {"Synced", "Enforced"} <= {event["reason"] for event in events},
            "the Events are not there",
        )
        await it.healthy()

        rest = [await it.api.get(path) for path in (MACHINE, f"{GRANTS}/g")]
        assert await process.ended(signal.SIGTERM) == 0
        await it.operator()
        await it.healthy()
        await until(lambda: asyncio.sleep(0, it.gate.questions), lambda asked: asked > 5, "the gate was not asked")
        assert [await it.api.get(path) for path in (MACHINE, f"{GRANTS}/g")] == rest

        it.gate.moved.clear()
        await it.api._request("DELETE", f"{GRANTS}/g")
        await it.becomes(f"{GRANTS}/g", "gone")
        assert it.gate.enforced() == []


async def test_it_stops_in_time_and_alone() -> None:
    """A second one below the same root is refused with a sentence; SIGTERM ends the first in under 2 s, exit 0."""
    async with site() as it:
        await it.serve()
        await it.open_gate()
        await it.machine()
        first = await it.operator()
        await it.healthy()
        lock = json.loads(it.layout.lock("operator").read_text())
        second = await it.operator()
        assert await second.child.wait() == 1
        assert f"an operator already runs here (pid {first.child.pid} since {lock['since']})" in await second.said()

        start = time.monotonic()
        assert await first.ended(signal.SIGTERM) == 0
        assert time.monotonic() - start < 2
        assert not it.layout.control("operator").exists()


async def test_it_stops_in_time_while_the_api_is_away() -> None:
    """Whatever kopf waits for."""
    async with site() as it:
        await it.open_gate()
        async with server.running(it.settings()):
            await it.connect()
            await it.machine()
            process = await it.operator()
            await it.healthy()
        await until(it.health, lambda said: not said["ok"], "it takes no notice of the API's end")

        start = time.monotonic()
        assert await process.ended(signal.SIGTERM) == 0
        assert time.monotonic() - start < 2


@pytest.mark.req("D4")
@pytest.mark.parametrize("lost", ["pki", "."], ids=["certificates and token", "the whole store"])
async def test_a_server_that_was_set_up_anew(lost: str) -> None:
    """Its kubeconfig, or its store, is another: exit 1, and the next process starts from what is there now."""
    async with site() as it:
        await it.open_gate()
        async with server.running(it.settings()) as first:
            await it.connect()
            await it.machine()
            process = await it.operator()
            await it.healthy()
            port = first.port
        shutil.rmtree(it.layout.store / lost, ignore_errors=True)
        await it.stack.enter_async_context(server.running(replace(it.settings(), port=port)))

        async with asyncio.timeout(60):
            assert await process.child.wait() == 1
        await it.operator()
        await it.healthy()


async def test_it_waits_for_the_api() -> None:
    """No kubeconfig, then an API: it says what it waits for and starts by itself."""
    async with site() as it:
        await it.open_gate()
        await it.operator()
        said = await until(it.health, lambda said: "kubeconfig" in said["message"], "it does not say what it waits for")
        assert not said["ok"]

        await it.serve()
        await it.machine()
        await it.becomes(MACHINE, "True Synced")
        await it.healthy()


@pytest.mark.req("D7", "R28")
async def test_an_api_that_restarts() -> None:
    """Grants that are made and deleted while nobody watched are enforced and released afterwards."""
    async with site() as it:
        await it.open_gate()
        async with server.running(it.settings()):
            await it.connect()
            await it.machine()
            await it.grant("before", "gpu-a")
            await it.operator()
            await it.becomes(f"{GRANTS}/before", "True Enforced")
        said = await until(it.health, lambda said: not said["ok"], "it takes no notice of the API's end")
        assert "does not answer" in said["message"]

        await it.serve()
        await it.grant("after", "gpu-b")
        await it.api._request("DELETE", f"{GRANTS}/before")
        await it.becomes(f"{GRANTS}/after", "True Enforced")
        await it.becomes(f"{GRANTS}/before", "gone")
        await it.healthy()
        assert it.gate.enforced() == [("gpu-b", ALL)]


@pytest.mark.req("R25", "R26", "R27", "R28", "D7")
async def test_fifty_writers_without_admission() -> None:
    """The front door is off: fifty exclusive wishes at once, one holder, and the others told who it is."""
    async with site() as it:
        it.gate.repos = {f"r{number}": f"id-{number}" for number in range(50)}
        it.gate.exclusive = frozenset({ALL})
        await it.serve(admission=False)
        await it.open_gate()
        await it.operator()
        await it.machine()
        await it.becomes(MACHINE, "True Synced")

        barrier = asyncio.Barrier(50)

        async def wish(number: int) -> None:
            async with KubeClient(read_kubeconfig((it.layout.kubeconfig,))) as client:
                await client.get(MACHINE)
                await barrier.wait()
                spec = {"machine": gen.MACHINE, "repo": f"r{number}", "device": ALL, "exclusive": True}
                head = {"apiVersion": "gpu.rediacc.io/v1alpha1", "kind": "RepoGpuGrant"}
                await client.post(GRANTS, head | {"metadata": {"name": f"g{number}"}, "spec": spec})

        await asyncio.gather(*(wish(number) for number in range(50)))
        said = await until(
            lambda: asyncio.gather(*(it.ready(f"{GRANTS}/g{number}") for number in range(50))),
            lambda said: set(said) == {"True Enforced", "False ExclusiveHeld"},
            "not all are told",
        )

        assert said.count("True Enforced") == 1
        assert it.gate.enforced() == [(f"r{said.index('True Enforced')}", ALL)]
        assert it.gate.broken == []


@pytest.mark.req("D7", "D8", "R28")
async def test_kill_9_again_and_again() -> None:
    """While an exclusive device changes hands: the last wish is enforced, and never two repos have it."""
    async with site() as it:
        it.gate.exclusive = frozenset({ALL})
        await it.serve(admission=False)
        await it.open_gate()
        await it.machine()
        process = await it.operator()
        await it.becomes(MACHINE, "True Synced")

        for turn in range(6):
            holder = ("gpu-a", "gpu-b")[turn % 2]
            it.gate.moved.clear()
            await it.grant(f"turn-{turn}", holder, exclusive=True)
            if turn:
                await it.api._request("DELETE", f"{GRANTS}/turn-{turn - 1}")
            async with asyncio.timeout(60):
                await it.gate.moved.wait()
            await process.ended(signal.SIGKILL)
            await process.said()
            process = await it.operator()

        await it.becomes(f"{GRANTS}/turn-5", "True Enforced")
        await it.becomes(f"{GRANTS}/turn-4", "gone")
        assert it.gate.enforced() == [("gpu-b", ALL)]
        assert it.gate.broken == []


@pytest.mark.req("D5", "R10", "D13")
async def test_it_detects_its_machine() -> None:
    """Real `renet setup` on a recorded tree; its cards and names stand in the status."""
    async with site() as it:
        it.hardware = rig.CHECKOUT / "examples/machines/workstation"
        it.gate.bytes_of_inventory = None
        (it.layout.gate_settings.parent).mkdir(parents=True)
        it.layout.gate_settings.write_text(f"nodeName: {gen.MACHINE}\n")
        await it.serve()
        await it.open_gate()
        await it.machine()
        await it.operator()

        await it.becomes(MACHINE, "True Synced")

        status = (await it.api.get(MACHINE))["status"]
        names = {device["name"] for device in status["devices"]}
        assert {ALL, "rediacc.io/amd=gpu0"} <= names
        assert status["gpuCount"] == len(status["gpus"]) > 1
        assert json.loads(it.layout.inventory.read_text())["contentHash"] == status["inventoryHash"]


async def test_an_event_counts_up() -> None:
    """The same occurrence again: one Event with a higher count."""
    async with site() as it:
        await it.serve()
        api = KubeApi(it.api)
        occurrence = Occurrence("GpuMachine", "", gen.MACHINE, "u1", "Warning", "DetectionFailed", "the card hangs")
        await api.record(occurrence, "2026-03-01T12:00:00Z")
        await api.record(occurrence, "2026-03-01T12:05:00Z")

        (event,) = await it.api.list("/api/v1/namespaces/default/events")

    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (
        2,
        "2026-03-01T12:00:00Z",
        "2026-03-01T12:05:00Z",
    )


async def test_writes_are_compare_and_swap() -> None:
    """A status and finalizers that were decided on an old version are refused by the real server."""
    async with site() as it:
        await it.serve()
        await it.machine()
        await it.grant("g", "gpu-a")
        api = KubeApi(it.api)
        machine, grant = await api.machine(gen.MACHINE), await api.grant("default", "g")
        assert machine is not None
        assert grant is not None
        stored = await api.put_machine_status(machine, machine.status.model_copy(update={"ledger_epoch": 1}))
        guarded = await api.set_grant_finalizers(grant, ("a.b/c",))

        assert stored.status.ledger_epoch == 1
        assert guarded.metadata.finalizers == ("a.b/c",)
        for write in (
            lambda: api.put_machine_status(machine, machine.status),
            lambda: api.set_machine_finalizers(machine, ()),
            lambda: api.put_grant_status(grant, grant.status),
            lambda: api.set_grant_finalizers(grant, ()),
        ):
            with pytest.raises(ApiError) as error:
                await write()
            assert error.value.status == 409
        assert await api.machine("nobody") is None
        assert await api.grant("default", "nobody") is None
