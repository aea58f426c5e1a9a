"""`gpugrant gate explain`: gathers what a gate would know of the repo here, and says what it could not know."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click

from gpugrant_crds import cdi, names, repofile
from gpugrant_crds.layout import Layout
from gpugrant_crds.repofile import RepoFile
from gpugrant_crds.snapshot import Snapshot
from gpugrant_gate import explain as judging
from gpugrant_gate.explain import Answers, Explanation
from gpugrant_gate.life import buildkit, fitness, sealed, stored
from gpugrant_gate.life import grants as enforcement
from gpugrant_gate.life.buildkit import Builder, Entitlements
from gpugrant_gate.life.fitness import Expected, Fitness, Said
from gpugrant_gate.life.grants import Enforced, Grant
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net import paths
from gpugrant_gate.policy.model import Admission
from gpugrant_gate.wire import versions
from gpugrant_operator import repos
from gpugrant_operator.cli import console
from gpugrant_operator.cli.console import Failure
from gpugrant_operator.cli.gate_commands import checked_devices, checked_repo

EXPLAINED_ID = "explained"
"""Of the repo that a request is judged for; it never reaches a daemon."""

_OF_BUILDS = "build."
"""How the routes of BuildKit's tunnels begin."""


@dataclass(frozen=True, slots=True)
class Known:
    """What stands on this machine of the repo that a request is judged for."""

    name: str
    file: RepoFile | None
    """The policy, else its file in repos.d; None: there is none."""
    snapshot: Snapshot | None
    """What the gate here holds, or held last."""
    granted: tuple[str, ...]
    """The names that it has by that snapshot."""
    notes: tuple[str, ...]


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
    answers = _answers(facts) if facts else Answers()
    known = _known(layout, repo, policy)
    found = _judged(layout, raw, known, checked_devices(grants), answers)
    notes = (*known.notes, *_notes(found, known, grants, answers))
    click.echo(replace(found, notes=(*found.notes, *notes)).text, nl=False)
    return 0 if found.admitted else 1


def _known(layout: Layout, repo: str | None, policy: Path | None) -> Known:
    snapshot = _snapshot(layout)
    if policy is not None:
        file = _policy(policy)
        return Known(checked_repo(repo or file.name), file, snapshot, (), _of_policy(file))
    if repo is None:
        return Known("repo", None, snapshot, (), ())
    name = checked_repo(repo)
    try:
        folder = repos.read(layout)
    except OSError as error:
        raise console.os_error(error, f"can't read {layout.repos}") from error
    named = folder.named(name)
    if named is None:
        there = [other.name for other in folder.repos.values()]
        said = f"{layout.repos} has no readable file of repo {name}{names.did_you_mean(name, there)}"
        broken = tuple(f"{layout.repos}/{problem}" for problem in folder.problems)
        return Known(name, None, snapshot, (), (said, *broken))
    granted = _granted(snapshot, named[1])
    return Known(name, named[1], snapshot, granted, ())


def _snapshot(layout: Layout) -> Snapshot | None:
    last = stored.load(layout.snapshot).stored
    return None if last is None else last.snapshot


def _granted(snapshot: Snapshot | None, file: RepoFile) -> tuple[str, ...]:
    if snapshot is None or file.id is None:
        return ()
    return tuple(sorted(snapshot.granted(file.name, file.id, datetime.now(UTC))))


def _of_policy(file: RepoFile) -> tuple[str, ...]:
    return () if file.id else ("the policy has no id: a repo with such a file in repos.d gets no hardware",)


def _judged(layout: Layout, raw: bytes, known: Known, grants: tuple[str, ...], answers: Answers) -> Explanation:
    """As a gate with these grants would judge it, on this machine."""
    file = known.file
    its = Repo(
        name=known.name,
        id=EXPLAINED_ID,
        upstream=Path("/nonexistent") if file is None else file.upstream,
        listen=layout.repo_socket(known.name) if file is None else file.listens(layout),
        uid=os.getuid(),
        gid=os.getgid(),
        binds=() if file is None else file.binds or (),
        # where they are pinned is only told to the daemon: docker inspect shows what clients named
        binds_pinned=False,
        open=frozenset() if file is None else file.opened,
    )
    specs = sealed.read_specs(layout.cdi)
    held = tuple(Grant(known.name, EXPLAINED_ID, device) for device in (*known.granted, *grants))
    machine = socket.gethostname() if known.snapshot is None else known.snapshot.machine
    enforced = Enforced(machine, 0, held, tuple(cdi.merge(specs).names), buildkit.auto_allowed(specs))
    fit = _fitness(file, answers, layout)
    view = enforcement.view(its, enforced, fit, layout, now=datetime.now(UTC))
    return judging.explain(raw, view, lambda path: paths.look(path, view.binds), answers)


def _fitness(file: RepoFile | None, answers: Answers, layout: Layout) -> Fitness:
    """As the daemon's answers have it; what only a look at its process tells is taken to be right."""
    is_sealed = file is not None and file.sealed
    allowed, config = _entitlements(file), "" if file is None else str(file.daemon_config or "")
    info, version = answers.info, answers.version
    if info is None:
        builder = Builder(
            None if version is None else fitness.engine(version), config, allowed, runc=True, own_specs=True
        )
        return Fitness(True, is_sealed, api_version=versions.NEWEST, builder=builder)
    said = Said(
        version or {"Version": info.get("ServerVersion")},
        dict(info),
        is_sealed,
        own_specs=True,
        config=config,
        entitlements=allowed,
        runc=True,
    )
    return fitness.judge(said, Expected(layout.cdi, is_sealed))


def _entitlements(file: RepoFile | None) -> Entitlements | str:
    """What the daemon's configuration lets builds reach, as the file lies here."""
    if file is None or file.daemon_config is None:
        return "no daemonConfig in the repo's file says what its daemon lets builds reach"
    try:
        return buildkit.read(file.daemon_config.read_bytes())
    except OSError as error:
        return f"{file.daemon_config} can't be read here: {error.strerror}"


def _notes(found: Explanation, known: Known, given: tuple[str, ...], answers: Answers) -> list[str]:
    """What the verdict stands on that was not in the request."""
    notes = []
    of_builds = found.route.startswith(_OF_BUILDS)
    hardware = isinstance(found.decision, Admission) and bool(found.decision.devices)
    if found.asks_for_hardware:
        counted = ", ".join(dict.fromkeys((*known.granted, *given)))
        where = "in force here" if known.granted else "given with --grant"
        notes.append(f"the grants that count: {counted or 'none'}" + (f" ({where})" if counted else ""))
    if (hardware or of_builds) and answers.info is None:
        what = "the daemon was not asked whether it is fit for CDI devices" if hardware else "the daemon was not asked"
        notes.append(f"{what}: give docker info -f json with --facts FILE")
    if of_builds:
        notes.append("the daemon's process is taken to run builds by runc, with its daemonConfig as it lies here")
    return notes


def _answers(files: tuple[Path, ...]) -> Answers:
    """What the daemon said, out of these files; raises Failure."""
    values = []
    for file in files:
        try:
            values.append(json.loads(_text(file)))
        except ValueError as error:
            raise Failure(f"{file} can't be read as JSON: {error}") from error
    try:
        return judging.answers(values)
    except ValueError as error:
        raise Failure(f"{', '.join(map(str, files))}: {error}") from error


def _policy(path: Path) -> RepoFile:
    found = repofile.parse(_text(path), str(path))
    if isinstance(found, RepoFile):
        return found
    raise Failure(str(found))


def _text(path: Path) -> str:
    """The file's text; raises Failure."""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise console.os_error(error, f"{path} can't be read") from error
    except UnicodeDecodeError as error:
        raise Failure(f"{path} can't be read: it is no UTF-8 text") from error
