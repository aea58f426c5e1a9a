"""What the kernel says of a daemon's process: which one it is, since when, and the configuration file that it read.

Files are looked at through /proc/PID/root, in the daemon's own mount namespace: that is where it reads them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from gpugrant_gate.life import buildkit
from gpugrant_gate.life.buildkit import Entitlements

PROC = Path("/proc")
DEFAULT_CONFIG = "/etc/docker/daemon.json"
"""What dockerd reads without --config-file."""

_CONFIG_MAX = 1024 * 1024
"""Bytes; a real daemon.json has some hundred."""
_ACTIVATOR = "systemd"
"""Listens for others (systemd.socket(5)): the kernel names it as the peer of every connection to them."""
_LISTENS = "00010000"
"""__SO_ACCEPTCON in /proc/net/unix."""
_SLACK = 0.05
"""Seconds between a file's time and a process's start that say nothing: a tick of the clock (10 ms) and the coarse
clock of file systems. A daemon takes longer than this from its fork to the reading of its file."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process for ever: a number that is used again has another start."""

    pid: int
    ticks: int
    """Of its start since boot, in clock ticks."""


def find(pid: int) -> Process | None:
    """The process of that number now; None: there is none, or it is ending."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    # proc_pid_stat(5): the state is field 3, the start time field 22
    return None if fields[0] in "ZXx" else Process(pid, int(fields[19]))


def behind(listener: int, socket: Path) -> Process | None:
    """The daemon behind a listening socket: who called listen(2), or, where systemd did, who holds the socket too.

    None where it can't be told.
    """
    try:
        if (PROC / str(listener) / "comm").read_text().strip() != _ACTIVATOR:
            return find(listener)
        holders = [pid for pid in _holders(_inodes(listener, socket)) if pid != listener]
    except OSError:
        return None
    return find(holders[0]) if len(holders) == 1 else None


def started(process: Process, now: float, since_boot: float) -> float:
    """The wall clock's time of its start, seconds; `since_boot` is CLOCK_BOOTTIME at `now`."""
    return now - since_boot + process.ticks / os.sysconf("SC_CLK_TCK")


def entitlements(process: Process, path: Path | None, root: Path, now: float, since_boot: float) -> Entitlements | str:
    """What the daemon's configuration lets builds ask for, or why that can't be told, a clause with its mend.

    `root`: of this installation; the folders above it are its own ground, whoever they belong to.
    """
    if path is None:
        return (
            f"the repo's file does not say which configuration file its daemon has: add the line "
            f"daemonConfig: {_named_config(process) or DEFAULT_CONFIG}"
        )
    named = _named_config(process)
    if named is None or not _same(process, named, path):
        said = named or "another file"
        return f"its daemon reads {said} and not {path}: correct daemonConfig in the repo's file"
    try:
        data, changed = _read(process, path, root)
    except _Untrusted as error:
        return f"{path}{error}"
    except OSError as error:
        return f"{path} can't be read ({(error.strerror or str(error)).lower()})"
    if changed > started(process, now, since_boot) + _SLACK:
        return f"{path} was changed after its daemon started: restart the daemon"
    if find(process.pid) != process:
        return "its daemon was replaced while it was looked at"
    found = buildkit.read(data)
    return found if isinstance(found, Entitlements) else f"{path} can't be understood: {found}"


def runs_runc(process: Process) -> bool:
    """Whether nothing in the daemon's environment puts another program in runc's place for builds."""
    try:
        environ = (PROC / str(process.pid) / "environ").read_bytes()
    except OSError:
        return False
    name = buildkit.RUNC_COMMAND.encode()
    return not any(entry.startswith(name + b"=") and entry != name + b"=" for entry in environ.split(b"\0"))


def sees_same(process: Process, folder: Path) -> bool:
    """Whether the daemon sees at this path what the gate sees there."""
    try:
        ours, theirs = folder.stat(), _inside(process, folder).stat()
    except OSError:
        return False
    return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)


class _Untrusted(Exception):
    """Somebody other than root could have written the file; the message follows its path."""


def _read(process: Process, path: Path, root: Path) -> tuple[bytes, float]:
    """The file's bytes and when anything about it was last changed; raises _Untrusted, OSError."""
    for folder in reversed(path.parents):
        if not root.is_relative_to(folder):
            _check_folder(folder, _inside(process, folder).lstat())
    fd = os.open(_inside(process, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise _Untrusted(" is no file")
        if found.st_uid != 0 or found.st_mode & 0o022:
            raise _Untrusted(" may be written by others than root: chown root and chmod go-w it")
        data = file.read(_CONFIG_MAX + 1)
    if len(data) > _CONFIG_MAX:
        raise _Untrusted(" is too long")
    # not the mtime: that is what its writer says it is
    return data, found.st_ctime


def _check_folder(folder: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise _Untrusted(f" goes by way of a symbolic link ({folder}): write the path without it")
    mine = found.st_uid == 0 and (not found.st_mode & 0o022 or bool(found.st_mode & stat.S_ISVTX))
    if not mine:
        raise _Untrusted(f" lies in {folder}, which may be written by others than root: chown root and chmod go-w it")


def _inside(process: Process, path: Path) -> Path:
    return PROC / str(process.pid) / "root" / str(path).lstrip("/")


def _named_config(process: Process) -> str | None:
    """The file that the daemon's command line names; None where that can't be read."""
    try:
        words = (PROC / str(process.pid) / "cmdline").read_bytes().decode().split("\0")
    except (OSError, UnicodeDecodeError):
        return None
    named = DEFAULT_CONFIG
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if match := re.fullmatch(r"--?config-file(?:=(.*))?", word):
            named = following if match[1] is None else match[1]
    return named


def _same(process: Process, named: str, path: Path) -> bool:
    if not named.startswith("/"):
        return False
    if Path(named) == path:
        return True
    try:
        theirs, said = _inside(process, Path(named)).stat(), _inside(process, path).stat()
    except OSError:
        return False
    return (theirs.st_dev, theirs.st_ino) == (said.st_dev, said.st_ino)


def survivors(containers: Collection[str]) -> frozenset[str]:
    """Those of these containers (full ids) that have a process now, whether or not a daemon knows of it: the kernel
    names a container's cgroup after it."""
    found: set[str] = set()
    for pid in _processes() if containers else ():
        try:
            text = (PROC / str(pid) / "cgroup").read_text(errors="replace")
        except OSError:
            continue
        found.update(container for container in containers if container in text)
    return frozenset(found)


def _inodes(listener: int, socket: Path) -> frozenset[str]:
    """Of the sockets that listen at this path, in the listener's network namespace (proc_net(5))."""
    paths = {str(socket), str(socket.resolve())}
    lines = (line.split() for line in (PROC / str(listener) / "net/unix").read_text().splitlines())
    # Num RefCount Protocol Flags Type St Inode Path
    return frozenset(words[6] for words in lines if len(words) == 8 and words[3] == _LISTENS and words[7] in paths)


def _holders(inodes: Iterable[str]) -> list[int]:
    """The processes that have one of these sockets open."""
    targets = {f"socket:[{inode}]" for inode in inodes}
    return [pid for pid in _processes() if targets and _holds(pid, targets)]


def _processes() -> list[int]:
    return [int(folder.name) for folder in PROC.iterdir() if folder.name.isdecimal()]


def _holds(pid: int, targets: set[str]) -> bool:
    folder = PROC / str(pid) / "fd"
    try:
        return any(str(fd.readlink()) in targets for fd in folder.iterdir())
    except OSError:
        return False
