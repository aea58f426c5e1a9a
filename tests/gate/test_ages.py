"""A snapshot gets too old and a grant ends: a gate of its own process, with restarts and a clock that is set back."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

import rig
from gateprocess import DEVICE, GateProcess
from gpugrant_crds import snapshot
from gpugrant_crds.snapshot import GrantRef, Snapshot, SnapshotGrant, SnapshotPolicy
from gpugrant_gate.life import clock

pytestmark = pytest.mark.timeout(120)


@pytest_asyncio.fixture
async def gate() -> AsyncIterator[GateProcess]:
    process = GateProcess(rig.short_folder())
    process.prepare()
    await process.add_repo("a")
    yield process
    await process.close()
    shutil.rmtree(process.root)


def made(epoch: int, *, expires: datetime | None = None, age: int | None = None) -> Snapshot:
    ref = GrantRef(namespace="default", name="g", uid="u")
    return snapshot.build(
        api_id="api",
        machine="wsl-gpu",
        machine_uid="m1",
        epoch=epoch,
        issued_at=datetime(2026, 3, 1, tzinfo=UTC),
        grants=(SnapshotGrant(repo="a", repo_id="id-a", device=DEVICE, expires_at=expires, grant=ref),),
        policy=None if age is None else SnapshotPolicy(max_snapshot_age=age),
    )


async def sent(gate: GateProcess, its: Snapshot) -> None:
    status, answer = await gate.put(its)
    assert status == 200, answer


async def admits(gate: GateProcess) -> bool:
    return (await gate.create())[0] == 201


def specs(gate: GateProcess) -> list[str]:
    return [path.name for path in gate.layout.sealed_repo("id-a").iterdir()]


async def test_a_snapshot_that_is_too_old_gives_no_hardware(gate: GateProcess) -> None:
    """From its receipt on, also over a restart; the same snapshot again is a new receipt."""
    await gate.start()
    await sent(gate, made(1, age=6))
    await gate.until(lambda: admits(gate))
    await asyncio.sleep(3)
    await sent(gate, made(1, age=6))
    await asyncio.sleep(4)
    assert await admits(gate)
    assert specs(gate)

    async def is_over() -> bool:
        return not await admits(gate)

    await gate.until(is_over)
    _, message = await gate.create()
    assert "grant snapshot is older than its maxSnapshotAge allows" in message

    async def says_so() -> bool:
        _, status = await gate.control("GET", "/v1/status")
        return not status["grants"] and any("maxSnapshotAge" in problem for problem in status["problems"])

    await gate.until(says_so)
    await gate.until(lambda: asyncio.to_thread(lambda: not specs(gate)))

    await gate.stop()
    await gate.start()
    await gate.until_served("a")
    assert not await admits(gate)
    await sent(gate, made(1, age=6))
    await gate.until(lambda: admits(gate))


@pytest.mark.parametrize("what", ["grant", "snapshot"])
async def test_a_clock_that_is_set_back_revives_nothing(gate: GateProcess, what: str) -> None:
    """While no gate ran: the file says how late it was at least, which is what a clock set back looks like."""
    await gate.start()
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=6)
    await sent(gate, made(1, expires=soon if what == "grant" else None, age=6 if what == "snapshot" else None))
    await gate.until(lambda: admits(gate))
    await gate.stop()
    kept = json.loads(gate.layout.snapshot.read_text())
    # as if the wall clock had been an hour ahead until now, and boot time had gone on
    shift = 3600.0
    kept["clock"]["wall"] += shift
    kept["received"] += shift
    if what == "grant":
        kept["snapshot"] = made(1, expires=soon + timedelta(seconds=shift)).to_json()
    gate.layout.snapshot.write_text(json.dumps(kept))

    await gate.start()
    await gate.until_served("a")
    await asyncio.sleep(kept["clock"]["boottime"] + 8 - time.clock_gettime(time.CLOCK_BOOTTIME))
    assert not await admits(gate)
    await gate.stop()

    # reached is reached, also in another boot
    latched = json.loads(gate.layout.snapshot.read_text())
    assert latched["clock"]["wall"] >= kept["clock"]["wall"] + 4.5
    latched["clock"]["bootId"] = "another"
    gate.layout.snapshot.write_text(json.dumps(latched))
    await gate.start()
    await gate.until_served("a")
    assert not await admits(gate)
    assert clock.boot_id() not in ("", "another")
