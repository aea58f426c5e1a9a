"""`gpugrant gate` and `gpugrant gate explain`: the one place outside of the gate that starts it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from gpugrant_crds import cdi, names, repofile
from gpugrant_crds.layout import Layout, SocketPathTooLong, checked_socket
from gpugrant_crds.repofile import RepoFile
from gpugrant_gate import explain as judging
from gpugrant_gate import main as gate
from gpugrant_gate import settings
from gpugrant_gate.life import grants as enforcement
from gpugrant_gate.life import sealed, stored
from gpugrant_gate.life.fitness import Fitness
from gpugrant_gate.life.grants import Enforced, Grant
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net import paths
from gpugrant_gate.policy.model import RepoView
from gpugrant_gate.wire import versions
from gpugrant_operator.cli.console import Failure

EXPLAINED_ID = "explained"
"""Of the repo that a request is judged for; it never reaches a daemon."""


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


def explain(
    root: Path,
    raw: bytes,
    *,
    repo: str | None,
    grants: tuple[str, ...],
    policy: Path | None,
    facts: tuple[Path, ...] = (),
) -> int:
    """Prints what the gate would do with the request; 0: it is admitted, 1: it is refused."""
    layout = Layout(root)
    known = _answers(facts) if facts else None
    file = _policy(policy) if policy is not None else _file_of(repo, layout)
    name = checked_repo(repo or (file.name if file is not None else "repo"))
    view = _view(layout, name, checked_devices(grants), file)
    explanation = judging.explain(raw, view, lambda path: paths.look(path, view.binds), known)
    click.echo(explanation.text, nl=False)
    return 0 if explanation.admitted else 1


def _file_of(repo: str | None, layout: Layout) -> RepoFile | None:
    """The file of the repo in this root's repos.d; None where there is none."""
    if repo is None:
        return None
    for path in sorted(layout.repos.glob(f"*{repofile.SUFFIX}")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            found = repofile.parse(path.read_text(encoding="utf-8"), str(path))
            if isinstance(found, RepoFile) and found.name == repo:
                return found
    return None


def _answers(files: tuple[Path, ...]) -> judging.Answers:
    """What the daemon said, out of these files; raises Failure."""
    values = []
    for file in files:
        try:
            values.append(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise Failure(f"{file} can't be read as JSON: {error}") from error
    try:
        return judging.answers(values)
    except ValueError as error:
        raise Failure(f"{', '.join(map(str, files))}: {error}") from error


def _policy(path: Path) -> RepoFile:
    try:
        found = repofile.parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{path} can't be read: {error}") from error
    if isinstance(found, RepoFile):
        return found
    raise Failure(str(found))


def _view(layout: Layout, name: str, grants: tuple[str, ...], file: RepoFile | None) -> RepoView:
    """The repo as a gate with these grants and a fit daemon would see it, on this machine."""
    its = Repo(
        name=name,
        id=EXPLAINED_ID,
        upstream=Path("/nonexistent") if file is None else file.upstream,
        listen=layout.repo_socket(name) if file is None else file.listens(layout),
        uid=os.getuid(),
        gid=os.getgid(),
        binds=() if file is None else file.binds or (),
        open=frozenset() if file is None else file.opened,
    )
    devices = tuple(cdi.merge(sealed.read_specs(layout.cdi)).names)
    held = tuple(Grant(name, EXPLAINED_ID, device) for device in grants)
    fit = Fitness(True, api_version=versions.NEWEST)
    enforced = Enforced(_machine(layout), 0, held, devices)
    return enforcement.view(its, enforced, fit, layout, now=datetime.now(UTC))


def _machine(layout: Layout) -> str:
    """The machine of the instance below this root, as its gate last knew it; else this host's name."""
    last = stored.load(layout.snapshot).stored
    return socket.gethostname() if last is None else last.snapshot.machine


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
