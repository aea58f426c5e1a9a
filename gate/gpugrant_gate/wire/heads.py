"""Heads of requests and answers: strict on what a client sends, since every leniency is a second reading.

A request head passes only where two parsers agree: the patterns here, and llhttp (httptools), which others fuzz.
What Go's net/http, h11 and llhttp read differently is refused (the table is the test's).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import httptools

from gpugrant_gate.wire import framing
from gpugrant_gate.wire.faults import Malformed
from gpugrant_gate.wire.framing import Framing

HEAD_MAX = 64 * 1024
"""Bytes of a head, where nothing else is said. Go's default is 1 MiB; docker sends a few KiB (X-Registry-Config)."""
HEADERS_MAX = 128
"""Header lines of a request; real clients send fewer than 20."""

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_TARGET = re.compile(r"/[\x21-\x22\x24-\x5b\x5d-\x7e]*")
"""Origin-form without `#` and `\\`, which URL parsers cut or turn."""
_HEADER_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e]*)")
"""field-name ":" OWS field-value of RFC 9112 5, ASCII only; no folding, no blank before the colon."""
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
_ANSWER_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_LENGTH = re.compile(r"[0-9]{1,18}")
"""At most 18 digits: fits an int64, which is what the daemon parses into."""
_BARE_LF = re.compile(rb"(?:^|[^\r])\n")

_ONCE = frozenset({"host", "content-length", "transfer-encoding", "content-type", "expect", "upgrade"})
"""Of two such headers Go takes the first, its AuthZ plug-ins the last: none is right."""

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request's head, framing included, that can't be read in two ways."""

    method: str
    target: str
    headers: Headers
    """Names in lower case, in the order sent."""
    version: tuple[int, int]
    framing: Framing
    keep_alive: bool
    expects_continue: bool
    upgrade: bool
    """An `Upgrade` header is there, whatever its value: attach and exec look at nothing else."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """An answer's head as the daemon wrote it."""

    status: int
    reason: str
    headers: Headers
    persistent: bool
    """The daemon will take another request on this connection (RFC 9112 9.3)."""


def find_end(data: bytes | bytearray, seen: int = 0, most: int = HEAD_MAX) -> int:
    """The index behind the head's empty line, 0 when more bytes are needed; raises Malformed as early as it is sure,
    and of two faults the first one, so that it does not matter in which pieces a head comes.

    `seen`: so many bytes were looked at before; a head that comes byte by byte is read once, not once a byte.
    """
    end = data.find(b"\r\n\r\n", max(seen - 3, 0), most)
    bare = _BARE_LF.search(data, max(seen - 1, 0), end if end >= 0 else most)
    first = data.find(b"\r\n")
    if first >= max(seen - 1, 0) and (bare is None or first < bare.start()):
        _request_line(bytes(data[:first]))
    if bare is not None:
        raise Malformed(400, "wire.line-end", "lines of the request's head must end with CRLF")
    if end >= 0:
        return end + 4
    if len(data) >= most:
        raise Malformed(431, "wire.head-size", f"the request's head is longer than {most / 1024:g} KiB")
    return 0


def parse_request(head: bytes) -> RequestHead:
    """The request whose head is `head`, its empty line included; raises Malformed."""
    lines = head[:-4].split(b"\r\n")
    method, target, version = _request_line(lines[0])
    headers = _headers(lines[1:], _HEADER_LINE)
    if len(headers) > HEADERS_MAX:
        raise Malformed(431, "wire.head-size", f"the request has more than {HEADERS_MAX} headers")
    _second_opinion(head, method, target, headers)
    single = _single(headers)
    body = _request_framing(single, version)
    connection = _tokens(headers, "connection")
    return RequestHead(
        method=method,
        target=target,
        headers=headers,
        version=version,
        framing=body,
        keep_alive=version == (1, 1) and "close" not in connection,
        expects_continue=_expects_continue(single, version),
        upgrade="upgrade" in single,
    )


def parse_response(head: bytes) -> ResponseHead:
    """The answer whose head is `head`, its empty line included; raises Malformed."""
    lines = head[:-4].split(b"\r\n")
    match = _STATUS_LINE.fullmatch(lines[0])
    if match is None:
        raise Malformed(502, "wire.answer", "the daemon's answer is no HTTP/1 answer")
    try:
        headers = _headers(lines[1:], _ANSWER_LINE)
    except Malformed as error:
        raise Malformed(502, "wire.answer", "the daemon's answer has a malformed header") from error
    persistent = lines[0].startswith(b"HTTP/1.1") and "close" not in _tokens(headers, "connection")
    return ResponseHead(int(match[1]), (match[2] or b"").decode("latin-1"), headers, persistent)


def response_framing(head: ResponseHead, method: str) -> Framing:
    """Where the body of this answer to a `method` request ends (RFC 9112 6.3); raises Malformed."""
    if method == "HEAD" or head.status < 200 or head.status in (204, 304):
        return framing.NONE
    encodings = [value.strip().lower() for name, value in head.headers if name == "transfer-encoding"]
    lengths = {value.strip() for name, value in head.headers if name == "content-length"}
    if encodings:
        if encodings != ["chunked"] or lengths:
            raise Malformed(502, "wire.answer", "the daemon's answer is framed in a way that this gate can't read")
        return framing.CHUNKED
    if not lengths:
        return framing.CLOSE
    (length, *others) = lengths
    if others or not _LENGTH.fullmatch(length):
        raise Malformed(502, "wire.answer", "the daemon's answer has a malformed Content-Length")
    return framing.of_length(int(length))


def _request_line(line: bytes) -> tuple[str, str, tuple[int, int]]:
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise Malformed(400, "wire.request-line", "the request line is malformed")
    method, target = match[1].decode(), match[2].decode()
    version = (int(match[3]), int(match[4]))
    if version not in ((1, 0), (1, 1)):
        # An HTTP/2 preface lands here as well: answered as a daemon without HTTP/2 does, so that clients
        # which probe for it (buildx) fall back to HTTP/1.1.
        raise Malformed(505, "wire.version", "only HTTP/1.0 and HTTP/1.1 are spoken here")
    if not _TARGET.fullmatch(target):
        raise Malformed(400, "wire.target", "the request's target must be a path that starts with /")
    return method, target, version


def _headers(lines: list[bytes], pattern: re.Pattern[bytes]) -> Headers:
    headers = []
    for line in lines:
        match = pattern.fullmatch(line)
        if match is None:
            raise Malformed(400, "wire.header", "a header line is malformed")
        headers.append((match[1].decode("ascii").lower(), match[2].decode("latin-1").strip(" \t")))
    return tuple(headers)


def _single(headers: Headers) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        if name in _ONCE:
            if name in found:
                raise Malformed(400, "wire.duplicate-header", f'the header "{name}" is there twice')
            found[name] = value
    return found


def _request_framing(single: dict[str, str], version: tuple[int, int]) -> Framing:
    encoding, length = single.get("transfer-encoding"), single.get("content-length")
    if encoding is not None and length is not None:
        raise Malformed(400, "wire.framing", "Content-Length and Transfer-Encoding exclude each other")
    if encoding is not None:
        if version == (1, 0):
            # Go ignores it in HTTP/1.0 and would read the chunks as the next request.
            raise Malformed(411, "wire.framing", "an HTTP/1.0 request needs a Content-Length")
        if encoding.lower() != "chunked":
            raise Malformed(400, "wire.framing", 'the only Transfer-Encoding taken is "chunked"')
        return framing.CHUNKED
    if length is None:
        return framing.NONE
    if not _LENGTH.fullmatch(length):
        raise Malformed(400, "wire.framing", "Content-Length must be a number")
    return framing.of_length(int(length))


def _expects_continue(single: dict[str, str], version: tuple[int, int]) -> bool:
    expect = single.get("expect")
    if expect is None:
        return False
    if expect.lower() != "100-continue":
        raise Malformed(417, "wire.expect", 'the only expectation met is "100-continue"')
    return version == (1, 1)


def _tokens(headers: Headers, name: str) -> frozenset[str]:
    return frozenset(token.strip().lower() for key, value in headers if key == name for token in value.split(","))


class _Seen:
    """What llhttp tells of a head."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete = True


def _second_opinion(head: bytes, method: str, target: str, headers: Headers) -> None:
    seen = _Seen()
    parser = httptools.HttpRequestParser(seen)
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        pass  # raised behind the head of a request with Upgrade: the head itself was read
    except httptools.HttpParserError as error:
        raise Malformed(400, "wire.head", "the request's head is malformed") from error
    theirs = tuple((name.decode("ascii").lower(), value.decode("latin-1").strip(" \t")) for name, value in seen.headers)
    agreed = (
        seen.complete
        and seen.target == target.encode()
        and parser.get_method() == method.encode()
        and theirs == headers
    )
    if not agreed:
        raise Malformed(400, "wire.head", "the request's head can be read in two ways")
