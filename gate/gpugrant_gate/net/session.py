"""One client's connection: requests in their order, each judged before a byte of it reaches a daemon.

Gather (head, body, facts) → decide (the policy, at one moment) → apply (the exchange). After a refusal whose body was
not read the connection ends: what follows would be read as a request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from gpugrant_gate.net import audit, exchange
from gpugrant_gate.net.exchange import Call, Outcome
from gpugrant_gate.net.link import Gone, Link
from gpugrant_gate.net.upstream import Unreachable
from gpugrant_gate.policy.model import (
    MAX_ROUNDS,
    Admission,
    Body,
    Decision,
    Exchange,
    Fact,
    Facts,
    Head,
    Needs,
    Refusal,
    RepoView,
    Routed,
)
from gpugrant_gate.settings import Limits
from gpugrant_gate.wire import framing, heads, messages
from gpugrant_gate.wire.faults import Malformed, Truncated
from gpugrant_gate.wire.framing import Kind
from gpugrant_gate.wire.heads import RequestHead

_EMPTY_BODIES = (b"", b"{}", b"null")
"""What clients send where nothing is wanted (docker-modem, docker-py)."""
_EMPTY_BODY_MAX = 64
_HARDWARE_TRIES = 2
"""A daemon that is replaced between the decision and the connection is judged once more, not for ever."""


class Policy(Protocol):
    """The three steps of a decision; see `policy.model`."""

    def route(self, head: Head, repo: RepoView) -> Routed | Refusal: ...
    def needs(self, routed: Routed, body: bytes | None, repo: RepoView, facts: Facts) -> Needs | Refusal: ...
    def judge(self, routed: Routed, body: bytes | None, facts: Facts, repo: RepoView) -> Decision: ...


class Host(Protocol):
    """The repo that a session belongs to, as it is now."""

    policy: Policy
    limits: Limits

    @property
    def name(self) -> str: ...

    def view(self) -> RepoView: ...
    async def known(self) -> None: ...
    async def connect(self) -> Link:
        """Raises Unreachable."""

    async def facts(self, wanted: tuple[Fact, ...], view: RepoView) -> Facts:
        """Raises Unreachable."""

    def is_judged(self, daemon: Link) -> bool:
        """Whether the daemon at the other end is the one that the view was made for."""

    def begin(self, devices: tuple[str, ...]) -> Callable[[], None]:
        """Notes a request that attaches or starts devices; what comes back ends it."""


@dataclass(slots=True)
class _Record:
    """What the audit line of one request says."""

    method: str = ""
    route: str = ""
    names: tuple[str, ...] = ()
    began: float = 0.0


class Session:
    """A connection's life; `run` returns when it is closed."""

    def __init__(self, client: Link, host: Host) -> None:
        self._client = client
        self._host = host
        self._peer = client.peer()
        self._record = _Record()
        self.busy = False
        """A request is being worked on."""

    async def run(self) -> None:
        try:
            while await self._one():
                self.busy = False
        except Gone:
            self._client.abort()
        finally:
            self._client.close()

    async def _one(self) -> bool:
        """Answers one request; False when there is no next one."""
        try:
            request = await self._head()
        except Malformed as fault:
            self._record = _Record("-", "-", began=time.perf_counter())
            return await self._malformed(fault, "GET")
        if request is None:
            return False
        self.busy = True
        self._record = _Record(request.method, began=time.perf_counter())
        body = _BodyReader(self._client, request, self._host.limits)
        try:
            return await self._decide(request, body)
        except Malformed as fault:
            return await self._malformed(fault, request.method)
        except Truncated:
            return False
        except Unreachable as error:
            return await self._unreachable(request, body, error)

    async def _head(self) -> RequestHead | None:
        client, limits = self._client, self._host.limits
        if not client.buffered:
            try:
                async with asyncio.timeout(limits.idle_timeout):
                    if not await client.more():
                        return None
            except TimeoutError:
                return None
        end = heads.find_end(client.buffered)
        if not end:
            try:
                async with asyncio.timeout(limits.head_timeout):
                    while not end:
                        if not await client.more():
                            return None
                        end = heads.find_end(client.buffered)
            except TimeoutError:
                message = f"the request's head did not come within {limits.head_timeout:g} s"
                raise Malformed(408, "wire.timeout", message) from None
        return heads.parse_request(client.take(end))

    async def _decide(self, request: RequestHead, body: _BodyReader) -> bool:
        await self._host.known()
        head = Head(
            request.method, request.target, request.headers, request.version, request.framing.kind is not Kind.NONE
        )
        routed = self._host.policy.route(head, self._host.view())
        if isinstance(routed, Refusal):
            return await self._refuse(request, body, routed)
        self._record.route = routed.route
        data = await body.read(routed.body)
        while True:
            decision, outcome = await self._judge_and_send(request, body, routed, data)
            if isinstance(decision, Refusal):
                return await self._refuse(request, body, decision)
            if outcome is None or outcome.shown or decision.then is None:
                break
            routed, data = decision.then, b""
            self._record.route = routed.route
        return await self._after(outcome, body)

    async def _after(self, outcome: Outcome | None, body: _BodyReader) -> bool:
        if outcome is not None and outcome.keep:
            return True
        if outcome is not None and outcome.uploaded:
            return False
        await self._linger(body)
        return False

    async def _judge_and_send(
        self, request: RequestHead, body: _BodyReader, routed: Routed, data: bytes | None
    ) -> tuple[Decision, Outcome | None]:
        for _ in range(_HARDWARE_TRIES):
            decision = await self._judge(routed, data)
            if isinstance(decision, Refusal):
                return decision, None
            # no await since the decision: a snapshot that comes now waits for this request
            end = self._host.begin(decision.devices)
            try:
                daemon = await self._host.connect()
                if decision.devices and not self._host.is_judged(daemon):
                    daemon.abort()
                    await self._host.known()
                    continue
                return decision, await self._send(request, body, decision, daemon, end)
            finally:
                end()
        raise Unreachable("it was replaced while the request was judged")

    async def _judge(self, routed: Routed, data: bytes | None) -> Decision:
        host = self._host
        found: dict[Fact, Any] = {}
        for _ in range(MAX_ROUNDS):
            view = host.view()
            needs = host.policy.needs(routed, data, view, found)
            if isinstance(needs, Refusal):
                return needs
            wanted = tuple(fact for fact in needs.facts if fact not in found)
            if not wanted:
                break
            found |= await host.facts(wanted, view)
        return host.policy.judge(routed, data, found, host.view())

    async def _send(
        self, request: RequestHead, body: _BodyReader, decision: Admission, daemon: Link, end: Callable[[], None]
    ) -> Outcome:
        self._record.route = decision.route
        self._record.names = decision.devices
        then = decision.then
        answered = False

        def on_head(status: int) -> None:
            nonlocal answered
            answered = True
            if status == 101:
                end()
            self._audit("admitted", status)

        call = Call(
            request=body.unread(request),
            outgoing=decision.outgoing,
            on_head=on_head,
            lasting=bool(decision.devices),
            hide=lambda status: then is not None and (200 <= status < 300 or status == 304),
        )
        carry = exchange.hijacked if decision.outgoing.exchange is Exchange.HIJACK else exchange.plain
        body.go_on()
        try:
            return await carry(self._client, daemon, call, self._host.limits)
        except Gone:
            if not answered:
                self._audit("admitted", 0)
            raise

    async def _refuse(self, request: RequestHead, body: _BodyReader, refusal: Refusal) -> bool:
        self._record.route = refusal.route or self._record.route
        self._record.names = refusal.missing
        rules = tuple(violation.rule for violation in refusal.violations)
        return await self._answer(request, body, refusal.status, refusal.message, "refused", rules)

    async def _unreachable(self, request: RequestHead, body: _BodyReader, error: Unreachable) -> bool:
        message = f"the repo's Docker daemon can't be used: {error} [gate.upstream]"
        return await self._answer(request, body, 503, message, "failed", ("gate.upstream",))

    async def _answer(
        self, request: RequestHead, body: _BodyReader, status: int, message: str, verdict: str, rules: tuple[str, ...]
    ) -> bool:
        self._audit(verdict, status, rules)
        keep = request.keep_alive and body.complete
        self._client.write(messages.error(status, message, method=request.method, keep_alive=keep))
        if not keep:
            await self._linger(body)
        return keep

    async def _malformed(self, fault: Malformed, method: str) -> bool:
        self._audit("failed" if fault.status == 502 else "malformed", fault.status, (fault.rule,))
        self._client.write(messages.error(fault.status, str(fault), method=method))
        await self._linger(None)
        return False

    async def _linger(self, body: _BodyReader | None) -> None:
        """Lets a client that still sends read its answer: closed under it, its write would fail first."""
        if body is not None and body.complete:
            return
        client = self._client
        client.write_eof()
        client.flow_to(lambda data: None, None)
        gone = asyncio.get_running_loop().create_future()

        def closed() -> None:
            if not gone.done():
                gone.set_result(None)

        client.watch(closed)
        try:
            async with asyncio.timeout(self._host.limits.linger):
                await gone
        except TimeoutError:
            client.abort()
        finally:
            client.unwatch(closed)

    def _audit(self, verdict: str, status: int, rules: tuple[str, ...] = ()) -> None:
        audit.decided(
            repo=self._host.name,
            uid=self._peer.uid,
            pid=self._peer.pid,
            method=self._record.method,
            route=self._record.route,
            verdict=verdict,
            status=status,
            rules=rules,
            names=self._record.names,
            milliseconds=(time.perf_counter() - self._record.began) * 1000,
        )


class _BodyReader:
    """A request's body: read whole for a judge, or left for the stream."""

    def __init__(self, client: Link, request: RequestHead, limits: Limits) -> None:
        self._client = client
        self._request = request
        self._limits = limits
        self.complete = request.framing.kind is Kind.NONE
        """Nothing of it is left on the connection."""
        self._continued = not request.expects_continue

    def unread(self, request: RequestHead) -> RequestHead:
        """The request as the exchange sees it: a body that was read is none of its business."""
        return _without_body(request) if self.complete else request

    async def read(self, body: Body) -> bytes | None:
        """The bytes for the judge, None for a stream; raises Malformed, Truncated (the client went away)."""
        match body:
            case Body.STREAM:
                return None
            case _ if self.complete:
                return b""
            case Body.JUDGED:
                return await self._whole(self._limits.body_max, _too_long(self._limits.body_max))
            case Body.NONE:
                unwanted = Malformed(400, "wire.body", "this request takes no body")
                data = await self._whole(_EMPTY_BODY_MAX, unwanted)
                if data.strip() not in _EMPTY_BODIES:
                    raise unwanted
                return data

    def go_on(self) -> None:
        """Tells a client that waits for it to send its body (RFC 9110 10.1.1)."""
        if not self._continued and not self.complete:
            self._client.write(messages.CONTINUE)
        self._continued = True

    async def _whole(self, most: int, too_long: Malformed) -> bytes:
        if self._request.framing.length > most:
            raise too_long
        self.go_on()
        try:
            async with asyncio.timeout(self._limits.body_timeout):
                return await self._decoded(most, too_long)
        except TimeoutError:
            message = f"the request's body did not come within {self._limits.body_timeout:g} s"
            raise Malformed(408, "wire.timeout", message) from None

    async def _decoded(self, most: int, too_long: Malformed) -> bytes:
        decoder = framing.decoder(self._request.framing)
        pieces: list[bytes] = []
        size = 0
        while not decoder.done:
            if self._client.buffered:
                pieces.append(decoder.feed(self._client.take()))
                size += len(pieces[-1])
                if size > most:
                    raise too_long
            elif not await self._client.more():
                decoder.eof()
        self._client.put_back(decoder.rest)
        self.complete = True
        return b"".join(pieces)


def _too_long(most: int) -> Malformed:
    return Malformed(413, "wire.body-size", f"the request's body is longer than {most} bytes")


def _without_body(request: RequestHead) -> RequestHead:
    if request.framing.kind is Kind.NONE:
        return request
    return RequestHead(
        method=request.method,
        target=request.target,
        headers=request.headers,
        version=request.version,
        framing=framing.NONE,
        keep_alive=request.keep_alive,
        expects_continue=request.expects_continue,
        upgrade=request.upgrade,
    )
