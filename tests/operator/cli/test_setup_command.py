"""How far a detection has come, as a table."""

from __future__ import annotations

from datetime import datetime

import pytest

import gen
from gpugrant_crds.v1alpha1 import GpuMachine
from gpugrant_operator.cli import setup_command
from gpugrant_operator.cli.setup_command import Course


def machine(
    *conditions: tuple[str, str, str, str],
    answered: str | None = None,
    succeeded: bool = True,
    deleted: datetime | None = None,
) -> GpuMachine:
    detection = None if answered is None else {"request": answered, "succeeded": succeeded}
    listed = [
        {
            "observedGeneration": 0,
            "type": kind,
            "status": status,
            "reason": reason,
            "message": text,
            "lastTransitionTime": "2026-03-01T12:00:00Z",
        }
        for kind, status, reason, text in conditions
    ]
    problems = [{"reason": "SpecInvalid", "message": "x.yaml is broken"}]
    return gen.machine(deleted=deleted, detection=detection, conditions=listed, problems=problems)


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
        pytest.param(
            machine(("Ready", "False", "NodeUnreachable", "no gate of the node ghost is known here")),
            Course(failed="no gate of the node ghost is known here"),
            id="nobody looks there",
        ),
        pytest.param(
            machine(DETECTING, ("Ready", "False", "Releasing", "waiting for the gate"), deleted=gen.NOW),
            Course(
                failed="machine wsl-gpu is being deleted, so it can't be set up; its Ready condition says: "
                "waiting for the gate"
            ),
            id="deleted meanwhile",
        ),
        pytest.param(
            machine(answered="now", deleted=gen.NOW),
            Course(failed="machine wsl-gpu is being deleted, so it can't be set up"),
            id="deleted before anybody said anything",
        ),
    ],
)
@pytest.mark.req("R10")
def test_course(seen: GpuMachine, course: Course) -> None:
    assert setup_command.course(seen, "now") == course
