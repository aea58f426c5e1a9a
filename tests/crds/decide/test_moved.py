"""R47: a grant is of a name. Other hardware behind it is said, and takes nothing away."""

from __future__ import annotations

import pytest

import gen
from gpugrant_crds import conditions
from gpugrant_crds.decide import Decision, decide
from gpugrant_crds.v1alpha1 import REBIND_ANNOTATION, GpuMachine, RepoGpuGrant

pytestmark = pytest.mark.req("R47")

ZERO, EVERY = "nvidia.com/gpu=0", "nvidia.com/gpu=all"
FIRST, SECOND = "gpu/nvidia:GPU-a", "gpu/nvidia:GPU-b"


def run(machine: GpuMachine, grant: RepoGpuGrant) -> Decision:
    return decide(machine, [grant], gen.answering(machine, gen.gate(machine.status.ledger_epoch)), gen.NOW)


def standing_for(machine: GpuMachine, **hardware: tuple[str, ...]) -> GpuMachine:
    """The same machine after a detection that found other hardware: `zero` and `every`."""
    names = {"zero": ZERO, "every": EVERY}
    shown = gen.machine(devices=(), hardware={names[key]: atoms for key, atoms in hardware.items()}).status.devices
    return machine.model_copy(update={"status": machine.status.model_copy(update={"devices": shown})})


def accepted(grant: RepoGpuGrant, **hardware: tuple[str, ...]) -> GpuMachine:
    machine = standing_for(gen.machine(), **hardware)
    return gen.after(machine, run(machine, grant))


def claims(decision: Decision, grant: RepoGpuGrant) -> dict[str, tuple[str, str]]:
    return {claim.type: (claim.status, claim.reason) for claim in decision.verdicts[grant.metadata.uid].claims}


def message(decision: Decision, grant: RepoGpuGrant) -> str:
    found = decision.verdicts[grant.metadata.uid].claims
    return next(claim.message for claim in found if claim.type == conditions.MOVED)


def test_other_hardware_is_said_and_the_grant_stays_in_force() -> None:
    grant = gen.grant(device=ZERO)
    machine = standing_for(accepted(grant, zero=(FIRST,)), zero=(SECOND,))

    decision = run(machine, grant)

    assert claims(decision, grant)["Ready"] == ("True", "Enforced")
    assert claims(decision, grant)["Moved"] == ("True", "DeviceMoved")
    assert "stands for nvidia:GPU-b now and stood for nvidia:GPU-a when it was granted" in message(decision, grant)
    assert [held.device for held in decision.grants] == [ZERO]
    assert decision.epoch == machine.status.ledger_epoch
    assert decision.verdicts[grant.metadata.uid].hardware == (FIRST,)


CASES = {
    "the same card again": ((FIRST,), (FIRST,), False),
    "another card": ((FIRST,), (SECOND,), True),
    "a part of the same card": ((FIRST,), (f"{FIRST}/gi1/ci0",), False),
    "the whole of the card instead of a part": ((f"{FIRST}/p0",), (FIRST,), True),
    "another MIG instance": ((f"{FIRST}/gi1/ci0",), (f"{FIRST}/gi2/ci0",), True),
    "a second card beside it": ((FIRST,), (FIRST, SECOND), True),
    "a set that was accepted as one": ((FIRST, SECOND), (SECOND,), False),
}


@pytest.mark.parametrize(("before", "now", "moved"), CASES.values(), ids=CASES)
def test_when_it_has_moved(before: tuple[str, ...], now: tuple[str, ...], moved: bool) -> None:
    grant = gen.grant(device=ZERO)
    decision = run(standing_for(accepted(grant, zero=before), zero=now), grant)
    assert ("Moved" in claims(decision, grant)) is moved


def test_a_name_for_a_set_never_counts_as_moved() -> None:
    grant = gen.grant(device=EVERY)
    decision = run(standing_for(accepted(grant, every=(FIRST,)), every=(SECOND,)), grant)
    assert "Moved" not in claims(decision, grant)


def test_a_device_that_is_gone_is_gone_and_not_moved() -> None:
    grant = gen.grant(device=ZERO)
    decision = run(standing_for(accepted(grant, zero=(FIRST,)), every=(SECOND,)), grant)
    assert claims(decision, grant)["Ready"] == ("False", "DeviceGone")
    assert "Moved" not in claims(decision, grant)


def test_it_is_over_when_the_card_is_back() -> None:
    grant = gen.grant(device=ZERO)
    away = standing_for(accepted(grant, zero=(FIRST,)), zero=(SECOND,))
    back = standing_for(gen.after(away, run(away, grant)), zero=(FIRST,))
    assert "Moved" not in claims(run(back, grant), grant)


def test_a_grant_is_bound_again_when_it_says_so() -> None:
    """Once for each value of the annotation: the next move is said again."""
    grant = gen.grant(device=ZERO)
    moved = standing_for(accepted(grant, zero=(FIRST,)), zero=(SECOND,))
    wish = gen.grant(device=ZERO, annotations={REBIND_ANNOTATION: "today"})

    bound = run(moved, wish)
    assert "Moved" not in claims(bound, wish)
    assert bound.verdicts[wish.metadata.uid].hardware == (SECOND,)
    assert bound.epoch == moved.status.ledger_epoch

    again = standing_for(gen.after(moved, bound), zero=(FIRST,))
    assert claims(run(again, wish), wish)["Moved"] == ("True", "DeviceMoved")


def test_a_wish_from_before_the_acceptance_binds_nothing_later() -> None:
    wish = gen.grant(device=ZERO, annotations={REBIND_ANNOTATION: "old"})
    decision = run(standing_for(accepted(wish, zero=(FIRST,)), zero=(SECOND,)), wish)
    assert claims(decision, wish)["Moved"] == ("True", "DeviceMoved")


def test_a_grant_of_before_hardware_was_known_is_bound_to_what_is_found_first() -> None:
    grant = gen.grant(device=ZERO)
    old = gen.machine()
    first = standing_for(gen.after(old, run(old, grant)), zero=(FIRST,))
    known = gen.after(first, run(first, grant))
    assert "Moved" not in claims(run(known, grant), grant)
    assert claims(run(standing_for(known, zero=(SECOND,)), grant), grant)["Moved"] == ("True", "DeviceMoved")


def test_deciding_again_changes_nothing() -> None:
    grant = gen.grant(device=ZERO)
    machine = standing_for(accepted(grant, zero=(FIRST,)), zero=(SECOND,))
    decision = run(machine, grant)
    assert run(gen.after(machine, decision), grant) == decision
