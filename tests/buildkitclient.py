"""A BuildKit client that asks for what no Dockerfile can say: a build step of one's own making, over `POST /grpc`.

Any image may bring a frontend, so any such step may reach a daemon. Messages are those of moby/buildkit
solver/pb/ops.proto and api/services/control/control.proto, frames those of RFC 9113, without compression.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

NETWORK_DEFAULT, NETWORK_HOST, NETWORK_NONE = 0, 1, 2
INSECURE = 1

_HANG = 60.0
"""Seconds for one build step."""
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_numbers = itertools.count()


class Refused(Exception):
    """The tunnel was not opened; the message is the whole answer."""


@dataclass(frozen=True, slots=True)
class Step:
    """`RUN command` on an image, with all that a step may ask for."""

    image: str
    command: str
    network: int = NETWORK_NONE
    security: int = 0
    devices: tuple[str, ...] = ()
    cgroup_parent: str = ""
    entitlements: tuple[str, ...] = ()


def solve(daemon: Path, step: Step) -> bool:
    """Whether the step ended well; False also where BuildKit refused it. Raises Refused."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_HANG)
        sock.connect(str(daemon))
        left = _open(sock)
        message = _solve_request(step)
        sock.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + _frame(_SETTINGS, 0, 0)
            + _frame(_HEADERS, _END_HEADERS, 1, _headers())
        )
        sock.sendall(_frame(_DATA, _END_STREAM, 1, b"\0" + struct.pack(">I", len(message)) + message))
        return _answered(sock, left)


def _open(sock: socket.socket) -> bytes:
    """What came behind the daemon's 101."""
    sock.sendall(b"POST /grpc HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    said = b""
    while b"\r\n\r\n" not in said:
        data = sock.recv(65536)
        if not data:
            break
        said += data
    head, _, left = said.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 101 "):
        raise Refused(said.decode())
    return left


def _answered(sock: socket.socket, left: bytes) -> bool:
    """A message, even an empty one, comes with success alone: a call that failed has only trailers (gRPC, HTTP/2)."""
    message = b""
    while True:
        while len(left) < 9 or len(left) < 9 + int.from_bytes(left[:3]):
            data = sock.recv(65536)
            if not data:
                return False
            left += data
        end = 9 + int.from_bytes(left[:3])
        kind, flags, stream = left[3], left[4], int.from_bytes(left[5:9])
        payload, left = left[9:end], left[end:]
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            sock.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        if kind in (_RESET, _GOAWAY):
            return False
        if kind in (_DATA, _HEADERS) and stream == 1:
            message += payload if kind == _DATA else b""
            if flags & _END_STREAM:
                return bool(message)


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def _headers() -> bytes:
    """HPACK literals without indexing (RFC 7541 6.2.2)."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/moby.buildkit.v1.Control/Solve",
        ":authority": "d",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )


def _solve_request(step: Step) -> bytes:
    platform = _field(10, _field(1, "amd64") + _field(2, "linux"))
    source = _field(3, _field(1, f"docker-image://docker.io/library/{step.image}")) + platform
    # a word of its own in the environment: a step that was run before is not run again
    meta = b"".join(_field(1, word) for word in ("/bin/sh", "-c", step.command))
    meta += _field(2, "PATH=/usr/bin:/bin") + _field(2, f"N={os.getpid()}.{next(_numbers)}") + _field(3, "/")
    if step.cgroup_parent:
        meta += _field(10, step.cgroup_parent)
    run = _field(1, meta) + _field(2, _field(1, 0) + _field(3, "/") + _field(4, 0))
    run += _field(3, step.network) + _field(4, step.security)
    run += b"".join(_field(6, _field(1, device)) for device in step.devices)
    exec_ = _input(source) + _field(2, run) + platform
    definition = b"".join(_field(1, op) for op in (source, exec_, _input(exec_)))
    asked = b"".join(_field(9, entitlement) for entitlement in step.entitlements)
    return _field(1, f"probe-{os.getpid()}-{next(_numbers)}") + _field(2, definition) + asked


def _input(of: bytes) -> bytes:
    digest = hashlib.sha256(of).hexdigest()
    return _field(1, _field(1, f"sha256:{digest}") + _field(2, 0))


def _field(number: int, value: int | str | bytes) -> bytes:
    """One field of a protocol buffer."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
