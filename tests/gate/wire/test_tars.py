"""What a stream into a container may be: a tar, uncompressed, however it is cut into pieces."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile

import pytest

from gpugrant_gate.wire import framing
from gpugrant_gate.wire.faults import Malformed
from gpugrant_gate.wire.tars import BLOCK, PlainTar


def archive(form: int = tarfile.PAX_FORMAT, name: str = "f") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        member = tarfile.TarInfo(name)
        member.size = 3
        tar.addfile(member, io.BytesIO(b"abc"))
    return out.getvalue()


TAR = archive()
PASSES = {
    "PAX": TAR,
    "GNU": archive(tarfile.GNU_FORMAT),
    "ustar": archive(tarfile.USTAR_FORMAT),
    "a tar without entries": bytes(1024),
    "nothing": b"",
}


@pytest.mark.parametrize("size", [1, 3, BLOCK - 1, BLOCK, 10_000])
@pytest.mark.parametrize("body", PASSES.values(), ids=PASSES.keys())
def test_a_tar_passes_unchanged_in_any_pieces(body: bytes, size: int) -> None:
    decoder = PlainTar(framing.decoder(framing.of_length(len(body))))
    pieces = [decoder.feed(body[at : at + size]) for at in range(0, len(body), size)]
    assert b"".join(pieces) == body
    assert decoder.done


def test_what_follows_the_body_is_no_part_of_it() -> None:
    decoder = PlainTar(framing.decoder(framing.CHUNKED))
    body = b"".join((framing.chunk(TAR[:100]), framing.chunk(TAR[100:]), framing.LAST_CHUNK))
    assert decoder.feed(body + b"GET /") == TAR
    assert (decoder.done, decoder.rest) == (True, b"GET /")


REFUSED = {
    "gzip": gzip.compress(TAR),
    "bzip2": bz2.compress(TAR),
    "xz": lzma.compress(TAR),
    "zstd": b"\x28\xb5\x2f\xfd" + bytes(600),
    "a frame that zstd skips": b"\x5a\x2a\x4d\x18" + bytes(600),
    "a gzip head that is a tar's block as well": b"\x1f\x8b\x08" + TAR[3:],
    "a file name that begins like bzip2": archive(name="BZh9"),
    "text": b"x" * 1024,
    "less than a block": TAR[:200],
}


@pytest.mark.parametrize("size", [1, 200, 10_000])
@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_refuses_before_a_byte_goes_on(body: bytes, size: int) -> None:
    decoder = PlainTar(framing.decoder(framing.of_length(len(body))))
    passed: list[bytes] = []
    with pytest.raises(Malformed) as refused:
        passed.extend(decoder.feed(body[at : at + size]) for at in range(0, len(body), size))
    assert (refused.value.status, refused.value.rule) == (415, "wire.tar")
    assert b"".join(passed) == b""
