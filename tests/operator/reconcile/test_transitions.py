"""Which status changes are worth an Event."""

from __future__ import annotations

from datetime import timedelta

import pytest

import gen
from gpugrant_crds.snapshot import Case, GateStatus
from gpugrant_crds.v1alpha1 import Condition, GpuMachineStatus, RepoGpuGrantStatus
from gpugrant_operator.reconcile import transitions


def condition(kind: str, status: str, reason: str, message: str = "said") -> Condition:
    return Condition.model_validate(
        {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "t"}
    )


GRANT_CASES = {
    "the first enforcement": (None, ("True", "Enforced"), "Normal Enforced"),
    "a conflict": (("False", "Pending"), ("False", "ExclusiveHeld"), "Warning ExclusiveHeld"),
    "a revocation": (("True", "Enforced"), ("False", "Releasing"), "Normal Releasing"),
    "a device that went": (("True", "Enforced"), ("False", "DeviceGone"), "Warning DeviceGone"),
    "nothing for waiting for the gate": (None, ("False", "GatePending"), ""),
    "nothing for the same again": (("True", "Enforced"), ("True", "Enforced"), ""),
}


@pytest.mark.req("D12")
@pytest.mark.parametrize(("before", "after", "event"), GRANT_CASES.values(), ids=GRANT_CASES.keys())
def test_of_grant(before: tuple[str, str] | None, after: tuple[str, str], event: str) -> None:
    """One Event a transition of Ready; none for what passes in a moment."""
    grant = gen.grant()
    old = () if before is None else (condition("Ready", *before, "another message"),)
    grant = grant.model_copy(update={"status": grant.status.model_copy(update={"conditions": old})})
    new = RepoGpuGrantStatus(conditions=(condition("Ready", *after),))

    found = transitions.of_grant(grant, new)

    assert [f"{it.type} {it.reason}" for it in found] == ([event] if event else [])
    assert all((it.kind, it.namespace, it.uid) == ("RepoGpuGrant", "default", grant.metadata.uid) for it in found)


@pytest.mark.req("R47")
@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        pytest.param(None, "is b", ["Warning DeviceMoved"], id="it moved"),
        pytest.param("is b", "is b", [], id="it is still elsewhere"),
        pytest.param("is b", "is c", ["Warning DeviceMoved"], id="it moved again"),
        pytest.param("is b", None, [], id="it is back"),
    ],
)
def test_other_hardware_behind_a_name_is_a_warning(before: str | None, after: str | None, events: list[str]) -> None:
    """Once for each place that the name moves to, while Ready stays as it is."""
    ready = condition("Ready", "True", "Enforced")
    old, new = (
        (ready, *([] if text is None else [condition("Moved", "True", "DeviceMoved", text)]))
        for text in (before, after)
    )
    grant = gen.grant()
    grant = grant.model_copy(update={"status": grant.status.model_copy(update={"conditions": old})})

    found = transitions.of_grant(grant, RepoGpuGrantStatus(conditions=new))

    assert [f"{it.type} {it.reason}" for it in found] == events


def test_of_machine_says_a_failure_once() -> None:
    """Ready and Detected fail for the same reason with the same words: one Event."""
    machine = gen.machine()
    failed = GpuMachineStatus(
        conditions=(
            condition("Ready", "False", "DetectionFailed"),
            condition("Detected", "False", "DetectionFailed"),
            condition("SpecsCurrent", "False", "SpecsStale"),
            condition("GateSynced", "False", "StaleEpoch"),
        )
    )

    found = transitions.of_machine(machine, failed)

    assert [f"{it.type} {it.reason}" for it in found] == ["Warning DetectionFailed", "Warning SpecsStale"]


def test_the_same_occurrence_has_the_same_name() -> None:
    """A repetition counts up; another message, type or object is another Event."""
    machine = gen.machine()
    made = [
        transitions.of_machine(machine, GpuMachineStatus(conditions=(condition("Ready", status, "Synced", message),)))
        for status, message in (("True", "a"), ("True", "a"), ("True", "b"), ("False", "a"))
    ]
    names = [occurrences[0].event_name for occurrences in made]

    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert all(name.startswith("wsl-gpu.") for name in names)


def case(name: str, reason: str = "ContainerStopped", *, minutes: int = 0) -> Case:
    moment = gen.NOW - timedelta(minutes=minutes)
    return Case(reason=reason, repo="gpu-b", container="c" * 64, name=name, message=f"{name} was", time=moment)


def report(*cases: Case) -> GateStatus:
    return gen.gate().model_copy(update={"cases": cases})


def test_what_the_gate_found_is_told_once() -> None:
    """Only what is new since the report before; of a first report what is not long ago."""
    one, two = case("one"), case("two", "RestartPolicyRemoved")

    def told(before: GateStatus | None, after: GateStatus) -> list[str]:
        found = transitions.of_cases(gen.machine(), before, after, gen.NOW)
        assert all((it.kind, it.name) == ("GpuMachine", gen.MACHINE) for it in found)
        return [f"{it.type} {it.reason} {it.message}" for it in found]

    assert told(report(one), report(one, two)) == ["Normal RestartPolicyRemoved two was"]
    assert told(report(one, two), report(one, two)) == []
    assert told(None, report(case("old", minutes=30), one)) == ["Warning ContainerStopped one was"]
