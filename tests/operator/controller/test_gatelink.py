"""The line to a gate: reports, silence, refusals."""

from __future__ import annotations

import asyncio

import pytest

import gen
from gpugrant_crds import snapshot
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import GateStatus, Snapshot, SnapshotAnswer
from gpugrant_operator.controller.gatelink import POLL, POLL_SILENT, POLL_WATCHED, UNREACHABLE_AFTER, GateLink
from gpugrant_operator.gateclient import GateError
from world import World


def made(epoch: int = 1) -> Snapshot:
    return snapshot.build(
        api_id="api-1", machine=gen.MACHINE, machine_uid="machine-1", epoch=epoch, issued_at=gen.NOW, grants=()
    )


@pytest.fixture
def link(world: World) -> GateLink:
    return GateLink(world.gate, world.clock.monotonic)


async def test_nothing_is_known_at_first(link: GateLink) -> None:
    """Neither a report nor silence."""
    assert (link.settled, link.answering, link.report) == (False, False, None)
    assert link.pause == POLL_SILENT


async def test_a_report(link: GateLink) -> None:
    """One answer settles it."""
    await link.refresh()

    assert (link.settled, link.answering, link.failure) == (True, True, "")
    assert link.report is not None
    assert link.pause == POLL
    link.watched = True
    assert link.pause == POLL_WATCHED


async def test_the_last_report_counts_until_the_third_miss(link: GateLink, world: World) -> None:
    """And comes back at once with the first answer."""
    await link.refresh()
    world.gate.reachable = False

    await link.refresh()
    assert (link.answering, link.report is None) == (False, False)
    world.clock.forward(seconds=UNREACHABLE_AFTER)
    assert (link.settled, link.report) == (True, None)
    world.gate.reachable = True
    await link.refresh()
    assert link.report is not None


async def test_a_gate_never_heard_is_unreachable_after_a_while(link: GateLink, world: World) -> None:
    """The time counts from the first miss."""
    world.gate.reachable = False
    await link.refresh()
    assert not link.settled

    world.clock.forward(seconds=UNREACHABLE_AFTER)

    assert (link.settled, link.report) == (True, None)
    assert "connection refused" in link.failure


async def test_a_fresh_report_is_not_asked_for_again(link: GateLink, world: World) -> None:
    """`max_age` spares questions."""
    await link.refresh()
    asked = world.gate.questions

    await link.refresh(max_age=1)
    assert world.gate.questions == asked
    world.clock.forward(seconds=1)
    await link.refresh(max_age=1)
    assert world.gate.questions == asked + 1


async def test_a_push_is_a_report(world: World) -> None:
    """The answer to a snapshot says what the gate has now, digest included."""
    world.api.machine_made("other")
    gate = Answering()
    link = GateLink(gate, world.clock.monotonic)
    await link.refresh()

    assert await link.push(made(3))

    report = link.report
    assert report is not None
    assert (report.epoch, report.digest, report.machine_uid, report.api_id) == (3, made(3).digest, "machine-1", "api-1")


@pytest.mark.parametrize("reason", ["StaleEpoch", "EpochReused", "OtherMachine"])
async def test_a_refusal_is_kept_as_it_was_said(world: World, reason: str) -> None:
    """Until a snapshot is taken."""
    gate = Answering()
    link = GateLink(gate, world.clock.monotonic)
    gate.refusal = GateError(reason, "the gate's sentence")

    assert not await link.push(made())
    assert link.refusal is not None
    assert (link.refusal.reason, link.refusal.message) == (Reason(reason), "the gate's sentence")
    assert link.answering

    gate.refusal = None
    assert await link.push(made())
    assert link.refusal is None


async def test_a_refusal_in_words_that_are_not_known_is_no_success(world: World) -> None:
    """A newer gate's reason: the sentence is kept."""
    gate = Answering()
    gate.refusal = GateError("SomethingNew", "why")
    link = GateLink(gate, world.clock.monotonic)

    assert not await link.push(made())
    assert link.refusal is not None
    assert (link.refusal.reason, link.refusal.message) == (Reason.GATE_PENDING, "why")


async def test_a_push_that_is_not_answered_is_silence(link: GateLink, world: World) -> None:
    """No refusal: nobody said no."""
    await link.refresh()
    world.gate.reachable = False

    assert not await link.push(made())
    assert (link.answering, link.refusal) == (False, None)


async def test_an_answer_for_another_epoch_is_no_success(world: World) -> None:
    """A gate that answers for something else than it was sent."""
    gate = Answering()
    gate.epoch = 7
    link = GateLink(gate, world.clock.monotonic)

    assert not await link.push(made(3))
    assert link.report is not None
    assert (link.report.epoch, link.report.digest) == (7, "")
    assert link.refusal is not None
    assert "epoch 7 instead of 3" in link.refusal.message


async def test_an_older_answer_never_covers_a_newer_one(world: World) -> None:
    """A question that is on its way while a snapshot is sent: the snapshot waits for it."""
    gate = Answering()
    gate.hold = asyncio.Event()
    link = GateLink(gate, world.clock.monotonic)

    asking = asyncio.ensure_future(link.refresh())
    pushing = asyncio.ensure_future(link.push(made(3)))
    await asyncio.sleep(0)
    gate.hold.set()
    await asyncio.gather(asking, pushing)

    assert link.report is not None
    assert link.report.epoch == 3


class Answering:
    """A gate that takes what it gets, or refuses it."""

    def __init__(self) -> None:
        self.refusal: GateError | None = None
        self.epoch: int | None = None
        self.hold: asyncio.Event | None = None

    async def put_snapshot(self, sent: Snapshot) -> SnapshotAnswer:
        if self.refusal is not None:
            raise self.refusal
        return SnapshotAnswer(epoch=sent.epoch if self.epoch is None else self.epoch, applied_at=gen.NOW)

    async def status(self, *, in_use: bool = False) -> GateStatus:
        del in_use
        if self.hold is not None:
            await self.hold.wait()
        return GateStatus(epoch=0)

    async def devices(self, *, timeout: float = 1.0) -> snapshot.DevicesAnswer:  # noqa: ASYNC109  # the protocol's
        del timeout
        return snapshot.DevicesAnswer(devices=())

    async def inventory(self) -> bytes:
        return b""
