"""What a request head may be, and what Go's net/http, h11 and llhttp read in different ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_gate.wire import framing, heads
from gpugrant_gate.wire.faults import Malformed
from gpugrant_gate.wire.framing import CHUNKED, NONE, Framing, Kind

LINE = b"POST /v1.45/containers/create HTTP/1.1\r\n"


def read(data: bytes) -> heads.RequestHead:
    end = heads.find_end(data)
    assert end == len(data), "the head is not complete"
    return heads.parse_request(data)


ACCEPTED = {
    "a request without a body": (LINE + b"Host: docker\r\n\r\n", NONE),
    "an empty Host, as buildx sends it": (LINE + b"Host:\r\n\r\n", NONE),
    "a Host that is a socket's path, as old clients send it": (LINE + b"Host: /var/run/docker.sock\r\n\r\n", NONE),
    "no Host at all": (LINE + b"User-Agent: x\r\n\r\n", NONE),
    "no header at all": (LINE + b"\r\n", NONE),
    "a Content-Length": (LINE + b"Content-Length: 12\r\n\r\n", Framing(Kind.LENGTH, 12)),
    "a Content-Length with leading zeros": (LINE + b"Content-Length: 002\r\n\r\n", Framing(Kind.LENGTH, 2)),
    "a Content-Length of zero": (LINE + b"Content-Length: 0\r\n\r\n", NONE),
    "one chunked": (LINE + b"Transfer-Encoding: chunked\r\n\r\n", CHUNKED),
    "chunked in capitals": (LINE + b"transfer-encoding: CHUNKED\r\n\r\n", CHUNKED),
    "a blank behind a value": (LINE + b"Content-Length: 3 \r\n\r\n", Framing(Kind.LENGTH, 3)),
    "HTTP/1.0 with a Content-Length": (b"POST /x HTTP/1.0\r\nContent-Length: 4\r\n\r\n", Framing(Kind.LENGTH, 4)),
    "an upgrade with a body": (
        LINE + b"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 2\r\n\r\n",
        Framing(Kind.LENGTH, 2),
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_reads(case: str) -> None:
    data, body = ACCEPTED[case]
    assert read(data).framing == body


REFUSED = {
    "Content-Length beside chunked": (400, LINE + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "chunked in HTTP/1.0": (411, b"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "HTTP/1.2": (505, b"GET / HTTP/1.2\r\n\r\n"),
    "HTTP/1.9": (505, b"GET / HTTP/1.9\r\n\r\n"),
    "HTTP/2.0 on an ordinary request line": (505, b"GET / HTTP/2.0\r\n\r\n"),
    "the HTTP/2 preface": (505, b"PRI * HTTP/2.0\r\n\r\n"),
    "two equal Content-Length": (400, LINE + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n"),
    "two different Content-Length": (400, LINE + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n"),
    "a list as Content-Length": (400, LINE + b"Content-Length: 2, 2\r\n\r\n"),
    "a signed Content-Length": (400, LINE + b"Content-Length: +2\r\n\r\n"),
    "a hexadecimal Content-Length": (400, LINE + b"Content-Length: 0x2\r\n\r\n"),
    "a Content-Length with an underscore": (400, LINE + b"Content-Length: 1_0\r\n\r\n"),
    "an empty Content-Length": (400, LINE + b"Content-Length:\r\n\r\n"),
    "a Content-Length above an int64": (400, LINE + b"Content-Length: 99999999999999999999\r\n\r\n"),
    "gzip, chunked": (400, LINE + b"Transfer-Encoding: gzip, chunked\r\n\r\n"),
    "identity": (400, LINE + b"Transfer-Encoding: identity\r\n\r\n"),
    "Transfer-Encoding twice": (400, LINE + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "a folded header": (400, LINE + b"Transfer-Encoding:\r\n chunked\r\n\r\n"),
    "a blank before the colon": (400, LINE + b"Content-Length : 2\r\n\r\n"),
    "a header without a name": (400, LINE + b": x\r\n\r\n"),
    "a header without a colon": (400, LINE + b"Host\r\n\r\n"),
    "bare LF behind a header": (400, LINE + b"Host: a\nX: b\r\n\r\n"),
    "bare LF behind the request line": (400, b"GET / HTTP/1.1\nHost: a\r\n\r\n"),
    "a bare CR in a header": (400, LINE + b"Host: a\rb\r\n\r\n"),
    "a NUL in a header": (400, LINE + b"Host: a\0b\r\n\r\n"),
    "a byte above ASCII in a header": (400, LINE + b"X: \xff\r\n\r\n"),
    "two Host": (400, LINE + b"Host: a\r\nHost: b\r\n\r\n"),
    "two Content-Type": (400, LINE + b"Content-Type: a/b\r\ncontent-type: c/d\r\n\r\n"),
    "HTTP/0.9": (400, b"GET /_ping\r\n\r\n"),
    "a method in small letters": (400, b"post /x HTTP/1.1\r\n\r\n"),
    "a method that nobody knows to llhttp": (400, b"FROBNICATE /x HTTP/1.1\r\n\r\n"),
    "two blanks in the request line": (400, b"GET  / HTTP/1.1\r\n\r\n"),
    "a blank behind the version": (400, b"GET / HTTP/1.1 \r\n\r\n"),
    "an empty line first": (400, b"\r\nGET / HTTP/1.1\r\n\r\n"),
    "absolute form": (400, b"GET http://evil/_ping HTTP/1.1\r\n\r\n"),
    "asterisk form": (400, b"OPTIONS * HTTP/1.1\r\n\r\n"),
    "authority form": (400, b"CONNECT evil:80 HTTP/1.1\r\n\r\n"),
    "a fragment": (400, b"GET /_ping#x HTTP/1.1\r\n\r\n"),
    "a backslash": (400, b"GET /a\\b HTTP/1.1\r\n\r\n"),
    "a tab in the target": (400, b"GET /a\tb HTTP/1.1\r\n\r\n"),
    "a byte above ASCII in the target": (400, b"GET /\xc5\xbf HTTP/1.1\r\n\r\n"),
    "another expectation": (417, LINE + b"Expect: 200-ok\r\n\r\n"),
    "more headers than a client sends": (431, LINE + b"X: y\r\n" * 200 + b"\r\n"),
}


@pytest.mark.req("R4", "R45")
@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case: str) -> None:
    status, data = REFUSED[case]
    with pytest.raises(Malformed) as fault:
        heads.parse_request(data[: heads.find_end(data)])
    assert fault.value.status == status


def test_refuses_a_head_above_64_kib_before_it_is_complete() -> None:
    with pytest.raises(Malformed) as fault:
        heads.find_end(LINE + b"X: " + b"a" * heads.HEAD_MAX)
    assert fault.value.status == 431


INCOMPLETE = {
    "HTTP/0.9 and then nothing": b"GET /_ping\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: a\n\n",
    "a TLS client hello": b"\x16\x03\x01\x02\x00\x01\x00\n\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("case", INCOMPLETE)
def test_refuses_without_waiting_for_the_rest(case: str) -> None:
    with pytest.raises(Malformed):
        heads.find_end(INCOMPLETE[case])


def test_waits_for_the_rest_of_a_head() -> None:
    whole = LINE + b"Host: docker\r\n\r\n"
    assert [heads.find_end(whole[:length]) for length in range(len(whole))] == [0] * len(whole)


def test_an_expectation_counts_in_http_1_1_only() -> None:
    assert read(LINE + b"Expect: 100-Continue\r\n\r\n").expects_continue
    assert not read(b"POST /x HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expects_continue


def test_a_connection_is_kept_in_http_1_1_unless_it_is_closed() -> None:
    assert read(LINE + b"\r\n").keep_alive
    assert not read(LINE + b"Connection: Keep-Alive, Close\r\n\r\n").keep_alive
    assert not read(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive


@given(st.binary(max_size=300))
def test_any_bytes_are_a_head_or_malformed(data: bytes) -> None:
    try:
        end = heads.find_end(data)
        if end:
            heads.parse_request(data[:end])
    except Malformed as fault:
        if fault.status not in (400, 411, 417, 431, 505):
            raise


@given(st.lists(st.sampled_from([*b"GET /x HTTP/1.1\r\nA:b\r\n\r\n", 0, 9, 0x23, 0x5C, 0xC5]), max_size=60))
def test_what_is_accepted_has_one_line_a_header(codes: list[int]) -> None:
    data = bytes(codes)
    try:
        end = heads.find_end(data)
        head = heads.parse_request(data[:end]) if end else None
    except Malformed:
        return
    if head is not None:
        assert data[:end].count(b"\r\n") == len(head.headers) + 2
        assert head.target.startswith("/")


ANSWERS = {
    "chunked": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", CHUNKED),
    "of a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", "GET", Framing(Kind.LENGTH, 7)),
    "until the daemon closes": (b"HTTP/1.1 404 Not Found\r\n\r\n", "GET", framing.CLOSE),
    "to HEAD": (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", "HEAD", NONE),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", "POST", NONE),
    "304": (b"HTTP/1.1 304 Not Modified\r\n\r\n", "POST", NONE),
    "without a reason": (b"HTTP/1.1 201\r\nContent-Length: 1\r\n\r\n", "POST", Framing(Kind.LENGTH, 1)),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_finds_the_end_of_an_answer(case: str) -> None:
    data, method, body = ANSWERS[case]
    assert heads.response_framing(heads.parse_response(data), method) == body


BAD_ANSWERS = {
    "no HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "HTTP/2": b"HTTP/2 200 OK\r\n\r\n",
    "a broken header": b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a length beside chunked": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "an unknown encoding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_a_daemon_that_speaks_something_else_is_a_bad_gateway(case: str) -> None:
    with pytest.raises(Malformed) as fault:
        heads.response_framing(heads.parse_response(BAD_ANSWERS[case]), "GET")
    assert fault.value.status == 502
