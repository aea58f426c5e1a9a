"""Writing heads: requests to the daemon, its answers to the client, and the gate's own answers.

Only names and values that can't break a head are written; framing headers are always the gate's own.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus

from gpugrant_gate.wire import framing, versions
from gpugrant_gate.wire.framing import Framing, Kind
from gpugrant_gate.wire.heads import Headers, ResponseHead

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_TARGET = re.compile(r"/[\x21-\x22\x24-\x5b\x5d-\x7e]*")
_OWN = frozenset(
    {
        "connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "proxy-connection",
        "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Hop-by-hop headers (RFC 9110 7.6.1): never taken over from anybody."""

_PASSED = frozenset(
    {
        "api-version", "builder-version", "content-type", "date", "docker-experimental", "ostype", "server", "swarm",
    }
)  # fmt: skip
"""Headers of the daemon's answers that clients use; with X-Docker-*. The others stay behind the gate."""
_PASSED_ON_UPGRADE = frozenset({"sec-websocket-accept", "sec-websocket-protocol"})


class Unwritable(ValueError):
    """A head that would not be read as it is meant; nothing was written."""


def request(
    method: str, target: str, headers: Headers, body: Framing, *, upgrade: str = "", keep_alive: bool = False
) -> bytes:
    """The head of a request to the daemon; raises Unwritable. `upgrade`: the protocol asked for, or empty."""
    if not re.fullmatch(r"[A-Z]{1,16}", method) or not _TARGET.fullmatch(target):
        raise Unwritable("a request line of the gate's own is malformed")
    lines = [f"{method} {target} HTTP/1.1", "Host: docker"]
    lines += [f"{_canonical(name)}: {_value(value)}" for name, value in headers if name not in _OWN]
    if upgrade:
        lines += ["Connection: Upgrade", f"Upgrade: {_value(upgrade)}"]
    elif not keep_alive:
        lines.append("Connection: close")
    lines += _framing_lines(body, empty=method in ("POST", "PUT"))
    return _head(lines)


def answer(
    head: ResponseHead, body: Framing, *, method: str, version: tuple[int, int], keep_alive: bool
) -> tuple[bytes, Framing]:
    """The head of the daemon's answer as the client gets it, and how its body is framed there."""
    lines = [f"HTTP/1.1 {head.status} {_reason(head)}"]
    lines += _passed(head, frozenset())
    out = body
    if body.kind in (Kind.CHUNKED, Kind.CLOSE):
        out = framing.CHUNKED if version == (1, 1) else framing.CLOSE
    if method == "HEAD":
        lines += [f"Content-Length: {int(value)}" for value in _lengths(head)]
    elif head.status not in (204, 304):
        lines += _framing_lines(out, empty=True)
    if not keep_alive:
        lines.append("Connection: close")
    return _head(lines), out


def upgraded(head: ResponseHead, *, asked: bool) -> bytes:
    """The head that opens the byte pipe: the daemon's 101, or its 200 form for a client that sent no Upgrade."""
    lines = ["HTTP/1.1 200 OK"] if not asked else [f"HTTP/1.1 101 {_reason(head)}"]
    lines += _passed(head, _PASSED_ON_UPGRADE)
    if asked:
        protocol = next((value for name, value in head.headers if name == "upgrade"), "tcp")
        lines += ["Connection: Upgrade", f"Upgrade: {_printable(protocol)}"]
    return _head(lines)


def error(status: int, message: str, *, method: str = "GET", keep_alive: bool = False) -> bytes:
    """A whole answer of the gate's own, in the form that the docker CLI prints."""
    body = json.dumps({"message": message}).encode() + b"\n"
    return local(status, body, "application/json", method=method, keep_alive=keep_alive)


def local(status: int, body: bytes, media_type: str, *, method: str = "GET", keep_alive: bool = False) -> bytes:
    """A whole answer of the gate's own."""
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Content-Type: {media_type}",
        f"Content-Length: {len(body)}",
    ]
    if not keep_alive:
        lines.append("Connection: close")
    return _head(lines) + (b"" if method == "HEAD" else body)


def _passed(head: ResponseHead, more: frozenset[str]) -> list[str]:
    lines = []
    for name, value in head.headers:
        if name in _PASSED or name in more or name.startswith("x-docker-"):
            text = versions.at_most(value) if name == "api-version" else value
            lines.append(f"{_canonical(name)}: {_printable(text)}")
    return lines


def _lengths(head: ResponseHead) -> list[str]:
    values = [value for name, value in head.headers if name == "content-length"]
    return values if len(values) == 1 and re.fullmatch(r"[0-9]{1,18}", values[0]) else []


def _framing_lines(body: Framing, *, empty: bool) -> list[str]:
    match body.kind:
        case Kind.LENGTH:
            return [f"Content-Length: {body.length}"]
        case Kind.CHUNKED:
            return ["Transfer-Encoding: chunked"]
        case Kind.NONE:
            return ["Content-Length: 0"] if empty else []
        case Kind.CLOSE:
            return []


def _reason(head: ResponseHead) -> str:
    return _printable(head.reason) or "-"


def _canonical(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Unwritable("a header's name is malformed")
    return name.title()


def _value(value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise Unwritable("a header's value is malformed")
    return value


def _printable(value: str) -> str:
    """A value of the daemon's; its head was parsed, so only bytes above ASCII can be there."""
    return value if _VALUE.fullmatch(value) else re.sub(r"[^\t\x20-\x7e]", "?", value)


def _head(lines: list[str]) -> bytes:
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
