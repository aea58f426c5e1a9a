"""`rdc repo gpu revoke` as a plan, and when a revocation is done. Pure (R51)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpugrant_crds import names
from gpugrant_crds.decide import conflicts, ledger
from gpugrant_crds.names import RepoRef
from gpugrant_crds.snapshot import GateStatus, InUse
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant
from gpugrant_operator.cli.refs import Refused, World, no_such_machine, no_such_repo, resolve


@dataclass(frozen=True, slots=True)
class Plan:
    machine: str
    grants: tuple[RepoGpuGrant, ...]
    """To delete, of all namespaces."""
    absent: tuple[str, ...]
    """Devices that aren't granted."""


def plan(ref: RepoRef, devices: tuple[str, ...], world: World) -> Plan | Refused:
    """Every grant of that repo, machine and these names; refused as a whole when a name can't be right."""
    where = resolve(ref, world, granted_too=True)
    if isinstance(where, Refused):
        return where
    wanted = tuple(dict.fromkeys(devices))
    grants = tuple(
        grant
        for grant in world.grants
        if (grant.spec.machine, grant.spec.repo) == (where, ref.repo) and grant.spec.device in wanted
    )
    held = {grant.spec.device for grant in grants}
    absent = tuple(device for device in wanted if device not in held)
    refusals = [said for device in absent if (said := _impossible(device, ref.repo, where, world)) is not None]
    if refusals:
        return Refused("; ".join(dict.fromkeys(refusals)) + ("; nothing is revoked" if len(wanted) > 1 else ""))
    return Plan(where, grants, absent)


def _impossible(device: str, repo: str, machine_name: str, world: World) -> str | None:
    """Why a device that isn't granted can't even be meant."""
    try:
        names.parse_device(device)
    except names.InvalidName as error:
        return str(error)
    machine = world.machine(machine_name)
    if machine is None:
        return no_such_machine(machine_name, world)
    if repo not in world.repos(machine):
        return no_such_repo(repo, machine, world)
    present = world.devices(machine)
    if present is not None and device not in present:
        return conflicts.no_such_device(device, machine_name, present)
    return None


def still(
    gone: Iterable[RepoGpuGrant], stored: Iterable[RepoGpuGrant], machine: GpuMachine | None, gate: GateStatus | None
) -> str | None:
    """What the revocation still waits for; None: it is enforced.

    That the objects are gone is not enough: without an operator they go at once, and the ledger, which the gate
    enforces, goes on holding the device. `gate`: the machine's gate, where it can be asked.
    """
    ended = tuple(gone)
    uids = {grant.metadata.uid for grant in ended}
    left = [grant.ref for grant in stored if grant.metadata.uid in uids]
    if left:
        return f"the grant {left[0]} waits for the gate's answer"
    if machine is None:
        return None
    held = ledger.read(machine.status)
    if uids & set(held.entries):
        return f"the operator has not taken the device from the ledger of machine {machine.metadata.name} yet"
    if any(uids & set(owed.debt.uids) for owed in held.debts):
        return f"the gate of machine {machine.metadata.name} has not answered yet"
    kept = {(entry.repo, entry.device) for entry in held.entries.values()}
    lost = {(grant.spec.repo, grant.spec.device) for grant in ended} - kept
    if gate is not None and any((grant.repo, grant.device) in lost for grant in gate.grants):
        return f"the gate of machine {machine.metadata.name} still lets it through"
    return None


def running(in_use: Iterable[InUse], repo: str, devices: Iterable[str]) -> tuple[str, ...]:
    """A line for each running container of the repo that still holds one of the devices."""
    wanted = set(devices)
    return tuple(
        f"container {_shown(use)} of repo {repo} still runs with {use.device}"
        for use in sorted(in_use, key=lambda use: (use.name, use.container, use.device))
        if use.repo == repo and use.device in wanted
    )


def _shown(use: InUse) -> str:
    short = use.container[:12]
    return f"{use.name.lstrip('/')} ({short})" if use.name else short
