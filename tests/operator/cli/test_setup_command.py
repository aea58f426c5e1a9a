"""How far a detection has come, as a table."""

from __future__ import annotations

import pytest

import gen
from gpugrant_crds.v1alpha1 import GpuMachine
from gpugrant_operator.cli import setup_command
from gpugrant_operator.cli.setup_command import Course


def machine(*conditions: tuple[str, str, str, str], answered: str | None = None, succeeded: bool = True) -> GpuMachine:
    detection = None if answered is None else {"request": answered, "succeeded": succeeded}
    listed = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": text,
            "lastTransitionTime": "2026-03-01T12:00:00Z",
        }
        for kind, status, reason, text in conditions
    ]
    problems = [{"reason": "SpecInvalid", "message": "x.yaml is broken"}]
    return gen.machine(detection=detection, conditions=listed, problems=problems)


READY = ("Ready", "True", "Synced", "2 GPUs")
DETECTING = ("Detected", "False", "Detecting", "looking")


@pytest.mark.parametrize(
    ("seen", "course"),
    [
        pytest.param(machine(), Course(), id="nothing is said yet"),
        pytest.param(machine(READY, answered="old"), Course(), id="ready from an earlier detection is not ready"),
        pytest.param(machine(DETECTING, answered="old"), Course(message="looking"), id="on its way"),
        pytest.param(machine(READY, answered="now"), Course(ready="2 GPUs"), id="done"),
        pytest.param(
            machine(("Detected", "False", "DetectionFailed", "no driver"), answered="now", succeeded=False),
            Course(failed="no driver"),
            id="failed",
        ),
        pytest.param(
            machine(READY, answered="now", succeeded=False),
            Course(failed="x.yaml is broken"),
            id="one step failed and the rest is done",
        ),
        pytest.param(
            machine(("Ready", "False", "GatePending", "waiting"), answered="now"),
            Course(message="waiting"),
            id="not yet",
        ),
        pytest.param(
            machine(
                ("Ready", "False", "NodeClaimed", "x"),
                ("Stalled", "True", "NodeClaimed", "another has it"),
                answered="now",
            ),
            Course(failed="another has it"),
            id="stalled",
        ),
    ],
)
@pytest.mark.req("R10")
def test_course(seen: GpuMachine, course: Course) -> None:
    assert setup_command.course(seen, "now") == course
