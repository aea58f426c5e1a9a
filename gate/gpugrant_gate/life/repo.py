"""A repo as the gate serves it, out of its file in `repos.d`, and what becomes of it beside the other files.

Pure but for the names of users and groups, which only the machine knows.
"""

from __future__ import annotations

import grp
import pwd
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

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
    binds_pinned: bool = True
    above: tuple[Path, ...] = ()
    """Folders in `binds` of other repos that contain one of this repo's: whoever has them bound is root in them."""
    open: frozenset[str] = frozenset()
    """Host rules that are open, as `openings` names them."""
    daemon_config: Path | None = None
    """The daemon's configuration file as the daemon sees it."""
    problem: str = ""

    def has_daemon_of(self, other: Repo) -> bool:
        """Whether what was found out about the other's daemon holds for this repo's too."""
        return self._daemon() == other._daemon()

    def _daemon(self) -> tuple[object, ...]:
        return self.upstream, self.id, self.sealed, self.daemon_config


@dataclass(frozen=True, slots=True)
class Folder:
    """All of `repos.d`: the repos to serve by name, and a sentence for each thing that is wrong."""

    repos: Mapping[str, Repo] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    """The repo that each file is served as, by file name."""


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
        binds_pinned=file.binds_pinned,
        daemon_config=file.daemon_config,
        open=file.opened,
    )


def assemble(files: Mapping[str, RepoFile | RepoProblem], before: Folder, layout: Layout) -> Folder:
    """One folder out of its files, by file name, and of what it was before.

    A broken file keeps its repo's socket under the last good settings, without hardware: what the file now means to
    forbid can't be known. What stands in two files (name, id, daemon, listening socket) gets no hardware in either;
    where it is the name or the socket, only one of them is served, and a new file never takes it from the file that
    was served there.
    """
    clashes = repofile.clashes({name: file for name, file in files.items() if isinstance(file, RepoFile)}, layout)
    found: dict[str, Repo] = {}
    problems: dict[str, str] = {}
    for filename, file in sorted(files.items()):
        its, problem = _one(filename, file, clashes.get(filename), before, layout)
        if its is not None:
            found[filename] = its
        if problem:
            problems[filename] = problem
    repos: dict[str, Repo] = {}
    names: dict[str, str] = {}
    for filename in sorted(found, key=lambda name: _claim(name, found[name], before)):
        its = found[filename]
        taken = _taken(its, repos)
        kept = _served_before(filename, before)
        if taken and kept is not None and kept.name == its.name and not _taken(kept, repos):
            # its new listening socket is another file's: it stays at the old one
            its, taken = replace(kept, problem=its.problem or taken), ""
        if taken:
            problems.setdefault(filename, f"{filename}: {taken}")
            continue
        repos[its.name] = its
        names[filename] = its.name
    repos = {name: replace(its, above=_above(its, repos.values())) for name, its in repos.items()}
    return Folder(repos, tuple(text for _, text in sorted(problems.items())), names)


def _above(its: Repo, repos: Iterable[Repo]) -> tuple[Path, ...]:
    others = {folder for other in repos if other.name != its.name for folder in other.binds}
    return tuple(sorted(other for other in others if any(other in folder.parents for folder in its.binds)))


def _claim(filename: str, its: Repo, before: Folder) -> tuple[bool, bool, bool, str]:
    """Whose claim on a doubled name or listening socket comes first: that of the file that was served under both,
    then under the name, then that of the file that is called like its repo."""
    kept = _served_before(filename, before)
    same_name = kept is not None and kept.name == its.name
    same_socket = same_name and kept is not None and kept.listen == its.listen
    return not same_socket, not same_name, PurePath(filename).stem != its.name, filename


def _taken(its: Repo, repos: Mapping[str, Repo]) -> str:
    """Why the repo can't be served beside those; empty: it can."""
    if its.name in repos:
        return f"the name {its.name} is served for another file: remove one of them"
    if any(other.listen == its.listen for other in repos.values()):
        return f"the listen path {its.listen} is served for another file: remove one of them"
    return ""


def _served_before(filename: str, before: Folder) -> Repo | None:
    return before.repos.get(before.names.get(filename, ""))


def _one(
    filename: str, file: RepoFile | RepoProblem, clash: str | None, before: Folder, layout: Layout
) -> tuple[Repo | None, str]:
    """The repo of one file, where there is one, and a sentence on what is wrong with it."""
    found = resolve(file, filename, layout) if isinstance(file, RepoFile) else file
    if isinstance(found, RepoProblem):
        kept = _served_before(filename, before)
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
