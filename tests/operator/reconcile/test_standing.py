"""A machine's conditions: the first thing that is amiss decides Ready."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import gen
import world
from gpugrant_crds.decide.conflicts import Refused
from gpugrant_crds.reasons import Reason
from gpugrant_crds.v1alpha1 import DETECT_ANNOTATION, Condition, GpuMachine, GpuMachineStatus, Problem, SpecStatus
from gpugrant_operator.reconcile import facts, standing
from gpugrant_operator.reconcile.detection import Outcome
from gpugrant_operator.reconcile.observed import Observed


def detected(**update: Any) -> GpuMachine:
    known = facts.laid_over(gen.machine(), world.inventory(), None)
    return known.model_copy(update={"status": known.status.model_copy(update=update)})


def with_meta(machine: GpuMachine, **update: Any) -> GpuMachine:
    return machine.model_copy(update={"metadata": machine.metadata.model_copy(update=update)})


FAILED = Outcome(request=None, succeeded=False, message="nvidia-smi hangs", ended=gen.NOW)
WORKED = Outcome(request=None, succeeded=True, message="", ended=gen.NOW)
STORED_FAILURE = Condition(
    type="Detected", status="False", reason="DetectionFailed", message="an old failure", last_transition_time="t"
)


@dataclass(frozen=True)
class Case:
    ready: str
    others: dict[str, str]
    machine: GpuMachine = field(default_factory=detected)
    seen: dict[str, Any] = field(default_factory=dict)
    gate: bool = True
    synced: bool = True
    says: str = ""


FINE = {"Detected": "True Detected", "GateSynced": "True Synced", "SpecsCurrent": "True SpecsCurrent"}
CASES = {
    "all is well": Case("True Synced", FINE, says="1 GPU, 3 device names"),
    "there is no GPU": Case(
        "True NoGpu", FINE, facts.laid_over(gen.machine(), world.inventory((), gpus=()), None), says="no GPU"
    ),
    "problems are counted": Case(
        "True Synced", FINE, detected(problems=(Problem(reason="X", message="y"),)), says="1 problem, see"
    ),
    "a spec that can't be read leaves the machine ready": Case(
        "True Synced",
        FINE | {"SpecsCurrent": "False SpecsStale"},
        detected(specs=(SpecStatus(file="x.yaml"),)),
    ),
    "a spec problem leaves the machine ready": Case(
        "True Synced",
        FINE | {"SpecsCurrent": "False SpecsStale"},
        detected(problems=(Problem(reason="SpecConflict", message="a name in two files"),)),
    ),
    "never detected": Case(
        "Unknown Detecting",
        {
            "Detected": "Unknown Detecting",
            "GateSynced": "True Synced",
            "SpecsCurrent": "Unknown Detecting",
            "Reconciling": "True Detecting",
        },
        gen.machine(devices=None),
    ),
    "a detection that failed keeps the last inventory": Case(
        "False DetectionFailed",
        FINE | {"Detected": "False DetectionFailed", "Stalled": "True DetectionFailed"},
        seen={"outcome": FAILED},
        says="nvidia-smi hangs",
    ),
    "a failure of an earlier process stays": Case(
        "False DetectionFailed",
        FINE | {"Detected": "False DetectionFailed", "Stalled": "True DetectionFailed"},
        detected(conditions=(STORED_FAILURE,)),
        says="an old failure",
    ),
    "a success ends an earlier failure": Case(
        "True Synced", FINE, detected(conditions=(STORED_FAILURE,)), seen={"outcome": WORKED}
    ),
    "a request in progress": Case(
        "True Synced",
        FINE | {"Reconciling": "True Detecting"},
        with_meta(detected(), annotations={DETECT_ANNOTATION: "1"}),
        seen={"detecting": True},
    ),
    "a detection that nobody asked for is not shown": Case("True Synced", FINE, seen={"detecting": True}),
    "the gate has not answered": Case(
        "False GatePending",
        FINE | {"GateSynced": "False GatePending", "Reconciling": "True GatePending"},
        synced=False,
    ),
    "the gate refuses": Case(
        "False EpochReused",
        FINE | {"GateSynced": "False EpochReused", "Stalled": "True EpochReused"},
        seen={"refusal": Refused(Reason.EPOCH_REUSED, "the gate's own sentence")},
        synced=False,
        says="the gate's own sentence",
    ),
    "a refusal is over when the gate is in step": Case(
        "True Synced", FINE, seen={"refusal": Refused(Reason.STALE_EPOCH, "old")}
    ),
    "the gate is silent": Case(
        "Unknown GateUnreachable",
        FINE | {"GateSynced": "Unknown GateUnreachable", "Stalled": "True GateUnreachable"},
        gate=False,
        synced=False,
    ),
    "the node is another machine's": Case(
        "False NodeClaimed",
        {
            "Detected": "Unknown NodeClaimed",
            "GateSynced": "False NodeClaimed",
            "SpecsCurrent": "Unknown NodeClaimed",
            "Stalled": "True NodeClaimed",
        },
        gen.machine(devices=None),
        seen={"unserved": Refused(Reason.NODE_CLAIMED, "older has it")},
        synced=False,
    ),
    "it is being deleted": Case(
        "False Releasing",
        FINE | {"Reconciling": "True Releasing"},
        with_meta(detected(), deletion_timestamp="2026-03-01T12:00:00Z"),
    ),
}


@pytest.mark.req("D12", "R12")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_claims(case: Case) -> None:
    """All conditions, and none more."""
    seen = replace(Observed(api_id="api-1", machine=case.machine, gate=gen.gate() if case.gate else None), **case.seen)

    claims = {claim.type: claim for claim in standing.claims(standing.Scene(seen, case.machine, case.synced))}

    ready = claims.pop("Ready")
    assert f"{ready.status} {ready.reason}" == case.ready
    assert {kind: f"{claim.status} {claim.reason}" for kind, claim in claims.items()} == case.others
    assert case.says in ready.message


def test_a_status_never_detected_has_no_devices() -> None:
    """What the cases call never detected is what a new object's status is."""
    assert GpuMachineStatus().devices is None
