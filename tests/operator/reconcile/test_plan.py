"""`plan`: what is written, and that nothing is at rest."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gen
import world
from gpugrant_crds.decide.conflicts import Refused
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import GateStatus, Snapshot
from gpugrant_crds.v1alpha1 import (
    FINALIZER,
    TAKE_OVER_ANNOTATION,
    GateWishes,
    GpuMachine,
    RepoGpuGrant,
    RepoGpuGrantStatus,
)
from gpugrant_operator.reconcile.observed import Observed
from gpugrant_operator.reconcile.plan import Plan, plan, plan_without_machine

ALL = "nvidia.com/gpu=all"


def guarded(item: RepoGpuGrant) -> RepoGpuGrant:
    return item.model_copy(update={"metadata": item.metadata.model_copy(update={"finalizers": (FINALIZER,)})})


def machine(**more: Any) -> GpuMachine:
    made = gen.machine(**more)
    return made.model_copy(update={"metadata": made.metadata.model_copy(update={"finalizers": (FINALIZER,)})})


def holding(snapshot: Snapshot) -> GateStatus:
    """A gate that enforces this snapshot."""
    report = gen.gate(snapshot.epoch, machine_uid=snapshot.machine_uid)
    return report.model_copy(update={"digest": snapshot.digest, "api_id": snapshot.api_id})


def seen(*grants: RepoGpuGrant, **more: Any) -> Observed:
    first = {"api_id": "api-1", "machine": machine(), "gate": gen.gate(-1, machine_uid="")} | more
    return Observed(grants=grants, inventory=world.inventory(), **first)


def carried_out(it: Observed) -> Observed:
    """The world once everything that is planned has been done, until nothing is."""
    for _ in range(8):
        planned = plan(it, gen.NOW)
        if planned == replace(Plan(), recheck_at=planned.recheck_at, watched=planned.watched):
            return it
        it = step(it, planned)
    raise AssertionError("does not come to rest")


def step(it: Observed, planned: Plan) -> Observed:
    if planned.guard_machine:
        it = replace(it, machine=with_finalizer(it.machine))
    if planned.before_answer:
        grants = tuple(guarded(grant) if grant in planned.guard else grant for grant in it.grants)
        stored = it.machine if planned.ledger is None else it.machine.model_copy(update={"status": planned.ledger})
        gate = it.gate if planned.push is None else holding(planned.push)
        return replace(it, grants=grants, machine=stored, gate=gate)
    told = {write.grant.metadata.uid: write.status for write in planned.grants}
    left = tuple(
        grant.model_copy(update={"status": told.get(grant.metadata.uid, grant.status)})
        for grant in it.grants
        if grant not in planned.release
    )
    if planned.machine is not None:
        it = replace(it, machine=it.machine.model_copy(update={"status": planned.machine}))
    return replace(it, grants=left)


def with_finalizer(item: GpuMachine) -> GpuMachine:
    return item.model_copy(update={"metadata": item.metadata.model_copy(update={"finalizers": (FINALIZER,)})})


@pytest.mark.req("D7", "D8", "R6")
def test_the_order_of_a_new_grant() -> None:
    """Finalizer and ledger with the snapshot, no status before; then the statuses; then nothing."""
    first = seen(gen.grant())
    before = plan(first, gen.NOW)
    answered = step(first, before)
    after = plan(answered, gen.NOW)

    assert before.guard == first.grants
    assert before.ledger is not None
    assert before.ledger.ledger_epoch == 1
    assert before.ledger.conditions == ()
    assert before.push is not None
    assert [grant.device for grant in before.push.grants] == [ALL]
    assert not after.before_answer
    assert [world.ready(write.grant.model_copy(update={"status": write.status})) for write in after.grants] == [
        "True Enforced"
    ]
    assert plan(step(answered, after), gen.NOW) == Plan(recheck_at=gen.NOW + timedelta(minutes=10))


def test_a_status_says_what_it_is_of() -> None:
    """observedGeneration, acceptedAt and repoId; the machine's facts, counts and gate."""
    rest = carried_out(seen(gen.grant()))
    status, grant = rest.machine.status, rest.grants[0].status

    assert (grant.observed_generation, grant.accepted_at, grant.repo_id) == (0, "2026-03-01T12:00:00Z", "id-a")
    assert (status.gpu_count, status.grant_count, status.model) == (1, 1, "NVIDIA L40S")
    assert status.gate is not None
    assert status.gate.epoch == 1
    assert world.ready(rest.machine) == "True Synced"


REST: dict[str, tuple[tuple[RepoGpuGrant, ...], dict[str, Any]]] = {
    "a machine without grants": ((), {}),
    "one grant": ((gen.grant(),), {}),
    "a grant that waits for its repo": ((gen.grant("nobody"),), {}),
    "a grant that lost": ((gen.grant(exclusive=True), gen.grant("gpu-b", created=gen.NOW)), {}),
    "a gate that is silent": ((gen.grant(),), {"gate": None}),
    "a machine whose node is elsewhere": (
        (gen.grant(),),
        {"gate": None, "unserved": Refused(Reason.NODE_UNREACHABLE, "elsewhere"), "may_push": False},
    ),
    "an expired grant": ((gen.grant(expires=gen.NOW),), {}),
    "a machine without its finalizer": ((), {"machine": gen.machine()}),
}


@pytest.mark.parametrize(("grants", "more"), REST.values(), ids=REST.keys())
def test_nothing_is_written_at_rest(grants: tuple[RepoGpuGrant, ...], more: dict[str, Any]) -> None:
    """What was carried out is not carried out again; a silent gate leaves the snapshot to be sent, and no more."""
    it = seen(*grants, **more)
    if it.gate is None:
        it = replace(it, may_push=False)
    carried_out(it)


@given(
    grants=st.lists(
        st.builds(
            gen.grant,
            st.sampled_from(["gpu-a", "gpu-b", "gpu-c", "gpu-x"]),
            st.sampled_from([*gen.DEVICES, "nvidia.com/gpu=9"]),
            exclusive=st.sampled_from([None, True]),
            created=st.integers(0, 3).map(lambda hours: gen.NOW - timedelta(hours=hours)),
        ),
        max_size=6,
        unique_by=lambda grant: grant.metadata.uid,
    )
)
def test_every_world_comes_to_rest(grants: list[RepoGpuGrant]) -> None:
    """Whatever is wished for: after a few rounds nothing is left to do, and every status is told."""
    rest = carried_out(seen(*grants))

    assert all(grant.status.observed_generation == grant.metadata.generation for grant in rest.grants)
    assert all(world.ready(grant) for grant in rest.grants)


def test_the_snapshot_is_sent_again_to_a_gate_that_lost_it() -> None:
    """No ledger is written for that, and no status changes in between."""
    rest = carried_out(seen(gen.grant()))

    planned = plan(replace(rest, gate=gen.gate(-1, machine_uid="")), gen.NOW)

    assert planned.push is not None
    assert (planned.push.epoch, planned.ledger, planned.guard) == (1, None, ())


OUT_OF_STEP = {
    "another machine's snapshot": {"machine_uid": "machine-0"},
    "another API's snapshot": {"api_id": "api-0"},
    "an older epoch": {"epoch": 0},
    "another API's snapshot of a later epoch": {"api_id": "api-0", "epoch": 7},
}


@pytest.mark.parametrize("differs", OUT_OF_STEP.values(), ids=OUT_OF_STEP.keys())
def test_a_gate_out_of_step_is_sent_the_ledgers_epoch(differs: dict[str, Any]) -> None:
    """Never a raised one: whether the gate takes it is the gate's to say."""
    rest = carried_out(seen(gen.grant()))
    assert rest.gate is not None

    planned = plan(replace(rest, gate=rest.gate.model_copy(update=differs)), gen.NOW)

    assert planned.push is not None
    assert planned.push.epoch == 1
    assert planned.ledger is None


AHEAD = {
    "other contents of the same epoch": ({"digest": "sha256:" + "0" * 64}, 2),
    "a later epoch": ({"epoch": 7}, 8),
}


@pytest.mark.parametrize(("differs", "epoch"), AHEAD.values(), ids=AHEAD.keys())
def test_a_gate_that_is_ahead_makes_the_ledger_begin_above_it(differs: dict[str, Any], epoch: int) -> None:
    """After a restored backup: the ledger is written by compare-and-swap, then that is sent."""
    rest = carried_out(seen(gen.grant()))
    assert rest.gate is not None
    ahead = replace(rest, gate=rest.gate.model_copy(update=differs))

    planned = plan(ahead, gen.NOW)

    assert planned.ledger is not None
    assert planned.push is not None
    assert (planned.ledger.ledger_epoch, planned.push.epoch) == (epoch, epoch)
    again = carried_out(ahead)
    assert again.gate is not None
    assert (again.machine.status.ledger_epoch, again.gate.epoch) == (epoch, epoch)


SUPERSEDES = {
    "its own gate": ({}, (), None),
    "a gate without a snapshot": ({"machine_uid": "", "api_id": "", "epoch": -1}, (), None),
    "a machine that is gone": ({"machine_uid": "machine-0"}, (), "machine-0"),
    "a machine that is still there": ({"machine_uid": "machine-0"}, ("machine-0",), None),
    "a machine of another API": ({"machine_uid": "machine-0", "api_id": "api-0"}, (), None),
    "the same machine of another API": ({"api_id": "api-0"}, (), None),
}


@pytest.mark.parametrize(("differs", "machines", "uid"), SUPERSEDES.values(), ids=SUPERSEDES.keys())
def test_whose_place_a_machine_takes(differs: dict[str, Any], machines: tuple[str, ...], uid: str | None) -> None:
    """Within one API a machine that is gone; any other only by the annotation that names it (design 4)."""
    rest = carried_out(seen(gen.grant()))
    assert rest.gate is not None
    theirs = rest.gate.model_copy(update=differs)
    it = replace(rest, gate=theirs, machines=frozenset({*machines, rest.machine.metadata.uid}))
    planned = plan(it, gen.NOW)
    assert (planned.push.supersedes if planned.push is not None else None) == uid

    meta = it.machine.metadata.model_copy(update={"annotations": {TAKE_OVER_ANNOTATION: "machine-0"}})
    told = plan(replace(it, machine=it.machine.model_copy(update={"metadata": meta})), gen.NOW)
    named = theirs.machine_uid == "machine-0"
    assert (told.push.supersedes if told.push is not None else None) == ("machine-0" if named else uid)


def test_an_unserved_machine_is_sent_nothing() -> None:
    """Two machines of one node would take the gate from each other for ever."""
    rest = carried_out(seen(gen.grant()))
    claimed = replace(rest, unserved=Refused(Reason.NODE_CLAIMED, "older"), gate=None, may_push=False)

    planned = plan(claimed, gen.NOW)

    assert planned.push is None
    assert planned.machine is not None
    assert planned.machine.gate is None


@pytest.mark.req("R51")
def test_a_revocation_releases_the_grant_after_the_answer() -> None:
    """First the ledger and the snapshot without it, then its finalizer."""
    rest = carried_out(seen(gen.grant()))
    leaving = guarded(gen.grant(deleted=gen.NOW)).model_copy(update={"status": rest.grants[0].status})

    before = plan(replace(rest, grants=(leaving,)), gen.NOW)
    answered = step(replace(rest, grants=(leaving,)), before)
    after = plan(answered, gen.NOW)

    assert before.release == ()
    assert before.push is not None
    assert before.push.grants == ()
    assert after.release == (leaving,)
    assert after.grants == ()


def test_what_is_owed_is_asked_for_soon() -> None:
    """A gate that took the snapshot and still has an older request open."""
    rest = carried_out(seen(gen.grant()))
    leaving = guarded(gen.grant(deleted=gen.NOW)).model_copy(update={"status": rest.grants[0].status})
    answered = step(replace(rest, grants=(leaving,)), plan(replace(rest, grants=(leaving,)), gen.NOW))
    assert answered.gate is not None
    pending = gen.gate(pending=[("gpu-a", ALL)]).pending

    planned = plan(replace(answered, gate=answered.gate.model_copy(update={"pending": pending})), gen.NOW)

    assert planned.owed
    assert planned.release == ()


WATCHED = {
    "a repo that the gate does not know": (gen.grant("nobody"), {}, True),
    "another repo of that name": (gen.grant(repo_id="id-old"), {}, True),
    "an unfit daemon": (gen.grant(), {"gate": gen.gate(-1, machine_uid="", unfit={"gpu-a": "DaemonUnfit"})}, True),
    "a device that is not there": (gen.grant(device="nvidia.com/gpu=9"), {}, False),
    "nothing": (gen.grant(), {}, False),
}


@pytest.mark.parametrize(("grant", "more", "watched"), WATCHED.values(), ids=WATCHED.keys())
def test_what_only_the_gate_can_tell_is_asked_for(grant: RepoGpuGrant, more: dict[str, Any], watched: bool) -> None:
    """More often, as long as a grant waits for it."""
    it = seen(grant, **more)
    planned = plan(it, gen.NOW)
    while planned.before_answer:
        it = step(it, planned)
        it = replace(it, gate=it.gate and it.gate.model_copy(update={"repos": (more.get("gate") or it.gate).repos}))
        planned = plan(it, gen.NOW)

    assert planned.watched == watched


def test_accepted_at_moves_only_with_a_new_acceptance() -> None:
    """It stays while the grant is held, and goes when the ledger no longer holds it."""
    rest = carried_out(seen(gen.grant(expires=gen.NOW + timedelta(minutes=1))))
    later = gen.NOW + timedelta(minutes=1)
    assert rest.grants[0].status.accepted_at == "2026-03-01T12:00:00Z"

    over = plan(step(rest, plan(rest, later)), later)

    assert [write.status.accepted_at for write in over.grants] == [None]
    assert [write.status.repo_id for write in over.grants] == ["id-a"]


@pytest.mark.req("R9")
def test_grants_without_a_machine() -> None:
    """They wait and are told so once; deleted ones go; time makes them stalled."""
    waiting, leaving = gen.grant("gpu-a"), guarded(gen.grant("gpu-b", deleted=gen.NOW))

    planned = plan_without_machine([waiting, leaving], gen.NOW)
    told = waiting.model_copy(update={"status": planned.grants[0].status})
    later = plan_without_machine([told], gen.NOW + timedelta(minutes=10))

    assert [write.grant for write in planned.grants] == [waiting]
    assert planned.release == (leaving,)
    assert plan_without_machine([told], gen.NOW).grants == ()
    assert planned.recheck_at == gen.NOW + timedelta(minutes=10)
    stalled: RepoGpuGrantStatus = later.grants[0].status
    assert {c.type for c in stalled.conditions if c.status == "True"} == {"Stalled"}
    assert later.recheck_at is None


def test_a_machine_that_goes_is_emptied_first() -> None:
    """An empty snapshot, then its finalizer."""
    rest = carried_out(seen(gen.grant()))
    meta = rest.machine.metadata.model_copy(update={"deletion_timestamp": "2026-03-01T12:00:00Z"})
    going = replace(rest, machine=rest.machine.model_copy(update={"metadata": meta}))

    before = plan(going, gen.NOW)
    after = plan(step(going, before), gen.NOW)

    assert before.push is not None
    assert (before.push.epoch, before.push.grants, before.release_machine) == (2, (), False)
    assert after.release_machine


def aged(text: str | None) -> GpuMachine:
    made = machine()
    spec = made.spec.model_copy(update={"gate": None if text is None else GateWishes(max_snapshot_age=text)})
    return made.model_copy(update={"spec": spec})


@pytest.mark.parametrize(
    ("age", "since_push", "pushes", "recheck"),
    [
        pytest.param("30m", 599, False, 1, id="a third is not over"),
        pytest.param("30m", 600, True, None, id="a third is over"),
        pytest.param("30m", None, True, None, id="this process has sent nothing"),
        pytest.param(None, 10**6, False, None, id="no age is set"),
        pytest.param("0s", 10**6, False, None, id="zero is none"),
    ],
)
def test_a_snapshot_that_may_get_too_old_is_sent_again(
    age: str | None, since_push: int | None, pushes: bool, recheck: int | None
) -> None:
    """Design 6: every third of maxSnapshotAge, the same again."""
    grant = guarded(gen.grant())
    it = carried_out(replace(seen(grant, machine=aged(age)), pushed_at=gen.NOW))
    pushed_at = None if since_push is None else gen.NOW - timedelta(seconds=since_push)
    planned = plan(replace(it, pushed_at=pushed_at), gen.NOW)
    assert (planned.push is not None) == pushes
    if pushes:
        assert planned.push is not None
        assert it.gate is not None
        assert (planned.push.epoch, planned.push.digest) == (it.gate.epoch, it.gate.digest)
        assert planned.ledger is None
    elif recheck is not None:
        assert planned.recheck_at == gen.NOW + timedelta(seconds=recheck)


def test_the_gate_is_told_of_the_age_and_of_its_end() -> None:
    it = carried_out(replace(seen(guarded(gen.grant()), machine=aged("30m")), pushed_at=gen.NOW))
    assert it.machine.status.max_snapshot_age == "30m"
    later = it.machine.model_copy(update={"spec": aged(None).spec})
    planned = plan(replace(it, machine=later), gen.NOW)
    assert planned.ledger is not None
    assert planned.ledger.ledger_epoch == it.machine.status.ledger_epoch + 1
    assert planned.ledger.max_snapshot_age is None
