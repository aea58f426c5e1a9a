"""`gpugrant repo add`, `remove`, `list`."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import click

from gpugrant_crds import names
from gpugrant_crds.layout import Layout
from gpugrant_crds.repofile import RepoFile
from gpugrant_crds.snapshot import GateStatus, RepoStatus
from gpugrant_operator import gateclient, repos
from gpugrant_operator.cli import console, waiting
from gpugrant_operator.cli.console import Failure, NotReady
from gpugrant_operator.repos import Folder, Refused, Same, Wanted, Write

SERVED_WITHIN = 10.0
"""Seconds for a running gate to take up a change of repos.d; it takes a tenth of one."""


def add(
    root: Path,
    name: str,
    *,
    upstream: Path,
    repo_id: str | None,
    listen: Path | None,
    sealed: bool,
    daemon_config: Path | None,
) -> None:
    """Writes the repo's file, and waits until a running gate serves it."""
    layout = Layout(root)
    peer = repos.accepts(upstream)
    wanted = Wanted(name, upstream, repo_id, listen, sealed, daemon_config, leads_to=upstream.resolve())
    sealed_with = repos.sealed_id(layout, peer) if peer else None
    try:
        with repos.locked(layout):
            folder = repos.read(layout)
            _tell_problems(folder, layout)
            planned = repos.plan_add(
                folder,
                wanted,
                layout,
                lambda: uuid.uuid4().hex,
                sealed_with=sealed_with,
                retired=repos.retired(layout),
            )
            if not isinstance(planned, Same):
                repos.write(layout, planned)
    except Refused as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise console.os_error(error, f"can't write {layout.repos}") from error
    said = "is there already" if isinstance(planned, Same) else "is added"
    click.echo(f"repo {name} {said}: {planned.repo.listens(layout)} (id {planned.repo.id or 'none'})")
    if isinstance(planned, Write) and planned.of_removed:
        console.note(
            f"note: its daemon is still sealed as a repo that was removed, so this one gets no hardware: start the "
            f"daemon anew with {layout.sealed_repo(planned.repo.id or '')} in place of {layout.cdi}"
        )
    elif isinstance(planned, Write) and planned.repo.sealed and not sealed:
        console.note(f"note: it is recorded as sealed: the daemon sees {layout.sealed_repo(sealed_with or '')}")
    if peer is None:
        console.note(f"note: nothing listens at {upstream} yet; the gate takes it up when it does")
    _await_gate(layout, planned.repo)


def remove(root: Path, name: str) -> None:
    """Removes the repo's file, and waits until a running gate has let it go."""
    layout = Layout(root)
    try:
        names.check_repo(name)
        with repos.locked(layout):
            known = [repo.name for repo in repos.read(layout).repos.values()]
            if not repos.remove(layout, name):
                raise Failure(f"there is no repo {name}{names.did_you_mean(name, known)}")
    except names.InvalidName as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise console.os_error(error, f"can't change {layout.repos}") from error
    click.echo(f"repo {name} is removed; its grants stay stored and serve no other repo")

    def let_go() -> bool | None:
        gate = _gate(layout)
        return True if gate is None or all(repo.name != name for repo in gate.repos) else None

    if waiting.until(let_go, SERVED_WITHIN) is None:
        raise NotReady(f"the gate still serves repo {name} after {SERVED_WITHIN:.0f} s: see gpugrant status")


def show(root: Path, *, as_json: bool) -> None:
    """Prints the repos of repos.d with what the gate says of them."""
    layout = Layout(root)
    try:
        folder = repos.read(layout)
    except OSError as error:
        raise console.os_error(error, f"can't read {layout.repos}") from error
    gate = _gate(layout)
    _tell_problems(folder, layout)
    if gate is None:
        console.note("note: the gate does not run, so nobody looks at the daemons")
    rows = [row(repo, layout, gate) for repo in folder.repos.values()] + unreadable(folder, gate)
    rows.sort(key=lambda found: str(found["name"]))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    columns = ("name", "id", "upstream", "listen", "sealed", "open", "fit", "message")
    console.show(
        [column.upper() for column in columns], [[_cell(found[column]) for column in columns] for found in rows]
    )


def row(repo: RepoFile, layout: Layout, gate: GateStatus | None) -> dict[str, Any]:
    """One repo as a JSON object; `fit` is null where no gate says it. `sealed` is what the gate sees of the daemon, and
    where none says it, what the file says. Pure."""
    seen = None if gate is None else next((seen for seen in gate.repos if seen.name == repo.name), None)
    return {
        "name": repo.name,
        "id": repo.id,
        "upstream": str(repo.upstream),
        "listen": str(repo.listens(layout)),
        "sealed": repo.sealed if seen is None or not seen.id else seen.sealed,
        "open": sorted(repo.opened),
        "fit": None if seen is None else seen.fit,
        "reason": None if seen is None else seen.reason,
        "message": _message(gate, seen),
    }


def unreadable(folder: Folder, gate: GateStatus | None) -> list[dict[str, Any]]:
    """A row, as `row` makes them, for each repo that the gate serves without hardware and whose file can't be read:
    what only the file says is null. Pure."""
    readable = {repo.name for repo in folder.repos.values()}
    return [
        {
            "name": seen.name,
            "id": None,
            "upstream": None,
            "listen": None,
            "sealed": seen.sealed,
            "open": [],
            "fit": seen.fit,
            "reason": seen.reason,
            "message": seen.message,
        }
        for seen in (() if gate is None else gate.repos)
        if not seen.id and seen.name not in readable
    ]


def _message(gate: GateStatus | None, seen: RepoStatus | None) -> str:
    if gate is None:
        return ""
    return "the gate does not serve it yet" if seen is None else seen.message


def _cell(value: Any) -> str:
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(value) or "-"
        case _:
            return str(value)


def _tell_problems(folder: Folder, layout: Layout) -> None:
    for problem in folder.problems:
        console.note(f"note: {layout.repos}/{problem}")


def _gate(layout: Layout) -> GateStatus | None:
    try:
        return gateclient.ask(layout.control("gate"), lambda gate: gate.status())
    except gateclient.GateError:
        return None


def _await_gate(layout: Layout, repo: RepoFile) -> None:
    """Returns when a running gate listens for the repo; at once when none runs."""
    if _gate(layout) is None:
        return

    def served() -> bool | None:
        gate = _gate(layout)
        listed = gate is None or any(seen.name == repo.name for seen in gate.repos)
        return True if listed and (gate is None or repos.accepts(repo.listens(layout)) is not None) else None

    if waiting.until(served, SERVED_WITHIN) is None:
        raise NotReady(f"the gate does not serve repo {repo.name} after {SERVED_WITHIN:.0f} s: see gpugrant status")
