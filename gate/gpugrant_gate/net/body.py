"""A request's body before its decision: read whole for a judge, or left for the stream."""

from __future__ import annotations

import asyncio

from gpugrant_gate.net.link import Link
from gpugrant_gate.policy.model import Body
from gpugrant_gate.settings import Limits
from gpugrant_gate.wire import framing, messages
from gpugrant_gate.wire.faults import Malformed
from gpugrant_gate.wire.framing import Kind
from gpugrant_gate.wire.heads import RequestHead

_EMPTY_BODIES = (b"", b"{}", b"null")
"""What clients send where nothing is wanted (docker-modem, docker-py)."""
_EMPTY_BODY_MAX = 64


class BodyReader:
    """The body of one request on its client's connection."""

    def __init__(self, client: Link, request: RequestHead, limits: Limits) -> None:
        self._client = client
        self._request = request
        self._limits = limits
        self.complete = request.framing.kind is Kind.NONE
        """Nothing of it is left on the connection."""
        self._continued = not request.expects_continue

    def may_exceed(self, body: Body, size: int) -> bool:
        """Whether more than `size` bytes of it may come to be held for a judge."""
        framing_ = self._request.framing
        return body is Body.JUDGED and (framing_.kind is Kind.CHUNKED or framing_.length > size)

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
