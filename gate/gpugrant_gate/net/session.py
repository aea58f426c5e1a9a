"""One client's connection from its first byte until it is lost: requests in their order, one at a time.

A request that was decided before, under the same view, goes straight on to a connection that waits for it; every other
one is worked on by a task of its own (`turn`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from gpugrant_gate.net import turn
from gpugrant_gate.net.exchange import Carriage, Outcome, Stale
from gpugrant_gate.net.link import Gone, Link
from gpugrant_gate.net.prepared import Prepared
from gpugrant_gate.net.turn import Policy, Record, Turn
from gpugrant_gate.wire import heads
from gpugrant_gate.wire.exchange import Exchange
from gpugrant_gate.wire.faults import Malformed

__all__ = ["Host", "Policy", "Session"]

A = TypeVar("A")


class Host(turn.Host, Protocol):
    """The repo that a session belongs to."""

    def closed(self, session: Session, fault: BaseException | None) -> None:
        """The client's connection is no more, nor what was underway on it; `fault`: one of ours."""


class Session:
    """Lives by the callbacks of its link."""

    def __init__(self, client: Link, host: Host) -> None:
        self._client = client
        self._host = host
        self._record = Record(host, client)
        self._ahead = bytearray()
        """What came of requests that are not begun: part of a head, or whole ones that a client sent in advance."""
        self._loop = asyncio.get_running_loop()
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._prepared: Prepared | None = None
        self._carriage: Carriage | None = None
        self._task: asyncio.Task[bool] | None = None
        self._fault: BaseException | None = None
        self.busy = False
        """A request is being worked on."""
        client.on_lost = self._lost
        self._wait()

    @property
    def answered(self) -> bool:
        """At least the head of the daemon's answer has reached the client: what is still open is a stream."""
        return self._record.answered

    @property
    def received(self) -> int:
        """Bytes from the client."""
        return self._client.received

    @property
    def sent(self) -> int:
        """Bytes to the client."""
        return self._client.sent

    def close(self) -> None:
        """No next request: the client reads what was written and then sees the end."""
        self._client.watch(None)
        self._client.close()

    def abort(self) -> None:
        """Closes at once, whatever is underway."""
        if self._task is not None:
            self._task.cancel()
        if self._carriage is not None:
            self._carriage.cancel()
            self._carriage = None
        self._client.abort()

    # Between requests.

    def _wait(self) -> None:
        """For the next request; a client that does not take its answers is not read from."""
        client = self._client
        self.busy = False
        if client.lost:
            return
        if self._host.leaving:
            self.close()
            return
        if not client.writable:
            client.when_writable(self._wait)
            return
        if self._ahead:
            self._guarded(self._look, 0)
        if not self.busy:
            self._until(self._host.limits.head_timeout if self._ahead else self._host.limits.idle_timeout)
            client.flow_to(self._heard, None)
        if not self.busy:
            client.watch(self.close)

    def _heard(self, data: bytes) -> None:
        self._guarded(self._read, data)

    def _read(self, data: bytes) -> None:
        if not self._ahead and (prepared := self._host.recall(data)) is not None:
            self._begin()
            self._forward(prepared)
            return
        seen = len(self._ahead)
        self._ahead += data
        self._look(seen)
        if not self.busy and not seen:
            self._until(self._host.limits.head_timeout)

    def _look(self, seen: int) -> None:
        """Begins the request whose head is there; of what came ahead `seen` bytes are none."""
        try:
            end = heads.find_end(self._ahead, seen, self._host.limits.head_max)
        except Malformed as fault:
            self._refuse(fault)
            return
        if not end:
            return
        head = bytes(self._ahead[:end])
        del self._ahead[:end]
        self._begin()
        prepared = self._host.recall(head)
        if prepared is not None:
            self._forward(prepared)
            return
        # what follows may be its body
        self._client.put_back(bytes(self._ahead))
        self._ahead.clear()
        self._work(Turn(self._client, self._host, self._record).run(head))

    def _begin(self) -> None:
        """A request is there."""
        self.busy = True
        self._record.begin()
        self._client.watch(None)
        self._client.stop_flow(None)

    def _refuse(self, fault: Malformed) -> None:
        self._begin()
        self._ahead.clear()
        self._work(Turn(self._client, self._host, self._record).failed(fault))

    def _until(self, seconds: float) -> None:
        """What is waited for has so long. One timer serves all of a connection, since it is nearly never needed."""
        self._deadline = self._loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._expired)

    def _expired(self) -> None:
        self._timer = None
        if self.busy:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._expired)
        elif self._ahead:
            message = f"the request's head did not come within {self._host.limits.head_timeout:g} s"
            self._refuse(Malformed(408, "wire.timeout", message))
        else:
            self.close()

    # The short way: decided before.

    def _forward(self, prepared: Prepared) -> None:
        record = self._record
        record.method, record.route = prepared.call.method, prepared.route
        daemon = self._host.idle()
        if daemon is None:
            self._work(Turn(self._client, self._host, record).afresh(prepared))
            return
        self._prepared = prepared
        exchange = Exchange(prepared.call)
        self._carriage = Carriage(self._client, daemon, exchange, on_head=record.admitted, done=self._carried)
        self._carriage.start(prepared.request)

    def _carried(self, outcome: Outcome) -> None:
        self._guarded(self._settle, outcome)

    def _settle(self, outcome: Outcome) -> None:
        self._carriage = None
        if outcome.idle is not None:
            self._host.give_back(outcome.idle)
        match outcome.fault:
            case None if outcome.exchange.keep:
                self._wait()
            case None:
                self.close()
            case Gone():
                if not self._record.answered:
                    self._record.admitted(0)
                self._client.abort()
            case Stale() if self._prepared is not None:
                self._work(Turn(self._client, self._host, self._record).afresh(self._prepared))
            case fault:
                self._work(Turn(self._client, self._host, self._record).failed(fault))

    # The long way: a task.

    def _work(self, turn: Coroutine[Any, Any, bool]) -> None:
        self._task = self._loop.create_task(turn)
        self._task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[bool]) -> None:
        self._task = None
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._fail(fault)
        elif task.cancelled():
            self._client.abort()
        elif task.result():
            self._wait()
        else:
            self.close()
        if self._client.lost:
            self._host.closed(self, self._fault)

    def _guarded(self, work: Callable[[A], None], argument: A) -> None:
        """Where the event loop calls in, a fault of ours ends."""
        try:
            work(argument)
        except Exception as fault:
            self._fail(fault)

    def _fail(self, fault: BaseException) -> None:
        """A fault of ours: nothing was sent on behalf of it, and the client sees a cut connection."""
        self._fault = fault
        self._client.abort()

    def _lost(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None:
            self._host.closed(self, self._fault)
