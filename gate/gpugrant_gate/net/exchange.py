"""One admitted request on one fresh connection to the daemon, and its answer on the way back.

Bytes flow without a task between them; each direction stops reading while the other end can't take more. What is not
whole stays visibly not whole: a cut answer cuts the client's connection, a cut upload cuts the daemon's.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpugrant_gate.net import upstream
from gpugrant_gate.net.link import Gone, Link
from gpugrant_gate.net.upstream import Unreachable
from gpugrant_gate.policy.model import Outgoing
from gpugrant_gate.settings import Limits
from gpugrant_gate.wire import framing, heads, messages, versions
from gpugrant_gate.wire.faults import Malformed, Truncated
from gpugrant_gate.wire.framing import Decoder, Framing, Kind
from gpugrant_gate.wire.heads import RequestHead, ResponseHead
from gpugrant_gate.wire.tars import PlainTar

_VERSION_TARGET = re.compile(r"(/v[0-9.]+)?/version")

OnHead = Callable[[int], None]
"""Told the status once, before the head goes to the client."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended. `keep`: the client's connection can carry another request."""

    status: int
    keep: bool
    uploaded: bool = True
    """Nothing of the client's body is left on its connection."""
    shown: bool = True
    """False: the answer was taken in, the client got nothing."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request to carry. `lasting`: it is carried to its answer even if the client goes away, since the daemon would
    go on with it anyhow and a revocation must be able to wait for its end."""

    request: RequestHead
    outgoing: Outgoing
    on_head: OnHead
    lasting: bool = False
    hide: Callable[[int], bool] = lambda status: False
    """Which statuses are for the gate only."""


async def plain(client: Link, daemon: Link, call: Call, limits: Limits) -> Outcome:
    """Request and answer. Raises Unreachable (nothing was sent to the client), Malformed (its upload), Gone."""
    upload = _Upload(client, daemon, _stream_of(call), plain_tar=call.outgoing.plain_tar)
    watch = _Watch(client, daemon, upload, lasting=call.lasting)
    try:
        if not upload.done:
            daemon.keep_last_words()
        daemon.write(_request_head(call))
        upload.start()
        client.watch(watch)
        head = await _answer_head(daemon, upload, watch)
        return await _relay(client, daemon, head, call, upload, limits)
    finally:
        client.unwatch(watch)
        upload.stop()
        daemon.close()


async def hijacked(client: Link, daemon: Link, call: Call, limits: Limits) -> Outcome:
    """A byte pipe, opened only by the daemon's 101; every other answer is relayed and ends the connection, so that
    bytes meant for the pipe are never read as a request."""
    upload = _Upload(client, daemon, framing.NONE)
    watch = _Watch(client, daemon, upload, lasting=call.lasting)
    try:
        daemon.write(_request_head(call, upgrade=_protocol(call.outgoing)))
        client.watch(watch)
        head = await _answer_head(daemon, upload, watch, upgradable=True)
        if head.status != 101:
            outcome = await _relay(client, daemon, head, call, upload, limits, keep=False)
            return replace(outcome, keep=False)
        client.unwatch(watch)
        call.on_head(101)
        client.write(messages.upgraded(head, asked=call.request.upgrade))
        await _Pipe(client, daemon).ended()
        return Outcome(101, keep=False)
    finally:
        client.unwatch(watch)
        daemon.close()


def _stream_of(call: Call) -> Framing:
    """The client's body where it is passed on as it comes."""
    return framing.NONE if call.outgoing.body is not None else call.request.framing


def _request_head(call: Call, *, upgrade: str = "") -> bytes:
    outgoing = call.outgoing
    body = _stream_of(call) if outgoing.body is None else framing.of_length(len(outgoing.body))
    head = messages.request(outgoing.method, outgoing.target, outgoing.headers, body, upgrade=upgrade)
    return head + (outgoing.body or b"")


def _protocol(outgoing: Outgoing) -> str:
    """The daemon looks only at the presence of the header for attach and exec; the policy names any other."""
    return next((value for name, value in outgoing.headers if name == "upgrade"), "tcp")


async def _answer_head(daemon: Link, upload: _Upload, watch: _Watch, *, upgradable: bool = False) -> ResponseHead:
    try:
        return await upstream.read_head(daemon, upgradable=upgradable)
    except Unreachable:
        if upload.fault is not None:
            raise upload.fault from None
        if watch.gone:
            raise Gone from None
        raise


async def _relay(
    client: Link, daemon: Link, head: ResponseHead, call: Call, upload: _Upload, limits: Limits, *, keep: bool = True
) -> Outcome:
    method = call.outgoing.method
    body = heads.response_framing(head, method)
    if call.hide(head.status):
        await upstream.read_body(daemon, body, limits.fact_max)
        return Outcome(head.status, keep=True, shown=False)
    if method == "GET" and head.status == 200 and _VERSION_TARGET.fullmatch(call.outgoing.target):
        return await _relay_version(client, daemon, head, body, call, limits)
    # an answer while the upload still runs may end with bytes of it unread: they are no next request
    keep = keep and call.request.keep_alive and upload.done
    call.on_head(head.status)
    out_head, out = messages.answer(head, body, method=method, version=call.request.version, keep_alive=keep)
    download = _Download(client, daemon, framing.decoder(body), chunked=out.kind is Kind.CHUNKED)
    # one write for a small answer; a head whose body is still to come goes out at once (POST /wait)
    client.write(out_head + download.there())
    await download.ended()
    return Outcome(head.status, keep=keep and out.kind is not Kind.CLOSE, uploaded=upload.done)


async def _relay_version(
    client: Link, daemon: Link, head: ResponseHead, body: Framing, call: Call, limits: Limits
) -> Outcome:
    said = versions.clamp_version_body(await upstream.read_body(daemon, body, limits.fact_max))
    keep = call.request.keep_alive
    call.on_head(head.status)
    out_head, _ = messages.answer(
        head, framing.of_length(len(said)), method="GET", version=call.request.version, keep_alive=keep
    )
    client.write(out_head + said)
    return Outcome(head.status, keep=keep)


class _Upload:
    """The client's body on its way to the daemon, in frames of the gate's own."""

    def __init__(self, client: Link, daemon: Link, body: Framing, *, plain_tar: bool = False) -> None:
        self._client = client
        self._daemon = daemon
        self._chunked = body.kind is Kind.CHUNKED
        plain = framing.decoder(body)
        self._decoder: Decoder = PlainTar(plain) if plain_tar else plain
        self._flowing = False
        self.fault: Malformed | None = None

    @property
    def done(self) -> bool:
        return self._decoder.done

    def start(self) -> None:
        if not self.done:
            self._flowing = True
            self._client.flow_to(self._feed, self._daemon)

    def stop(self) -> None:
        if self._flowing:
            self._flowing = False
            self._client.stop_flow(self._daemon)

    def _feed(self, data: bytes) -> None:
        if self.fault is not None:
            return
        try:
            body = self._decoder.feed(data)
        except Malformed as fault:
            self.fault = fault
            self._daemon.abort()
            return
        if body:
            self._daemon.write(framing.chunk(body) if self._chunked else body)
        if self.done:
            if self._chunked:
                self._daemon.write(framing.LAST_CHUNK)
            self.stop()
            self._client.put_back(self._decoder.rest)


class _Watch:
    """What the client's going away means: the daemon sees it as it would see it without a gate."""

    def __init__(self, client: Link, daemon: Link, upload: _Upload, *, lasting: bool) -> None:
        self._client = client
        self._daemon = daemon
        self._upload = upload
        self._lasting = lasting
        self.gone = False

    def __call__(self) -> None:
        if self._lasting and self._upload.done:
            return
        if self._client.hung_up() or not self._upload.done:
            self.gone = True
            self._daemon.abort()
        else:
            # only the client's writing side is closed: a daemon decides itself what that ends
            self._daemon.write_eof()


class _Flow:
    """Base of what ends by an event of a link: a future that is set once."""

    def __init__(self, client: Link, daemon: Link) -> None:
        self._client = client
        self._daemon = daemon
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _finish(self) -> None:
        if not self._end.done():
            self._end.set_result(None)


class _Download(_Flow):
    """The answer's body on its way to the client."""

    def __init__(self, client: Link, daemon: Link, decoder: Decoder, *, chunked: bool) -> None:
        super().__init__(client, daemon)
        self._decoder = decoder
        self._chunked = chunked
        self._fault: Exception | None = None

    def there(self) -> bytes:
        """What of it has come already, in the client's frames."""
        return b"" if self._decoder.done else self._framed(self._daemon.take())

    async def ended(self) -> None:
        """Returns when all of it was written; raises Gone, with the client's connection cut, when it is not whole."""
        if not self._decoder.done and self._fault is None:
            await self._flowed()
        if self._fault is not None:
            self._client.abort()
            raise Gone from self._fault

    async def _flowed(self) -> None:
        self._daemon.flow_to(self._feed, self._client)
        self._daemon.watch(self._daemon_closed)
        self._client.watch(self._client_closed)
        try:
            await self._end
        finally:
            self._daemon.unwatch(self._daemon_closed)
            self._client.unwatch(self._client_closed)
            self._daemon.stop_flow(self._client)

    def _feed(self, data: bytes) -> None:
        framed = self._framed(data)
        if framed:
            self._client.write(framed)
        if self._decoder.done or self._fault is not None:
            self._finish()

    def _framed(self, data: bytes) -> bytes:
        try:
            body = self._decoder.feed(data) if data else b""
        except Malformed as fault:
            self._fault = fault
            return b""
        framed = framing.chunk(body) if self._chunked and body else body
        return framed + framing.LAST_CHUNK if self._chunked and self._decoder.done else framed

    def _daemon_closed(self) -> None:
        if self._end.done():
            return
        try:
            self._decoder.eof()
        except Truncated as fault:
            self._fault = fault
        else:
            if self._chunked:
                self._client.write(framing.LAST_CHUNK)
        self._finish()

    def _client_closed(self) -> None:
        if self._client.lost:
            self._fault = self._fault or Gone()
            self._finish()


class _Pipe(_Flow):
    """Bytes both ways with half-close: `echo hi | docker run -i` closes its writing side and still wants the output."""

    async def ended(self) -> None:
        client, daemon = self._client, self._daemon
        client.flow_to(daemon.write, daemon)
        daemon.flow_to(client.write, client)
        client.watch(self._client_closed)
        daemon.watch(self._daemon_closed)
        try:
            await self._end
        finally:
            client.unwatch(self._client_closed)
            daemon.unwatch(self._daemon_closed)
            client.stop_flow(daemon)
            daemon.stop_flow(client)

    def _client_closed(self) -> None:
        self._closed(self._client, self._daemon)

    def _daemon_closed(self) -> None:
        self._closed(self._daemon, self._client)

    def _closed(self, ended: Link, other: Link) -> None:
        if ended.lost or ended.hung_up() or other.at_eof:
            self._finish()
        else:
            other.write_eof()
