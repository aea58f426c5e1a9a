"""An exchange on two connections: what one side sends goes through `wire.exchange` and out on the other.

Bytes flow without a task between them; each direction stops reading while the other end can't take more. What is not
whole stays visibly not whole: a cut answer cuts the client's connection, a cut upload cuts the daemon's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from gpugrant_gate.net.link import Gone, Link
from gpugrant_gate.net.upstream import Unreachable
from gpugrant_gate.wire.exchange import Exchange
from gpugrant_gate.wire.faults import Truncated


class Stale(Unreachable):
    """A connection that had been idle was closed before it said anything: the request may be sent once more."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended; `fault` is None when it came to its end, else Unreachable (the client got nothing), Malformed (the
    client's upload, or the daemon's answer before the client got any of it), Gone, or a fault of ours."""

    exchange: Exchange
    fault: Exception | None = None
    idle: Link | None = None
    """The daemon's connection where it was left open, for another request."""


class Carriage:
    """One exchange underway. `on_head` is told the status before the client gets anything, `done` the end, once.

    `lasting`: it is carried to its answer even if the client goes away, since the daemon would go on with it anyhow and
    a revocation must be able to wait for its end.
    """

    __slots__ = (
        "_client",
        "_daemon",
        "_done",
        "_ended",
        "_exchange",
        "_heard",
        "_lasting",
        "_on_head",
        "_piping",
        "_told",
        "_untouched",
    )

    def __init__(
        self,
        client: Link,
        daemon: Link,
        exchange: Exchange,
        *,
        on_head: Callable[[int], None],
        done: Callable[[Outcome], None],
        lasting: bool = False,
    ) -> None:
        self._client = client
        self._daemon = daemon
        self._exchange = exchange
        self._on_head = on_head
        self._done = done
        self._lasting = lasting
        self._told = self._heard = self._piping = self._ended = False
        self._untouched = True

    def start(self, request: bytes) -> None:
        """Sends the request's head, with its body where that was judged; the rest follows by itself."""
        client, daemon = self._client, self._daemon
        uploads = not self._exchange.uploaded
        if uploads:
            daemon.keep_last_words()
        daemon.write(request)
        daemon.flow_to(self._from_daemon, client)
        daemon.watch(self._daemon_ended)
        if uploads and not self._ended:
            client.flow_to(self._from_client, daemon)
        if not self._ended:
            client.watch(self._client_ended)

    def cancel(self) -> None:
        """Cuts the daemon's connection; `done` is not called."""
        if not self._ended:
            self._leave()
            self._daemon.abort()

    def _from_client(self, data: bytes) -> None:
        exchange = self._exchange
        try:
            out = exchange.from_client(data)
        except Exception as fault:
            self._finish(fault)
            return
        if out:
            self._daemon.write(out)
        if exchange.uploaded:
            self._client.stop_flow(self._daemon)
            self._client.put_back(exchange.rest)

    def _from_daemon(self, data: bytes) -> None:
        self._heard = True
        try:
            out = self._exchange.from_daemon(data)
        except Exception as fault:
            self._finish(fault)
            return
        self._pass(out)

    def _pass(self, out: bytes) -> None:
        exchange = self._exchange
        if out:
            if not self._told:
                self._told = True
                self._on_head(exchange.status)
            # one write for a small answer; a head whose body is still to come goes out at once (POST /wait)
            self._client.write(out)
        if exchange.ended:
            self._finish(None)
        elif exchange.piped:
            self._open_pipe()

    def _daemon_ended(self) -> None:
        if self._piping:
            self._close_half(self._daemon, self._client)
            return
        try:
            out = self._exchange.daemon_ended()
        except Truncated as fault:
            stale = not self._heard and self._exchange.uploaded
            self._finish(Stale(str(fault)) if stale else Unreachable(str(fault)))
        else:
            self._pass(out)

    def _client_ended(self) -> None:
        """The daemon sees the client's going away as it would see it without a gate."""
        if self._piping:
            self._close_half(self._client, self._daemon)
        elif self._lasting and self._exchange.uploaded and not self._told:
            return
        elif self._client.hung_up() or not self._exchange.uploaded:
            self._finish(Gone())
        elif not self._exchange.may_pipe:  # else what the client sent before its end has to go first, by the pipe
            # only the client's writing side is closed: a daemon decides itself what that ends
            self._untouched = False
            self._daemon.write_eof()

    def _open_pipe(self) -> None:
        """Bytes both ways with half-close: `echo hi | docker run -i` closes its writing side and wants the output."""
        client, daemon = self._client, self._daemon
        self._piping = True
        daemon.flow_to(client.write, client)
        client.flow_to(daemon.write, daemon)
        daemon.watch(self._daemon_ended)
        if not self._ended:
            client.watch(self._client_ended)

    def _close_half(self, ended: Link, other: Link) -> None:
        if ended.hung_up() or other.at_eof:
            self._finish(None)
        else:
            other.write_eof()

    def _finish(self, fault: Exception | None) -> None:
        if self._ended:
            return
        self._leave()
        exchange, daemon = self._exchange, self._daemon
        reusable = fault is None and exchange.reusable and self._untouched and not daemon.at_eof
        if fault is not None or not exchange.uploaded:
            daemon.abort()
        elif not reusable:
            daemon.close()
        if fault is not None and self._told:
            self._client.abort()
            fault = Gone()
        self._done(Outcome(exchange, fault, daemon if reusable else None))

    def _leave(self) -> None:
        self._ended = True
        client, daemon = self._client, self._daemon
        client.watch(None)
        daemon.watch(None)
        client.stop_flow(daemon)
        daemon.stop_flow(client)


async def carried(
    client: Link,
    daemon: Link,
    exchange: Exchange,
    request: bytes,
    *,
    on_head: Callable[[int], None],
    lasting: bool = False,
) -> Outcome:
    """The same for a coroutine; cancelled, it cuts the daemon's connection."""
    ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    carriage = Carriage(client, daemon, exchange, on_head=on_head, done=ended.set_result, lasting=lasting)
    carriage.start(request)
    try:
        return await ended
    except asyncio.CancelledError:
        carriage.cancel()
        raise
