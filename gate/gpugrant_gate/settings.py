"""What a gate process runs with, built once in main. Each limit has its unit and its reason; nothing here is a rule.

`gate.yaml` (gate/OPERATING.md has its keys) holds only what an operator has a reason to change; the other fields are
for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpugrant_crds.names import InvalidName, check_machine
from gpugrant_gate.life import documents
from gpugrant_gate.life.documents import Broken, Value

KEYS = (
    "nodeName",
    "workers",
    "connections",
    "headTimeout",
    "idleTimeout",
    "bodyTimeout",
    "headMax",
    "bodyMax",
    "drain",
    "audit",
    "metrics",
    "sweep",
)

DAY = 86_400
"""Seconds."""

WORKERS_DEFAULT_MOST = 4
"""A worker moves about 10,000 small requests a second; more of them pay only on machines with many busy repos."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one gate; times in seconds."""

    head_timeout: float = 10.0
    """For a request's head once its first byte is there: local clients need microseconds (Docker's own: 5 min)."""
    idle_timeout: float = 600.0
    """For a kept connection without a request; docker's client drops its own after 30 s, docker-py checks first."""
    body_timeout: float = 60.0
    """For a body that is judged, at most `body_max` long."""
    head_max: int = 64 * 1024
    """Bytes of a head: docker sends a KiB, more where a build carries tokens of many registries (X-Registry-Config)."""
    body_max: int = 2 * 1024 * 1024
    """Bytes of a judged body: Compose files with large labels reach 300 KiB (design 5)."""
    large_bodies: int = 16
    """Judged bodies of more than 64 KiB that are held at once for one repo: 32 MiB, and no client sends so many."""
    connections: int = 4096
    """Open connections of one repo: its log and event followers, and no more than a fair share of descriptors."""
    connect_timeout: float = 5.0
    """For connecting to a daemon, retries on a full backlog included."""
    fact_timeout: float = 30.0
    """For one question to a daemon; an inspect takes milliseconds, a daemon under load seconds."""
    fact_max: int = 16 * 1024 * 1024
    """Bytes of a daemon's answer to a question."""
    linger: float = 5.0
    """For a client that still sends a refused body: it reads the answer first if it is not cut off."""
    fit_for: float = 600.0
    """A fit daemon is looked at again after this long, less up to a tenth (R52)."""
    unfit_for: float = 2.0
    """An unfit or silent one after this long: a mended daemon is noticed soon."""
    pending_timeout: float = 5.0
    """For hardware requests of an older snapshot to end before they are listed as pending (design 5)."""
    stop_timeout: float = 1.0
    """For open requests at the end of the process; the whole stop takes at most 2 s."""
    drain: float = DAY
    """For what is open when another gate has taken over: logs, builds and shells go on for hours."""
    inspects: int = 32
    """Containers that the sweep looks at at once, over all processes; 4 of one repo."""
    ping_every: float = 2.0
    """Between two questions to a worker whether it still does something."""
    ping_timeout: float = 10.0
    """For its answer, before it is replaced: the longest judgement takes a tenth of a second."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One gate. `machine` is the machine's name."""

    machine: str
    workers: int
    limits: Limits = Limits()
    audit: Path | None = None
    """Where decisions are written; None: standard error."""
    metrics: tuple[str, int] | None = None
    """Address and port for metrics over TCP; None: only on the control socket."""
    enforces: bool = True
    """Containers that hold what they may not are brought to an end; else they are only reported."""
    enforce_at_once: bool = False
    """Also where containers ran with devices before there was a gate."""
    hardware: Path = Path("/")
    """Where the machine's fingerprint is read: `/`, or a recorded tree."""


def load(path: Path, host_name: str, cores: int) -> Settings:
    """The settings of `gate.yaml` (absent: all defaults); raises Broken, also when the machine can't be named."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise Broken(path, 1, f"can't be read: {error}") from error
    values = documents.read(path, text, KEYS)
    workers = values["workers"].number(1, 64) if "workers" in values else min(WORKERS_DEFAULT_MOST, cores)
    name = values["nodeName"].text() if "nodeName" in values else host_name
    try:
        machine = check_machine(name.strip().lower())
    except InvalidName as error:
        raise Broken(path, values["nodeName"].line if "nodeName" in values else 1, f"nodeName: {error}") from error
    return Settings(
        machine,
        workers,
        _limits(values),
        audit=values["audit"].file() if "audit" in values else None,
        metrics=values["metrics"].address() if "metrics" in values else None,
        enforces="sweep" not in values or values["sweep"].one_of("Enforce", "Report") == "Enforce",
    )


def _limits(values: Mapping[str, Value]) -> Limits:
    """The bounds that the file gives, the defaults for the others; raises Broken."""
    readers: dict[str, tuple[str, Callable[[Value], int]]] = {
        "connections": ("connections", lambda value: value.number(1, 100_000)),
        "headTimeout": ("head_timeout", lambda value: value.seconds(1, 3600)),
        "idleTimeout": ("idle_timeout", lambda value: value.seconds(1, 30 * DAY)),
        "bodyTimeout": ("body_timeout", lambda value: value.seconds(1, 3600)),
        "headMax": ("head_max", lambda value: value.size(8 * 1024, 1024 * 1024)),
        "bodyMax": ("body_max", lambda value: value.size(64 * 1024, 16 * 1024 * 1024)),
        "drain": ("drain", lambda value: value.seconds(0, 30 * DAY)),
    }
    given: dict[str, Any] = {field: read(values[key]) for key, (field, read) in readers.items() if key in values}
    return replace(Limits(), **given)


def host_name(hardware: Path, own: str) -> str:
    """The machine's own name: of a recorded tree its etc/hostname, else the running host's; empty when unknown."""
    if hardware == Path("/"):
        return own
    try:
        return (hardware / "etc/hostname").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
