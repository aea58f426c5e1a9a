"""The sweep of one repo on real sockets, before a daemon that is slow, forgetful or can't end a container."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gatebench import DEVICE, Bench, FakeDaemon, OneOfEach, bench_of, reply
from gpugrant_crds.snapshot import Case
from gpugrant_gate.life.admitted import Admitted, Book
from gpugrant_gate.net.watched import Means
from gpugrant_gate.settings import Limits

STARTED = "2026-03-01T08:00:00Z"


@dataclass(slots=True)
class Containers:
    """A daemon's containers, with what a client can do to them."""

    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    orders: list[str] = field(default_factory=list)
    """What was told, as `what id`."""
    immortal: bool = False
    """No signal ends one."""
    listeners: list[asyncio.StreamWriter] = field(default_factory=list)
    inspecting: int = 0
    most_inspecting: int = 0
    inspect_takes: float = 0.0

    def add(self, name: str, *devices: str, state: str = "running", policy: str = "always") -> str:
        id_ = name * 64
        requests = [{"Driver": "cdi", "Count": 0, "DeviceIDs": list(devices)}] if devices else None
        self.held[id_] = {
            "Id": id_,
            "Name": f"/{name}",
            "State": {"Status": state, "StartedAt": STARTED, "Error": ""},
            "HostConfig": {"DeviceRequests": requests, "RestartPolicy": {"Name": policy}},
        }
        return id_

    def tell(self, id_: str) -> None:
        """An event of it, to all who listen."""
        event = json.dumps({"Type": "container", "Action": "start", "Actor": {"ID": id_}}).encode() + b"\n"
        for writer in self.listeners:
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))

    async def answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = head.decode().split(" ", 2)
        path = target.partition("?")[0].split("/")[2:]
        if path == ["events"]:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.listeners.append(writer)
            await reader.read(1)
            self.listeners.remove(writer)
        elif path == ["containers", "json"]:
            writer.write(reply(json.dumps([{"Id": id_} for id_ in self.held]).encode()))
        elif method == "GET":
            await self._inspect(path[1], writer)
        else:
            self._order(path[2], path[1])
            writer.write(reply(b"{}", "200 OK" if path[2] == "update" else "204 No Content"))

    async def _inspect(self, id_: str, writer: asyncio.StreamWriter) -> None:
        self.inspecting += 1
        self.most_inspecting = max(self.most_inspecting, self.inspecting)
        await asyncio.sleep(self.inspect_takes)
        self.inspecting -= 1
        found = self.held.get(id_)
        writer.write(reply(b"{}", "404 Not Found") if found is None else reply(json.dumps(found).encode()))

    def _order(self, what: str, id_: str) -> None:
        self.orders.append(f"{what} {id_[0]}")
        if what == "update":
            self.held[id_]["HostConfig"]["RestartPolicy"]["Name"] = "no"
        elif not self.immortal:
            self.held[id_]["State"]["Status"] = "exited"


@dataclass(slots=True)
class Swept:
    bench: Bench
    containers: Containers
    cases: list[Case]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not true():  # noqa: ASYNC110  # what is waited for is another's doing
                await asyncio.sleep(0.01)

    def reasons(self) -> list[str]:
        return [case.reason for case in self.cases]

    def pending(self) -> list[tuple[str, str]]:
        return [(entry.device, entry.reason) for entry in self.bench.core.pending()]


@asynccontextmanager
async def swept(folder: Path, containers: Containers, *, enforces: bool = True) -> AsyncIterator[Swept]:
    """A core that looks at these containers; the device is granted."""
    cases: list[Case] = []
    means = Means(enforces, asyncio.Semaphore(32), folder / "admitted")
    async with bench_of(folder, Limits(), OneOfEach(), sweep=means, found=cases.append) as bench:
        serve(bench.daemon, containers)
        bench.grant(DEVICE)
        made = Swept(bench, containers, cases)
        await made.until(lambda: bool(bench.statuses) and not bench.statuses[-1].unseen)
        yield made


def serve(daemon: FakeDaemon, containers: Containers) -> None:
    daemon.handlers["v1.51"] = containers.answer


@pytest.mark.req("R6")
async def test_an_answer_waits_for_the_look_after_it(folder: Path) -> None:
    containers = Containers()
    containers.add("a", DEVICE)
    async with swept(folder, containers) as made:
        made.bench.grant(epoch=2)
        assert made.pending() == [(DEVICE, "")]
        async with asyncio.timeout(10):
            await made.bench.core.settled()

        assert made.pending() == []
        assert containers.orders == ["update a"]
        assert made.reasons() == ["RestartPolicyRemoved"]
        assert Book(folder / "admitted", "a", "id-a").read().containers["a" * 64] == Admitted({DEVICE: ""}, STARTED)


async def test_a_container_that_survives_a_kill_is_pending_with_its_reason(folder: Path) -> None:
    """It is never taken for gone, and nothing else waits for it."""
    containers = Containers(immortal=True)
    async with swept(folder, containers) as made:
        containers.add("n", "rediacc.io/dri=renderD128", policy="no")
        containers.tell("n" * 64)
        await made.until(lambda: "RevokeStuck" in made.reasons())

        assert made.pending() == [("rediacc.io/dri=renderD128", "RevokeStuck")]
        assert "survives being killed" in made.bench.core.pending()[0].message
        assert containers.orders[:2] == ["stop n", "kill n"]
        made.bench.grant(epoch=2)
        async with asyncio.timeout(10):
            await made.bench.core.settled()
        containers.immortal = False
        await made.until(lambda: made.pending() == [])


async def test_an_event_that_was_dropped_is_made_up_for_by_the_next_list(folder: Path) -> None:
    containers = Containers()
    async with swept(folder, containers) as made:
        containers.add("n", "rediacc.io/dri=renderD128")
        for writer in list(containers.listeners):
            writer.transport.abort()  # the daemon comes back
        await made.until(lambda: containers.held["n" * 64]["State"]["Status"] == "exited")

        assert made.reasons() == ["UngrantedDeviceInUse", "RestartPolicyRemoved", "ContainerStopped"]


async def test_three_thousand_events_cost_one_look_each_at_most(folder: Path) -> None:
    """What comes while one is looked at is looked at once; at most four of a repo at the same time."""
    containers = Containers(inspect_takes=0.002)
    plain = [containers.add(chr(97 + number), policy="no") for number in range(20)]
    async with swept(folder, containers) as made:
        before = len(made.bench.daemon.heads)
        for number in range(3000):
            containers.tell(plain[number % 20])
        containers.add("z", "rediacc.io/dri=renderD128")
        containers.tell("z" * 64)
        await made.until(lambda: "stop z" in containers.orders)

        # a container without hardware is known as such, and not asked for again
        assert len(made.bench.daemon.heads) - before < 30
        assert containers.most_inspecting <= 4


async def test_where_it_only_reports_nothing_is_told_to_the_daemon(folder: Path) -> None:
    containers = Containers()
    async with swept(folder, containers, enforces=False) as made:
        containers.add("n", "rediacc.io/dri=renderD128")
        containers.tell("n" * 64)
        await made.until(lambda: made.reasons() == ["UngrantedDeviceInUse"])
        made.bench.grant(epoch=2)
        async with asyncio.timeout(10):
            await made.bench.core.settled()

        assert containers.orders == []


async def test_a_daemon_that_is_gone_keeps_no_answer_waiting(folder: Path) -> None:
    containers = Containers()
    containers.add("a", DEVICE)
    async with swept(folder, containers) as made:
        await made.bench.daemon.stop()
        for writer in list(containers.listeners):
            writer.transport.abort()
        made.bench.grant(epoch=2)
        async with asyncio.timeout(10):
            await made.bench.core.settled()
        assert made.pending() == []

        await made.bench.daemon.start()
        await made.until(lambda: "update a" in containers.orders)


async def test_without_a_snapshot_nothing_is_known_and_nothing_done(folder: Path) -> None:
    containers = Containers()
    containers.add("a", DEVICE)
    means = Means(True, asyncio.Semaphore(32), folder / "admitted")
    async with bench_of(folder, Limits(), OneOfEach(), sweep=means) as bench:
        serve(bench.daemon, containers)
        bench.grant(epoch=-1)
        await asyncio.sleep(1)

        assert containers.orders == []
        assert bench.core.statuses()[0].unseen
