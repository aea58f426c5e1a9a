"""Names for the shell's completion, read live. Where they can't be had in a moment there are none: a key that was
pressed must neither wait nor print."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:  # loaded when a key is pressed: a plain command must not pay for it
    from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

WITHIN = 1.5
"""Seconds for all questions of one key."""


def machines(context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The machines that there are."""
    return _items((machine.metadata.name for machine in _machines()), incomplete)


def repos(context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The repos of all machines; with a machine where a name is on several, or where one is begun."""
    found = [(repo, machine) for machine in _machines() for repo in _repos_of(machine)]
    plain = [repo for repo, _ in found]
    wanted = (
        f"{repo}@{machine.metadata.name}" if "@" in incomplete or plain.count(repo) > 1 else repo
        for repo, machine in found
    )
    return _items(wanted, incomplete)


def devices(context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The devices of the machines that have the repo which is named, of all while none is."""
    repo, where = _named(context)
    taken = set(context.params.get("devices") or ())
    having = [
        machine
        for machine in _machines()
        if where in ("", machine.metadata.name) and (not repo or repo in _repos_of(machine))
    ]
    return _items((name for machine in having for name in machine.device_names or () if name not in taken), incomplete)


def granted(context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The devices that the repo which is named has grants for."""
    repo, where = _named(context)
    its = (grant.spec.device for grant in _grants() if grant.spec.repo == repo and where in ("", grant.spec.machine))
    return _items(its, incomplete)


def local_repos(context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The repos of this machine's repos.d."""
    from gpugrant_crds.layout import Layout
    from gpugrant_operator import repos as files

    try:
        found = files.read(Layout(Path(context.params.get("root") or os.environ.get("GPUGRANT_ROOT") or "/")))
    except OSError:
        return []
    return _items((repo.name for repo in found.repos.values()), incomplete)


def _named(context: click.Context) -> tuple[str, str]:
    """The repo and the machine that are typed already; empty: not. After an option that still lacks its value click
    has sorted nothing, and they are the first word of what is left."""
    typed = context.params.get("repo") or next(iter(context.args), "")
    repo, _, machine = str(typed).partition("@")
    return repo, machine


def _items(found: Iterable[str], incomplete: str) -> list[CompletionItem]:
    from gpugrant_crds import cdi

    return [CompletionItem(name) for name in sorted(set(found), key=cdi.natural) if name.startswith(incomplete)]


def _repos_of(machine: GpuMachine) -> tuple[str, ...]:
    gate = machine.status.gate
    return () if gate is None else tuple(repo.name for repo in gate.repos if repo.id)


def _machines() -> Sequence[GpuMachine]:
    from gpugrant_crds.v1alpha1 import GpuMachine

    return [GpuMachine.model_validate(item) for item in _listed("gpumachines")]


def _grants() -> Sequence[RepoGpuGrant]:
    from gpugrant_crds.v1alpha1 import RepoGpuGrant

    return [RepoGpuGrant.model_validate(item) for item in _listed("repogpugrants")]


def _listed(plural: str) -> Sequence[object]:
    """The objects of the API that a command would use; none where it doesn't answer in time."""
    import asyncio

    try:
        return asyncio.run(_asked(plural))
    except Exception:
        # whatever is wrong, the command itself says it when it is run
        return ()


async def _asked(plural: str) -> Sequence[object]:
    import asyncio

    from gpugrant_crds.layout import Layout
    from gpugrant_crds.v1alpha1 import API_VERSION
    from gpugrant_operator import kubeclient
    from gpugrant_operator.cli import api, options

    layout = Layout(options.absolute(os.environ.get("GPUGRANT_ROOT") or "/"))
    chosen = api.choose(os.environ.get("KUBECONFIG"), layout.kubeconfig, exists=layout.kubeconfig.exists())
    access = kubeclient.read_kubeconfig(tuple(map(Path, chosen.kubeconfig.split(os.pathsep))))
    async with asyncio.timeout(WITHIN), kubeclient.KubeClient(access, agent="gpugrant-completion") as client:
        return await client.list(f"/apis/{API_VERSION}/{plural}")
