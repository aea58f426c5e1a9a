"""The loop: what is heard, lists that heal, the gate, detections."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

import gen
import world as worlds
from gpugrant_crds.layout import Layout
from gpugrant_crds.v1alpha1 import DETECT_ANNOTATION
from gpugrant_operator.controller.controller import OtherApi, WatchesDead
from gpugrant_operator.kubeclient import ApiUnreachable
from world import Operator, World

ALL = "nvidia.com/gpu=all"


@asynccontextmanager
async def running(operator: Operator) -> AsyncIterator[asyncio.TaskGroup]:
    """A group for what work items start; whatever still runs at the end is cancelled."""
    async with asyncio.TaskGroup() as group:
        yield group


async def worked_off(operator: Operator, group: asyncio.TaskGroup) -> None:
    """All that is due now."""
    while not operator.queue.idle():
        name = await operator.queue.take()
        await operator.controller.work_on(name, group)
        operator.queue.done(name, failed=False)


async def test_an_event_makes_its_machine_due(world: World) -> None:
    """And nothing else."""
    operator = await world.settled()
    async with running(operator) as group:
        await worked_off(operator, group)
        world.api.granted("g", "gpu-a", ALL)
        await worked_off(operator, group)

    assert world.gate.enforced() == [("gpu-a", ALL)]


async def test_what_can_not_be_read_is_passed_over(world: World) -> None:
    """An object of a shape that this version does not know holds nothing and stops nothing."""
    world.api.create("repogpugrants", {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"repo": 1}})
    operator = await world.settled()
    world.api.edit("repogpugrants", "odd", {"annotations": {"x": "1"}})
    world.api.granted("g", "gpu-a", ALL)

    await operator.reconcile()

    assert world.gate.enforced() == [("gpu-a", ALL)]


@pytest.mark.req("R51")
async def test_a_list_heals_what_the_watches_lost(world: World) -> None:
    """A deletion, a creation and a change that nobody told of."""
    world.api.granted("gone", "gpu-a", ALL)
    operator = await world.settled()
    world.api.listeners.clear()
    world.api.delete("repogpugrants", "gone")
    await world.api.set_grant_finalizers(world.api.of_grant("gone"), ())
    world.api.granted("new", "gpu-b", ALL)

    await operator.controller.resync()
    await operator.reconcile()

    assert world.gate.enforced() == [("gpu-b", ALL)]


async def test_watches_that_stay_deaf_end_the_process(world: World) -> None:
    """Once may be a relist; twice in a row is a dead watch. What they tell in between clears them."""
    operator = await world.settled()
    for _ in range(2):
        world.api.listeners.clear()
        world.api.edit("gpumachines", gen.MACHINE, {"annotations": {"x": str(world.api.version)}})
        await operator.controller.resync()
        operator.listen()
        await operator.controller.resync()

    world.api.listeners.clear()
    world.api.edit("gpumachines", gen.MACHINE, {"annotations": {"y": "1"}})
    await operator.controller.resync()
    world.api.edit("gpumachines", gen.MACHINE, {"annotations": {"y": "2"}})
    with pytest.raises(WatchesDead):
        await operator.controller.resync()


async def test_a_namespace_that_goes(world: World) -> None:
    """Its grants' machines are looked at; a new one of that name is not terminating."""
    world.api.create("namespaces", {"metadata": {"name": "default"}})
    operator = await world.settled()

    operator.controller.heard(
        "namespaces", "MODIFIED", {"metadata": {"name": "default"}, "status": {"phase": "Terminating"}}
    )
    assert operator.cache.terminating == {"default"}
    operator.controller.heard(
        "namespaces", "DELETED", {"metadata": {"name": "default"}, "status": {"phase": "Terminating"}}
    )
    assert operator.cache.terminating == frozenset()


async def test_the_gates_news_make_this_machine_due(world: World) -> None:
    """A report that differs, silence, files that changed; nothing when nothing did."""
    operator = await world.settled()
    async with running(operator) as group:
        await worked_off(operator, group)
        await operator.controller.look_at_gate()
        assert operator.queue.idle()

        world.gate.repos["gpu-d"] = "id-d"
        await operator.controller.look_at_gate()
        assert not operator.queue.idle()
        await worked_off(operator, group)
        assert [repo.name for repo in world.api.of_machine().status.gate.repos][-1] == "gpu-d"  # type: ignore[union-attr]

        world.gate.bytes_of_inventory = worlds.inventory(("a.b/c=1",)).dump().encode()
        layout = Layout(world.root)
        layout.inventory.parent.mkdir(parents=True)
        layout.inventory.write_text("changed")
        await operator.controller.look_at_gate()
        await worked_off(operator, group)
        assert [device.name for device in world.api.of_machine().status.devices or ()] == ["a.b/c=1"]


async def test_another_store_behind_the_address_ends_the_process(world: World) -> None:
    """All that is known is of the old one."""
    operator = await world.operator()
    await operator.controller.look_at_api()
    world.api.id = "api-2"

    with pytest.raises(OtherApi):
        await operator.controller.look_at_api()


async def test_an_api_that_is_away_is_trouble_until_it_is_back(world: World) -> None:
    """And says so."""
    operator = await world.operator()
    world.api.reachable = False

    with pytest.raises(ApiUnreachable):
        await operator.controller.look_at_api()


RENET = """
import json, pathlib, sys
place = pathlib.Path(sys.argv[1])
place.parent.mkdir(parents=True, exist_ok=True)
place.write_text(sys.argv[2])
(place.parent / "arguments").write_text(json.dumps(sys.argv[3:]))
sys.exit(int(sys.argv[3]) if len(sys.argv) > 3 and sys.argv[3].isdigit() else 0)
"""


def renet(world: World, *more: str) -> tuple[str, ...]:
    """A stand-in that writes an inventory where the gate's file is."""
    return (sys.executable, "-c", RENET, str(Layout(world.root).inventory), worlds.inventory().dump(), *more)


def gate_reads_the_file(world: World) -> None:
    world.gate.bytes_of_inventory = Layout(world.root).inventory.read_bytes()


@pytest.mark.req("D5", "R10", "R13")
async def test_a_machine_without_an_inventory_is_detected(world: World) -> None:
    """At once, with what its spec says; the result stands in the status and the grants follow."""
    world.gate.bytes_of_inventory = None
    world.api.edit("gpumachines", gen.MACHINE, {"spec": {"toolkit": {"install": "Never"}}})
    world.api.granted("g", "gpu-a", ALL)
    operator = await world.operator(run=renet(world))

    async with running(operator) as group:
        await worked_off(operator, group)
    assert worlds.ready(world.api.of_machine()) == "Unknown Detecting"
    assert world.api.says("g") == "False MachineNotDetected"
    arguments = json.loads((Layout(world.root).inventory.parent / "arguments").read_text())
    assert arguments == ["--toolkit-default", "false"]

    async with running(operator) as group:
        await worked_off(operator, group)
    machine = world.api.of_machine()
    assert worlds.ready(machine) == "True Synced"
    assert machine.status.detection is not None
    assert machine.status.detection.succeeded
    assert world.api.says("g") == "True Enforced"


@pytest.mark.req("D5", "R40", "R42")
async def test_other_hardware_is_detected_once(world: World) -> None:
    """The gate reports another fingerprint than the inventory has; if the detection does not show it, that is all."""
    operator = await world.operator(run=renet(world))
    found = worlds.inventory().model_copy(update={"fingerprint": "a"})
    world.gate.bytes_of_inventory, world.gate.fingerprint = found.dump().encode(), "a"
    async with running(operator) as group:
        await worked_off(operator, group)
    assert operator.detector.last is None

    world.gate.fingerprint = "b"
    for _ in range(3):
        async with running(operator) as group:
            await operator.controller.look_at_gate()
            await worked_off(operator, group)

    assert operator.detector.last is not None
    assert (operator.detector.last.succeeded, operator.detector.last.request) == (True, None)
    first = operator.detector.last
    world.clock.forward(minutes=1)
    async with running(operator) as group:
        await operator.controller.look_at_gate()
        await worked_off(operator, group)
    assert operator.detector.last is first


@pytest.mark.req("D5")
async def test_a_request_is_answered(world: World) -> None:
    """A new value of the annotation runs it once; the status repeats the value when it has ended."""
    operator = await world.operator(run=renet(world))
    async with running(operator) as group:
        await worked_off(operator, group)
    world.api.edit("gpumachines", gen.MACHINE, {"annotations": {DETECT_ANNOTATION: "2026-03-01"}})

    async with running(operator) as group:
        await worked_off(operator, group)
        machine = world.api.of_machine()
        assert worlds.ready(machine, "Reconciling") == "True Detecting"
        assert machine.status.detection is None
    async with running(operator) as group:
        await worked_off(operator, group)

    machine = world.api.of_machine()
    assert machine.status.detection is not None
    assert (machine.status.detection.request, machine.status.detection.succeeded) == ("2026-03-01", True)
    assert worlds.ready(machine, "Reconciling") == ""
    assert operator.queue.idle()


@pytest.mark.req("R10", "D12")
async def test_a_failed_detection_is_told_and_takes_nothing_away(world: World) -> None:
    """The last inventory and its grants stay; the sentence stands in the conditions and an Event."""
    world.api.granted("g", "gpu-a", ALL)
    operator = await world.operator(run=(sys.executable, "-c", "import sys; sys.exit('renet: the card hangs')"))
    async with running(operator) as group:
        await worked_off(operator, group)
    world.api.edit("gpumachines", gen.MACHINE, {"annotations": {DETECT_ANNOTATION: "1"}})
    async with running(operator) as group:
        await worked_off(operator, group)
    async with running(operator) as group:
        await worked_off(operator, group)
    while operator.recorder.waiting:
        await operator.recorder.post_one()

    machine = world.api.of_machine()
    assert worlds.ready(machine, "Detected") == "False DetectionFailed"
    assert "the card hangs" in next(c.message for c in machine.status.conditions if c.type == "Ready")
    assert machine.status.detection is not None
    assert (machine.status.detection.request, machine.status.detection.succeeded) == ("1", False)
    assert machine.status.device_count == len(gen.DEVICES)
    assert world.api.says("g") == "True Enforced"
    assert "DetectionFailed" in {occurrence.reason for occurrence in world.api.events}


async def until(holds: Callable[[], bool]) -> None:
    """Turns of the loop until it is so."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  # what is waited for has no event of its own
            await asyncio.sleep(0)


async def test_the_whole_loop_runs_until_it_is_cancelled(world: World) -> None:
    """Workers, polls, lists and Events together: a grant that is made is enforced."""
    operator = await world.operator()
    work = asyncio.ensure_future(operator.controller.run())
    world.api.granted("g", "gpu-a", ALL)

    await until(lambda: world.api.says("g").startswith("True") and bool(world.api.events))
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work

    assert world.gate.enforced() == [("gpu-a", ALL)]
    assert operator.controller.trouble == ""


async def test_trouble_is_said_and_passes(world: World) -> None:
    """A reconcile that fails names its machine; the next success clears it."""
    operator = await world.operator()
    world.api.reachable = False
    work = asyncio.ensure_future(operator.controller.run())

    await until(lambda: bool(operator.controller.trouble))
    said = operator.controller.trouble
    world.api.reachable = True
    operator.queue.add(gen.MACHINE)
    await until(lambda: not operator.controller.trouble)
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work

    assert said == "machine wsl-gpu: the API does not answer"
