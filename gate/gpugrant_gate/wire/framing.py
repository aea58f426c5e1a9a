"""Where a body ends (RFC 9112 6), and taking it out of its frames. Chunk extensions and trailers are dropped."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import httptools

from gpugrant_gate.wire.faults import Malformed, Truncated

_CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_LINE_MAX = 4096
"""Bytes of one chunk-size line with its extensions; Go's net/http takes the same."""
_TRAILERS_MAX = 16 * 1024
"""Bytes of all trailers together; they are read only to be dropped."""

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
"""chunk-size [ chunk-ext ] of RFC 9112 7.1; 15 digits can't overflow an int64 in the daemon."""
_PLAIN_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
"""The same without an extension, its line end included: what everybody sends."""
_TRAILER_LINE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")


class Kind(Enum):
    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"
    """Until the peer closes: answers only."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How a body is delimited; `length` is in bytes and counts only for LENGTH."""

    kind: Kind
    length: int = 0


NONE = Framing(Kind.NONE)
CHUNKED = Framing(Kind.CHUNKED)
CLOSE = Framing(Kind.CLOSE)
LAST_CHUNK = b"0\r\n\r\n"


def of_length(length: int) -> Framing:
    return Framing(Kind.LENGTH, length) if length else NONE


def chunk(data: bytes) -> bytes:
    """One chunk; `data` must not be empty, an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Decoder(Protocol):
    """Takes bytes as they come, gives the body's bytes; what follows the body is in `rest` once `done`."""

    done: bool
    rest: bytes

    def feed(self, data: bytes) -> bytes:
        """The body's bytes in `data`; raises Malformed."""

    def eof(self) -> None:
        """The peer closed; raises Truncated where the body is not complete."""


def decoder(framing: Framing) -> Decoder:
    match framing.kind:
        case Kind.NONE:
            return LengthDecoder(0)
        case Kind.LENGTH:
            return LengthDecoder(framing.length)
        case Kind.CHUNKED:
            return ChunkedDecoder()
        case Kind.CLOSE:
            return CloseDecoder()


def answer_decoder(framing: Framing) -> Decoder:
    """The same for what a daemon sends."""
    return AnswerChunks() if framing.kind is Kind.CHUNKED else decoder(framing)


class LengthDecoder:
    """A body of a known number of bytes."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        if len(data) < self._left:
            self._left -= len(data)
            return data
        body, self.rest = data[: self._left], self.rest + data[self._left :]
        self._left = 0
        self.done = True
        return body

    def eof(self) -> None:
        if not self.done:
            raise Truncated(f"{self._left} bytes of the body are missing")


class CloseDecoder:
    """A body that ends when the peer closes."""

    def __init__(self) -> None:
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        return data

    def eof(self) -> None:
        self.done = True


class _At(Enum):
    SIZE = "size"
    DATA = "data"
    DATA_END = "data end"
    TRAILERS = "trailers"
    END = "end"


class ChunkedDecoder:
    """RFC 9112 7.1, CRLF only: a bare LF in a size line is where parsers disagree."""

    def __init__(self) -> None:
        self._at = _At.SIZE
        self._held = b""
        self._left = 0
        self._trailers = 0
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        if self.done:
            self.rest += data
            return b""
        data = self._held + data if self._held else data
        self._held = b""
        pieces: list[bytes] = []
        position = 0
        while not self.done:
            if self._at is _At.SIZE:
                position = _whole_chunks(data, position, pieces)
            following = self._step(data, position, pieces)
            if following is None:
                self._held = data[position:]
                break
            position = following
        if self.done:
            self.rest = data[position:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def eof(self) -> None:
        if not self.done:
            raise Truncated("the last chunk is missing")

    def _step(self, data: bytes, position: int, pieces: list[bytes]) -> int | None:
        """The position behind one element; None when more bytes are needed."""
        match self._at:
            case _At.SIZE:
                return self._size(data, position)
            case _At.DATA:
                return self._data(data, position, pieces)
            case _At.DATA_END:
                return self._data_end(data, position)
            case _:
                return self._trailer(data, position)

    def _size(self, data: bytes, position: int) -> int | None:
        end = _line_end(data, position, _LINE_MAX)
        if end is None:
            return None
        match = _SIZE_LINE.fullmatch(data, position, end)
        if match is None:
            raise Malformed(400, "wire.chunk", "a chunk's size line is malformed")
        self._left = int(match[1], 16)
        self._at = _At.DATA if self._left else _At.TRAILERS
        return end + 2

    def _data(self, data: bytes, position: int, pieces: list[bytes]) -> int | None:
        piece = data[position : position + self._left]
        if not piece:
            return None
        pieces.append(piece)
        self._left -= len(piece)
        if not self._left:
            self._at = _At.DATA_END
        return position + len(piece)

    def _data_end(self, data: bytes, position: int) -> int | None:
        end = data[position : position + 2]
        if end == b"\r\n":
            self._at = _At.SIZE
            return position + 2
        if end in (b"", b"\r"):
            return None
        raise Malformed(400, "wire.chunk", "a chunk is longer than its size line says")

    def _trailer(self, data: bytes, position: int) -> int | None:
        end = _line_end(data, position, _TRAILERS_MAX)
        if end is None:
            return None
        if end == position:
            self._at = _At.END
            self.done = True
            return end + 2
        self._trailers += end - position
        if self._trailers > _TRAILERS_MAX or not _TRAILER_LINE.fullmatch(data, position, end):
            raise Malformed(400, "wire.trailer", "a chunked body's trailers are malformed or too long")
        return end + 2


class AnswerChunks:
    """The chunks of a daemon's answer, read by llhttp, ten times faster: a log comes as one a line.

    Nobody attacks by an answer, so nothing here has to be stricter than the daemon. `rest` is not empty where anything
    but line ends followed the last chunk; where it begins is not known.
    """

    def __init__(self) -> None:
        self.done = False
        self.rest = b""
        self._begun = 0
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._parser.feed_data(_CHUNKED_HEAD)

    def on_message_begin(self) -> None:
        self._begun += 1

    def on_message_complete(self) -> None:
        self.done = True

    def feed(self, data: bytes) -> bytes:
        if self._parser is None:
            self.rest += data
            return b""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self.done:
                raise Malformed(502, "wire.answer", "the daemon's answer has a malformed chunk") from error
            self._begun += 1
        if self.done:
            self._parser = None
            self.rest = data if self._begun > 1 else b""
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        return body

    def eof(self) -> None:
        if not self.done:
            raise Truncated("the last chunk is missing")


def _whole_chunks(data: bytes, position: int, pieces: list[bytes]) -> int:
    """Takes the chunks that are there whole, the position behind them: of small ones a read holds thousands."""
    while (match := _PLAIN_SIZE.match(data, position)) is not None:
        start = match.end()
        end = start + int(match[1], 16)
        if end == start or data[end : end + 2] != b"\r\n":
            break
        pieces.append(data[start:end])
        position = end + 2
    return position


def _line_end(data: bytes, position: int, most: int) -> int | None:
    end = data.find(b"\r\n", position)
    seen = (end if end >= 0 else len(data)) - position
    if seen > most:
        raise Malformed(400, "wire.chunk", f"a line of a chunked body is longer than {most} bytes")
    if end < 0:
        if b"\n" in data[position:]:
            raise Malformed(400, "wire.line-end", "lines of a chunked body must end with CRLF")
        return None
    return end
