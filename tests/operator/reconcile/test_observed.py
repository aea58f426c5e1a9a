"""Which machine a node belongs to, and why a machine is not served."""

from __future__ import annotations

from datetime import timedelta

import pytest

import gen
from gpugrant_crds import timestamps
from gpugrant_crds.reasons import Reason
from gpugrant_crds.v1alpha1 import GpuMachine
from gpugrant_operator.reconcile.observed import claimed_by, unserved


def machine(name: str, node: str = "node-1", *, age: int = 0) -> GpuMachine:
    made = gen.machine(name=name, uid=f"uid-{name}")
    meta = made.metadata.model_copy(update={"creation_timestamp": timestamps.write(gen.NOW - timedelta(hours=age))})
    return made.model_copy(update={"metadata": meta, "spec": made.spec.model_copy(update={"node_name": node})})


def test_the_oldest_has_the_node() -> None:
    """Of several the oldest; of the same second the first by name; whatever the order."""
    old, young, twin = machine("old", age=2), machine("young", age=1), machine("twin", age=1)
    everyone = [young, twin, old]

    for order in (everyone, everyone[::-1]):
        assert claimed_by(old, order) is None
        assert claimed_by(young, order) == old
        assert claimed_by(twin, order) == old
    assert claimed_by(young, [twin, young]) == twin
    assert claimed_by(twin, [twin, young]) is None


def test_another_node_is_no_claim() -> None:
    """Only machines of the same node compete."""
    assert claimed_by(machine("a"), [machine("b", "node-2", age=5)]) is None


@pytest.mark.req("D8")
def test_why_a_machine_is_not_served() -> None:
    """A node that is claimed, or one that this operator does not reach; else nothing."""
    ours, younger = machine("ours", age=1), machine("younger")
    elsewhere = machine("elsewhere", "node-9")

    assert unserved(ours, [ours, younger], "node-1") is None
    claimed = unserved(younger, [ours, younger], "node-1")
    away = unserved(elsewhere, [elsewhere], "node-1")
    assert claimed is not None
    assert away is not None
    assert claimed.reason == Reason.NODE_CLAIMED
    assert "ours" in claimed.message
    assert away.reason == Reason.NODE_UNREACHABLE
    assert "node-9" in away.message


def test_a_machine_without_a_node_name_is_its_own_name() -> None:
    """spec.nodeName absent: metadata.name."""
    made = gen.machine(name="node-1")

    assert unserved(made, [made], "node-1") is None
