"""`gpugrant repo adopt`: grants what a repo's containers use already, so that nothing of it is ended (design 5)."""

from __future__ import annotations

import http.client
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from gpugrant_crds import cdi, names
from gpugrant_crds.layout import Layout
from gpugrant_crds.names import RepoRef
from gpugrant_crds.repofile import RepoFile, RepoProblem
from gpugrant_gate.life import grants as enforcement
from gpugrant_gate.life.fitness import Fitness
from gpugrant_gate.life.grants import Enforced
from gpugrant_gate.life.repo import resolve as resolve_file
from gpugrant_gate.policy import rules
from gpugrant_gate.policy.model import RepoView
from gpugrant_operator import repos
from gpugrant_operator.cli import adopting, console, grant_commands, session
from gpugrant_operator.cli.adopting import User
from gpugrant_operator.cli.console import Failure
from gpugrant_operator.cli.granting import Wish
from gpugrant_operator.cli.refs import Refused, resolve
from gpugrant_operator.node import daemons, folder

COLUMNS = ("CONTAINER", "NAME", "HAS", "DEVICES")


def adopt(root: Path, name: str, *, namespace: str | None, dry_run: bool, timeout: timedelta) -> None:
    """Lists the containers with hardware, writes a shared grant for each device name that stands for it, and waits
    until they are in force. What no grant can cover is said and left as it is."""
    layout = Layout(root)
    users = _users(layout, _repo(layout, name))
    if not users:
        click.echo(f"no container that runs in repo {name}, or that its daemon would start, has hardware")
        return
    console.show(COLUMNS, [row for its in users for row in _rows(its)])
    ours = session.begin({**os.environ, "GPUGRANT_ROOT": str(root)})
    world = ours.world()
    where = resolve(RepoRef(name), world)
    if isinstance(where, Refused):
        raise Failure(where.message)
    machine = world.machine(where)
    grantable = () if machine is None else world.devices(machine) or ()
    planned = adopting.plan(users, grantable, where)
    if planned.devices:
        wish = Wish(RepoRef(name, where), planned.devices, namespace or ours.api.namespace, namespace is not None)
        grant_commands.carry_out(wish, ours, dry_run=dry_run, wait=True, timeout=timeout)
    for sentence in planned.left:
        console.note(f"note: {sentence}")


def _repo(layout: Layout, name: str) -> RepoFile:
    try:
        listed = repos.read(layout)
    except OSError as error:
        raise console.os_error(error, f"can't read {layout.repos}") from error
    found = listed.named(name)
    if found is None:
        known = [repo.name for repo in listed.repos.values()]
        raise Failure(f"there is no repo {name}{names.did_you_mean(name, known)}")
    return found[1]


def _users(layout: Layout, repo: RepoFile) -> tuple[User, ...]:
    """The repo's containers with hardware, by name."""
    try:
        inspected = daemons.containers(repo.upstream)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Failure(f"the daemon of repo {repo.name} can't be asked at {repo.upstream}: {error}") from error
    specs = folder.parse(folder.read(layout.cdi))
    by_node = adopting.nodes(spec for spec in specs.values() if isinstance(spec, cdi.Spec))
    view = _view(layout, repo, tuple(cdi.merge(specs).names))
    found = (adopting.user(one, by_node, rules.seen(one, view), os.path.realpath) for one in inspected)
    return tuple(sorted((its for its in found if its is not None), key=lambda its: (its.name, its.id)))


def _view(layout: Layout, file: RepoFile, devices: tuple[str, ...]) -> RepoView:
    """The repo as the gate's rules see it, without a grant."""
    served = resolve_file(file, file.name, layout)
    if isinstance(served, RepoProblem):
        raise Failure(f"{layout.repos}/{served}")
    enforced = Enforced("this machine", devices=devices)
    return enforcement.view(served, enforced, Fitness(True), layout, now=datetime.now(UTC))


def _rows(its: User) -> list[tuple[str, ...]]:
    shown = [(use.way, ", ".join(use.devices) or "-") for use in its.uses] or [("what a note below says", "-")]
    return [(its.id[:12], its.name, *cells) for cells in shown]
