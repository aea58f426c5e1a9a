"""A CDI spec as frozen values (specs-go/config.go), and what can be wrong with a file. No rule lives here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
"""Of the CDI specification, oldest first; a release of the library takes all up to its own."""


class ProblemReason(StrEnum):
    """Why a file, or a name in it, can't be used."""

    SPEC_INVALID = "SpecInvalid"
    """The CDI library refuses the file."""
    AMBIGUOUS_SPEC = "AmbiguousSpec"
    """Two releases of the CDI library read it differently, or one of them crashes on it."""
    SPEC_CONFLICT = "SpecConflict"
    """The same name stands in two files: the library drops it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one file, as one clause for a person; `line` counts from 1."""

    reason: ProblemReason
    message: str
    filename: str
    line: int | None = None

    def __str__(self) -> str:
        place = self.filename if self.line is None else f"{self.filename}:{self.line}"
        return f"{place}: {self.message}"


@dataclass(frozen=True, slots=True)
class DeviceNode:
    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None

    @property
    def source(self) -> str:
        """Where the node lies on the host."""
        return self.host_path or self.path


@dataclass(frozen=True, slots=True)
class NetDevice:
    host_interface_name: str
    name: str


@dataclass(frozen=True, slots=True)
class Hook:
    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Mount:
    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


@dataclass(frozen=True, slots=True)
class IntelRdt:
    clos_id: str = ""
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    schemata: tuple[str, ...] = ()
    enable_monitoring: bool = False


@dataclass(frozen=True, slots=True)
class Edits:
    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[int, ...] = ()

    @property
    def empty(self) -> bool:
        return self == Edits()


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    edits: Edits
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Spec:
    """A valid spec file. `kind` is `vendor/class`; device names are unique in it."""

    filename: str
    version: str
    kind: str
    devices: tuple[Device, ...]
    edits: Edits = Edits()
    annotations: tuple[tuple[str, str], ...] = ()
    doubts: tuple[Problem, ...] = ()
    """Where releases of the library differ; with any of them no name of the file may be granted."""

    @property
    def vendor(self) -> str:
        return self.kind.partition("/")[0]

    @property
    def cls(self) -> str:
        return self.kind.partition("/")[2]

    def qualified(self, device: Device) -> str:
        return f"{self.kind}={device.name}"

    @property
    def names(self) -> tuple[str, ...]:
        """Qualified, in the file's order."""
        return tuple(self.qualified(device) for device in self.devices)
