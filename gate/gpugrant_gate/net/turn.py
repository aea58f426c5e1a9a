"""One request from its head to its answer: gather (body, facts), decide (the policy, at one moment), apply.

Everything here may wait. Between a decision and the note that it is underway nothing does: a snapshot that comes then
waits for the request.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Protocol, TypeVar

from gpugrant_gate.life.admitted import Unwritable
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net import audit, pinning
from gpugrant_gate.net.body import BodyReader
from gpugrant_gate.net.exchange import Stale, carried
from gpugrant_gate.net.link import Gone, Link
from gpugrant_gate.net.prepared import Prepared, prepare
from gpugrant_gate.net.upstream import Unreachable
from gpugrant_gate.policy.model import (
    MAX_ROUNDS,
    Decision,
    Fact,
    Facts,
    Head,
    Needs,
    Refusal,
    RepoView,
    Routed,
    Violation,
)
from gpugrant_gate.policy.model import Exchange as Carrying
from gpugrant_gate.policy.pins import Pin
from gpugrant_gate.settings import Limits
from gpugrant_gate.wire import heads, messages
from gpugrant_gate.wire.exchange import Exchange
from gpugrant_gate.wire.faults import Malformed, Truncated
from gpugrant_gate.wire.framing import Kind
from gpugrant_gate.wire.heads import RequestHead

LARGE = 64 * 1024
"""Bytes of a body that is judged beside the event loop; one of 2 MiB takes some 50 ms, in which no client is served."""
_SWITCH = 0.001
"""Seconds after which the judging thread lets the loop go on; Python's own 5 ms are more than a small request takes."""
_LARGE_TRIES = 3
"""Views that change under a large body, before it is judged without letting anything else happen."""
_HARDWARE_TRIES = 2
"""A daemon that is replaced between the decision and the connection is judged once more, not for ever."""

_REMOVALS = ("container.remove", "container.prune")

T = TypeVar("T")


class Policy(Protocol):
    """The three steps of a decision; see `policy.model`."""

    def route(self, head: Head, repo: RepoView) -> Routed | Refusal: ...
    def needs(self, routed: Routed, body: bytes | None, repo: RepoView, facts: Facts) -> Needs | Refusal: ...
    def judge(self, routed: Routed, body: bytes | None, facts: Facts, repo: RepoView) -> Decision: ...
    def seen(self, inspected: Mapping[str, Any], repo: RepoView) -> tuple[str, ...]: ...


class Host(Protocol):
    """The repo that a request is for, as it is now."""

    policy: Policy
    limits: Limits
    repo: Repo
    large_bodies: asyncio.Semaphore
    """How many large bodies may be held at once; the others are not read yet."""

    @property
    def name(self) -> str: ...

    @property
    def leaving(self) -> bool:
        """No further request is taken."""

    def view(self) -> RepoView: ...
    async def known(self) -> None: ...
    async def connect(self) -> Link:
        """A fresh connection to the daemon; raises Unreachable."""

    def idle(self) -> Link | None:
        """A connection to the judged daemon that has carried a GET to its end."""

    def give_back(self, daemon: Link) -> None:
        """For `idle` to give out again."""

    def recall(self, head: bytes) -> Prepared | None:
        """What these bytes came to before, where that still counts."""

    def remember(self, head: bytes, view: RepoView, prepared: Prepared) -> None: ...

    async def facts(self, wanted: tuple[Fact, ...], view: RepoView) -> Facts:
        """Raises Unreachable."""

    async def pin(self, wanted: tuple[Pin, ...]) -> Callable[[], None]:
        """Puts bind sources into their places for the judged daemon; what comes back lets go. Raises Unpinned."""

    def removed(self) -> None:
        """Containers may be gone, and their places with them."""

    def is_judged(self, daemon: Link) -> bool:
        """Whether the daemon at the other end is the one that the view was made for."""

    def begin(self, devices: tuple[str, ...]) -> Callable[[], None]:
        """Notes a request that attaches or starts devices; what comes back ends it."""

    async def admit(self, container: str, devices: tuple[str, ...]) -> Callable[[], None]:
        """Notes down that the container may start with them, durably; what comes back says that the start has ended.
        Raises Unwritable."""

    def tunnel(self, daemon: Link) -> Callable[[], None]:
        """Notes a build, which is cut when it would not be let in any more; what comes back ends it."""


class Record:
    """What the audit line of one request says; begun anew for the next one."""

    __slots__ = ("_began", "_client", "_host", "answered", "method", "names", "route", "size")

    def __init__(self, host: Host, client: Link) -> None:
        self._host = host
        self._client = client
        self.begin()

    def begin(self, method: str = "-", route: str = "-") -> None:
        self.method = method
        self.route = route
        self.names: tuple[str, ...] = ()
        self.size = 0
        """Bytes of the body that was judged."""
        self.answered = False
        """The daemon's answer has reached the client, at least its head."""
        self._began = time.perf_counter()

    def admitted(self, status: int) -> None:
        """`status` is the daemon's; 0: it gave none."""
        self.answered = True
        self.say("admitted", status)

    def say(self, verdict: str, status: int, rules: tuple[str, ...] = ()) -> None:
        peer = self._client.peer
        audit.decided(
            repo=self._host.name,
            uid=peer.uid,
            pid=peer.pid,
            method=self.method,
            route=self.route,
            verdict=verdict,
            status=status,
            rules=rules,
            names=self.names,
            size=self.size,
            milliseconds=(time.perf_counter() - self._began) * 1000,
        )


@cache
def _apart() -> Executor:
    """One thread: what many clients send at once waits for its turn, and the loop always gets its own."""
    return ThreadPoolExecutor(1, "judge", initializer=sys.setswitchinterval, initargs=(_SWITCH,))


def _nothing() -> None:
    return None


@dataclass(slots=True)
class _Asked:
    """A request whose endpoint is known."""

    head: bytes
    view: RepoView
    """Under which it was routed."""
    request: RequestHead
    routed: Routed
    data: bytes | None
    body: BodyReader
    alone: bool = True
    """No fact was wanted: nothing but the head, the body and the view decide."""


class Turn:
    """One request. Each of its ways returns whether the connection can carry another one."""

    def __init__(self, client: Link, host: Host, record: Record) -> None:
        self._client = client
        self._host = host
        self._record = record
        self._method = "GET"
        self._keep_alive = False
        self._body: BodyReader | None = None

    async def run(self, head: bytes) -> bool:
        """A request by its head, whose body is still on the connection."""
        return await self._settled(self._whole(head))

    async def afresh(self, prepared: Prepared) -> bool:
        """A repeatable one that is admitted already, on a fresh connection."""
        return await self._settled(self._again(prepared))

    async def failed(self, fault: Exception) -> bool:
        """One that has failed before the client got anything."""
        return await self._settled(_raise(fault))

    async def _settled(self, work: Awaitable[bool]) -> bool:
        """What `work` says; whatever went wrong in it is answered."""
        try:
            return await work
        except Malformed as fault:
            return await self._malformed(fault)
        except Unreachable as error:
            message = f"the repo's Docker daemon can't be used: {error} [gate.upstream]"
            return await self._answer(503, message, "failed", ("gate.upstream",))
        except Truncated:
            return False
        except Gone:
            if not self._record.answered:
                self._record.admitted(0)
            self._client.abort()
            return False

    async def _whole(self, data: bytes) -> bool:
        host = self._host
        request = heads.parse_request(data)
        self._record.method = self._method = request.method
        self._keep_alive = request.keep_alive
        self._body = body = BodyReader(self._client, request, host.limits)
        await host.known()
        has_body = request.framing.kind is not Kind.NONE
        head = Head(request.method, request.target, request.headers, request.version, has_body)
        view = host.view()
        routed = host.policy.route(head, view)
        if isinstance(routed, Refusal):
            return await self._refuse(routed)
        self._record.route = routed.route
        if routed.exchange is Carrying.HIJACK:
            self._keep_alive = False  # after a refusal: what is meant for the pipe is never read as a request
        if body.may_exceed(routed.body, LARGE):
            async with host.large_bodies:
                return await self._decided(data, view, request, routed, body)
        return await self._decided(data, view, request, routed, body)

    async def _decided(
        self, head: bytes, view: RepoView, request: RequestHead, routed: Routed, body: BodyReader
    ) -> bool:
        asked = _Asked(head, view, request, routed, await body.read(routed.body), body)
        self._record.size = len(asked.data or b"")
        host = self._host
        while True:
            sent = await self._judged_and_sent(asked)
            if isinstance(sent, Refusal):
                return await self._refuse(sent)
            exchange, then = sent
            if exchange.shown or then is None:
                break
            asked = replace(asked, routed=then, data=b"")
            self._record.route = then.route
        if asked.routed.route in _REMOVALS:
            host.removed()
        if not exchange.keep and not exchange.uploaded:
            await self._linger()
        return exchange.keep

    async def _again(self, prepared: Prepared) -> bool:
        self._method, self._keep_alive = prepared.call.method, prepared.call.keep_alive
        return (await self._carry(prepared, await self._host.connect())).keep

    async def _judged_and_sent(self, asked: _Asked) -> Refusal | tuple[Exchange, Routed | None]:
        host = self._host
        for _ in range(_HARDWARE_TRIES):
            decision, let_go = await pinning.judged(partial(self._judge, asked), host.pin)
            if isinstance(decision, Refusal):
                return decision
            # no await since the decision: a snapshot that comes now waits for this request
            end, view, started = host.begin(decision.devices), host.view(), _nothing
            try:
                if decision.starts:
                    started = await host.admit(decision.starts, decision.devices)
                prepared = prepare(
                    decision,
                    asked.request,
                    host.limits,
                    body_left=not asked.body.complete,
                    places=view.translated,
                )
                self._record.route, self._record.names = prepared.route, prepared.devices
                if asked.alone and host.view() is asked.view:
                    host.remember(asked.head, asked.view, prepared)
                if prepared.repeatable and (daemon := host.idle()) is not None:
                    with suppress(Stale):
                        return await self._carry(prepared, daemon), decision.then
                daemon = await host.connect()
                if (decision.devices or decision.build or decision.pins) and not host.is_judged(daemon):
                    daemon.abort()
                    await host.known()
                    continue
                if decision.build and host.view() is not view:
                    daemon.abort()
                    continue
                asked.body.go_on()
                if decision.build:
                    return await self._build(prepared, daemon), None
                return await self._carry(prepared, daemon, end), decision.then
            except Unwritable as error:
                message = f"a container with devices can't be started: what was let start can't be noted down, {error}"
                return Refusal(503, (Violation("gate.admitted", message),), decision.route)
            finally:
                started()
                end()
                let_go()
        raise Unreachable("it was replaced while the request was judged")

    async def _build(self, prepared: Prepared, daemon: Link) -> Exchange:
        """From here on it can be cut; nothing that it was decided on has changed."""
        end = self._host.tunnel(daemon)
        try:
            return await self._carry(prepared, daemon)
        finally:
            end()

    async def _judge(self, asked: _Asked) -> Decision:
        host, routed, data = self._host, asked.routed, asked.data
        size = len(data or b"")
        found: dict[Fact, Any] = {}
        for _ in range(MAX_ROUNDS):
            needs = await self._seen(size, partial(host.policy.needs, routed, data, facts=found))
            if isinstance(needs, Refusal):
                return needs
            wanted = tuple(fact for fact in needs.facts if fact not in found)
            if not wanted:
                break
            asked.alone = False
            found |= await host.facts(wanted, host.view())
        return await self._seen(size, partial(host.policy.judge, routed, data, found))

    async def _seen(self, size: int, look: Callable[[RepoView], T]) -> T:
        """What `look` says under the view of now; of a large body in a thread of its own, so that others are served."""
        host = self._host
        if size > LARGE:
            for _ in range(_LARGE_TRIES):
                view = host.view()
                said = await asyncio.get_running_loop().run_in_executor(_apart(), look, view)
                if host.view() is view:
                    return said
        return look(host.view())

    async def _carry(self, prepared: Prepared, daemon: Link, end: Callable[[], None] = _nothing) -> Exchange:
        """The exchange, come to its end; raises what `exchange.Outcome` names as faults."""

        def on_head(status: int) -> None:
            if status == 101:
                end()
            self._record.admitted(status)

        exchange = Exchange(prepared.call)
        outcome = await carried(
            self._client, daemon, exchange, prepared.request, on_head=on_head, lasting=bool(prepared.devices)
        )
        if outcome.fault is not None:
            raise outcome.fault
        if outcome.idle is not None:
            self._host.give_back(outcome.idle)
        return exchange

    async def _refuse(self, refusal: Refusal) -> bool:
        self._record.route = refusal.route or self._record.route
        self._record.names = refusal.missing
        rules = tuple(violation.rule for violation in refusal.violations)
        return await self._answer(refusal.status, refusal.message, "refused", rules)

    async def _malformed(self, fault: Malformed) -> bool:
        self._keep_alive = False
        verdict = "failed" if fault.status == 502 else "malformed"
        return await self._answer(fault.status, str(fault), verdict, (fault.rule,))

    async def _answer(self, status: int, message: str, verdict: str, rules: tuple[str, ...]) -> bool:
        """The gate's own answer."""
        self._record.say(verdict, status, rules)
        keep = self._keep_alive and (self._body is None or self._body.complete)
        self._client.write(messages.error(status, message, method=self._method, keep_alive=keep))
        if not keep:
            await self._linger()
        return keep

    async def _linger(self) -> None:
        """Lets a client that still sends read its answer: closed under it, its write would fail first."""
        client = self._client
        client.write_eof()
        client.flow_to(_drop, None)
        gone = asyncio.Event()
        client.watch(gone.set)
        try:
            async with asyncio.timeout(self._host.limits.linger):
                await gone.wait()
        except TimeoutError:
            client.abort()
        finally:
            client.watch(None)


def _drop(data: bytes) -> None:
    return None


async def _raise(fault: Exception) -> bool:
    raise fault
