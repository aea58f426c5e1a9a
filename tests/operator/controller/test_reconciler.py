"""The reconciler against an API and a gate in memory: order, hand-over, trouble, and a stop between any two steps."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

import gen
import world as worlds
from gpugrant_crds.snapshot import Pending
from gpugrant_crds.v1alpha1 import FINALIZER, FORCE_RELEASE_ANNOTATION
from gpugrant_operator.kubeclient import ApiUnreachable, Conflict
from world import Stopped, World

ALL = "nvidia.com/gpu=all"
CARD = "nvidia.com/gpu=0"


@pytest.mark.req("R6", "D4", "D8")
async def test_a_grant_is_enforced_and_says_so(world: World) -> None:
    """Create, one reconcile, and the gate enforces it and the grant says it; the writes come in the safe order."""
    operator = await world.settled()
    world.api.writes.clear()
    world.api.granted("g", "gpu-a", ALL)

    await operator.reconcile()

    assert world.gate.enforced() == [("gpu-a", ALL)]
    assert world.api.says("g") == "True Enforced"
    assert world.api.writes == ["grant finalizers", "machine status", "machine status", "grant status"]
    assert world.gate.pushes == [0, 1]


@pytest.mark.req("D12")
async def test_nothing_is_written_at_rest(world: World) -> None:
    """A second reconcile, a new process, a resync and an echo of every write: no write, no push, no Event."""
    for number, repo in enumerate(gen.REPOS):
        world.api.granted(f"g{number}", repo, gen.DEVICES[number])
    world.api.granted("waiting", "nobody", ALL)
    operator = await world.settled()
    while operator.recorder.waiting:
        await operator.recorder.post_one()
    before = (list(world.api.writes), list(world.gate.pushes), len(world.api.events))

    await operator.reconcile()
    world.clock.forward(minutes=3)
    again = await world.settled()
    await again.controller.resync()
    await again.reconcile()

    assert (world.api.writes, world.gate.pushes, len(world.api.events)) == before
    assert again.recorder.waiting == 0


@pytest.mark.req("R51", "R6")
async def test_a_revocation(world: World) -> None:
    """The object goes when the gate has answered without it."""
    world.api.granted("g", "gpu-a", ALL)
    operator = await world.settled()

    world.api.delete("repogpugrants", "g")
    await operator.reconcile()

    assert world.gate.enforced() == []
    assert not world.api.has_grant("g")
    assert operator.cache.grants_of(gen.MACHINE) == ()


@pytest.mark.req("R25", "R26", "R27", "D7")
async def test_hand_over(world: World) -> None:
    """The next repo waits in conflict and gets the device in one reconcile after the holder is gone."""
    world.gate.exclusive = frozenset({ALL})
    world.api.granted("first", "gpu-a", ALL, exclusive=True)
    operator = await world.settled()
    world.api.granted("second", "gpu-b", ALL, exclusive=True)
    await operator.reconcile()
    assert world.api.says("second") == "False ExclusiveHeld"

    world.api.delete("repogpugrants", "first")
    await operator.reconcile()

    assert world.gate.enforced() == [("gpu-b", ALL)]
    assert world.api.says("second") == "True Enforced"
    assert world.gate.pushes == [1, 2, 3]


@pytest.mark.req("R28", "D7")
async def test_fifty_wishes_one_holder(world: World) -> None:
    """With nothing at the front door the ledger alone tells them apart, and two operators agree."""
    world.gate.exclusive = frozenset({ALL})
    world.gate.repos = {f"r{number}": f"id-{number}" for number in range(50)}
    one, other = await world.operator(), await world.operator()
    for number in range(50):
        world.api.granted(f"g{number:02}", f"r{number}", ALL, exclusive=True)
    world.api.listeners[:] = [one.controller.heard, other.controller.heard]

    await one.reconcile()
    await other.reconcile()

    said = [world.api.says(f"g{number:02}") for number in range(50)]
    assert said.count("True Enforced") == 1
    assert said.count("False ExclusiveHeld") == 49
    assert len(world.gate.enforced()) == 1


async def test_a_stale_cache_never_gives_a_device_away(world: World) -> None:
    """An operator whose watches tell nothing decides on old news; its write is refused and it starts over."""
    world.gate.exclusive = frozenset({ALL})
    deaf = await world.settled()
    awake = await world.operator()
    world.api.granted("first", "gpu-a", ALL, exclusive=True)
    await awake.reconcile()
    world.api.granted("second", "gpu-b", ALL, exclusive=True)
    stale = copy.deepcopy(world.api.objects["repogpugrants", "default", "second"])
    deaf.controller.heard("repogpugrants", "ADDED", stale)

    await deaf.reconcile()

    assert {(repo, device) for repo, device in world.gate.enforced()} <= {("gpu-a", ALL), ("gpu-b", ALL)}
    assert len(world.gate.enforced()) <= 1


async def test_a_grant_that_was_deleted_unheard_is_not_accepted(world: World) -> None:
    """Its finalizer can't be set: it is forgotten, and the machine goes on."""
    operator = await world.settled()
    world.api.granted("ghost", "gpu-a", ALL)
    world.api.granted("real", "gpu-b", ALL)
    world.api.listeners.clear()
    world.api.delete("repogpugrants", "ghost")

    await operator.reconcile()

    assert world.gate.enforced() == [("gpu-b", ALL)]
    assert [grant.metadata.name for grant in operator.cache.grants_of(gen.MACHINE)] == ["real"]


async def test_a_namesake_made_anew_is_another_grant(world: World) -> None:
    """Deleted and made again while nothing was heard: the old uid is released, the new one accepted."""
    world.api.granted("g", "gpu-a", ALL)
    operator = await world.settled()
    world.api.listeners.clear()
    old = world.api.of_grant("g").metadata.uid
    world.api.delete("repogpugrants", "g")
    await world.api.set_grant_finalizers(world.api.of_grant("g"), ())
    world.api.granted("g", "gpu-a", ALL)

    with_new = await world.operator()
    await with_new.reconcile()
    await operator.controller.sync()

    assert world.gate.held is not None
    assert [grant.grant.uid for grant in world.gate.held.grants] == [world.api.of_grant("g").metadata.uid]
    assert old not in {grant.grant.uid for grant in world.gate.held.grants}


@pytest.mark.req("R51")
async def test_a_deletion_never_hangs_on_a_gate_that_is_down(world: World) -> None:
    """Two minutes, then the object goes; the debt stays in the ledger and blocks the next until the gate answers."""
    world.gate.exclusive = frozenset({ALL})
    world.api.granted("g", "gpu-a", ALL, exclusive=True)
    operator = await world.settled()
    world.gate.reachable = False
    world.api.delete("repogpugrants", "g")

    again = await operator.reconcile()
    assert again.recheck_at == gen.NOW.replace(minute=2)
    assert world.api.says("g") == "False Releasing"
    world.clock.forward(seconds=119)
    await operator.reconcile()
    assert world.api.has_grant("g")
    world.clock.forward(seconds=1)
    await operator.reconcile()
    assert not world.api.has_grant("g")

    world.api.granted("next", "gpu-b", ALL, exclusive=True)
    world.gate.reachable = True
    assert world.gate.enforced() == [("gpu-a", ALL)]
    await operator.link.refresh()
    await operator.reconcile()

    assert world.gate.enforced() == [("gpu-b", ALL)]


async def test_a_terminating_namespace_waits_for_no_gate(world: World) -> None:
    """Its grants go at once; the ledger remembers."""
    world.api.create("namespaces", {"metadata": {"name": "default"}})
    world.api.granted("g", "gpu-a", ALL)
    operator = await world.settled()
    world.gate.reachable = False
    world.api.delete("repogpugrants", "g")
    world.api.delete("namespaces", "default")

    await operator.reconcile()

    assert not world.api.has_grant("g")
    assert world.api.of_machine().status.allocations[0].state == "Releasing"


async def test_expiry(world: World) -> None:
    """The time is known for a recheck; when it has come the grant is out of ledger and gate, and says so."""
    world.api.granted("g", "gpu-a", ALL, expiresAt="2026-03-01T12:05:00Z")
    operator = await world.operator()
    again = await operator.reconcile()

    world.clock.forward(minutes=5)
    await operator.reconcile()

    assert again.recheck_at == gen.NOW.replace(minute=5)
    assert world.gate.held is not None
    assert world.gate.held.grants == ()
    assert world.api.says("g") == "False Expired"


async def test_a_gate_that_lost_its_snapshot_gets_it_again(world: World) -> None:
    """The same epoch and contents; no ledger is written, no status moves."""
    world.api.granted("g", "gpu-a", ALL)
    operator = await world.settled()
    writes = list(world.api.writes)
    world.gate.held = None

    world.clock.forward(seconds=10)
    await operator.reconcile()

    assert world.gate.enforced() == [("gpu-a", ALL)]
    assert world.gate.held is not None
    assert world.gate.held.epoch == 1
    assert world.api.writes == writes


@pytest.mark.req("D12")
async def test_silence_counts_after_three_misses(world: World) -> None:
    """Until then the last report stands; then the grants say so; and it passes when the gate is back."""
    world.api.granted("g", "gpu-a", ALL)
    operator = await world.settled()
    world.gate.reachable = False

    await operator.link.refresh()
    world.clock.forward(seconds=19)
    await operator.reconcile()
    assert world.api.says("g") == "True Enforced"

    world.clock.forward(seconds=1)
    await operator.reconcile()
    assert world.api.says("g") == "False GateUnreachable"
    assert worlds.ready(world.api.of_machine()) == "Unknown GateUnreachable"

    world.gate.reachable = True
    world.clock.forward(seconds=1)
    await operator.reconcile()
    assert world.api.says("g") == "True Enforced"


async def test_nothing_is_said_before_the_gate_was_heard(world: World) -> None:
    """A new process does not call a gate unreachable that it has just begun to ask."""
    world.api.granted("g", "gpu-a", ALL)
    await world.settled()
    writes = list(world.api.writes)
    world.gate.reachable = False

    fresh = await world.operator()
    again = await fresh.reconcile()
    assert again.delay is not None
    assert world.api.writes == writes

    world.clock.forward(seconds=20)
    await fresh.reconcile()
    assert world.api.says("g") == "False GateUnreachable"


async def test_a_refusal_is_told_and_never_overridden(world: World) -> None:
    """GateSynced says the gate's reason and sentence; the epoch is not raised; one try a reconcile."""
    world.api.granted("g", "gpu-a", ALL)
    operator = await world.settled()
    assert world.gate.held is not None
    world.gate.held = world.gate.held.model_copy(update={"api_id": "api-0"})
    held = world.gate.held
    world.clock.forward(seconds=1)

    await operator.reconcile()
    await operator.reconcile()

    machine = world.api.of_machine()
    assert worlds.ready(machine, "GateSynced") == "False OtherMachine"
    assert "the gate does not take it" in next(c.message for c in machine.status.conditions if c.type == "GateSynced")
    assert machine.status.ledger_epoch == 1
    assert world.gate.held == held


@pytest.mark.parametrize("differs", [{"epoch": 9}, {"digest": "sha256:" + "0" * 64}], ids=["later", "same epoch"])
async def test_a_gate_that_is_ahead_gets_what_is_decided_now(world: World, differs: dict[str, int]) -> None:
    """After a restored backup: decided again from the grants that there are, above the gate's epoch."""
    world.api.granted("g", "gpu-a", ALL)
    operator = await world.settled()
    assert world.gate.held is not None
    world.gate.held = world.gate.held.model_copy(update=differs)
    ahead = world.gate.held.epoch
    world.api.above = ahead
    world.api.granted("h", "gpu-b", "nvidia.com/gpu=0")
    world.clock.forward(seconds=1)

    await operator.reconcile()

    assert world.gate.enforced() == [("gpu-b", "nvidia.com/gpu=0"), ("gpu-a", ALL)]
    assert world.api.of_machine().status.ledger_epoch == world.gate.held.epoch == ahead + 1
    assert world.api.says("g") == world.api.says("h") == "True Enforced"


async def test_a_gate_that_changed_its_history_pays_a_debt_of_that_history(world: World) -> None:
    """What it enforces and nobody was granted is owed at the epoch above its own, and paid by its answer to that."""
    world.api.granted("g", "gpu-a", ALL)
    operator = await world.settled()
    assert world.gate.held is not None
    world.gate.held = world.gate.held.model_copy(update={"epoch": 9})
    world.api.above = 9
    world.gate.pending.append(Pending(repo="gpu-a", device=ALL, since=world.clock.now()))
    world.api.delete("repogpugrants", "g")
    world.clock.forward(seconds=1)

    await operator.reconcile()

    assert world.api.has_grant("g")
    assert world.api.of_machine().status.allocations[0].state == "Releasing"
    world.gate.pending.clear()
    world.clock.forward(seconds=1)
    await operator.reconcile()
    assert not world.api.has_grant("g")
    assert world.gate.enforced() == []


@pytest.mark.req("R9")
async def test_grants_without_a_machine_wait_for_it(world: World) -> None:
    """They say so, and are enforced when the machine is made."""
    world.api.granted("g", "gpu-a", ALL, machine="later")
    operator = await world.settled("later")
    assert world.api.says("g") == "False MachineNotFound"

    world.api.delete("repogpugrants", "g")
    await operator.reconcile("later")
    assert not world.api.has_grant("g")


async def test_two_machines_of_one_node(world: World) -> None:
    """The younger is told who has the node and its grants wait; the gate never hears of it until the older goes."""
    world.clock.forward(hours=1)
    world.api.machine_made("younger", nodeName=gen.MACHINE)
    world.api.granted("g", "gpu-a", ALL, machine="younger")
    operator = await world.settled(gen.MACHINE, "younger")

    assert worlds.ready(world.api.of_machine("younger")) == "False NodeClaimed"
    assert world.api.says("g") == "False MachineNotDetected"
    assert world.gate.held is not None
    assert world.gate.held.machine == gen.MACHINE

    world.api.delete("gpumachines", gen.MACHINE)
    await operator.reconcile()
    assert (await operator.queue.take()) in {gen.MACHINE, "younger"}
    await operator.reconcile("younger")
    assert worlds.ready(world.api.of_machine("younger")) == "True Synced"
    assert world.api.says("g") == "True Enforced"


async def test_a_machine_of_another_node(world: World) -> None:
    """Its gate is not known here."""
    world.api.machine_made("far", nodeName="node-9")
    await world.settled("far")

    assert worlds.ready(world.api.of_machine("far")) == "False NodeUnreachable"


async def test_a_machine_goes_after_an_empty_snapshot(world: World) -> None:
    """Its grants wait for the next one of that name, which starts anew and gets the gate."""
    world.api.granted("g", "gpu-a", ALL)
    operator = await world.settled()

    world.api.delete("gpumachines", gen.MACHINE)
    await operator.reconcile()
    assert world.gate.enforced() == []
    assert ("gpumachines", "", gen.MACHINE) not in world.api.objects
    await operator.reconcile()
    assert world.api.says("g") == "False MachineNotFound"

    world.api.create("gpumachines", {"metadata": {"name": gen.MACHINE, "uid": "second-life"}, "spec": {}})
    await operator.reconcile()
    assert world.api.says("g") == "True Enforced"
    assert world.gate.held is not None
    assert (world.gate.held.machine_uid, world.gate.held.epoch) == ("second-life", 1)


async def test_a_machine_whose_gate_is_gone_is_dropped_by_force_only(world: World) -> None:
    """It waits however long; the annotation with its own uid lets it go."""
    world.api.granted("g", "gpu-a", ALL)
    operator = await world.settled()
    world.gate.reachable = False
    world.api.delete("gpumachines", gen.MACHINE)
    await operator.reconcile()
    world.clock.forward(hours=9)
    await operator.reconcile()
    assert worlds.ready(world.api.of_machine()) == "False Releasing"

    world.api.edit("gpumachines", gen.MACHINE, {"annotations": {FORCE_RELEASE_ANNOTATION: "uid-of-wsl-gpu"}})
    await operator.reconcile()

    assert ("gpumachines", "", gen.MACHINE) not in world.api.objects


async def test_foreign_finalizers_stay(world: World) -> None:
    """Ours goes, theirs remain, and the object is not forgotten."""
    world.api.granted("g", "gpu-a", ALL)
    operator = await world.settled()
    await world.api.set_grant_finalizers(world.api.of_grant("g"), ("theirs/x", FINALIZER))
    world.api.delete("repogpugrants", "g")

    await operator.reconcile()

    assert world.api.of_grant("g").metadata.finalizers == ("theirs/x",)
    assert len(operator.cache.grants_of(gen.MACHINE)) == 1


async def test_trouble_with_the_api_is_raised(world: World) -> None:
    """The work queue tries again; nothing is half done that the next run does not finish."""
    operator = await world.settled()
    world.api.granted("g", "gpu-a", ALL)
    world.api.reachable = False

    with pytest.raises(ApiUnreachable):
        await operator.reconcile()


async def test_an_object_that_moved_on_is_read_again(world: World) -> None:
    """A write that loses the race starts over from a live read."""
    operator = await world.settled()
    world.api.granted("g", "gpu-a", ALL)
    world.api.listeners.clear()
    world.api.edit("gpumachines", gen.MACHINE, {"annotations": {"x": "1"}})
    world.api.edit("repogpugrants", "g", {"annotations": {"x": "1"}})

    await operator.reconcile()

    assert world.api.says("g") == "True Enforced"
    with pytest.raises(Conflict):
        await world.api.set_grant_finalizers(gen.grant(name="g", uid=world.api.of_grant("g").metadata.uid), ())


# --- a stop between any two steps -------------------------------------------------------------------------------------


def history(root: Path) -> World:
    """An exclusive holder that leaves, one that waits for the device, a newcomer, one that expires, a wrong wish."""
    world = World(root)
    world.gate.exclusive = frozenset({ALL})
    world.api.machine_made()
    return world


async def played(world: World, steps: list[str]) -> None:
    """The people's part of the story; the operator reconciles after each act."""
    operator = await world.operator()
    for act in steps:
        if act == "reconcile":
            await operator.reconcile()
        elif act == "first":
            world.api.granted("first", "gpu-a", ALL, exclusive=True)
            world.api.granted("soon over", "gpu-c", CARD, expiresAt="2026-03-01T12:05:00Z")
        elif act == "second":
            world.api.granted("second", "gpu-b", ALL, exclusive=True)
            world.api.granted("third", "gpu-c", gen.DEVICES[2])
            world.api.granted("wrong", "gpu-c", "nvidia.com/gpu=9")
            world.api.delete("repogpugrants", "first")
            world.clock.forward(minutes=5)


STORY = ["first", "reconcile", "second", "reconcile"]
END = {
    "second": "True Enforced",
    "third": "True Enforced",
    "wrong": "False DeviceNotFound",
    "soon over": "False Expired",
}


async def ended_well(world: World) -> None:
    said = {name: world.api.says(name) for name in END}
    assert said == END
    assert not world.api.has_grant("first")
    assert sorted(world.gate.enforced()) == [("gpu-b", ALL), ("gpu-c", gen.DEVICES[2])]
    assert worlds.ready(world.api.of_machine()) == "True Synced"
    assert world.api.of_machine().status.allocations[-1].state == "Held"


async def test_the_story_without_a_stop(tmp_path: Path) -> None:
    """What every interrupted story below has to end like."""
    world = history(tmp_path)

    await played(world, STORY)

    await ended_well(world)
    assert world.fuse.count > 12


@pytest.mark.req("R28", "D7", "D8")
@pytest.mark.parametrize("after", [False, True], ids=["before the step", "after it, the answer lost"])
async def test_a_stop_at_any_step_is_finished_by_the_next_process(tmp_path: Path, after: bool) -> None:
    """kill -9 between every pair of steps: a fresh process ends the story the same way.

    The API and the gate assert on every write that no exclusive device has two repos, that every holder is guarded and
    that no snapshot precedes its ledger.
    """
    reached = 0
    for number in range(1, 100):
        world = history(tmp_path)
        world.fuse.at, world.fuse.after = number, after
        done = 0
        try:
            while done < len(STORY):
                await played(world, STORY[done : done + 1])
                done += 1
        except Stopped:
            reached = number
        if not world.fuse.blown:
            break
        world.fuse.blown, world.fuse.at = False, None
        await played(world, STORY[done:] if STORY[done] != "reconcile" else ["reconcile", *STORY[done + 1 :]])
        await ended_well(world)
    assert reached > 12
