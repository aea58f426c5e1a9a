"""What the controller saw of one machine, as values that `plan` reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gpugrant_crds.decide.conflicts import Refused
from gpugrant_crds.inventory import Inventory
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import GateStatus
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant
from gpugrant_operator.reconcile.detection import Outcome


@dataclass(frozen=True, slots=True)
class Observed:
    """One machine and all that its status is made of."""

    api_id: str
    machine: GpuMachine
    """As it is stored."""
    grants: tuple[RepoGpuGrant, ...] = ()
    """The stored grants that name it, those being deleted included."""
    gate: GateStatus | None = None
    """The gate's last report; None: it counts as unreachable, or there is none."""
    machines: frozenset[str] = frozenset()
    """The uids of all machines that there are."""
    pushed_at: datetime | None = None
    """When the gate last took a snapshot from this process; None: it has not."""
    refusal: Refused | None = None
    """Why the gate did not take the last snapshot."""
    may_push: bool = True
    """The gate answers, it is this machine's, and it has not refused this snapshot just now."""
    unserved: Refused | None = None
    """Why this operator sends this machine's gate nothing."""
    inventory: Inventory | None = None
    """None: none can be read now; the last known facts stay."""
    outcome: Outcome | None = None
    """The last detection that this process ran."""
    detecting: bool = False
    terminating: frozenset[str] = frozenset()


def unserved(machine: GpuMachine, machines: Iterable[GpuMachine], local_node: str) -> Refused | None:
    """Why no gate that this operator reaches is this machine's: it lost its node to an older one, or is elsewhere."""
    older = claimed_by(machine, machines)
    if older is not None:
        return Refused(
            Reason.NODE_CLAIMED,
            f"the machine {older.metadata.name} is older and has the node {machine.node}: delete one of the two, "
            "or give this one another spec.nodeName",
        )
    if machine.node != local_node:
        return Refused(
            Reason.NODE_UNREACHABLE,
            f"no gate of the node {machine.node} is known here: this operator serves the node {local_node}",
        )
    return None


def claimed_by(machine: GpuMachine, machines: Iterable[GpuMachine]) -> GpuMachine | None:
    """The oldest other machine of the same node that is older than this one; None: this one has it (design 3)."""
    rivals = (
        other
        for other in machines
        if other.metadata.uid != machine.metadata.uid and other.node == machine.node and _age(other) < _age(machine)
    )
    return min(rivals, key=_age, default=None)


def _age(machine: GpuMachine) -> tuple[str, str, str]:
    return (machine.metadata.creation_timestamp, machine.metadata.name, machine.metadata.uid)
