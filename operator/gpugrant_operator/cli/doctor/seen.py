"""What the doctor looked at, and what it says. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from gpugrant_crds.cdi import Problem as SpecProblem
from gpugrant_crds.inventory import Inventory
from gpugrant_crds.layout import Layout
from gpugrant_crds.snapshot import GateStatus
from gpugrant_crds.v1alpha1 import RepoGpuGrant


@dataclass(frozen=True, slots=True)
class Chmod:
    """A mend: the file gets this mode."""

    path: Path
    mode: int


@dataclass(frozen=True, slots=True)
class SetUp:
    """A mend: `renet setup`, which only writes what has changed."""


Mend = Chmod | SetUp


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `fix`: what to type or to write, as one clause."""

    message: str
    fix: str
    level: Literal["problem", "advice"] = "problem"
    """Advice: all works; it could be safer, or is about to end."""
    mend: Mend | None = None
    """What --fix does."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the instance. `pid` 0: it does not run; `ok` None: it does not answer."""

    name: str
    pid: int = 0
    ok: bool | None = None
    message: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A repo and its daemon, past the gate."""

    name: str
    repo_id: str | None
    sealed: bool
    """So its file says."""
    upstream: Path
    listen: Path
    answers: bool
    release: tuple[int, int] = (0, 0)
    folders: frozenset[str] = frozenset()
    """Its CDI folders; empty: CDI is off."""
    open_to: tuple[str, ...] = ()
    """Who else than root may connect to the daemon's own socket, in words."""
    served: bool = False
    """Somebody listens where its users connect."""
    inode: tuple[int, int] | None = None
    """Of the daemon's own socket, with all links followed: device and number."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The whole machine, as it was found."""

    layout: Layout
    now: datetime
    version: str
    is_root: bool
    parts: tuple[Part, ...] = ()
    settings_problem: str | None = None
    """Of gate.yaml."""
    repo_problems: tuple[str, ...] = ()
    daemons: tuple[Daemon, ...] = ()
    gate: GateStatus | None = None
    spec_problems: tuple[SpecProblem, ...] = ()
    """Of the CDI folder."""
    spec_names: frozenset[str] = frozenset()
    shadowing: tuple[tuple[Path, tuple[str, ...]], ...] = ()
    """Files in CDI folders that other programs read too, with the names that stand in ours as well."""
    inventory: Inventory | str | None = None
    """A text: why it can't be read; None: there is none."""
    hardware: Path | None = None
    """The machine whose devices these are; None: not known, as another root is no machine's and nothing runs there."""
    fingerprint: str | None = None
    """Of that machine now."""
    changed_units: tuple[Path, ...] = ()
    """Files of ours below /etc/systemd and the like that are gone or not as setup wrote them."""
    kubeconfig_mode: int | None = None
    api_problem: str | None = None
    """Why the API of the instance can't be used; None: it can, or there is none."""
    certificate_ends: datetime | None = None
    certificate_begins: datetime | None = None
    clock_ahead: datetime | None = None
    """The latest moment that the gate has noted, if it is in the future."""
    free: int | None = None
    """Bytes that root can write where the state lies."""
    grants: tuple[RepoGpuGrant, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Places that could not be looked at, as clauses."""
