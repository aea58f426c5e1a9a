"""R49: an exclusive grant takes effect only when no other repo's container runs with that name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gen
from gpugrant_crds.decide import Decision, decide
from gpugrant_crds.snapshot import GateStatus, InUse, Pending
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant

pytestmark = pytest.mark.req("R49")

ALL = "nvidia.com/gpu=all"
OTHER = "nvidia.com/gpu=0"
CONTAINER = "c" * 64


def use(repo: str = "gpu-b", device: str = ALL, name: str = "trainer") -> InUse:
    return InUse(repo=repo, device=device, container=CONTAINER, name=name)


def report(epoch: int, *running: InUse, unseen: tuple[str, ...] = ()) -> GateStatus:
    its = gen.gate(epoch)
    repos = tuple(repo.model_copy(update={"unseen": repo.name in unseen}) for repo in its.repos)
    return its.model_copy(update={"running": running, "repos": repos})


def run(machine: GpuMachine, grants: list[RepoGpuGrant], gate: GateStatus | None) -> Decision:
    return decide(machine, grants, gen.answering(machine, gate), gen.NOW)


def ready(decision: Decision, grant: RepoGpuGrant) -> str:
    claim = decision.verdicts[grant.metadata.uid].ready
    return f"{claim.status} {claim.reason}"


def test_it_waits_for_others_containers_and_names_them() -> None:
    """It is held, so that nobody else gets in, and not yet in what the gate enforces."""
    wanted = gen.grant(exclusive=True)
    decision = run(gen.machine(), [wanted], report(0, use()))

    assert ready(decision, wanted) == "False InUseByOthers"
    assert f"trainer ({CONTAINER[:12]}) of repo gpu-b" in decision.verdicts[wanted.metadata.uid].ready.message
    assert (decision.grants, decision.epoch) == ((), 0)
    machine = gen.after(gen.machine(), decision)
    newcomer = gen.grant("gpu-c")
    assert ready(run(machine, [wanted, newcomer], report(0, use())), newcomer) == "False ExclusiveHeld"


def test_it_takes_effect_when_they_are_gone() -> None:
    wanted = gen.grant(exclusive=True)
    machine = gen.after(gen.machine(), run(gen.machine(), [wanted], report(0, use())))

    decision = run(machine, [wanted], report(0))
    assert [(grant.repo, grant.device) for grant in decision.grants] == [("gpu-a", ALL)]
    assert decision.epoch == 1
    machine = gen.after(machine, decision)
    assert ready(run(machine, [wanted], report(1)), wanted) == "True Enforced"


def test_once_in_force_a_container_elsewhere_takes_it_from_nobody() -> None:
    wanted = gen.grant(exclusive=True)
    machine = gen.after(gen.machine(), run(gen.machine(), [wanted], report(0)))

    decision = run(machine, [wanted], report(1, use()))
    assert (len(decision.grants), decision.epoch) == (1, 1)


def test_a_silent_gate_does_not_end_the_waiting() -> None:
    wanted = gen.grant(exclusive=True)
    machine = gen.after(gen.machine(), run(gen.machine(), [wanted], report(0, use())))

    assert run(machine, [wanted], None).grants == ()


def test_what_was_not_looked_at_may_be_in_use() -> None:
    wanted = gen.grant(exclusive=True)
    decision = run(gen.machine(), [wanted], report(0, unseen=("gpu-b",)))

    assert (ready(decision, wanted), decision.grants) == ("False InUseByOthers", ())
    assert run(gen.machine(), [wanted], report(0, unseen=("gpu-a",))).grants


def test_ones_own_containers_and_other_names_stand_in_nobodys_way() -> None:
    wanted = gen.grant(exclusive=True)

    assert run(gen.machine(), [wanted], report(0, use("gpu-a"), use("gpu-b", OTHER))).grants


def test_a_shared_grant_never_waits() -> None:
    assert run(gen.machine(), [gen.grant()], report(0, use())).grants


def test_a_grant_that_becomes_exclusive_stays_in_force_meanwhile() -> None:
    """What its repo could do before it can do still; it is not ready as long as the others are there."""
    machine = gen.after(gen.machine(), run(gen.machine(), [gen.grant()], report(0)))
    wanted = gen.grant(exclusive=True)
    machine = gen.after(machine, run(machine, [wanted], report(1, use())))

    decision = run(machine, [wanted], report(1, use()))
    assert (ready(decision, wanted), len(decision.grants)) == ("False InUseByOthers", 1)
    assert ready(run(machine, [wanted], report(1)), wanted) == "True Enforced"


def test_a_container_that_survives_a_kill_is_named() -> None:
    """It blocks its own device and no other."""
    held = gen.grant("gpu-b")
    machine = gen.after(gen.machine(), run(gen.machine(), [held], report(0)))
    machine = gen.after(machine, run(machine, [], report(1)))
    stuck = Pending(repo="gpu-b", device=ALL, since=gen.NOW, reason="RevokeStuck", message="container c survives")
    gate = report(2).model_copy(update={"pending": (stuck,)})
    wanted, other = gen.grant(exclusive=True), gen.grant(device=OTHER, exclusive=True)

    decision = run(machine, [wanted, other], gate)
    assert ready(decision, wanted) == "False RevokeStuck"
    assert "container c survives" in decision.verdicts[wanted.metadata.uid].ready.message
    assert [grant.device for grant in decision.grants] == [OTHER]


USES = st.lists(st.builds(use, st.sampled_from(sorted(gen.REPOS)), st.sampled_from([ALL, OTHER])), max_size=4)


@given(st.lists(USES, min_size=1, max_size=6))
def test_it_never_enters_into_force_beside_others(reports: list[list[InUse]]) -> None:
    """Whatever the gate reports in whatever order: the step into force is taken under a report without others."""
    wanted, machine = gen.grant(exclusive=True), gen.machine()
    in_force = False
    for running in reports:
        decision = run(machine, [wanted], report(machine.status.ledger_epoch, *running))
        if decision.grants and not in_force:
            assert not [one for one in running if one.device == ALL and one.repo != "gpu-a"]
        assert not (in_force and not decision.grants)
        in_force = bool(decision.grants)
        machine = gen.after(machine, decision)


def test_what_becomes_of_running_containers_is_told_to_the_gate() -> None:
    """A wish alone makes a new epoch: the same epoch never has two contents."""
    machine = gen.machine()
    machine = machine.model_copy(update={"spec": machine.spec.model_copy(update={"revocation": "Stop"})})
    decision = run(machine, [], report(0))
    sent = decision.snapshot(machine, api_id="api-1", issued_at=gen.NOW)

    assert (decision.epoch, sent.stops) == (1, True)
    machine = gen.after(machine, decision)
    assert run(machine, [], report(1)).epoch == 1
    back = machine.model_copy(update={"spec": machine.spec.model_copy(update={"revocation": None})})
    again = run(back, [], report(1))
    assert (again.epoch, again.snapshot(back, api_id="api-1", issued_at=gen.NOW).policy) == (2, None)
