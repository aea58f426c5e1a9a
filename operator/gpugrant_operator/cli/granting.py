"""`rdc repo gpu grant` as a plan: what would be written, or why nothing is. Pure; all or nothing (R22).

The conflict rules are admission's own, so that a dry run says what the API would say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpugrant_crds import admission, conditions, names, timestamps
from gpugrant_crds.names import RepoRef
from gpugrant_crds.v1alpha1 import GpuMachine, Metadata, RepoGpuGrant, RepoGpuGrantSpec
from gpugrant_operator.cli.refs import Refused, World, no_such_machine, no_such_repo, resolve


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for."""

    ref: RepoRef
    devices: tuple[str, ...]
    namespace: str
    namespace_given: bool = False
    """Said on the command line: a grant in another namespace is then another grant."""
    exclusive: bool = False
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """A new object; `instead_of`: one of the same name that serves nobody and goes first."""

    namespace: str
    name: str
    spec: RepoGpuGrantSpec
    instead_of: RepoGpuGrant | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A stored object gets these fields of the spec."""

    grant: RepoGpuGrant
    spec: RepoGpuGrantSpec
    fields: tuple[str, ...]

    def patch(self, spec: RepoGpuGrantSpec) -> dict[str, Any]:
        """The changed fields as they stand in `spec`; null: absent."""
        data = spec.to_json()
        return {field: data.get(field) for field in self.fields}


@dataclass(frozen=True, slots=True)
class Keep:
    """A stored object is as wanted."""

    grant: RepoGpuGrant


Step = Create | Change | Keep


@dataclass(frozen=True, slots=True)
class Plan:
    machine: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...]
    """What a person should know beside the result."""


def plan(wish: Wish, world: World) -> Plan | Refused:
    """What makes every device granted, or all the reasons why not."""
    where = resolve(wish.ref, world)
    if isinstance(where, Refused):
        return where
    machine = world.machine(where)
    if machine is None:
        return Refused(no_such_machine(where, world))
    refusal = _unfit(machine, wish.ref.repo, world)
    if refusal is not None:
        return refusal
    found = [_step(device, machine, wish, world) for device in dict.fromkeys(wish.devices)]
    refusals = [step.message for step in found if isinstance(step, Refused)]
    if refusals:
        return Refused("; ".join(refusals) + ("; nothing is granted" if len(found) > 1 else ""))
    steps = tuple(step for step in found if not isinstance(step, Refused))
    return Plan(where, steps, tuple(note for step in steps for note in _notes(step, wish, world.now)))


def _unfit(machine: GpuMachine, repo: str, world: World) -> Refused | None:
    """Why nothing at all can be granted to that repo there."""
    name = machine.metadata.name
    if world.devices(machine) is None:
        return Refused(f"the devices of machine {name} were never detected; run: rdc machine setup {name}")
    return None if repo in world.repos(machine) else Refused(no_such_repo(repo, machine, world))


def _step(device: str, machine: GpuMachine, wish: Wish, world: World) -> Step | Refused:
    try:
        names.parse_device(device)
    except names.InvalidName as error:
        return Refused(str(error))
    repo_id = world.repos(machine)[wish.ref.repo]
    stored = _stored(device, machine.metadata.name, wish, world, repo_id)
    step = (
        _create(device, machine.metadata.name, wish, world, repo_id) if stored is None else _again(stored, wish, world)
    )
    if isinstance(step, Keep):
        return step
    return _reviewed(step, machine, world) or step


def _stored(device: str, machine: str, wish: Wish, world: World, repo_id: str) -> RepoGpuGrant | None:
    """The grant that counts as the one that is asked for: for this repo, and not on its way out."""
    own = names.grant_object_name(wish.ref.repo, machine, device)
    found = [
        grant
        for grant in world.grants
        if (grant.spec.machine, grant.spec.repo, grant.spec.device) == (machine, wish.ref.repo, device)
        and grant.metadata.deletion_timestamp is None
        and (grant.spec.repo_id or grant.status.repo_id or repo_id) == repo_id
        and (grant.metadata.namespace == wish.namespace or not wish.namespace_given)
        and (not _over(grant, world.now) or (grant.metadata.namespace, grant.metadata.name) == (wish.namespace, own))
    ]
    return min(found, key=lambda grant: (grant.metadata.name != own, grant.ref), default=None)


def _over(grant: RepoGpuGrant, now: datetime) -> bool:
    try:
        expiry = grant.spec.expiry()
    except ValueError:
        return True
    return expiry is not None and expiry <= now


def _create(device: str, machine: str, wish: Wish, world: World, repo_id: str) -> Create | Refused:
    name = names.grant_object_name(wish.ref.repo, machine, device)
    spec = RepoGpuGrantSpec(
        machine=machine,
        repo=wish.ref.repo,
        device=device,
        exclusive=True if wish.exclusive else None,
        repo_id=repo_id,
        expires_at=None if wish.expires_at is None else timestamps.write(wish.expires_at),
    )
    namesake = next((grant for grant in world.grants if grant.ref == f"{wish.namespace}/{name}"), None)
    if namesake is not None:
        there = (namesake.spec.machine, namesake.spec.repo, namesake.spec.device)
        if there != (machine, wish.ref.repo, device):
            return Refused(f"the object {namesake.ref} has the name of this grant and is another: delete it first")
    return Create(wish.namespace, name, spec, instead_of=namesake)


def _again(stored: RepoGpuGrant, wish: Wish, world: World) -> Change | Keep:
    changes: dict[str, Any] = {}
    if wish.exclusive and not stored.spec.exclusive:
        changes["exclusive"] = True
    if wish.expires_at is not None:
        changes["expires_at"] = timestamps.write(wish.expires_at)
    elif _over(stored, world.now):
        changes["expires_at"] = None
    if not changes:
        return Keep(stored)
    spec = stored.spec.model_copy(update=changes)
    aliases = tuple(RepoGpuGrantSpec.model_fields[field].alias or field for field in changes)
    return Change(stored, spec, aliases)


def _reviewed(step: Step | Refused, machine: GpuMachine, world: World) -> Refused | None:
    """What admission would say against it."""
    match step:
        case Create(namespace=namespace, name=name, spec=spec):
            grant, old = RepoGpuGrant(metadata=Metadata(name=name, namespace=namespace), spec=spec), None
        case Change(grant=old, spec=spec):
            grant = old.model_copy(update={"spec": spec})
        case _:
            return None
    review = admission.review(
        admission.Request(
            grant=grant,
            old=old,
            machine=machine,
            stored=world.grants,
            live_devices=world.devices(machine),
            now=world.now,
        )
    )
    return None if review.allowed else Refused(review.message)


def _notes(step: Step, wish: Wish, now: datetime) -> Sequence[str]:
    match step:
        case Create():
            return ()
        case Keep(grant=grant):
            spec, notes = grant.spec, _unchanged(grant)
        case Change(grant=grant):
            spec, notes = step.spec, _changed(step, now)
    if spec.exclusive and not wish.exclusive:
        notes.append(f"{spec.device} stays reserved for repo {spec.repo}: the grant {grant.ref} is exclusive")
    return notes


def _unchanged(grant: RepoGpuGrant) -> list[str]:
    spec = grant.spec
    notes = [f"repo {spec.repo} has {spec.device} on {spec.machine} already (grant {grant.ref})"]
    if spec.expires_at is not None:
        notes.append(f"the grant {grant.ref} ends at {spec.expires_at}")
    return notes


def _changed(step: Change, now: datetime) -> list[str]:
    """What is another with the grant from now on; "already" would say that nothing is."""
    ref, notes = step.grant.ref, []
    if "exclusive" in step.fields:
        notes.append(f"the grant {ref} becomes exclusive")
    if "expiresAt" in step.fields:
        ends = step.spec.expires_at
        said = "no longer ends by itself" if ends is None else f"ends at {ends} from now on"
        over = f"had expired at {step.grant.spec.expires_at} and " if _over(step.grant, now) else ""
        notes.append(f"the grant {ref} {over}{said}")
    return notes


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a written grant has come."""

    enforced: bool = False
    accepted: bool = False
    """The ledger holds it, and not against a wish to reserve the device."""
    lost: str | None = None
    """Another repo holds the device: the sentence that names it."""
    message: str = "the operator has not looked at it yet"


def progress(grant: RepoGpuGrant) -> Progress:
    """What the status says of the spec as it is now; an older status says nothing."""
    status = grant.status
    if status.observed_generation < grant.metadata.generation:
        return Progress()
    ready = conditions.find(status.conditions, conditions.READY)
    accepted = conditions.find(status.conditions, conditions.ACCEPTED)
    conflicted = conditions.find(status.conditions, conditions.CONFLICTED)
    if conflicted is not None and conflicted.status == "True":
        return Progress(lost=conflicted.message or conflicted.reason)
    return Progress(
        enforced=ready is not None and ready.status == "True",
        accepted=accepted is not None and accepted.status == "True",
        message="" if ready is None else ready.message or ready.reason,
    )


def told(step: Step) -> str:
    """What a dry run says of a step."""
    match step:
        case Create(namespace=namespace, name=name, spec=spec):
            return f"would grant {spec.device} on {spec.machine} to repo {spec.repo} as {namespace}/{name}"
        case Change(grant=grant, fields=fields):
            return f"would change {', '.join(fields)} of the grant {grant.ref}"
        case Keep(grant=grant):
            return f"would leave the grant {grant.ref} as it is"
