"""A request and its answer in any pieces: the same bytes come out, and nothing that is not whole looks whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_gate.wire import framing, versions
from gpugrant_gate.wire.exchange import Call, Exchange, Rewrite
from gpugrant_gate.wire.faults import Malformed, Truncated
from gpugrant_gate.wire.framing import CHUNKED, Framing, Kind

GET = Call("GET")
OLD = Call("GET", version=(1, 0), keep_alive=False)


def clamped(status: int) -> Rewrite | None:
    return versions.clamp_version_body if status == 200 else None


HIJACK = Call("POST", hijack=True, upgrade=True)

CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWERS = {
    "a length": (GET, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
    "chunks": (GET, CHUNKS + b"3\r\nhel\r\n2;a\r\nlo\r\n0\r\nX: y\r\n\r\n", b"hello"),
    "until the end": (GET, b"HTTP/1.1 200 OK\r\n\r\nhello", b"hello"),
    "nothing": (GET, b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "an empty body": (GET, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    "a hint before it": (GET, b"HTTP/1.1 103 A\r\nLink: x\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\nx", b"x"),
    "to HEAD": (Call("HEAD"), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b""),
    "chunks for an old client": (OLD, CHUNKS + b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    "a version": (
        Call("GET", rewrite=clamped),
        b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"ApiVersion":"1.999"}'.replace(b"21", b"22"),
        b'{"ApiVersion":"1.51"}\n',
    ),
    "a refused pipe": (HIJACK, b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno", b"no"),
}  # fmt: skip


def answered(call: Call, data: bytes, cuts: list[int]) -> tuple[bytes, Exchange]:
    """All that the client gets of an answer that comes in these pieces and is followed by the daemon's end."""
    exchange = Exchange(call)
    places = sorted({min(cut, len(data)) for cut in cuts})
    out = b"".join(
        exchange.from_daemon(data[start:end]) for start, end in zip([0, *places], [*places, len(data)], strict=True)
    )
    return out if exchange.ended else out + exchange.daemon_ended(), exchange


def body_of(said: bytes) -> bytes:
    """What a client takes out of an answer's frames."""
    head, _, rest = said.partition(b"\r\n\r\n")
    return framing.decoder(CHUNKED).feed(rest) if b"chunked" in head else rest


@pytest.mark.parametrize("case", ANSWERS)
def test_relays_an_answer_cut_anywhere(case: str) -> None:
    call, data, body = ANSWERS[case]
    whole, exchange = answered(call, data, [])
    assert body_of(whole) == body
    for cut in range(len(data)):
        said, other = answered(call, data, [cut])
        assert body_of(said) == body
        assert said.partition(b"\r\n\r\n")[0] == whole.partition(b"\r\n\r\n")[0]
        assert (other.status, other.keep, other.reusable) == (exchange.status, exchange.keep, exchange.reusable)
    assert body_of(answered(call, data, list(range(len(data))))[0]) == body


REUSE = {
    "a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", True),
    "chunks": (CHUNKS + b"0\r\n\r\n", True),
    "an answer that says close": (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi", False),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", False),
    "a body until the end": (b"HTTP/1.1 200 OK\r\n\r\nhi", False),
    "more than the length says": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi!", False),
    "a byte behind the last chunk": (CHUNKS + b"0\r\n\r\n!", False),
    "a body where there is none": (b"HTTP/1.1 204 No Content\r\n\r\n!", False),
}


@pytest.mark.req("R4")
@pytest.mark.parametrize("case", REUSE)
def test_a_connection_is_used_again_only_behind_a_whole_answer(case: str) -> None:
    data, reusable = REUSE[case]
    _, exchange = answered(GET, data, [])
    assert exchange.ended
    assert exchange.reusable is reusable


CUT = {
    "nothing at all": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "a hint alone": b"HTTP/1.1 103 Early\r\n\r\n",
    "half a length": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
    "chunks without the last": CHUNKS + b"3\r\nhel\r\n",
}


@pytest.mark.parametrize("case", CUT)
def test_an_answer_that_is_cut_is_never_ended(case: str) -> None:
    exchange = Exchange(GET)
    out = exchange.from_daemon(CUT[case])
    with pytest.raises(Truncated):
        exchange.daemon_ended()
    assert not exchange.ended
    assert b"0\r\n\r\n" not in out


BROKEN = {
    "no HTTP": b"SSH-2.0\r\n\r\n",
    "a head without an end": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
    "two framings": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
    "a protocol that nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\n\r\n",
    "broken chunks": CHUNKS + b"zz\r\n",
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_answer_is_a_fault(case: str) -> None:
    with pytest.raises(Malformed):
        Exchange(GET).from_daemon(BROKEN[case])


@given(st.binary(max_size=200), st.sampled_from([GET, OLD, HIJACK, replace(GET, rewrite=clamped)]))
def test_any_bytes_of_a_daemon_are_relayed_or_a_fault(data: bytes, call: Call) -> None:
    exchange = Exchange(call)
    try:
        exchange.from_daemon(b"HTTP/1.1 200 OK\r\n" + data)
        if not exchange.ended:
            exchange.daemon_ended()
    except (Malformed, Truncated):
        return
    assert exchange.ended


@pytest.mark.parametrize("cut", range(50))
def test_a_101_opens_the_pipe_and_loses_no_byte(cut: int) -> None:
    data = b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\nfirst"
    exchange = Exchange(HIJACK)
    said = b""
    for piece in (data[:cut], data[cut:]):
        said += piece if exchange.piped else exchange.from_daemon(piece)
    assert exchange.piped
    assert not exchange.keep
    assert said.endswith(b"\r\n\r\nfirst")


UPLOADS = {
    "a length": (Framing(Kind.LENGTH, 5), b"helloNEXT", b"hello"),
    "chunks": (CHUNKED, b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: x\r\n\r\nNEXT", b"hello"),
}


@pytest.mark.parametrize("case", UPLOADS)
def test_passes_an_upload_on_cut_anywhere(case: str) -> None:
    body, data, expected = UPLOADS[case]
    for cut in range(len(data) + 1):
        exchange = Exchange(Call("POST", upload=body))
        sent = exchange.from_client(data[:cut]) + exchange.from_client(data[cut:])
        assert exchange.uploaded
        assert exchange.rest == b"NEXT"
        if body is CHUNKED:
            decoder = framing.decoder(CHUNKED)
            sent = decoder.feed(sent)
            assert decoder.done
        assert sent == expected


def test_an_answer_before_the_upload_has_ended_is_the_last_one() -> None:
    exchange = Exchange(Call("POST", upload=CHUNKED))
    exchange.from_client(b"5\r\nhello\r\n")
    said = exchange.from_daemon(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno")
    assert b"Connection: close" in said
    assert (exchange.ended, exchange.keep, exchange.reusable, exchange.uploaded) == (True, False, False, False)


def test_an_answer_for_the_gate_only_is_not_shown() -> None:
    exchange = Exchange(Call("POST", hidden=lambda status: status == 204))
    assert exchange.from_daemon(b"HTTP/1.1 204 No Content\r\n\r\n") == b""
    assert (exchange.ended, exchange.shown, exchange.status) == (True, False, 204)
    assert Exchange(Call("POST", hidden=lambda status: status == 204)).from_daemon(
        b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"
    )


def test_an_answer_that_is_held_has_a_bound() -> None:
    exchange = Exchange(Call("GET", rewrite=clamped, held_max=10))
    with pytest.raises(Malformed):
        exchange.from_daemon(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{          ")
