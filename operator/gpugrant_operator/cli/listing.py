"""What `rdc machine gpu list` and `rdc repo gpu list` show, as values. Pure (R19, R21)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpugrant_crds import cdi, conditions, timestamps
from gpugrant_crds.decide import ledger
from gpugrant_crds.inventory import Inventory
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import GateStatus
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant
from gpugrant_operator.cli import behind, console
from gpugrant_operator.cli.behind import Card
from gpugrant_operator.cli.refs import World

GPU_COLUMNS = ("GPU", "DRIVER", "MEMORY", "STATE")
DEVICE_COLUMNS = ("DEVICE", "STANDS FOR", "HELD BY")
GRANT_COLUMNS = ("REPO", "MACHINE", "DEVICE", "EXCLUSIVE", "IN FORCE", "READY", "REASON", "EXPIRES", "GRANT", "AGE")

NOBODY = "-"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as it is shown."""

    head: tuple[str, ...]
    gpus: tuple[tuple[str, ...], ...]
    devices: tuple[tuple[str, ...], ...]
    problems: tuple[str, ...]


def machine(
    shown: GpuMachine, found: Inventory | None, gate: GateStatus | None, devices: Sequence[str], now: datetime
) -> Machine:
    """The machine as its gate says it is (`found`, `gate`), or as the operator last heard of it."""
    status = shown.status
    made = found.generated_at if found is not None else status.inventory_time
    platform = found.platform if found is not None else status.platform
    problems = found.problems if found is not None else status.problems or ()
    return Machine(
        head=(
            f"machine: {shown.metadata.name}",
            f"platform: {platform or 'unknown'}",
            f"inventory: {age_of(made, now)} old",
        ),
        gpus=_gpus(shown, found),
        devices=_devices(shown, found, gate, devices),
        problems=tuple(f"problem: {problem.reason}: {problem.message}" for problem in problems),
    )


def _devices(
    shown: GpuMachine, found: Inventory | None, gate: GateStatus | None, devices: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    """In the order of their numbers; a name that is newer than the last detection stands for nothing that is known."""
    hardware = shown.hardware if found is None else found.hardware
    cards: Sequence[Card] = (shown.status.gpus or ()) if found is None else found.gpus
    return tuple(
        (device, behind.told(hardware.get(device, ()), cards), holders(device, shown, gate))
        for device in sorted(devices, key=cdi.natural)
    )


def _gpus(shown: GpuMachine, found: Inventory | None) -> tuple[tuple[str, ...], ...]:
    if found is not None:
        return tuple(
            (gpu.name, gpu.driver_version or "-", console.memory(gpu.memory_bytes), gpu.health.reason)
            for gpu in found.gpus
        )
    return tuple(
        (gpu.name, gpu.driver_version or "-", console.memory(gpu.memory_bytes), "-") for gpu in shown.status.gpus or ()
    )


def age_of(moment: str | None, now: datetime) -> str:
    """The age of an RFC 3339 time; `unknown` for none."""
    try:
        return "unknown" if moment is None else console.age(now - timestamps.read(moment))
    except ValueError:
        return "unknown"


def holders(device: str, machine: GpuMachine, gate: GateStatus | None) -> str:
    """The repos that hold the device: as the gate enforces it, else as the ledger has it."""
    entries = ledger.read(machine.status).holders(device)
    reserved = {entry.repo for entry in entries if entry.grant.exclusive}
    if gate is not None:
        repos = {grant.repo for grant in gate.grants if grant.device == device}
    else:
        repos = {entry.repo for entry in entries}
    return ", ".join(f"{repo} (exclusive)" if repo in reserved else repo for repo in sorted(repos)) or NOBODY


def grants(world: World, *, repo: str | None, machine_name: str | None) -> tuple[RepoGpuGrant, ...]:
    """The stored grants that are asked for, in an order that stays."""
    return tuple(
        sorted(
            (
                grant
                for grant in world.grants
                if repo in (None, grant.spec.repo) and machine_name in (None, grant.spec.machine)
            ),
            key=lambda grant: (grant.spec.machine, grant.spec.repo, grant.spec.device, grant.ref),
        )
    )


def in_force(grant: RepoGpuGrant, world: World) -> bool | None:
    """Whether the machine's gate says that it lets this repo use the device; None: it can't be asked."""
    live = world.live.get(grant.spec.machine)
    if live is None:
        return None
    return any((held.repo, held.device) == (grant.spec.repo, grant.spec.device) for held in live.status.grants)


def moved(grant: RepoGpuGrant) -> str | None:
    """The sentence that says that other hardware stands behind the grant's name (R47); None: it does not."""
    found = conditions.find(grant.status.conditions, conditions.MOVED)
    return None if found is None else found.message


def document(grant: RepoGpuGrant, world: World) -> dict[str, Any]:
    """One grant for `-o json` and `-o yaml`."""
    ready = conditions.find(grant.status.conditions, conditions.READY)
    return {
        "repo": grant.spec.repo,
        "machine": grant.spec.machine,
        "device": grant.spec.device,
        "exclusive": bool(grant.spec.exclusive),
        "inForce": in_force(grant, world),
        "ready": ready is not None and ready.status == "True",
        "reason": "" if ready is None else ready.reason,
        "message": "" if ready is None else ready.message,
        "moved": moved(grant),
        "expiresAt": grant.spec.expires_at,
        "namespace": grant.metadata.namespace,
        "name": grant.metadata.name,
    }


def grant_row(grant: RepoGpuGrant, world: World) -> tuple[str, ...]:
    """One grant for the table."""
    shown = document(grant, world)
    in_force_now = shown["inForce"]
    return (
        shown["repo"],
        shown["machine"],
        shown["device"],
        "yes" if shown["exclusive"] else "no",
        "unknown" if in_force_now is None else "yes" if in_force_now else "no",
        "yes" if shown["ready"] else "no",
        shown["reason"] or "-",
        shown["expiresAt"] or "-",
        grant.ref,
        age_of(grant.metadata.creation_timestamp, world.now),
    )


def silent(shown: Iterable[RepoGpuGrant], world: World) -> tuple[str, ...]:
    """A sentence for each machine whose gate can't be asked: how old is what is shown of it."""
    machines = sorted({grant.spec.machine for grant in shown} - set(world.live))
    return tuple(last_known(machine, world.now) for name in machines if (machine := world.machine(name)) is not None)


def last_known(machine: GpuMachine, now: datetime) -> str:
    """The sentence for a machine whose gate can't be asked, with the age of what is known instead.

    GateSynced says since when the gate has been silent, and only then how old its last answer is; of a gate that
    answers the operator, the time of its last change says nothing, so the inventory's age is told.
    """
    name = machine.metadata.name
    synced = conditions.find(machine.status.conditions, conditions.GATE_SYNCED)
    if synced is None:
        return f"the gate of machine {name} can't be asked, and the operator never heard of it"
    if synced.reason == Reason.GATE_UNREACHABLE:
        since = age_of(synced.last_transition_time, now)
        return f"the gate of machine {name} does not answer: this is the state of {since} ago"
    made = age_of(machine.status.inventory_time, now)
    age = "an inventory of unknown age" if made == "unknown" else f"an inventory that is {made} old"
    return f"the gate of machine {name} can't be asked: this is what the operator knows of it, with {age}"
