"""A repo as its file in `repos.d` says it, and what several files together must not say.

Pure but for the names of users and groups, which only the machine knows.
"""

from __future__ import annotations

import grp
import pwd
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpugrant_crds.layout import Layout, SocketPathTooLong, checked_socket
from gpugrant_crds.names import InvalidName, check_repo, check_repo_id
from gpugrant_gate.life import documents
from gpugrant_gate.life.documents import Broken, Value

KEYS = ("name", "id", "upstream", "listen", "owner", "group", "mode", "sealed", "binds")

DEFAULT_MODE = 0o660
"""Whoever reaches the socket is root over the repo's containers: its owner and group, nobody else."""


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


def parse(path: Path, text: str, layout: Layout) -> Repo:
    """The repo that the file describes; raises Broken with file and line."""
    values = documents.read(path, text, KEYS)
    name = _name(path, values)
    upstream = _required(path, values, "upstream")
    listen = _listen(path, values, name, layout)
    if upstream.folder() == listen:
        raise upstream.wrong("is the path that the gate listens at: the daemon's own socket must lie elsewhere")
    return Repo(
        name=name,
        id=_checked(values["id"], check_repo_id) if "id" in values else "",
        upstream=_socket(upstream, upstream.folder()),
        listen=listen,
        uid=_number(values.get("owner"), lambda owner: pwd.getpwnam(owner).pw_uid),
        gid=_number(values.get("group"), lambda group: grp.getgrnam(group).gr_gid),
        mode=_mode(values.get("mode")),
        sealed="sealed" in values and values["sealed"].flag(),
        binds=values["binds"].folders() if "binds" in values else (),
    )


@dataclass(frozen=True, slots=True)
class Folder:
    """All of `repos.d`: the repos to serve by name, and a sentence for each thing that is wrong."""

    repos: Mapping[str, Repo]
    problems: tuple[str, ...] = ()


def assemble(files: Mapping[Path, Repo | Broken], last: Mapping[str, Repo], last_files: Mapping[Path, str]) -> Folder:
    """One folder out of its files, in the order of their names.

    A broken file keeps its repo's socket under the last good settings, without hardware: what the file now means to
    forbid can't be known. Of two files with one name or one socket only the first is served; whatever occurs twice
    (name, id, upstream) gets no hardware in any of them.
    """
    problems: list[str] = []
    candidates: list[tuple[Path, Repo]] = []
    for path in sorted(files):
        entry = files[path]
        if isinstance(entry, Repo):
            candidates.append((path, entry))
            continue
        problems.append(str(entry))
        kept = last.get(last_files.get(path, ""))
        if kept is not None:
            candidates.append((path, replace(kept, problem=f"the repo's file is broken ({entry})")))
    repos, doubled = _served([(path, _judged(repo, candidates)) for path, repo in candidates])
    problems.extend(f"{path}: {repo.problem}" for path, repo in repos if repo.problem and _is_new(repo))
    problems.extend(doubled)
    return Folder({repo.name: repo for _, repo in repos}, tuple(problems))


def _is_new(repo: Repo) -> bool:
    """A broken file's own sentence is there already."""
    return not repo.problem.startswith("the repo's file is broken")


def _judged(repo: Repo, all_of_them: list[tuple[Path, Repo]]) -> Repo:
    if repo.problem:
        return repo
    if not repo.id:
        return replace(repo, problem="the repo has no id in its file, so no grant can be its own")
    for what, value, values in (
        ("name", repo.name, (other.name for _, other in all_of_them)),
        ("id", repo.id, (other.id for _, other in all_of_them)),
        ("upstream", str(repo.upstream), (str(other.upstream) for _, other in all_of_them)),
    ):
        if Counter(values)[value] > 1:
            return replace(repo, problem=f'the {what} "{value}" stands in several files of repos.d')
    return repo


def _served(candidates: Iterable[tuple[Path, Repo]]) -> tuple[list[tuple[Path, Repo]], list[str]]:
    served: list[tuple[Path, Repo]] = []
    problems: list[str] = []
    for path, repo in candidates:
        taken = next((other for other, first in served if repo.name == first.name or repo.listen == first.listen), None)
        if taken is None:
            served.append((path, repo))
        else:
            problems.append(f"{path}: not served, since {taken} has the same name or listen path")
    return served, problems


def _required(path: Path, values: Mapping[str, Value], key: str) -> Value:
    if key not in values:
        raise Broken(path, 1, f'the key "{key}" is missing')
    return values[key]


def _name(path: Path, values: Mapping[str, Value]) -> str:
    if "name" in values:
        return _checked(values["name"], check_repo)
    try:
        return check_repo(path.stem)
    except InvalidName as error:
        raise Broken(path, 1, f"the file names the repo: {error}") from error


def _checked(value: Value, check: Callable[[str], str]) -> str:
    try:
        return check(value.text())
    except InvalidName as error:
        raise value.wrong(f"is wrong: {error}") from error


def _listen(path: Path, values: Mapping[str, Value], name: str, layout: Layout) -> Path:
    if "listen" in values:
        return _socket(values["listen"], values["listen"].folder())
    try:
        return checked_socket(layout.repo_socket(name))
    except SocketPathTooLong as error:
        raise Broken(path, 1, str(error)) from error


def _socket(value: Value, path: Path) -> Path:
    try:
        return checked_socket(path)
    except SocketPathTooLong as error:
        raise value.wrong(f"can't be used: {error}") from error


def _number(value: Value | None, look_up: Callable[[str], int]) -> int:
    """A user or group, by name or number; root where none is named."""
    if value is None:
        return 0
    text = value.text()
    if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        return int(text)
    try:
        return look_up(text)
    except KeyError as error:
        raise value.wrong(f'names nobody on this machine: "{text}"') from error


def _mode(value: Value | None) -> int:
    """Octal digits as chmod takes them, with or without the leading zero."""
    if value is None:
        return DEFAULT_MODE
    text = value.text()
    if not re.fullmatch(r"0?[0-7]{3}", text, re.ASCII):
        raise value.wrong(f'must be three octal digits such as 0660, got "{text}"')
    return int(text, 8)
