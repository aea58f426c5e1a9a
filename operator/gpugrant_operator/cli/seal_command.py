"""`gpugrant repo seal`: looks at the repo's daemon, writes the drop-in of its unit and says what is left to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from gpugrant_crds import names
from gpugrant_crds.layout import Layout
from gpugrant_crds.repofile import RepoFile
from gpugrant_operator import repos, sealing
from gpugrant_operator.cli import console, systemd
from gpugrant_operator.cli.console import Failure
from gpugrant_operator.node import daemons
from gpugrant_operator.repos import Refused, Write
from gpugrant_operator.sealing import Seen, Unit

HERE = Path("/")


def seal(root: Path, name: str, *, unit: str | None) -> None:
    """Seals the repo's daemon from its next start on; restarts nothing."""
    layout = Layout(root)
    try:
        with repos.locked(layout):
            folder = repos.read(layout)
            found = folder.named(name)
            if found is None:
                known = [repo.name for repo in folder.repos.values()]
                broken = next((problem for problem in folder.problems if problem.file == f"{name}.yaml"), None)
                raise Failure(str(broken or f"there is no repo {name}{names.did_you_mean(name, known)}"))
            file, repo = found
            seen = look(layout, repo)
            repo_id = sealing.check(repo, seen)
            done = _already(layout, repo) if seen.sealed_as == repo_id else _by_unit(layout, repo, seen, unit)
            if not repo.sealed:
                repos.write(layout, Write(file, repo.model_copy(update={"sealed": True})))
    except Refused as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise console.os_error(error, f"can't seal repo {name} below {root}") from error
    click.echo(done)


def look(layout: Layout, repo: RepoFile, proc: Path = repos.PROC) -> Seen:
    """What can be seen of the repo's daemon from here."""
    pid = repos.accepts(repo.upstream) or 0
    info = daemons.info(repo.upstream) if pid else {}
    live = info.get("LiveRestoreEnabled") is True
    if pid <= 1:
        return Seen(live_restore=live)  # systemd listens for a daemon that is started by its socket
    try:
        cgroup = (proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        cgroup = ""
    own = not info or _has_child(proc / str(pid), "containerd")
    return Seen(pid, repos.sealed_id(layout, pid, proc), cgroup, live, own)


def _has_child(process: Path, name: str) -> bool:
    """Whether a direct child of the process runs a program of that name (proc(5))."""
    try:
        tasks = list((process / "task").iterdir())
        children = [pid for task in tasks for pid in (task / "children").read_text().split()]
    except OSError:
        return False
    for pid in children:
        try:
            if (process.parent / pid / "comm").read_text().strip() == name:
                return True
        except OSError:
            continue
    return False


def _already(layout: Layout, repo: RepoFile) -> str:
    return f"repo {repo.name} is sealed: its daemon sees {layout.sealed_repo(repo.id or '')} in place of {layout.cdi}"


def _by_unit(layout: Layout, repo: RepoFile, seen: Seen, wanted: str | None) -> str:
    here = layout.root == HERE
    systemctl = shutil.which("systemctl")
    if here and (systemctl is None or not systemd.BOOTED.is_dir()):
        raise _no_systemd(layout, repo, "systemd does not run here")
    if not here and wanted is None:
        raise _no_systemd(layout, repo, f"systemd does not look below {layout.root}")
    if here:
        unit = sealing.choose_unit(repo.name, wanted, seen, lambda name: _ask(str(systemctl), name))
    else:
        unit = Unit(sealing.check_unit(wanted or ""))
    path = sealing.drop_in_path(layout, unit.name)
    text = sealing.drop_in(layout, repo)
    layout.sealed_repo(repo.id or "").mkdir(mode=0o755, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    repos.replace(path, text)
    if here:
        systemd.call(str(systemctl), "daemon-reload")
    else:
        console.note(
            f"note: systemd reads {path} only where {layout.root} is its root; else put it into /{sealing.SYSTEM}"
        )
    return (
        f"repo {repo.name} is sealed from its daemon's next start on ({path}); until then it gets no hardware\n"
        f"restart its daemon when its containers may stop: systemctl restart {unit.name}"
    )


def _no_systemd(layout: Layout, repo: RepoFile, why: str) -> Failure:
    click.echo(sealing.by_hand(layout, repo))
    return Failure(
        f"{why}, so no unit of repo {repo.name}'s daemon can be changed: start the daemon in a mount namespace of its "
        "own as printed, then run this again"
    )


def _ask(systemctl: str, unit: str) -> Unit:
    return sealing.read_unit(unit, systemd.call(systemctl, "show", "--property=LoadState,MainPID", "--", unit))
