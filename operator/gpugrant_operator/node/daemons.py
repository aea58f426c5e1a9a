"""What the repo daemons themselves say of the specs: the last link of the chain that a device name goes through.

Only daemons that read the folder which setup writes can be asked: a sealed one sees its own repo's devices alone, and
one before 28.2 lists none. A daemon that does not answer proves nothing and is passed over.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpugrant_crds import cdi
from gpugrant_crds.layout import Layout
from gpugrant_crds.repofile import RepoFile
from gpugrant_operator import repos

ANSWER_WITHIN = 2.0
"""Seconds for /info; a daemon with a thousand containers needs tens of milliseconds."""

SEEN_WITHIN = 2.0
"""Seconds until a daemon's watcher has read a folder that has just changed (reference cdi-gpu 1.6)."""

ALL_WITHIN = 10.0
"""Seconds for all daemons together: a machine has hundreds, and some may hang."""

READS = (((29, 2), (1, 1)), ((28, 1), (1, 0)), ((27, 5), (0, 8)), ((26, 1), (0, 7)), ((25, 0), (0, 6)))
"""Docker's releases, newest first, and the highest cdiVersion that their CDI library reads (reference cdi-gpu 1.8); a
file above it is refused as a whole."""

_ANSWER_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sight:
    """What a daemon says of CDI."""

    folders: frozenset[str]
    names: frozenset[str]
    lists: bool
    """It lists its devices at all: Docker does since 28.2."""
    release: tuple[int, int]
    """Major and minor; (0, 0) when it says none."""


def known(layout: Layout) -> tuple[RepoFile, ...]:
    """The repos of repos.d; none where the folder can't be read."""
    try:
        return tuple(repos.read(layout).repos.values())
    except OSError:
        return ()


def too_old(layout: Layout, versions: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """(repo, Docker's release, file) for each daemon that can't read a file of that cdiVersion, sealed or not."""
    newest = max(((_pair(version), name) for name, version in versions.items()), default=None)
    if newest is None or newest[0] <= READS[-1][1]:
        return ()  # every daemon that reads CDI at all reads these
    found = []
    deadline = time.monotonic() + ALL_WITHIN
    for repo in known(layout):
        sight = look(repo.upstream) if time.monotonic() < deadline else None
        highest = None if sight is None else reads(sight.release)
        if sight is not None and highest is not None and newest[0] > highest:
            found.append((repo.name, ".".join(map(str, sight.release)), newest[1]))
    return tuple(found)


def reads(release: tuple[int, int]) -> tuple[int, int] | None:
    """The highest cdiVersion that this Docker reads, as major and minor; None: it is none that is known."""
    return next((highest for first, highest in READS if release >= first), None)


def missing(
    layout: Layout, names: Iterable[str], *, within: float = SEEN_WITHIN
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(repo, names) for each daemon that reads the CDI folder and does not list some of these names after `within`
    seconds."""
    wanted = frozenset(names)
    found = []
    deadline = time.monotonic() + ALL_WITHIN
    for repo in known(layout):
        lacks = (
            () if repo.sealed or time.monotonic() > deadline else _lacks(repo.upstream, str(layout.cdi), wanted, within)
        )
        if lacks:
            found.append((repo.name, lacks))
    return tuple(found)


def _lacks(upstream: Path, folder: str, wanted: frozenset[str], within: float) -> tuple[str, ...]:
    deadline = time.monotonic() + within
    while True:
        sight = look(upstream)
        if sight is None or not sight.lists or folder not in sight.folders:
            return ()
        lacks = wanted - sight.names
        if not lacks or time.monotonic() > deadline:
            return tuple(sorted(lacks, key=cdi.natural))
        time.sleep(0.1)


def look(upstream: Path) -> Sight | None:
    """What GET /info says; None: no answer, or none that is one."""
    said = info(upstream)
    if not said:
        return None
    release = _pair(str(said.get("ServerVersion", "")))
    devices = said.get("DiscoveredDevices")
    listed = [device for device in devices or () if isinstance(device, dict) and device.get("Source") == "cdi"]
    return Sight(
        folders=frozenset(str(path) for path in said.get("CDISpecDirs") or ()),
        names=frozenset(str(device.get("ID")) for device in listed),
        # a daemon that lists leaves the key out when it sees none: its version decides
        lists="DiscoveredDevices" in said or release >= (28, 2),
        release=release,
    )


def info(upstream: Path) -> Mapping[str, Any]:
    """The object that GET /info answers; empty: no answer, or none that is one."""
    try:
        said = _get(upstream, "/info")
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def containers(upstream: Path) -> tuple[Any, ...]:
    """What `GET /containers/{id}/json` answers for each container, running or not; one that goes meanwhile is left out.

    Raises OSError, http.client.HTTPException or ValueError where the daemon can't say.
    """
    listed = _get(upstream, "/containers/json?all=1")
    if not isinstance(listed, list):
        raise ValueError("it does not list its containers")
    found = (_get(upstream, f"/containers/{one['Id']}/json") for one in listed)
    return tuple(one for one in found if one is not None)


def _pair(version: str) -> tuple[int, int]:
    parts = version.removeprefix("v").split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit() else (0, 0)


class _Connection(http.client.HTTPConnection):
    """Over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=ANSWER_WITHIN)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(ANSWER_WITHIN)
        self.sock.connect(str(self._path))


def _get(upstream: Path, target: str) -> Any:
    """The answer's JSON; None for one that is no 200."""
    connection = _Connection(upstream)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        return json.loads(answer.read(_ANSWER_MAX)) if answer.status == 200 else None
    finally:
        connection.close()
