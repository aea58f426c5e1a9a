"""A repo as the gate serves it, out of its file in `repos.d`, and what becomes of it beside the other files.

Pure but for the names of users and groups, which only the machine knows.
"""

from __future__ import annotations

import grp
import pwd
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpugrant_crds import repofile
from gpugrant_crds.layout import Layout, SocketPathTooLong, checked_socket
from gpugrant_crds.repofile import RepoFile, RepoProblem

DEFAULT_MODE = 0o660
"""Whoever reaches the socket is root over the repo's containers: its owner and group, nobody else."""

_BROKEN = "the repo's file is broken"


@dataclass(frozen=True, slots=True)
class Repo:
    """One repo: whose daemon is where, and who reaches it. `problem`: why it gets no hardware, whatever its daemon."""

    name: str
    id: str
    upstream: Path
    listen: Path
    uid: int = 0
    gid: int = 0
    mode: int = DEFAULT_MODE
    sealed: bool = False
    binds: tuple[Path, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Folder:
    """All of `repos.d`: the repos to serve by name, and a sentence for each thing that is wrong."""

    repos: Mapping[str, Repo] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    """The repo that each file meant when it last could be read."""


def resolve(file: RepoFile, filename: str, layout: Layout) -> Repo | RepoProblem:
    """The file's repo with its accounts looked up, or why it can't be served."""
    try:
        listen = checked_socket(file.listens(layout))
        uid = _number(file.owner, "owner", lambda name: pwd.getpwnam(name).pw_uid)
        gid = _number(file.group, "group", lambda name: grp.getgrnam(name).gr_gid)
    except (SocketPathTooLong, LookupError) as error:
        return RepoProblem(filename, 0, str(error.args[0]))
    if file.upstream == listen:
        return RepoProblem(filename, 0, f"upstream and listen path are both {listen}: the daemon must have its own")
    return Repo(
        name=file.name,
        id=file.id or "",
        upstream=file.upstream,
        listen=listen,
        uid=uid,
        gid=gid,
        mode=DEFAULT_MODE if file.permissions is None else file.permissions,
        sealed=file.sealed,
        binds=file.binds or (),
    )


def assemble(files: Mapping[str, RepoFile | RepoProblem], before: Folder, layout: Layout) -> Folder:
    """One folder out of its files, by file name, and of what it was before.

    A broken file keeps its repo's socket under the last good settings, without hardware: what the file now means to
    forbid can't be known. What stands in two files (name, id, daemon, listening socket) gets no hardware in either;
    where it is the name or the socket, only the first of them is served.
    """
    problems: list[str] = []
    clashes = repofile.clashes({name: file for name, file in files.items() if isinstance(file, RepoFile)}, layout)
    repos: dict[str, Repo] = {}
    names: dict[str, str] = {}
    for filename in sorted(files):
        found, problem = _one(filename, files[filename], clashes.get(filename), before, layout)
        if problem:
            problems.append(problem)
        if found is None:
            continue
        names[filename] = found.name
        if any(other.name == found.name or other.listen == found.listen for other in repos.values()):
            continue
        repos[found.name] = found
    return Folder(repos, tuple(problems), names)


def _one(
    filename: str, file: RepoFile | RepoProblem, clash: str | None, before: Folder, layout: Layout
) -> tuple[Repo | None, str]:
    """The repo of one file, where there is one, and a sentence on what is wrong with it."""
    found = resolve(file, filename, layout) if isinstance(file, RepoFile) else file
    if isinstance(found, RepoProblem):
        kept = before.repos.get(before.names.get(filename, ""))
        return (kept and replace(kept, problem=f"{_BROKEN} ({found})")), str(found)
    if clash is not None:
        return replace(found, problem=clash), f"{filename}: {clash}"
    if not found.id:
        problem = "the repo's file has no id, so no grant can be this repo's own"
        return replace(found, problem=problem), f"{filename}: {problem}"
    return found, ""


def _number(account: str | None, what: str, look_up: Callable[[str], int]) -> int:
    """A user's or group's number; root where none is named. Raises LookupError with a sentence."""
    if account is None:
        return 0
    if re.fullmatch(r"[0-9]{1,9}", account, re.ASCII):
        return int(account)
    try:
        return look_up(account)
    except KeyError as error:
        raise LookupError(f'{what}: "{account}" is not known on this machine') from error
