"""`rdc repo gpu explain`: may a repo use a device right now, and what says so, link by link from the stored grant to
the repo's daemon. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpugrant_crds import conditions, names
from gpugrant_crds.names import RepoRef
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant
from gpugrant_operator.cli import listing
from gpugrant_operator.cli.refs import Refused, World, no_such_machine, no_such_repo, resolve

COLUMNS = ("LINK", "HOLDS", "BECAUSE")


@dataclass(frozen=True, slots=True)
class Link:
    """One thing that must be so. `holds` None: it can't be known from here."""

    name: str
    holds: bool | None
    because: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """All links, as far as each can be looked at."""

    repo: str
    machine: str
    device: str
    links: tuple[Link, ...]

    @property
    def may(self) -> bool | None:
        """None: nothing is against it, and something can't be known."""
        held = [link.holds for link in self.links]
        return False if False in held else None if None in held else True

    @property
    def sentence(self) -> str:
        """The answer; of a no or an unknown with the first link that says so."""
        what = f"{self.device} on {self.machine}"
        if self.may:
            return f"repo {self.repo} may use {what}: docker run --device {self.device} …, at the repo's gate"
        said = next(link for link in self.links if link.holds is self.may)
        verb = "may not use" if said.holds is False else "may perhaps use"
        return f"repo {self.repo} {verb} {what}: {said.because}"


def explain(ref: RepoRef, device: str, world: World) -> Explanation | Refused:
    """Why, or why the question means nothing."""
    try:
        names.parse_device(device)
    except names.InvalidName as error:
        return Refused(str(error))
    where = resolve(ref, world, granted_too=True)
    if isinstance(where, Refused):
        return where
    machine = world.machine(where)
    if machine is None:
        return Refused(no_such_machine(where, world))
    return Explanation(ref.repo, where, device, tuple(_links(ref.repo, device, machine, world)))


def _links(repo: str, device: str, machine: GpuMachine, world: World) -> Iterator[Link]:
    yield _device(device, machine, world)
    yield _repo(repo, machine, world)
    stored = [
        grant
        for grant in world.grants
        if (grant.spec.machine, grant.spec.repo, grant.spec.device) == (machine.metadata.name, repo, device)
        and grant.metadata.deletion_timestamp is None
    ]
    best = min(stored, key=lambda grant: (not _is(grant, conditions.READY), grant.ref), default=None)
    if best is None:
        hint = f"rdc repo gpu grant {repo}@{machine.metadata.name} --device {device}"
        yield Link("grant", False, f"nobody has granted it; an operator can run: {hint}")
    else:
        yield Link("grant", True, f"{best.ref} is stored{_terms(best)}")
        yield _decided(best)
    yield from _gate(repo, device, machine, world)


def _device(device: str, machine: GpuMachine, world: World) -> Link:
    name = machine.metadata.name
    known = world.devices(machine)
    if known is None:
        return Link(
            "device", False, f"the devices of machine {name} were never detected; run: rdc machine setup {name}"
        )
    if device not in known:
        return Link("device", False, f"machine {name} has no device {device}{names.did_you_mean(device, known)}")
    age = listing.age_of(machine.status.inventory_time, world.now)
    return Link("device", True, f"machine {name} has it (inventory: {age} old)")


def _repo(repo: str, machine: GpuMachine, world: World) -> Link:
    its = world.repos(machine).get(repo)
    return (
        Link("repo", False, no_such_repo(repo, machine, world))
        if its is None
        else Link("repo", True, f"its id is {its}")
    )


def _terms(grant: RepoGpuGrant) -> str:
    terms = ["exclusive"] if grant.spec.exclusive else []
    if grant.spec.expires_at is not None:
        terms.append(f"until {grant.spec.expires_at}")
    return f" ({', '.join(terms)})" if terms else ""


def _is(grant: RepoGpuGrant, condition: str) -> bool:
    found = conditions.find(grant.status.conditions, condition)
    return found is not None and found.status == "True"


def _decided(grant: RepoGpuGrant) -> Link:
    """What the operator made of it; an older status says nothing of the spec as it is now."""
    ready = conditions.find(grant.status.conditions, conditions.READY)
    if ready is None or grant.status.observed_generation < grant.metadata.generation:
        return Link("ledger", None, "the operator has not looked at it yet")
    if ready.status == "True":
        return Link("ledger", True, f"the machine's ledger holds it{_since(grant)}")
    return Link("ledger", False, f"{ready.message or ready.reason} ({ready.reason})")


def _since(grant: RepoGpuGrant) -> str:
    return "" if grant.status.accepted_at is None else f" since {grant.status.accepted_at}"


def _gate(repo: str, device: str, machine: GpuMachine, world: World) -> Iterator[Link]:
    live = world.live.get(machine.metadata.name)
    if live is None:
        yield Link("gate", None, listing.last_known(machine, world.now))
        return
    forced = any((held.repo, held.device) == (repo, device) for held in live.status.grants)
    word = "lets" if forced else "does not let"
    yield Link("gate", forced, f"the gate {word} this repo use it (snapshot {live.status.epoch})")
    seen = next((its for its in live.status.repos if its.name == repo), None)
    if seen is not None and seen.id:
        sealed = "sealed" if seen.sealed else "not sealed"
        fit = f"the repo's daemon is fit for CDI devices, and {sealed}"
        yield Link("daemon", seen.fit, fit if seen.fit else seen.message or seen.reason)
