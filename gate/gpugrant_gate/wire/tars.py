"""A stream that must be a plain tar: the one form that a daemon unpacks without a helper program.

Daemons before 29.5.1 look for `xz` and `unpigz` in the container that a compressed archive is put into, and run what
they find there as root of the machine, outside of the container's device cgroup (CVE-2026-41567).
"""

from __future__ import annotations

from gpugrant_gate.wire.faults import Malformed
from gpugrant_gate.wire.framing import Decoder

BLOCK = 512
"""Bytes of a tar's header."""
_MAGIC = slice(257, 262)
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
"""How gzip, bzip2, xz and zstd begin; a daemon looks at nothing else (moby go-archive compression.Detect)."""
_SKIPPABLE = b"\x2a\x4d\x18"
"""Behind a byte 0x50 to 0x5f: a frame that zstd skips, at the start of a stream too."""


class PlainTar:
    """Holds a body back until its first block is there; raises Malformed where that is not a tar's."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner
        self._head = b""
        self._judged = False
        self.done = inner.done
        self.rest = inner.rest

    def feed(self, data: bytes) -> bytes:
        body = self._inner.feed(data)
        self.done, self.rest = self._inner.done, self._inner.rest
        if self._judged:
            return body
        self._head += body
        if len(self._head) < BLOCK and not self.done:
            return b""
        _check(self._head)
        self._judged = True
        body, self._head = self._head, b""
        return body

    def eof(self) -> None:
        self._inner.eof()


def _check(head: bytes) -> None:
    block = head[:BLOCK]
    if not block.strip(b"\0"):
        return  # an empty body, or a tar without entries
    if block.startswith(_COMPRESSED) or (block[1:4] == _SKIPPABLE and 0x50 <= block[0] <= 0x5F):
        raise Malformed(
            415,
            "wire.tar",
            "a compressed archive is refused, for a daemon may unpack it with a program out of the container: send "
            "the tar itself",
        )
    if block[_MAGIC] != b"ustar":
        raise Malformed(415, "wire.tar", "the body must be a tar archive (ustar, PAX or GNU)")
