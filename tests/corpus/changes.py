"""How bytes are changed: small cuts, repeats and insertions of what parsers stumble over."""

from __future__ import annotations

import re

from hypothesis import strategies as st

TOKENS = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"%00",
    b"%2f",
    b"..",
    b"//",
    b"?",
    b"#",
    b"&",
    b"\\",
    b"\xff",
    b"\xc5\xbf",
    b"\xe2\x84\xaa",
    b"0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 0\r\n",
    b"Upgrade: h2c\r\n",
    b"Expect: 100-continue\r\n",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b"null",
    b"true",
    b"1e9",
    b'"Privileged":true,',
    b"/containers/create",
    b"\\u0000",
    b"\\ud800",
    b"POST ",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]
PLACE = st.integers(0, 2**16)
Change = tuple[str, int, bytes | int]
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), PLACE, st.sampled_from(TOKENS)),
        st.tuples(st.just("cut"), PLACE, st.integers(1, 30)),
        st.tuples(st.just("twice"), PLACE, st.integers(1, 60)),
        st.tuples(st.just("byte"), PLACE, st.integers(0, 255)),
    ),
    min_size=1,
    max_size=6,
)
LENGTH = re.compile(rb"(\r\nContent-Length: )[0-9]+(.*?\r\n\r\n)(.*)\Z", re.DOTALL)


def changed(data: bytes, changes: list[Change]) -> bytes:
    for how, place, what in changes:
        at = place % (len(data) + 1)
        if isinstance(what, bytes):
            data = data[:at] + what + data[at:]
        elif how == "cut":
            data = data[:at] + data[at + what :]
        elif how == "twice":
            data = data[: at + what] + data[at:]
        else:
            data = data[:at] + bytes([what]) + data[at + 1 :]
    return data


def fitted(data: bytes) -> bytes:
    """With a Content-Length that fits what follows, so that changes of the body are read at all."""
    return LENGTH.sub(lambda found: b"%b%d%b%b" % (found[1], len(found[3]), found[2], found[3]), data, count=1)
