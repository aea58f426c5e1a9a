"""How a repo's daemon comes to see its sealed folder in place of the CDI folder (design 5, the second lock). Pure.

The daemon's systemd unit gets a drop-in: a mount namespace of its own, in which the folder is mounted over the CDI
folder and the other folder that the CDI library reads by default is empty. systemd.exec(5) says what a line means.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpugrant_crds.layout import Layout
from gpugrant_crds.repofile import RepoFile
from gpugrant_operator.repos import Refused

SYSTEM = "etc/systemd/system"
DROP_IN = "60-gpugrant-seal.conf"

OTHER_CDI = Path("/run/cdi")
"""Beside /etc/cdi the CDI library's default: a daemon whose cdi-spec-dirs names it must see nothing there."""

_UNIT = re.compile(r"[A-Za-z0-9:_.\\-]{1,200}(@[A-Za-z0-9:_.\\-]{0,200})?\.service")
"""systemd.unit(5)."""

_PLAIN = re.compile(r"[A-Za-z0-9/_.@+,=~%-]+")
"""A path that means itself in BindReadOnlyPaths=, but for `%`."""

_USERS_OWN = re.compile(r"user@[0-9]+\.service")

MOUNT = (
    'mount --bind "$1" "$2"; mount -o remount,bind,ro "$2"; '
    'if [ -d "$3" ]; then mount -t tmpfs -o ro,mode=0755,size=4k none "$3"; fi; shift 3; exec "$@"'
)
"""$1 sealed folder, $2 CDI folder, $3 the other one; the rest is the daemon."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found of the repo's daemon. `pid` 0: it does not run, or can't be seen from here."""

    pid: int = 0
    sealed_as: str | None = None
    """The id of the sealed folder that it sees."""
    cgroup: str = ""
    """/proc/PID/cgroup."""
    live_restore: bool = False
    own_containerd: bool = True
    """The containerd that it uses shares its mount namespace, or nothing is known of it."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A service as systemd knows it."""

    name: str
    main_pid: int = 0
    loaded: bool = True


Ask = Callable[[str], Unit]


def check_unit(name: str) -> str:
    """The name itself; raises Refused for one that no service can have."""
    if not _UNIT.fullmatch(name):
        raise Refused(f"{name} is no name of a systemd service, such as docker-gpu-a.service")
    return name


def unit_of(cgroup: str) -> str | None:
    """The service that a process belongs to, from its /proc/PID/cgroup; None: to none."""
    for line in cgroup.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        # cgroups(7): systemd's own are version 2's (0) and the named one of version 1
        if hierarchy != "0" and controllers != "name=systemd":
            continue
        for part in path.split("/"):
            if part.endswith(".service"):
                return None if _USERS_OWN.fullmatch(part) else part
    return None


def choose_unit(repo: str, wanted: str | None, seen: Seen, ask: Ask) -> Unit:
    """The daemon's service: the one that is named, else the one whose main process it is, else the one that is called
    after the repo. Raises Refused where none of them is known to systemd."""
    if wanted is not None:
        unit = ask(check_unit(wanted))
        if not unit.loaded:
            raise Refused(f"systemd knows no unit {wanted}: name the service that starts the daemon of repo {repo}")
        return unit
    found = unit_of(seen.cgroup)
    if found is not None and _UNIT.fullmatch(found):
        unit = ask(found)
        if unit.main_pid == seen.pid:
            return unit
    for name in (f"docker-{repo}.service", f"docker@{repo}.service"):
        unit = ask(name)
        if unit.loaded and (not seen.pid or unit.main_pid in (0, seen.pid)):
            return unit
    raise Refused(
        f"the systemd service of repo {repo}'s daemon is not known: name it with --unit, such as "
        f"--unit docker-{repo}.service"
    )


def check(repo: RepoFile, seen: Seen) -> str:
    """The repo's id; raises Refused where its daemon can't be sealed as it is."""
    if repo.id is None:
        raise Refused(f"repo {repo.name} has no id, and a sealed folder is that of an id: put one into its file")
    if seen.sealed_as is not None and seen.sealed_as != repo.id:
        raise Refused(
            f"the daemon of repo {repo.name} is sealed as the repo with id {seen.sealed_as}, and this one's id is "
            f"{repo.id}: take that mount away first"
        )
    if seen.live_restore:
        raise Refused(
            f'live-restore is on in the daemon of repo {repo.name}: put "live-restore": false into its daemon.json and '
            "restart it first, for containers that outlive a sealed daemon can't be used any more"
        )
    if not seen.own_containerd:
        raise Refused(
            f"the daemon of repo {repo.name} uses a containerd that it has not started itself, which would not see the "
            'containers\' files in a sealed daemon: give it one of its own (its own "exec-root", no --containerd, and '
            "no /run/containerd/containerd.sock) first"
        )
    return repo.id


def drop_in(layout: Layout, repo: RepoFile) -> str:
    """The drop-in's text. The daemon does not start without the folder: a bind mount without its source fails.

    Raises Refused for a path that systemd would read otherwise.
    """
    folder, cdi = _path(layout.sealed_repo(repo.id or "")), _path(layout.cdi)
    hidden = "".join(f"TemporaryFileSystem={_path(path)}:ro\n" for path in hidden_folders(layout))
    return (
        f"# Written by gpugrant repo seal {repo.name}: the daemon sees only the CDI specs of this repo's grants.\n"
        f"[Unit]\nRequiresMountsFor={folder}\n\n[Service]\nBindReadOnlyPaths={folder}:{cdi}\n{hidden}"
    )


def drop_in_path(layout: Layout, unit: str) -> Path:
    return layout.root / SYSTEM / f"{unit}.d" / DROP_IN


def hidden_folders(layout: Layout) -> tuple[Path, ...]:
    """The other CDI folders, of the machine and of the root."""
    return tuple(dict.fromkeys((OTHER_CDI, layout.root / OTHER_CDI.relative_to("/"))))


def by_hand(layout: Layout, repo: RepoFile) -> str:
    """What to do where no systemd does it: commands for a shell."""
    folder = layout.sealed_repo(repo.id or "")
    words = [str(folder), str(layout.cdi), str(OTHER_CDI)]
    return (
        f"mkdir -p {shlex.quote(str(folder))} {shlex.quote(str(layout.cdi))}\n"
        "unshare --mount --propagation slave sh -euc "
        f"{shlex.quote(MOUNT)} seal {shlex.join(words)} dockerd --config-file DAEMON.JSON\n"
        f"gpugrant repo seal {shlex.quote(repo.name)} --root {shlex.quote(str(layout.root))}"
    )


def read_unit(name: str, shown: str) -> Unit:
    """Of `systemctl show --property=LoadState,MainPID`."""
    values: Mapping[str, str] = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    pid = values.get("MainPID", "0")
    return Unit(name, int(pid) if pid.isdigit() else 0, values.get("LoadState") == "loaded")


def _path(path: Path) -> str:
    text = str(path)
    if not _PLAIN.fullmatch(text):
        raise Refused(f"the path {text} can't stand in a systemd unit: choose a --root without blanks and quotes")
    return text.replace("%", "%%")
