"""Where everything lies below one root (design 8). Paths are built here and nowhere else; nothing is opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

UNIX_PATH_MAX = 107
"""The longest path that fits into sockaddr_un.sun_path with its final NUL (unix(7))."""


class SocketPathTooLong(ValueError):
    """A Unix socket can't be made at this path."""


def checked_socket(path: Path) -> Path:
    """The path itself; raises SocketPathTooLong with a sentence for a person where the kernel would refuse it."""
    length = len(str(path).encode())
    if length > UNIX_PATH_MAX:
        raise SocketPathTooLong(
            f"the socket path {path} has {length} bytes and the kernel takes {UNIX_PATH_MAX}: "
            "choose a shorter --root or listen path"
        )
    return path


@dataclass(frozen=True, slots=True)
class Layout:
    """All paths below `root`; a second instance with another root never touches the first."""

    root: Path = Path("/")

    @property
    def etc(self) -> Path:
        return self.root / "etc/rediacc/gpu"

    @property
    def state(self) -> Path:
        return self.root / "var/lib/rediacc/gpu"

    @property
    def run(self) -> Path:
        return self.root / "run/rediacc/gpu"

    @property
    def cdi(self) -> Path:
        """The only folder of CDI specs that a repo's daemon reads (R43)."""
        return self.root / "etc/cdi"

    @property
    def inventory(self) -> Path:
        return self.etc / "inventory.json"

    @property
    def gate_settings(self) -> Path:
        return self.etc / "gate.yaml"

    @property
    def repos(self) -> Path:
        """One YAML file a repo."""
        return self.etc / "repos.d"

    @property
    def kubeconfig(self) -> Path:
        return self.etc / "kubeconfig"

    @property
    def snapshot(self) -> Path:
        return self.state / "snapshot.json"

    @property
    def admitted(self) -> Path:
        """One file a repo: the containers that its gate let start with devices."""
        return self.state / "admitted"

    @property
    def sealed(self) -> Path:
        """One folder of CDI specs a repo id; mounted over `cdi` in that repo's daemon."""
        return self.state / "sealed"

    @property
    def pins(self) -> Path:
        """A folder a repo id: the places at which its bind sources are pinned."""
        return self.run / "binds"

    def pin_notes(self, repo_id: str) -> Path:
        """The sources of a repo that have a place, for the next boot."""
        return self.state / "binds" / f"{repo_id}.json"

    @property
    def retired_repos(self) -> Path:
        """Ids of removed repos, one a line: no later repo gets one of them by itself (R9)."""
        return self.state / "retired-repos"

    @property
    def setup(self) -> Path:
        """What `renet setup` did last: options given by hand, files written with their hashes."""
        return self.state / "setup.json"

    @property
    def manifests(self) -> Path:
        """Standalone: desired state, one readable YAML file an object."""
        return self.state / "manifests"

    @property
    def store(self) -> Path:
        """Standalone: what the API server adds to the manifests (uid, resourceVersion, status, …)."""
        return self.state / "state"

    @property
    def logs(self) -> Path:
        return self.root / "var/log/rediacc/gpu"

    @property
    def trials(self) -> Path:
        """A locked file for each sealed folder that a trial fills, so that the folder of a killed one is known."""
        return self.state / "trials"

    @property
    def metrics_token(self) -> Path:
        """What a reader of the gate's metrics over TCP must say."""
        return self.state / "metrics-token"

    @property
    def kept_sockets(self) -> Path:
        """Standalone: where the gate hands its sockets to the supervisor, which keeps them while no gate runs."""
        return self.run / "keep.sock"

    def control(self, part: str) -> Path:
        """The control socket of a part (`apiserver`, `operator`, `gate`, `supervisor`)."""
        return self.run / f"{part}.sock"

    def lock(self, part: str) -> Path:
        """The file that a running part holds an exclusive flock on; it holds `{"pid", "since"}`."""
        return self.run / f"{part}.lock"

    def leaving(self, part: str) -> Path:
        """Every process of a part that has a successor and finishes what is open has a shared flock on this file."""
        return self.run / f"{part}-leaves.lock"

    def repo_socket(self, repo: str) -> Path:
        """Where the gate listens for a repo whose file names no `listen`."""
        return self.run / "repos" / f"{repo}.sock"

    def sealed_repo(self, repo_id: str) -> Path:
        return self.sealed / repo_id
