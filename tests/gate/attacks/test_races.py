"""Many at once, to catch the moment between a look and what follows from it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import pytest

import intruder
import rig
from intruder import cdi, host

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

DEVICE = "rediacc.io/amd=gpu0"
"""Nobody holds it before or afterwards."""


def meanwhile(works: list[Callable[[], None]], done: threading.Event) -> ExitStack:
    """Each of them again and again, until the block ends."""

    def loop(work: Callable[[], None]) -> None:
        while not done.is_set():
            work()

    threads = [threading.Thread(target=loop, args=(work,)) for work in works]
    stack = ExitStack()
    for thread in threads:
        thread.start()
        stack.callback(thread.join)
    stack.callback(done.set)
    return stack


@pytest.mark.req("R6", "R51")
def test_nothing_begins_once_a_revocation_has_returned(system: rig.System, ground_a: intruder.Ground) -> None:
    gate, judge = ground_a.gate, ground_a.judge
    before = judge.look()
    begun: list[float] = []
    rig.succeeded(system.rdc("repo", "gpu", "grant", "gpu-a", "--device", DEVICE))

    def worker(name: str) -> Callable[[], None]:
        def work() -> None:
            since = time.time()
            made, _ = intruder.ask(gate, "POST", f"/containers/create?name={name}-again", cdi(DEVICE))
            started, _ = intruder.ask(gate, "POST", f"/containers/{name}/start")
            if made == 201 or started == 204:
                begun.append(since)
            intruder.ask(gate, "POST", f"/containers/{name}/restart?t=0")
            intruder.ask(gate, "POST", f"/containers/{name}/stop?t=0")
            intruder.ask(gate, "DELETE", f"/containers/{name}-again")

        return work

    try:
        names = [f"racer{number}" for number in range(4)]
        for name in names:
            status, said = intruder.ask(gate, "POST", f"/containers/create?name={name}", cdi(DEVICE))
            assert status == 201, said
        with meanwhile([worker(name) for name in names], threading.Event()):
            time.sleep(1)
            rig.succeeded(system.rdc("repo", "gpu", "revoke", "gpu-a", "--device", DEVICE))
            returned = time.time()
            time.sleep(1)
        assert begun, "nothing ran while it was granted"
        assert max(begun) <= returned
        for name in names:
            _, found = intruder.ask(judge.daemon, "GET", f"/containers/{name}/json")
            assert _moment(found["State"]["StartedAt"]) <= returned, name
    finally:
        system.rdc("repo", "gpu", "revoke", "gpu-a", "--device", DEVICE)
        judge.clear(before)


def _moment(text: str) -> float:
    """Docker's time of nine decimals; 0 for a container that was never started."""
    return 0.0 if text.startswith("0001") else datetime.fromisoformat(f"{text[:19]}+00:00").timestamp()


@pytest.mark.req("R4", "R45")
def test_a_name_that_changes_hands_lends_nothing(ground_a: intruder.Ground) -> None:
    """A container that was made past the gate takes the name of a harmless one, and gives it back, all the time."""
    gate, judge = ground_a.gate, ground_a.judge
    before = judge.look()
    tried: list[int] = []

    def ask(path: str, body: Any = None) -> int:
        status, _ = intruder.ask(gate, "POST", f"/containers/{path}", body)
        return status

    def swap() -> None:
        for path in ("own/rename?name=away", "stale/rename?name=own", "own/rename?name=stale", "away/rename?name=own"):
            ask(path)

    def use() -> None:
        tried.append(ask("own/start"))
        tried.append(ask("own/exec", {"Cmd": ["id"]}))
        tried.append(ask("own/update", {"RestartPolicy": {"Name": "always"}}))
        tried.append(ask("own/restart?t=0"))
        ask("own/stop?t=0")

    try:
        _, stale = intruder.ask(judge.daemon, "POST", "/containers/create?name=stale", host(Privileged=True))
        assert ask("create?name=own", host()) == 201
        with meanwhile([swap, use, use], threading.Event()):
            time.sleep(4)
        found = judge.look().containers[stale["Id"]]
        assert found["State"]["StartedAt"].startswith("0001")
        assert found["HostConfig"]["RestartPolicy"]["Name"] in ("", "no")
        assert not found["ExecIDs"]
        assert {status for status in tried if status < 300}, "the harmless one was never reached"
        assert 403 in tried, "the other one was never asked for"
    finally:
        judge.clear(before)
