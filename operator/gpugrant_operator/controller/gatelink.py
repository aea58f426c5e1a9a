"""What one gate last said, for how long it has been silent, and what it refused (design 4, 6).

Everything that is said to the gate goes through here, one thing at a time: an older answer never covers a newer one.
A refusal is kept as it was said and never overridden.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from gpugrant_crds.decide.conflicts import Refused
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import DevicesAnswer, GateStatus, Snapshot, SnapshotAnswer
from gpugrant_operator.gateclient import GateError

POLL = 10.0
"""Seconds between two questions to a gate that answers, with jitter (design 6)."""

POLL_WATCHED = 1.0
"""Seconds while a grant waits for something that only the report can tell, such as a repo or its daemon."""

POLL_SILENT = 0.5
"""Seconds between two questions to a gate that doesn't: it gets its snapshot soon after it is back."""

UNREACHABLE_AFTER = 2 * POLL
"""Seconds since the first miss: the third question in a row would miss. Until then the last report counts."""


class Gate(Protocol):
    """gateclient.GateClient's questions; every one may raise GateError."""

    async def put_snapshot(self, snapshot: Snapshot) -> SnapshotAnswer: ...

    async def status(self, *, in_use: bool = False) -> GateStatus: ...

    async def devices(self, *, timeout: float = 1.0) -> DevicesAnswer: ...  # noqa: ASYNC109

    async def inventory(self) -> bytes: ...


class GateLink:
    """The operator's end of the line. `clock` gives monotonic seconds."""

    def __init__(self, gate: Gate, clock: Callable[[], float]) -> None:
        self._gate = gate
        self._clock = clock
        self._lock = asyncio.Lock()
        self._report: GateStatus | None = None
        self._asked_at = -1.0
        self._silent_since: float | None = None
        self._refusal: Refused | None = None
        self._failure = "the gate was not asked yet"
        self.watched = False
        """A grant waits for the gate's news."""

    @property
    def answering(self) -> bool:
        """The last question was answered."""
        return self._report is not None and self._silent_since is None

    @property
    def settled(self) -> bool:
        """Whether anything can be said of this gate: it has answered, or it has been silent long enough."""
        return self._report is not None or self._lost()

    @property
    def report(self) -> GateStatus | None:
        """The last report; None: the gate counts as unreachable."""
        return None if self._lost() else self._report

    @property
    def news(self) -> tuple[GateStatus | None, bool]:
        """What a decision can depend on: the report without its times and lists of grants, and whether it is answering.

        Differs exactly when something has to be decided again.
        """
        report = self.report
        bare = None if report is None else report.model_copy(update={"applied_at": None, "grants": (), "cases": ()})
        return bare, self.answering

    @property
    def refusal(self) -> Refused | None:
        """Why the gate did not take the last snapshot that was sent."""
        return self._refusal

    @property
    def failure(self) -> str:
        """Why the last question was not answered; empty when it was."""
        return self._failure

    @property
    def pause(self) -> float:
        """Seconds until the next question, without jitter."""
        if not self.answering:
            return POLL_SILENT
        return POLL_WATCHED if self.watched else POLL

    async def refresh(self, *, max_age: float = 0.0) -> None:
        """Asks for the status, unless it was asked less than `max_age` seconds ago."""
        async with self._lock:
            if self._asked_at >= 0 and self._clock() - self._asked_at < max_age:
                return
            await self._ask()

    async def push(self, snapshot: Snapshot) -> bool:
        """Sends it; True: the gate enforces it. The report follows the answer."""
        async with self._lock:
            try:
                answer = await self._gate.put_snapshot(snapshot)
            except GateError as error:
                await self._not_taken(error)
                return False
            self._heard(_reported(self._report, snapshot, answer))
            self._refusal = None
            if answer.epoch != snapshot.epoch:
                self._refusal = Refused(
                    Reason.GATE_PENDING, f"the gate answered for epoch {answer.epoch} instead of {snapshot.epoch}"
                )
            return self._refusal is None

    async def inventory(self) -> bytes | None:
        """The bytes of the inventory as the gate reads them; None: it can't give them."""
        if not self.answering:
            return None
        try:
            return await self._gate.inventory()
        except GateError:
            return None

    async def _not_taken(self, error: GateError) -> None:
        if error.unreachable:
            self._missed(error)
            return
        self._refusal = Refused(_reason(error.reason), error.message)
        await self._ask()

    async def _ask(self) -> None:
        try:
            self._heard(await self._gate.status())
        except GateError as error:
            self._missed(error)

    def _heard(self, report: GateStatus) -> None:
        self._report = report
        self._silent_since = None
        self._asked_at = self._clock()
        self._failure = ""

    def _missed(self, error: GateError) -> None:
        self._asked_at = self._clock()
        self._failure = error.message
        if self._silent_since is None:
            self._silent_since = self._asked_at

    def _lost(self) -> bool:
        return self._silent_since is not None and self._clock() - self._silent_since >= UNREACHABLE_AFTER


def _reported(before: GateStatus | None, snapshot: Snapshot, answer: SnapshotAnswer) -> GateStatus:
    """The gate's status as its answer to a snapshot tells it."""
    known = before or GateStatus(machine=snapshot.machine)
    return known.model_copy(
        update={
            "machine_uid": snapshot.machine_uid,
            "api_id": snapshot.api_id,
            "epoch": answer.epoch,
            "digest": snapshot.digest if answer.epoch == snapshot.epoch else "",
            "applied_at": answer.applied_at,
            "repos": answer.repos,
            "pending": answer.pending,
            "running": answer.running,
        }
    )


def _reason(said: str) -> Reason:
    try:
        return Reason(said)
    except ValueError:
        return Reason.GATE_PENDING
