"""When a detection is due."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

import gen
import world
from gpugrant_crds.inventory import Cdi, SpecFile
from gpugrant_crds.v1alpha1 import DETECT_ANNOTATION, GpuMachine
from gpugrant_operator.reconcile import detection
from gpugrant_operator.reconcile.detection import Due, Outcome, Scene

NOW = gen.NOW
SPECS = Cdi(files=(SpecFile(path="/etc/cdi/nvidia.yaml", sha256="aa"),))
FRESH = Scene(inventory=world.inventory(cdi=SPECS, boot_id="boot-1"), boot_id="boot-1", specs={"nvidia.yaml": "aa"})


def ended(ago: timedelta, *, succeeded: bool = True, request: str | None = None) -> Outcome:
    return Outcome(request=request, succeeded=succeeded, message="" if succeeded else "no", ended=NOW - ago)


def machine(request: str | None = None, answered: str | None = None, **more: Any) -> GpuMachine:
    annotations = {} if request is None else {DETECT_ANNOTATION: request}
    status = {} if answered is None else {"detection": {"request": answered, "succeeded": True}}
    made = gen.machine(annotations=annotations, **status)
    return made.model_copy(update={"spec": made.spec.model_validate(more)})


@dataclass(frozen=True)
class Case:
    cause: str | None
    machine: GpuMachine
    scene: Scene = FRESH
    at: datetime | None = None


HOUR = timedelta(hours=1)
OF_A = world.inventory(cdi=SPECS, boot_id="boot-1").model_copy(update={"fingerprint": "a"})
CASES = {
    "nothing is due on a fresh machine": Case(None, machine(), at=NOW + HOUR),
    "a machine without an inventory": Case("never detected", machine(), Scene()),
    "an inventory of another boot": Case("another boot", machine(), replace(FRESH, boot_id="boot-2")),
    "a tree without a boot id is of no other boot": Case(None, machine(), replace(FRESH, boot_id=None), NOW + HOUR),
    "a spec that changed": Case("the CDI specs changed", machine(), replace(FRESH, specs={"nvidia.yaml": "bb"})),
    "a spec that is new": Case(
        "the CDI specs changed", machine(), replace(FRESH, specs={"nvidia.yaml": "aa", "other.yaml": "cc"})
    ),
    "a spec that went": Case("the CDI specs changed", machine(), replace(FRESH, specs={})),
    "a difference that the last detection left is no reason": Case(
        None, machine(), replace(FRESH, specs={"x.yaml": "1"}, settled={"x.yaml": "1"}), NOW + HOUR
    ),
    "a machine whose hardware changed": Case(
        "the hardware or its driver changed", machine(), replace(FRESH, inventory=OF_A, fingerprint="b")
    ),
    "a machine whose hardware is the same": Case(
        None, machine(), replace(FRESH, inventory=OF_A, fingerprint="a"), NOW + HOUR
    ),
    "a change that a detection was started for and did not show": Case(
        None, machine(), replace(FRESH, inventory=OF_A, fingerprint="b", tried="b"), NOW + HOUR
    ),
    "a change after one that did not show": Case(
        "the hardware or its driver changed", machine(), replace(FRESH, inventory=OF_A, fingerprint="c", tried="b")
    ),
    "a gate that reports no fingerprint": Case(None, machine(), replace(FRESH, inventory=OF_A), NOW + HOUR),
    "an inventory of before fingerprints": Case(None, machine(), replace(FRESH, fingerprint="b"), NOW + HOUR),
    "an inventory over an hour old": Case(
        "the interval is over",
        machine(),
        replace(FRESH, boot_id=None, inventory=world.inventory(cdi=SPECS, made=NOW - HOUR)),
    ),
    "an interval of one's own": Case(
        None,
        machine(detection={"interval": "2h"}),
        replace(FRESH, boot_id=None, inventory=world.inventory(cdi=SPECS, made=NOW - HOUR)),
        NOW + HOUR,
    ),
    "a time to come counts as now": Case(
        None,
        machine(),
        replace(FRESH, boot_id=None, inventory=world.inventory(cdi=SPECS, made=NOW + 24 * HOUR)),
        NOW + HOUR,
    ),
    "a request": Case("requested", machine("1")),
    "a new request": Case("requested", machine("2", answered="1")),
    "a request that is answered": Case(None, machine("1", answered="1"), at=NOW + HOUR),
    "a request that the last detection answered, not stored yet": Case(
        None, machine("1"), replace(FRESH, last=ended(timedelta(0), request="1")), NOW + HOUR
    ),
    "an empty request is none": Case(None, machine(""), at=NOW + HOUR),
    "nothing while one runs": Case(None, machine("1"), replace(FRESH, running=True)),
    "nothing for a machine that goes": Case(
        None, gen.machine(deleted=NOW, annotations={DETECT_ANNOTATION: "1"}), Scene()
    ),
    "a failure is not repeated at once": Case(
        None,
        machine(),
        Scene(last=ended(timedelta(seconds=29), succeeded=False), failures=1),
        NOW + timedelta(seconds=1),
    ),
    "a failure is repeated after half a minute": Case(
        "never detected", machine(), Scene(last=ended(timedelta(seconds=30), succeeded=False), failures=1)
    ),
    "a third failure waits longer": Case(
        None,
        machine(),
        Scene(last=ended(timedelta(seconds=30), succeeded=False), failures=3),
        NOW + timedelta(seconds=90),
    ),
    "the pause has an end": Case(
        None,
        machine(),
        Scene(last=ended(timedelta(0), succeeded=False), failures=900),
        NOW + timedelta(minutes=10),
    ),
    "a request does not wait for the pause": Case(
        "requested", machine("2"), Scene(last=ended(timedelta(0), succeeded=False, request="1"), failures=5)
    ),
}


@pytest.mark.req("D5", "D6", "R10")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_due(case: Case) -> None:
    """The first cause that holds, or when to look again."""
    assert detection.due(case.machine, case.scene, NOW) == Due(case.cause, case.at)


INTERVALS = {"1h30m": timedelta(minutes=90), "45s": timedelta(seconds=45), "0s": HOUR}


@pytest.mark.parametrize(("text", "length"), INTERVALS.items(), ids=INTERVALS.keys())
def test_interval(text: str, length: timedelta) -> None:
    """Go durations; none that would never end."""
    assert detection.interval(machine(detection={"interval": text})) == length
    assert detection.interval(machine(detection={})) == detection.interval(machine()) == HOUR


@pytest.mark.req("R13")
@pytest.mark.parametrize(("install", "value"), [("Auto", "auto"), ("Always", "true"), ("Never", "false")])
def test_toolkit_install(install: str, value: str) -> None:
    """Each value has its own in `renet setup`; a spec that says nothing leaves what was given by hand."""
    assert detection.arguments(machine(toolkit={"install": install})) == ("--toolkit-default", value)
    assert detection.arguments(machine()) == detection.arguments(machine(toolkit={})) == ()
