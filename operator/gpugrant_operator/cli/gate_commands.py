"""`gpugrant gate`: the one place outside of the gate that starts it."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

import click

from gpugrant_crds import names
from gpugrant_crds.layout import SocketPathTooLong, checked_socket
from gpugrant_gate import main as gate
from gpugrant_gate import settings
from gpugrant_operator.cli.console import Failure


@dataclass(frozen=True, slots=True)
class Trial:
    """One repo with fixed grants."""

    listen: Path
    upstream: Path
    repo: str
    grants: tuple[str, ...]
    policy: Path | None


def trial_of(
    *, listen: Path | None, upstream: Path | None, repo: str | None, grants: tuple[str, ...], policy: Path | None
) -> Trial | None:
    """The trial that the options ask for; None: they ask for the node's gate. Raises UsageError when one is missing."""
    given = {"--listen": listen, "--upstream": upstream, "--repo": repo}
    if not any((*given.values(), grants, policy)):
        return None
    if listen is None or upstream is None or repo is None:
        missing = ", ".join(option for option, value in given.items() if value is None)
        raise click.UsageError(f"one repo's gate needs --listen, --upstream and --repo: give {missing} too")
    return Trial(listen, upstream, checked_repo(repo), checked_devices(grants), policy)


def serve(root: Path, *, hardware: Path, trial: Trial | None, enforce: bool = False) -> int:
    """Runs the node's gate, or the trial's, until it is asked to end; its exit code."""
    if trial is None:
        return gate.run(root, hardware=hardware, enforce=enforce)
    try:
        checked_socket(trial.listen)
    except SocketPathTooLong as error:
        raise Failure(str(error)) from error
    return gate.run_trial(
        listen=trial.listen,
        upstream=trial.upstream,
        name=trial.repo,
        grants=trial.grants,
        root=root,
        machine=settings.host_name(hardware, socket.gethostname()),
        policy=trial.policy,
        enforce=enforce,
    )


def checked_repo(name: str) -> str:
    try:
        return names.check_repo(name)
    except names.InvalidName as error:
        raise click.UsageError(str(error)) from error


def checked_devices(grants: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(str(names.parse_device(grant)) for grant in grants)
    except names.InvalidName as error:
        raise click.UsageError(str(error)) from error
