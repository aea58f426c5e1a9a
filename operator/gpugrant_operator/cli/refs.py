"""What the commands know of the world when they plan, and which machine a repo reference means. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpugrant_crds import names
from gpugrant_crds.decide import conflicts
from gpugrant_crds.names import RepoRef
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant
from gpugrant_operator.cli.live import Answer


@dataclass(frozen=True, slots=True)
class Refused:
    """Why not; one sentence."""

    message: str


@dataclass(frozen=True, slots=True)
class World:
    """All machines and grants, and what gates say now."""

    machines: tuple[GpuMachine, ...]
    grants: tuple[RepoGpuGrant, ...]
    now: datetime
    live: Mapping[str, Answer] = field(default_factory=dict)
    """By machine name: gates that answer now; they count more than what the operator last heard of them."""

    def machine(self, name: str) -> GpuMachine | None:
        return next((machine for machine in self.machines if machine.metadata.name == name), None)

    def repos(self, machine: GpuMachine) -> dict[str, str]:
        """Name to id of the repos that the machine has; those without an id of their own get no hardware."""
        live = self.live.get(machine.metadata.name)
        if live is not None:
            return {repo.name: repo.id for repo in live.status.repos if repo.id}
        gate = machine.status.gate
        return {} if gate is None else {repo.name: repo.id for repo in gate.repos if repo.id}

    def nameless(self, machine: GpuMachine) -> dict[str, str]:
        """The repos that the machine has without an id (none is written, it occurs twice, the file is broken), each
        with what its gate says of it; empty: that isn't known."""
        live, last = self.live.get(machine.metadata.name), machine.status.gate
        if live is not None:
            return {repo.name: repo.message for repo in live.status.repos if not repo.id}
        return {} if last is None else {repo.name: "" for repo in last.repos if not repo.id}

    def devices(self, machine: GpuMachine) -> tuple[str, ...] | None:
        """The names that can be granted now; None: never detected."""
        live = self.live.get(machine.metadata.name)
        if machine.device_names is None or live is None or live.devices is None:
            return machine.device_names
        return live.devices


def no_such_machine(name: str, world: World) -> str:
    """The clause, with the nearest names or with what makes one."""
    known = [machine.metadata.name for machine in world.machines]
    hint = names.did_you_mean(name, known)
    if not hint and known:
        hint = f"; there are {', '.join(sorted(known))}"
    return f"there is no machine {name}{hint or f'; an operator can run: rdc machine setup {name}'}"


def no_such_repo(repo: str, machine: GpuMachine, world: World) -> str:
    """The clause for a repo that the machine has not, or has without an id of its own."""
    name = machine.metadata.name
    nameless = world.nameless(machine)
    if repo in nameless:
        return conflicts.no_hardware(repo, name, nameless[repo])
    return conflicts.no_such_repo(repo, name, world.repos(machine))


def resolve(ref: RepoRef, world: World, *, granted_too: bool = False) -> str | Refused:
    """The machine's name: the one that is written, else the one machine that has the repo.

    `granted_too`: a machine for which the repo holds a grant counts as well, so that the grants of a repo that is gone
    can still be revoked. A written machine that doesn't exist is refused unless such a grant names it.
    """
    having = _having(ref.repo, world, granted_too=granted_too)
    if ref.machine is not None:
        if world.machine(ref.machine) is None and ref.machine not in having:
            return Refused(no_such_machine(ref.machine, world))
        return ref.machine
    if len(having) == 1:
        return having[0]
    if having:
        choices = " or ".join(f"{ref.repo}@{machine}" for machine in having)
        return Refused(f"repo {ref.repo} is on {len(having)} machines: write {choices}")
    return Refused(_nowhere(ref.repo, world))


def _having(repo: str, world: World, *, granted_too: bool) -> list[str]:
    found = {machine.metadata.name for machine in world.machines if repo in world.repos(machine)}
    if granted_too:
        found |= {grant.spec.machine for grant in world.grants if grant.spec.repo == repo}
    return sorted(found)


def unknown(ref: RepoRef, world: World) -> str | None:
    """The clause for a reference that means nothing: no such machine, or no such repo; None: the repo is there."""
    machines = world.machines
    if ref.machine is not None:
        named = world.machine(ref.machine)
        if named is None:
            return no_such_machine(ref.machine, world)
        machines = (named,)
    if any(ref.repo in world.repos(machine) or ref.repo in world.nameless(machine) for machine in machines):
        return None
    return no_such_repo(ref.repo, machines[0], world) if ref.machine is not None else _nowhere(ref.repo, world)


def _nowhere(repo: str, world: World) -> str:
    if len(world.machines) == 1:
        return no_such_repo(repo, world.machines[0], world)
    places = sorted(f"{name}@{machine.metadata.name}" for machine in world.machines for name in world.repos(machine))
    near = names.nearest(repo, [place.partition("@")[0] for place in places])
    shown = [place for place in places if place.partition("@")[0] in near] or places[:5]
    hint = f"; there is {', '.join(shown)}" if shown else "; put one behind the gate with: gpugrant repo add"
    return f"no machine has a repo {repo}{hint}"
