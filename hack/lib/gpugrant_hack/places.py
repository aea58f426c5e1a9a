"""Where a started system lies below its root. The paths of the product are `gpugrant_crds.layout`'s; these few are the
ones that a daemon is sealed with, before anything of the product is installed, and the scripts' own."""

from dataclasses import dataclass
from pathlib import Path

from gpugrant_hack.say import Trouble

UNIX_PATH_MAX = 107
"""The longest path of a Unix socket in bytes (unix(7))."""


@dataclass(frozen=True, slots=True)
class Root:
    """All that one started system has."""

    path: Path

    @property
    def cdi(self) -> Path:
        return self.path / "etc/cdi"

    def sealed(self, repo_id: str) -> Path:
        return self.path / "var/lib/rediacc/gpu/sealed" / repo_id

    def pin_notes(self, repo_id: str) -> Path:
        """There while containers of the repo have pinned bind sources."""
        return self.path / "var/lib/rediacc/gpu/binds" / f"{repo_id}.json"

    @property
    def repos(self) -> Path:
        return self.path / "etc/rediacc/gpu/repos.d"

    def gate_socket(self, repo: str) -> Path:
        return self.path / "run/rediacc/gpu/repos" / f"{repo}.sock"

    @property
    def kubeconfig(self) -> Path:
        return self.path / "etc/rediacc/gpu/kubeconfig"

    @property
    def locks(self) -> tuple[Path, ...]:
        """What the running parts of the product hold."""
        parts = ("supervisor", "apiserver", "operator", "gate")
        return tuple(self.path / "run/rediacc/gpu" / f"{part}.lock" for part in parts)

    @property
    def daemons(self) -> Path:
        return self.path / "daemons"

    @property
    def env(self) -> Path:
        return self.path / "env"

    @property
    def bin(self) -> Path:
        return self.path / "bin"

    @property
    def docker_config(self) -> Path:
        return self.path / "docker"


def checked_socket(path: Path) -> Path:
    """The path itself; raises Trouble where the kernel would refuse it."""
    length = len(str(path).encode())
    if length > UNIX_PATH_MAX:
        raise Trouble(
            f"the socket path {path} has {length} bytes and the kernel takes {UNIX_PATH_MAX}: choose a shorter --root"
        )
    return path
