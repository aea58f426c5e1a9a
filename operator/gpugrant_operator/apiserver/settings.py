"""What one API server is started with; built once in main, or by a test."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gpugrant_crds.layout import Layout
from gpugrant_operator.apiserver.objects.status import Json
from gpugrant_operator.apiserver.store.disk import Disk

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""As k8s.io/apimachinery/pkg/util/rand: no vowels, so that no words come out."""


def _now() -> datetime:
    return datetime.now(UTC)


def _uid() -> str:
    return str(uuid.uuid4())


def _suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))


@dataclass(frozen=True)
class Settings:
    """Times are seconds, sizes bytes."""

    root: Path
    crds: tuple[Mapping[str, Json], ...]
    port: int = 0
    """0: the port of the existing kubeconfig if it is free, else any free one."""
    admission: bool = True
    """False only in tests that show that the ledger alone holds."""
    live_timeout: float = 1.0
    """Longest wait for the gate's devices (design 2.1)."""
    max_body: int = 3 * 1024 * 1024
    """As kube-apiserver's limit of a resource request."""
    bookmark_interval: float = 45.0
    """kopf takes a watch without a sign for 70 s for dead."""
    watch_buffer: int = 1_000
    """Changes that a slow watcher may be behind before it is cut off."""
    event_ttl: float = 3600.0
    """Events go after this time, as in kube-apiserver."""
    rescan_interval: float = 30.0
    """File notifications get lost; a scan finds what they missed."""
    sources: tuple[Path, ...] = ()
    """Folders whose objects are taken and that are never written, such as Git checkouts (`--manifests`)."""
    source_interval: float = 1.0
    """Between two looks at the sources."""
    source_removal_delay: float = 5.0
    """An object goes when no file says it for so long, and Git is not at work in its folder."""
    source_lock_patience: float = 60.0
    """An index.lock that is older is told: no git command takes so long here."""
    compact_bytes: int = 8 * 1024 * 1024
    """Journal below which no snapshot is made; above, one is made at twice the last snapshot's size."""
    now: Callable[[], datetime] = _now
    new_uid: Callable[[], str] = _uid
    new_suffix: Callable[[], str] = _suffix
    disk: Disk = field(default_factory=Disk)

    @property
    def layout(self) -> Layout:
        return Layout(self.root)
