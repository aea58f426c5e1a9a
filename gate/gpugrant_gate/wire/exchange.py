"""One admitted request and its answer without sockets: the bytes of one side in, what goes to the other side out.

The request's head is not here: it was written anew by `messages.request`. What is not whole is never given out as
whole; the caller cuts the connection where this room raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from gpugrant_gate.wire import framing, heads, messages
from gpugrant_gate.wire.faults import Malformed, Truncated
from gpugrant_gate.wire.framing import NONE, Decoder, Framing, Kind
from gpugrant_gate.wire.tars import PlainTar

_KEPT_HEAD_MAX = 2048
"""Bytes of an answer's head that is read only once; Docker's have 300, of which one second's are equal."""
_KEPT_HEADS = 256


Rewrite = Callable[[bytes], bytes]


def _none(status: int) -> bool:
    return False


def _as_it_is(status: int) -> Rewrite | None:
    return None


@dataclass(frozen=True, slots=True)
class Call:
    """All that an exchange depends on."""

    method: str
    """Of the request that goes to the daemon."""
    version: tuple[int, int] = (1, 1)
    """The client's."""
    keep_alive: bool = True
    """The client's connection may carry another request."""
    upload: Framing = NONE
    """The client's body, where it is passed on as it comes."""
    plain_tar: bool = False
    """The upload must be a tar that is not compressed."""
    hijack: bool = False
    """A 101 opens a byte pipe; any other answer ends the client's connection, so that bytes meant for the pipe are
    never read as a request."""
    upgrade: bool = False
    """The client asked for an upgrade: it gets the 101, else the 200 form."""
    rewrite: Callable[[int], Rewrite | None] = _as_it_is
    """What changes the body of an answer of this status, which is held for it; None: nothing does."""
    hidden: Callable[[int], bool] = _none
    """Which statuses are for the gate only: the client gets nothing."""
    held_max: int = 16 * 1024 * 1024
    """Bytes of an answer that is not passed on as it comes."""


class Exchange:
    """Feed it what comes and send what it gives; then look at what it says."""

    __slots__ = (
        "_call",
        "_decoder",
        "_head",
        "_held",
        "_kept",
        "_rewrite",
        "_size",
        "_upload",
        "_wraps",
        "ended",
        "keep",
        "piped",
        "reusable",
        "shown",
        "status",
    )

    def __init__(self, call: Call) -> None:
        self._call = call
        self._upload: Decoder | None = _upload(call) if call.upload.kind is not Kind.NONE else None
        self._head = b""
        self._held = b""
        self._decoder: Decoder | None = None
        self._wraps = False
        self._kept: list[bytes] | None = None
        self._rewrite: Rewrite | None = None
        self._size = 0
        self.status = 0
        """Of the final answer; 0 until its head is there."""
        self.shown = True
        """False: the answer was for the gate only."""
        self.ended = False
        """The answer is complete."""
        self.piped = False
        """From now on bytes pass as they are, both ways."""
        self.keep = call.keep_alive and not call.hijack
        """Once ended: the client's connection can carry another request."""
        self.reusable = False
        """Once ended: the daemon keeps its connection, and nothing of this exchange is left on it."""

    @property
    def may_pipe(self) -> bool:
        """The answer that opens a pipe may still come."""
        return self._call.hijack and not self.status

    @property
    def uploaded(self) -> bool:
        """Nothing of the client's body is left on its connection."""
        return self._upload is None or self._upload.done

    @property
    def rest(self) -> bytes:
        """What was fed from the client and lies behind its body."""
        return b"" if self._upload is None else self._upload.rest

    def from_client(self, data: bytes) -> bytes:
        """A piece of the upload in the gate's own frames; raises Malformed."""
        decoder = self._upload
        if decoder is None:
            return b""
        body = decoder.feed(data)
        return _chunked(body, last=decoder.done) if self._call.upload.kind is Kind.CHUNKED else body

    def from_daemon(self, data: bytes) -> bytes:
        """A piece of the answer in the client's frames; raises Malformed."""
        if self._decoder is not None:
            return self._relayed(data)
        if self._held:
            data = self._held + data
        while True:
            end = data.find(b"\r\n\r\n") + 4
            if end < 4:
                if len(data) > heads.HEAD_MAX:
                    raise Malformed(502, "wire.answer", "the daemon's answer has a head that is too long")
                self._held = data
                return b""
            head, data = data[:end], data[end:]
            # an answer while the upload still runs may end with bytes of it unread: they are no next request
            plan = _plan(head, self._call.method, self._call.version, self.keep and self.uploaded)
            if plan.status >= 200:
                return self._opened(plan, head, data)
            if plan.status == 101:
                return self._upgraded(head, data)

    def daemon_ended(self) -> bytes:
        """The daemon closed its side; raises Truncated where the answer is not whole."""
        if self._decoder is None:
            raise Truncated("it closed the connection without an answer")
        try:
            self._decoder.eof()
        except Truncated as fault:
            raise Truncated("it closed the connection in the middle of an answer") from fault
        return self._end(b"")

    def _upgraded(self, head: bytes, data: bytes) -> bytes:
        if not self._call.hijack:
            raise Malformed(502, "wire.answer", "the daemon's answer changes the protocol, which nobody asked for")
        self.status = 101
        self.piped = True
        return messages.upgraded(heads.parse_response(head), asked=self._call.upgrade) + data

    def _opened(self, plan: _Plan, head: bytes, data: bytes) -> bytes:
        """The head for the client, and what of the body is there already."""
        call = self._call
        self.status = plan.status
        self.shown = not call.hidden(plan.status)
        self.keep = self.keep and self.uploaded and plan.out.kind is not Kind.CLOSE
        self.reusable = plan.persistent and self.uploaded
        self._decoder = framing.answer_decoder(plan.body)
        self._rewrite = call.rewrite(plan.status) if plan.body.kind is not Kind.NONE else None
        if not self.shown or self._rewrite is not None:
            self._head, self._kept = head, []
            return self._relayed(data)
        self._wraps = plan.out.kind is Kind.CHUNKED
        return plan.head + self._relayed(data)

    def _relayed(self, data: bytes) -> bytes:
        decoder = self._decoder
        if decoder is None:
            return b""
        body = decoder.feed(data) if data else b""
        return self._end(body) if decoder.done else self._passed(body)

    def _passed(self, body: bytes) -> bytes:
        if self._kept is None:
            return framing.chunk(body) if self._wraps and body else body
        self._size += len(body)
        if self._size > self._call.held_max:
            raise Malformed(502, "wire.answer", "the daemon's answer is too long")
        self._kept.append(body)
        return b""

    def _end(self, body: bytes) -> bytes:
        self.ended = True
        if self._decoder is not None and self._decoder.rest:
            self.reusable = False
        if self._kept is None:
            return _chunked(body, last=True) if self._wraps else body
        self._passed(body)
        if not self.shown or self._rewrite is None:
            return b""
        said = self._rewrite(b"".join(self._kept))
        head, _ = messages.answer(
            heads.parse_response(self._head),
            framing.of_length(len(said)),
            method=self._call.method,
            version=self._call.version,
            keep_alive=self.keep,
        )
        return head + said


def _upload(call: Call) -> Decoder:
    plain = framing.decoder(call.upload)
    return PlainTar(plain) if call.plain_tar else plain


def _chunked(body: bytes, *, last: bool) -> bytes:
    framed = framing.chunk(body) if body else b""
    return framed + framing.LAST_CHUNK if last else framed


@dataclass(frozen=True, slots=True)
class _Plan:
    """An answer's head, read and written anew."""

    status: int
    body: Framing
    """As the daemon sends it."""
    head: bytes
    """For the client."""
    out: Framing
    """As the client gets it."""
    persistent: bool
    """The daemon keeps its connection, as far as the head says."""


def _plan(head: bytes, method: str, version: tuple[int, int], keep: bool) -> _Plan:
    return (_kept_plan if len(head) <= _KEPT_HEAD_MAX else _new_plan)(head, method, version, keep)


def _new_plan(head: bytes, method: str, version: tuple[int, int], keep: bool) -> _Plan:
    """Depends on nothing but its arguments; raises Malformed."""
    response = heads.parse_response(head)
    body = heads.response_framing(response, method)
    written, out = messages.answer(response, body, method=method, version=version, keep_alive=keep)
    persistent = response.persistent and body.kind is not Kind.CLOSE
    return _Plan(response.status, body, written, out, persistent)


_kept_plan = lru_cache(maxsize=_KEPT_HEADS)(_new_plan)
