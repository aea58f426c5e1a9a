"""The files of repos.d as the commands write them (design 8).

The file is the truth: the gate watches the folder and takes up what it finds. A file is replaced whole, never edited in
place, and two commands never write at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from gpugrant_crds import names, repofile
from gpugrant_crds.layout import Layout, SocketPathTooLong, checked_socket
from gpugrant_crds.repofile import RepoFile, RepoProblem

PEER_CREDENTIALS = struct.Struct("3i")
"""struct ucred of unix(7): pid, uid, gid."""

CONNECT_TIMEOUT = 2.0
"""Seconds for a daemon's socket to accept."""

PROC = Path("/proc")


_DAEMONS_OWN = "give the daemon's own socket as --upstream"


class Refused(Exception):
    """Not done; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Folder:
    """What lies in repos.d."""

    repos: Mapping[str, RepoFile]
    """By file name."""
    problems: tuple[RepoProblem, ...] = ()

    def named(self, name: str) -> tuple[str, RepoFile] | None:
        """The file of the repo of that name."""
        return next(((file, repo) for file, repo in self.repos.items() if repo.name == name), None)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `repo add` was told; None: nothing was said of it."""

    name: str
    upstream: Path
    id: str | None = None
    listen: Path | None = None
    sealed: bool = False
    daemon_config: Path | None = None
    leads_to: Path | None = None
    """Where the upstream ends when links are followed: two spellings are one socket."""


@dataclass(frozen=True, slots=True)
class Same:
    """The repo is there as wanted."""

    repo: RepoFile


@dataclass(frozen=True, slots=True)
class Write:
    """The file to write."""

    file: str
    repo: RepoFile
    of_removed: bool = False
    """Its daemon is still sealed as a repo that was removed: it gets no hardware until it is started anew."""


def plan_add(
    folder: Folder,
    wanted: Wanted,
    layout: Layout,
    fresh_id: Callable[[], str],
    *,
    sealed_with: str | None = None,
    retired: frozenset[str] = frozenset(),
) -> Same | Write:
    """What adding the repo means; raises Refused.

    `sealed_with`: the id of this root's folder that its daemon sees (`sealed_id`): a new repo of that id is sealed.
    `retired`: ids of removed repos; only who says `--id` gets one of them back, and with it its grants (R9).
    `fresh_id` is asked only when the repo is new and has no other id.
    """
    file = f"{wanted.name}{repofile.SUFFIX}"
    present = folder.named(wanted.name)
    if present is not None:
        return _again(*present, wanted)
    broken = next((problem for problem in folder.problems if problem.file == file), None)
    if broken is not None:
        raise Refused(f"{broken}; mend it, or take it away with: gpugrant repo remove {wanted.name}")
    of_removed = wanted.id is None and sealed_with in retired
    repo_id = wanted.id or (None if of_removed else sealed_with) or fresh_id()
    sealed = wanted.sealed or of_removed or repo_id == sealed_with
    repo = _made(wanted, layout, repo_id, sealed=sealed)
    other = _gates_own(folder, repo, wanted.leads_to, layout) or _clash(folder, repo, layout)
    if other is not None:
        raise Refused(other)
    return Write(file, repo, of_removed)


def _again(file: str, present: RepoFile, wanted: Wanted) -> Same:
    """Only what was said is compared: a repo that is added again without --listen keeps its own."""
    said = (
        ("id", wanted.id, present.id),
        ("upstream", wanted.upstream, present.upstream),
        ("listen", wanted.listen, present.listen),
        ("sealed", wanted.sealed or None, present.sealed),
        ("daemonConfig", wanted.daemon_config, present.daemon_config),
    )
    for key, value, stored in said:
        if value is not None and value != stored:
            raise Refused(
                f"repo {present.name} is there already with the {key} {_shown(stored)} ({file}): "
                f"change that file, or run gpugrant repo remove {present.name} first"
            )
    return Same(present)


def _shown(value: object) -> str:
    if value is None:
        return "of its own"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _made(wanted: Wanted, layout: Layout, repo_id: str, *, sealed: bool) -> RepoFile:
    try:
        names.check_repo(wanted.name)
        if wanted.listen is None:
            checked_socket(layout.repo_socket(wanted.name))
        return RepoFile(
            name=wanted.name,
            id=repo_id,
            upstream=wanted.upstream,
            listen=wanted.listen,
            sealed=sealed,
            daemonConfig=wanted.daemon_config,
        )
    except (names.InvalidName, SocketPathTooLong) as error:
        raise Refused(str(error)) from error
    except ValidationError as error:
        raise Refused(error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")) from error


def _gates_own(folder: Folder, repo: RepoFile, leads_to: Path | None, layout: Layout) -> str | None:
    """A gate behind a gate would be asked for another repo's containers, or for its own for ever."""
    own = layout.repo_socket(repo.name).parent
    for path in (repo.upstream, leads_to or repo.upstream):
        for served in (repo, *folder.repos.values()):
            if path == served.listens(layout):
                return f"the gate itself listens at {repo.upstream}, for repo {served.name}: {_DAEMONS_OWN}"
        if path.is_relative_to(own):
            return f"{repo.upstream} lies in {own}, where the gate listens: {_DAEMONS_OWN}"
    return None


def _clash(folder: Folder, repo: RepoFile, layout: Layout) -> str | None:
    for other in folder.repos.values():
        if other.upstream == repo.upstream:
            return f"{repo.upstream} is the daemon of repo {other.name}: two repos never share a daemon"
        if other.id is not None and other.id == repo.id:
            return f"repo {other.name} has the id {repo.id}: each repo has an id of its own"
        if other.listens(layout) == repo.listens(layout):
            return f"the gate listens for repo {other.name} at {repo.listens(layout)}: give another --listen"
    return None


def read(layout: Layout) -> Folder:
    """All files of repos.d; a folder that isn't there is an empty one. Raises OSError."""
    repos: dict[str, RepoFile] = {}
    problems: list[RepoProblem] = []
    for path in _files(layout.repos):
        found = _read_file(path)
        if isinstance(found, RepoFile):
            repos[path.name] = found
        else:
            problems.append(found)
    return Folder(repos, tuple(problems))


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix == repofile.SUFFIX and path.name[0] != ".")


def _read_file(path: Path) -> RepoFile | RepoProblem:
    try:
        return repofile.parse(path.read_text(encoding="utf-8"), path.name)
    except UnicodeDecodeError:
        return RepoProblem(path.name, 0, "not valid UTF-8")
    except FileNotFoundError:
        return RepoProblem(path.name, 0, "it has just gone")


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Lets one command at a time read and write the folder; makes it when it isn't there. Raises OSError."""
    layout.repos.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor = os.open(layout.repos, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write(layout: Layout, planned: Write) -> Path:
    """Puts the repo's file in place. Raises OSError."""
    path = layout.repos / planned.file
    replace(path, repofile.dump(planned.repo))
    return path


def replace(path: Path, text: str) -> None:
    """Puts a file in place, durably and in one step, readable by all. Raises OSError."""
    # The leading dot keeps the gate from reading a file that is not whole yet.
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync(path.parent)


def remove(layout: Layout, name: str) -> bool:
    """Takes the repo's file away, a broken one of that name too; False: there was none. Raises OSError.

    Its id is retired first: what is added later under that name is another repo (R9).
    """
    present = read(layout).named(name)
    if present is not None and present[1].id is not None:
        _retire(layout, present[1].id)
    path = layout.repos / (present[0] if present is not None else f"{names.check_repo(name)}{repofile.SUFFIX}")
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    _sync(layout.repos)
    return True


def retired(layout: Layout) -> frozenset[str]:
    """The ids of removed repos. Raises OSError where they can't be read."""
    try:
        return frozenset(layout.retired_repos.read_text(encoding="utf-8").split())
    except FileNotFoundError:
        return frozenset()


def _retire(layout: Layout, repo_id: str) -> None:
    if repo_id in retired(layout):
        return
    layout.state.mkdir(mode=0o755, parents=True, exist_ok=True)
    with layout.retired_repos.open("a", encoding="utf-8") as file:
        file.write(f"{repo_id}\n")
        file.flush()
        os.fsync(file.fileno())
    _sync(layout.state)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def accepts(path: Path) -> int | None:
    """The pid of whoever listens on the Unix socket; None: nobody does. 0: a process that can't be seen from here."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(CONNECT_TIMEOUT)
        try:
            client.connect(str(path))
        except OSError:
            return None
        raw = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
    pid, _, _ = PEER_CREDENTIALS.unpack(raw)
    return int(pid)


def sealed_id(layout: Layout, pid: int, proc: Path = PROC) -> str | None:
    """The id of the sealed folder that the process sees in place of the CDI folder; None: it sees none of ours."""
    try:
        seen = (proc / str(pid) / "root" / layout.cdi.relative_to("/")).stat()
        folders = sorted(layout.sealed.iterdir())
    except OSError:
        return None
    for folder in folders:
        with contextlib.suppress(OSError):
            if os.path.samestat(folder.stat(), seen):
                return folder.name
    return None
