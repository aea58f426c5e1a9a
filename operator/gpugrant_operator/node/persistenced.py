"""nvidia-persistenced's socket for the repo daemons (R44): the spec binds it into containers, so a daemon in a mount
namespace of its own must see it.

No daemon is restarted; those that do not see the socket yet are named. Where persistenced does not run, nothing is
done.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from gpugrant_operator import repos
from gpugrant_operator.node import daemons, programs, units
from gpugrant_operator.node.run import Run

FOLDERS = ("run/nvidia-persistenced", "var/run/nvidia-persistenced")
"""Where the toolkit looks for it (pkg/nvcdi, internal/discover/ipc.go)."""

_DROP_IN = "50-gpugrant-persistenced.conf"


def show(run: Run, systemctl: Path | None) -> str | None:
    """Makes it visible and names who must start again; the socket's path, or None where persistenced does not run."""
    place = next((place for place in FOLDERS if _runs(run, f"{place}/socket")), None)
    if place is None:
        return None
    if systemctl is not None:
        _drop_ins(run, systemctl, f"/{place}")
    blind = sorted({name for name, pid in _daemons(run, systemctl) if not _sees(run, pid, f"{place}/socket")})
    if blind:
        run.problems.append(("RestartRequired", _sentence(blind)))
    return f"/{place}/socket"


def _sentence(blind: list[str]) -> str:
    do, their, them = ("do", "their", "them") if len(blind) > 1 else ("does", "its", "it")
    return (
        f"{', '.join(blind)} {do} not see the socket of nvidia-persistenced, which {their} containers are given "
        f"with an NVIDIA device: restart {them} when {their} containers may end"
    )


def _runs(run: Run, socket: str) -> bool:
    path = run.tree.locate(socket)
    return path is not None and (not run.tree.is_live or stat.S_ISSOCK(path.lstat().st_mode))


def _drop_ins(run: Run, systemctl: Path, folder: str) -> None:
    text = units.persistenced_drop_in(folder)
    names = [name for pattern in run.daemon_units if (name := units.drop_in_folder(pattern)) is not None]
    for name in names:
        run.put(units.path_of(f"{name}/{_DROP_IN}"), text.encode())
    # read anew, nothing is started again: a restart would end containers
    reload = ("daemon-reload",)
    run.take_up(
        "persistenced",
        (text, *names),
        lambda: run.act(systemctl, reload, timeout=run.options.limits.systemctl).ok,
    )


def _daemons(run: Run, systemctl: Path | None) -> Iterator[tuple[str, int]]:
    """(name, pid) of the running repo daemons: of repos.d by their sockets, and units by the patterns."""
    # the running daemons do not belong to a recorded machine
    for repo in daemons.known(run.layout) if run.tree.is_live else ():
        pid = repos.accepts(repo.upstream)
        if pid:
            yield f"the daemon of repo {repo.name}", pid
    if systemctl is None:
        return
    args = ("list-units", "--type=service", "--state=running", "--plain", "--no-legend", *run.daemon_units)
    ended = programs.run(systemctl, args, timeout=run.options.limits.smi, env=run.env)
    for line in ended.stdout.splitlines() if ended.ok else ():
        unit = (line.split() or [""])[0]
        if any(fnmatchcase(unit, pattern) for pattern in run.daemon_units):
            pid = _main_pid(run, systemctl, unit)
            if pid:
                yield unit, pid


def _main_pid(run: Run, systemctl: Path, unit: str) -> int:
    args = ("show", "--property=MainPID", "--value", unit)
    ended = programs.run(systemctl, args, timeout=run.options.limits.smi, env=run.env)
    text = ended.stdout.strip()
    return int(text) if ended.ok and re.fullmatch(r"[0-9]{1,9}", text) else 0


def _sees(run: Run, pid: int, socket: str) -> bool:
    """In the process's own view of the files: /proc/<pid>/root leads into its mount namespace."""
    try:
        seen = (run.tree.root / "proc" / str(pid) / "root" / socket).stat()
        return not run.tree.is_live or os.path.samestat(seen, (run.tree.root / socket).stat())
    except OSError:
        return False
