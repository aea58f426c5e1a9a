"""The laws of `decide`, over generated histories of one machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gen
from gpugrant_crds import snapshot
from gpugrant_crds.decide import Decision, decide
from gpugrant_crds.snapshot import GateStatus
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant

DEVICES = [*gen.DEVICES[:2], "nvidia.com/gpu=7"]


@st.composite
def grants(draw: st.DrawFn) -> RepoGpuGrant:
    number = draw(st.integers(0, 9))
    return gen.grant(
        draw(st.sampled_from([*gen.REPOS, "gpu-x"])),
        draw(st.sampled_from(DEVICES)),
        name=f"grant-{number}",
        namespace=draw(st.sampled_from(["one", "two"])),
        uid=f"uid-{number}-{draw(st.integers(0, 1))}",
        exclusive=draw(st.sampled_from([None, False, True])),
        repo_id=draw(st.sampled_from([None, None, "id-a", "id-b"])),
        created=gen.NOW - timedelta(minutes=draw(st.integers(0, 3))),
        deleted=draw(st.sampled_from([None, None, None, gen.NOW])),
        expires=draw(st.sampled_from([None, None, gen.NOW - timedelta(1), gen.NOW + timedelta(1)])),
    )


stored = st.lists(grants(), max_size=8, unique_by=lambda grant: grant.metadata.uid)
gates = st.one_of(
    st.none(),
    st.builds(
        gen.gate,
        st.integers(0, 6),
        machine_uid=st.sampled_from(["machine-1", "machine-1", "machine-0"]),
        pending=st.lists(st.tuples(st.sampled_from(list(gen.REPOS)), st.sampled_from(DEVICES)), max_size=2),
    ),
)


def digest(machine: GpuMachine, decision: Decision) -> str:
    return decision.snapshot(machine, api_id="api-1", issued_at=gen.NOW).digest


def held(decision: Decision) -> set[tuple[str, str, str]]:
    return {
        (allocation.device, holder.repo, grant.uid)
        for allocation in decision.allocations
        for holder in allocation.repos
        for grant in holder.grants
    }


def history(steps: Sequence[tuple[list[RepoGpuGrant], GateStatus | None]]) -> GpuMachine:
    """The machine after these states of the world, one after the other."""
    machine = gen.machine()
    for grants_then, gate_then in steps:
        machine = gen.after(machine, decide(machine, grants_then, gen.answering(machine, gate_then), gen.NOW))
    return machine


histories = st.lists(st.tuples(stored, gates), max_size=4)


@pytest.mark.req("R26", "R27", "R28", "D7")
@given(histories, stored, gates)
def test_at_most_one_repo_where_one_is_exclusive(
    past: list[tuple[list[RepoGpuGrant], GateStatus | None]], now: list[RepoGpuGrant], gate: GateStatus | None
) -> None:
    """No name is ever held by two repos of which one is exclusive, not even while it is being released."""
    machine = history(past)
    decision = decide(machine, now, gen.answering(machine, gate), gen.NOW)

    for allocation in decision.allocations:
        repos = {holder.repo for holder in allocation.repos}
        exclusive = {holder.repo for holder in allocation.repos if any(grant.exclusive for grant in holder.grants)}
        owed = {debt.repo for debt in allocation.releasing if debt.exclusive}
        owing = {debt.repo for debt in allocation.releasing}
        if exclusive:
            assert repos == exclusive
            assert len(exclusive) == 1
            assert owing <= exclusive or not newly(machine, decision) & exclusive
        if owed and repos - owed:
            assert not newly(machine, decision) & (repos - owed)


def newly(machine: GpuMachine, decision: Decision) -> set[str]:
    """The repos that hold something now and held nothing of it before."""
    before = {
        (allocation.device, holder.repo, grant.uid)
        for allocation in machine.status.allocations
        for holder in allocation.repos
        for grant in holder.grants
    }
    return {repo for _, repo, _ in held(decision) - before}


@given(histories, stored, gates, st.randoms())
def test_order_of_the_stored_grants_changes_nothing(
    past: list[tuple[list[RepoGpuGrant], GateStatus | None]],
    now: list[RepoGpuGrant],
    gate: GateStatus | None,
    random: object,
) -> None:
    """The result depends on what is stored, never on the order in which it is listed."""
    machine = history(past)
    shuffled = list(now)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis' Random

    assert decide(machine, now, gate, gen.NOW) == decide(machine, shuffled, gate, gen.NOW)


@given(histories, stored, gates)
def test_deciding_again_changes_nothing(
    past: list[tuple[list[RepoGpuGrant], GateStatus | None]], now: list[RepoGpuGrant], gate: GateStatus | None
) -> None:
    """`decide` of its own output is a fixed point."""
    machine = history(past)
    gate = gen.answering(machine, gate)
    first = decide(machine, now, gate, gen.NOW)
    again = decide(gen.after(machine, first), now, gate, gen.NOW)

    assert (again.allocations, again.epoch, again.grants) == (first.allocations, first.epoch, first.grants)


@given(histories, stored, gates, grants())
def test_a_new_grant_never_removes_an_accepted_one(
    past: list[tuple[list[RepoGpuGrant], GateStatus | None]],
    now: list[RepoGpuGrant],
    gate: GateStatus | None,
    newcomer: RepoGpuGrant,
) -> None:
    """Whoever holds a name goes on holding it when somebody else asks."""
    before = history(past)
    first = decide(before, now, gen.answering(before, gate), gen.NOW)
    machine = gen.after(before, first)
    if newcomer.metadata.uid in {grant.metadata.uid for grant in now}:
        return

    assert held(first) <= held(decide(machine, [*now, newcomer], gate, gen.NOW))


@given(histories, stored, gates)
def test_the_epoch_rises_exactly_when_the_digest_changes(
    past: list[tuple[list[RepoGpuGrant], GateStatus | None]], now: list[RepoGpuGrant], gate: GateStatus | None
) -> None:
    """One more epoch for each change of what the gate enforces, and none without."""
    machine = history(past)
    before = snapshot.build(
        api_id="api-1",
        machine=machine.metadata.name,
        machine_uid=machine.metadata.uid,
        epoch=machine.status.ledger_epoch,
        issued_at=gen.NOW,
        grants=gen.ledger_grants(machine),
    )
    decision = decide(machine, now, gen.answering(machine, gate), gen.NOW)

    changed = digest(machine, decision) != before.digest
    assert decision.epoch - machine.status.ledger_epoch == int(changed)


@pytest.mark.req("R1", "R5", "R9")
@given(histories, stored, gates)
def test_nothing_is_enforced_without_a_stored_grant_for_this_repo_id(
    past: list[tuple[list[RepoGpuGrant], GateStatus | None]], now: list[RepoGpuGrant], gate: GateStatus | None
) -> None:
    """Each line of the snapshot has a stored, living, unexpired grant of exactly that device, repo and id behind it."""
    machine = history(past)
    decision = decide(machine, now, gen.answering(machine, gate), gen.NOW)
    by_uid = {grant.metadata.uid: grant for grant in now}

    for line in decision.grants:
        grant = by_uid[line.grant.uid]
        assert (grant.spec.repo, grant.spec.device) == (line.repo, line.device)
        assert grant.metadata.deletion_timestamp is None
        assert line.in_force(gen.NOW)
        assert line.repo_id == gen.REPOS[line.repo]
