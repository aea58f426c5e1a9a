"""What a part is: how it is started, and by what it is known again. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpugrant_crds.layout import Layout, checked_socket

NAMES = ("gate", "apiserver", "operator")
"""In the order in which they start; they stop the other way round, so that the gate is there longest."""

SUPERVISOR = "supervisor"

MODULE = "gpugrant_operator.cli.gpugrant"

VERSION_VARIABLE = "GPUGRANT_VERSION"
"""In a part's environment: the version that it was started from."""


NOTIFY_VARIABLE = "NOTIFY_SOCKET"
"""Where a process says that it is ready and has its sockets kept (sd_notify(3))."""


@dataclass(frozen=True, slots=True)
class Part:
    """One child of the supervisor."""

    name: str
    argv: tuple[str, ...]
    signature: tuple[str, ...]
    """The arguments, in a row, by which a process of this part is known before it holds its lock."""
    environ: Mapping[str, str]
    """Added to the supervisor's own."""
    after: str | None = None
    """The part that has to be well before this one is started."""
    hands_over: bool = False
    """A new process of it takes over from the one that runs, and its listening sockets are kept while none does."""


def standalone(
    root: Path,
    *,
    hardware: Path,
    executable: str,
    version: str,
    enforce: bool = False,
    manifests: tuple[Path, ...] = (),
) -> tuple[Part, ...]:
    """The three parts of a standalone instance; all paths are absolute. `enforce` is the gate's, `manifests` the API
    server's."""
    more = {"gate": ("--enforce",) if enforce else (), "apiserver": manifest_options(manifests)}
    return tuple(_part(name, root, hardware, executable, version, more.get(name, ())) for name in NAMES)


def signature(name: str, root: Path) -> tuple[str, ...]:
    """How a part of this root is started, whatever else it was told."""
    return (MODULE, name, "--root", str(root))


def manifest_options(manifests: tuple[Path, ...]) -> tuple[str, ...]:
    """As the commands take them."""
    return tuple(word for folder in manifests for word in ("--manifests", str(folder)))


def _part(name: str, root: Path, hardware: Path, executable: str, version: str, more: tuple[str, ...]) -> Part:
    layout = Layout(root)
    machine = () if name == "apiserver" else ("--hardware", str(hardware))
    # Standalone: another cluster's KUBECONFIG in the caller's shell must not turn this operator towards it.
    environ = {VERSION_VARIABLE: version, "GPUGRANT_ROOT": str(root), "KUBECONFIG": str(layout.kubeconfig)}
    hands_over = name == "gate"
    if hands_over:
        environ[NOTIFY_VARIABLE] = str(layout.kept_sockets)
    return Part(
        name=name,
        argv=(executable, "-P", "-m", *signature(name, root), *machine, *more),
        signature=signature(name, root),
        environ=environ,
        after="apiserver" if name == "operator" else None,
        hands_over=hands_over,
    )


def check_sockets(root: Path) -> None:
    """Raises SocketPathTooLong when a control socket can't be made below this root."""
    for name in (*NAMES, SUPERVISOR):
        checked_socket(Layout(root).control(name))
