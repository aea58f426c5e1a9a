"""What the sweep of one repo is given: the repo as it is at each moment, and what all repos of a process share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gpugrant_crds.snapshot import Case
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net.orders import Orders
from gpugrant_gate.settings import Limits


class Watched(Protocol):
    """The repo as the sweep needs it; everything is of this moment."""

    limits: Limits
    repo: Repo

    async def orders(self) -> Orders:
        """To its daemon; raises Unreachable."""

    def grants(self) -> Mapping[str, str] | None:
        """Devices in force with the uid of a grant, whatever its daemon; None: nobody has said yet what is granted."""

    def stops(self) -> bool:
        """Containers whose grant is taken away are stopped."""

    def suspicions(self, inspected: Any) -> tuple[str, ...]:
        """Ways to hardware other than a device request, as clauses."""

    async def start(self, container: str) -> bool:
        """Judges and starts it as for a client; whether its daemon has done so."""

    def found(self, case: Case) -> None: ...

    def running_changed(self) -> None:
        """What runs with devices is another."""

    def seen(self) -> None:
        """It was looked at for the first time, or its daemon went silent or came back."""

    def ended(self) -> None:
        """Something that an answer may wait for is over."""


@dataclass(frozen=True, slots=True)
class Means:
    """What all repos of a process share. `folder`: where ledgers lie, None: nowhere."""

    enforces: bool
    inspects: asyncio.Semaphore
    folder: Path | None = None
    enforced: bool = True
    """Of a repo that has no ledger yet: what was never granted is stopped, not only reported."""
