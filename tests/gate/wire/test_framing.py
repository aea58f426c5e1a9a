"""Where bodies end, whatever pieces they come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_gate.wire import framing
from gpugrant_gate.wire.faults import Malformed, Truncated
from gpugrant_gate.wire.framing import CHUNKED, CLOSE, NONE, Framing, Kind


def decode(body: Framing, pieces: list[bytes]) -> tuple[bytes, bool, bytes]:
    decoder = framing.decoder(body)
    data = b"".join([decoder.feed(piece) for piece in pieces])
    return data, decoder.done, decoder.rest


WHOLE = {
    "no body": (NONE, b"NEXT", b"", b"NEXT"),
    "a length": (Framing(Kind.LENGTH, 5), b"helloNEXT", b"hello", b"NEXT"),
    "chunks": (CHUNKED, b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\nNEXT", b"hello!", b"NEXT"),
    "an empty chunked body": (CHUNKED, b"0\r\n\r\nNEXT", b"", b"NEXT"),
    "extensions, which are dropped": (CHUNKED, b'2;a=b;c="d"\r\nhi\r\n0;x\r\n\r\n', b"hi", b""),
    "trailers, which are dropped": (CHUNKED, b"2\r\nhi\r\n0\r\nX: y\r\nZ:\r\n\r\nNEXT", b"hi", b"NEXT"),
    "capital hexadecimal": (CHUNKED, b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789", b""),
    "leading zeros": (CHUNKED, b"0002\r\nhi\r\n000\r\n\r\n", b"hi", b""),
}


@pytest.mark.parametrize("case", WHOLE)
def test_takes_the_body_out_of_its_frames(case: str) -> None:
    body, data, expected, rest = WHOLE[case]
    assert decode(body, [data]) == (expected, True, rest)


@pytest.mark.parametrize("case", WHOLE)
def test_byte_by_byte_is_the_same(case: str) -> None:
    body, data, expected, rest = WHOLE[case]
    assert decode(body, [data[index : index + 1] for index in range(len(data))]) == (expected, True, rest)


BAD = {
    "a chunk that goes on where its end should be": b"3\r\nabc0\r\n\r\n",
    "a size that is no number": b"x\r\n",
    "a signed size": b"-1\r\n",
    "an empty size": b"\r\n",
    "a size above an int64": b"ffffffffffffffff\r\n",
    "a blank before the size": b" 2\r\nhi\r\n",
    "bare LF behind the size": b"2\nhi\r\n0\r\n\r\n",
    "bare LF behind the data": b"2\r\nhi\n0\r\n\r\n",
    "more data than the size says": b"2\r\nhiho\r\n0\r\n\r\n",
    "a bare CR in the size line": b"2\rx\r\nhi",
    "a NUL in an extension": b"2;\0\r\nhi",
    "an extension without an end": b"2;" + b"a" * 5000,
    "a trailer that is no header": b"0\r\nGET / HTTP/1.1\r\n\r\n",
    "trailers without an end": b"0\r\n" + b"X: " + b"a" * 20000,
}


@pytest.mark.req("R4")
@pytest.mark.parametrize("case", BAD)
def test_refuses_other_chunks(case: str) -> None:
    with pytest.raises(Malformed) as fault:
        decode(CHUNKED, [BAD[case]])
    assert fault.value.status == 400


@given(st.binary(max_size=200), st.data())
def test_any_bytes_are_chunks_or_malformed_in_any_pieces(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=5)))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert outcome(pieces) == outcome([data])


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.data())
def test_what_is_chunked_comes_back(parts: list[bytes], draw: st.DataObject) -> None:
    data = b"".join(map(framing.chunk, parts)) + framing.LAST_CHUNK + b"NEXT"
    cut = draw.draw(st.integers(0, len(data)))
    assert decode(CHUNKED, [data[:cut], data[cut:]]) == (b"".join(parts), True, b"NEXT")


def answered(pieces: list[bytes]) -> tuple[bytes, bool, bool]:
    """An answer's body, whether it is whole, and whether anything followed it."""
    decoder = framing.answer_decoder(CHUNKED)
    data = b"".join([decoder.feed(piece) for piece in pieces])
    return data, decoder.done, bool(decoder.rest)


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", b"x", b"\0", b"5\r\nhello\r\n"]),
    st.data(),
)
def test_an_answers_chunks_come_back_cut_anywhere(parts: list[bytes], behind: bytes, draw: st.DataObject) -> None:
    data = b"".join(map(framing.chunk, parts)) + framing.LAST_CHUNK + behind
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=5)))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert answered(pieces) == (b"".join(parts), True, bool(behind))


@given(st.binary(max_size=200))
def test_what_a_client_may_send_a_daemon_may_too(data: bytes) -> None:
    """Where the strict reader takes a whole body, the fast one reads the same."""
    try:
        body, done, rest = decode(CHUNKED, [data])
    except Malformed:
        return
    if done and not rest:
        assert answered([data]) == (body, True, False)


def test_an_answer_without_its_last_chunk_is_cut() -> None:
    decoder = framing.answer_decoder(CHUNKED)
    decoder.feed(b"5\r\nhel")
    with pytest.raises(Truncated):
        decoder.eof()


def outcome(pieces: list[bytes]) -> object:
    try:
        return decode(CHUNKED, pieces)
    except Malformed as fault:
        return fault.status


@pytest.mark.parametrize(("body", "data"), [(Framing(Kind.LENGTH, 5), b"hel"), (CHUNKED, b"5\r\nhel"), (CHUNKED, b"")])
def test_a_peer_that_closes_too_early_is_noticed(body: Framing, data: bytes) -> None:
    decoder = framing.decoder(body)
    decoder.feed(data)
    with pytest.raises(Truncated):
        decoder.eof()


def test_a_body_until_the_end_ends_with_the_connection() -> None:
    decoder = framing.decoder(CLOSE)
    assert decoder.feed(b"abc") == b"abc"
    assert not decoder.done
    decoder.eof()
    assert decoder.done
