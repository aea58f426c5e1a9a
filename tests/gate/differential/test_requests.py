"""Heads, frames and targets: what the gate takes for one request is that one request to Go, before and after.

Three laws, for bytes that begin as real requests and are then changed: Go reads in the client's bytes what the gate
read; Go reads in the gate's bytes what was judged, one request and nothing behind it; both targets lead to one route
of the daemon, with the same names and the same query.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dockerclient import ask, repo
from gpugrant_gate.policy import routes, target
from gpugrant_gate.policy.model import Admission, Body, Head, Refusal, Routed
from gpugrant_gate.wire import framing, heads, messages
from gpugrant_gate.wire.faults import Malformed, Truncated

pytestmark = [pytest.mark.req("R4", "R45")]

VIEW = repo()
ID = "0123456789abcdef" * 4
NAMES = ("web", "a.b-c_d", ID, "Host", "v1.45", "json", "create")
IMAGES = ("ubuntu:24.04", "docker.io/library/x", "a/b/c@sha256:" + ID, "x%2Fy", "json", "get/x", "localhost:5000/a")
TARGETS = tuple(
    (row.method, row.pattern.format(c=name, e=ID, v=name, n=name, i=image))
    for row in routes.ROUTES
    for name, image in zip(NAMES, IMAGES, strict=True)
)
QUERIES = (*{word.rstrip("?*"): None for row in routes.ROUTES for word in row.query.split()}, "x", "", "nam%65")
VALUES = ("", "1", "0", "true", "False", "no", "none", "a b", "a+b", "%41", "%2f", "%00", "a%0ab", "%ff", "ü", "%c3%bc",
          "{}", "[%22a%22]", "a=b", "a%26b", "a;b", "%3b", "#", "?", "a%", "%zz", "-", "http://x/")  # fmt: skip
PREFIXES = (
    "",
    "/v1.45",
    "/v1.24",
    "/v01.045",
    "/v1",
    "/v1.45.0",
    "/V1.45",
    "/v1.45x",
    "/%761.45",
    "/v1%2e45",
    "/v99.999",
)
PIECES = ("/", "//", "/.", "/..", "%2f", "%2F", "%2e", "%00", "%20", ";", "?", "#", "\\", "%5c", "%", "%u0041", "&",
          "=", "é", "\t", " ", "+", ":", "@", "*", "~", "%7e", "|", "'", '"', "<", "[", "\x7f", "/json", "/start",
          "v1.45")  # fmt: skip


class Maker:
    """Targets and requests by the dice of one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def target(self) -> tuple[str, str]:
        dice = self.dice
        method, path = dice.choice(TARGETS)
        if dice.random() < 0.1:
            path = "".join(f"%{ord(char):02x}" if dice.random() < 0.2 else char for char in path)
        text = f"{dice.choice(PREFIXES) if dice.random() < 0.7 else ''}{path}"
        if dice.random() < 0.5:
            pairs = (f"{dice.choice(QUERIES)}={dice.choice(VALUES)}" for _ in range(dice.randrange(1, 4)))
            text += "?" + "&".join(pairs)
        for _ in range(dice.choice((0, 0, 0, 1, 2))):
            at = dice.randrange(len(text) + 1)
            text = text[:at] + dice.choice(PIECES) + text[at + dice.randrange(2) :]
        return (dice.choice(("GET", "POST", "HEAD", "PUT")) if dice.random() < 0.05 else method), text

    def request(self) -> bytes:
        """A request, often framed oddly, often with another one behind it."""
        dice = self.dice
        body = dice.choice(BODIES)
        rows = [dice.choice(LINES), "Host: docker", *dice.sample(HEADERS, dice.randrange(4))]
        chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(part), dice.choice(EXTENSIONS), part) for part in _parts(body, dice))
        frame, sent = dice.choice(
            (
                (f"Content-Length: {len(body)}", body),
                (f"Content-Length: {len(body)}", body),
                (f"Content-Length: 0{len(body)}", body),
                (f"Content-Length: {max(len(body) - 3, 0)}", body),
                ("Transfer-Encoding: chunked", chunks + b"0\r\n" + dice.choice(TRAILERS) + b"\r\n"),
                ("Transfer-Encoding: chunked", chunks + b"0\r\n" + dice.choice(TRAILERS) + b"\r\n"),
                ("Transfer-Encoding:  Chunked", chunks + b"0\r\n\r\n"),
                ("X-Framing: none", b""),
            )
        )
        rows.insert(dice.randrange(1, len(rows) + 1), frame)
        data = "\r\n".join(rows).encode() + b"\r\n\r\n" + sent + dice.choice(BEHIND)
        for _ in range(dice.choice((0, 0, 0, 1, 1, 3))):
            at = dice.randrange(len(data) + 1)
            data = data[:at] + dice.choice(TOKENS) + data[at + dice.randrange(2) :]
        return data


def _parts(body: bytes, dice: random.Random) -> list[bytes]:
    at = dice.randrange(len(body) + 1)
    return [part for part in (body[:at], body[at:]) if part]


LINES = ("POST /containers/create HTTP/1.1", "POST /v1.45/auth HTTP/1.1", "GET /_ping HTTP/1.1", "GET /info HTTP/1.0",
         "POST /containers/web/start HTTP/1.1", "PUT /containers/web/archive?path=/ HTTP/1.1", "HEAD /_ping HTTP/1.1",
         "POST /containers/create HTTP/1.0", "POST /images/load?quiet=1 HTTP/1.1", "DELETE /containers/web HTTP/1.1",
         "POST /containers/web/attach?stream=1 HTTP/1.1")  # fmt: skip
HEADERS = ("Content-Type: application/json", "Connection: close", "Connection: keep-alive, Upgrade", "Upgrade: tcp",
           "Accept: */*", "User-Agent: x", "X-Registry-Auth: e30=", "Expect: 100-continue", "Trailer: X-A",
           "X-Meta-A: \t", "Transfer-Encoding: identity", "Content-Length: 0", "X-Empty:", "Te: trailers",
           "Host: other",
           "Content-Type: application/x-tar", "If-None-Match: \"x\"", "Keep-Alive: 5", "X-A: a\t b ")  # fmt: skip
BODIES = (b"", b"{}", b'{"Image":"ubuntu:24.04"}', b"null", b'{"username":"u"}', b"0\r\n\r\nGET /x HTTP/1.1\r\n\r\n")
EXTENSIONS = (b"", b"", b"", b";a=b", b";a", b" ;a=\"b\"", b"\t", b" ")  # fmt: skip
TRAILERS = (b"", b"", b"X-A: b\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\nX-B: c\r\n")
BEHIND = (b"", b"", b"GET /_ping HTTP/1.1\r\nHost: d\r\n\r\n", b"\r\n", b"0\r\n\r\n", b"}")
TOKENS = (b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"\0", b"\x0b", b"\x80", b"0", b";", b",", b"HTTP/1.0", b"chunked",
          b"\r\nTransfer-Encoding: chunked", b"\r\nContent-Length: 3", b"\r\n ", b"\r\n\r\n", b"_", b"+",
          b"0x")  # fmt: skip


# targets


def pattern(route: str, method: str) -> set[str]:
    """The daemon's patterns of a route of the gate."""
    found = [row.pattern for row in routes.ROUTES if row.id == route and row.method == method]
    return {path.format(c="{n}", e="{n}", v="{n}", n="{n}", i="{n}") for path in found}


def bool_value(value: str) -> bool:
    """moby httputils.BoolValue."""
    return value.strip().lower() not in ("", "0", "no", "false", "none")


def check_target(go: Any, method: str, asked: str) -> bool:
    routed = routes.route(Head(method, asked, (), (1, 1), False), VIEW)
    if isinstance(routed, Refusal):
        return False
    theirs = go.target(method, asked)
    sent = target.build(routed.version or VIEW.api_version, routed.segments, routed.query)
    ours = go.target(method, sent)
    assert (theirs["Outcome"], ours["Outcome"]) == ("ok", "ok"), (asked, sent, theirs, ours)
    assert theirs["Pattern"] == ours["Pattern"], (asked, sent, theirs, ours)
    assert ours["Pattern"] in pattern(routed.route, method), (asked, sent)
    assert theirs["Names"] == ours["Names"], (asked, sent)
    assert ours["Version"] == (theirs["Version"] or VIEW.api_version), (asked, sent)
    assert not theirs["BadQuery"], asked
    assert not ours["BadQuery"], sent
    check_query(routed, theirs["Query"] or {}, ours["Query"] or {})
    return True


def check_query(routed: Routed, theirs: Mapping[str, list[str]], ours: Mapping[str, list[str]]) -> None:
    row = next(row for row in routes.ROUTES if row.id == routed.route and row.method == routed.method)
    for name, key in row.keys.items():
        before, after = theirs.get(name, []), ours.get(name, [])
        if key.flag:
            assert [value == "" or bool_value(value) for value in before] == [
                value == "" or bool_value(value) for value in after
            ], (name, before, after)
        else:
            assert before == after, (name, before, after)
    known = {name for row in routes.ROUTES if row.id == routed.route for name in row.keys}
    assert ours.keys() <= known


def test_a_target_leads_to_one_place(go: Any) -> None:
    outcomes: Counter[bool] = Counter()

    @settings(max_examples=100, deadline=None, database=None)
    @given(st.integers(0, 2**64))
    def law(seed: int) -> None:
        maker = Maker(seed)
        outcomes.update(check_target(go, *maker.target()) for _ in range(100))

    law()
    assert min(outcomes[True], outcomes[False]) > 500, outcomes


def test_every_route_of_the_gate_is_a_route_of_the_daemon(go: Any) -> None:
    for row in routes.ROUTES:
        path = row.pattern.format(c="web", e=ID, v="v", n="n", i="a/b:c")
        query = f"?{row.when}=-" if row.when else ""
        assert check_target(go, row.method, path + query), row


# heads and frames


def read(data: bytes) -> tuple[heads.RequestHead, bytes, bytes] | None:
    """The gate's reading: head, body, what is left; None where it refuses or waits for more."""
    try:
        end = heads.find_end(data)
        if not end:
            return None
        head = heads.parse_request(data[:end])
        decoder = framing.decoder(head.framing)
        body = decoder.feed(data[end:])
        if not decoder.done:
            decoder.eof()
    except (Malformed, Truncated):
        return None
    return head, body, decoder.rest if head.framing.kind is not framing.Kind.NONE else data[end:]


def check_request(go: Any, data: bytes) -> tuple[bool, bool]:
    """Whether the gate took the bytes, and whether it admitted the request in them."""
    ours = read(data)
    if ours is None:
        return False, False
    head, body, rest = ours
    try:
        theirs = go.request(data)
    except ValueError:
        theirs = None  # refused by the daemon as it is: all that counts is what the gate writes
    if theirs is not None:
        assert (theirs["Method"], theirs["Target"], theirs["Body"]) == (head.method, head.target, body), data
        assert theirs["Rest"] == rest, data
    decision = ask(head.method, head.target, VIEW, body, headers=head.headers)
    if not isinstance(decision, Admission):
        return True, False
    check_written(go, decision, body)
    return True, True


def check_written(go: Any, admission: Admission, body: bytes) -> None:
    """What goes to the daemon, as the exchange writes it."""
    outgoing = admission.outgoing
    if outgoing.body is None:
        frame, sent = framing.CHUNKED, (framing.chunk(body) if body else b"") + framing.LAST_CHUNK
    else:
        frame, sent = framing.of_length(len(outgoing.body)), outgoing.body
    upgrade = "tcp" if outgoing.exchange.value == "hijack" else ""
    written = messages.request(outgoing.method, outgoing.target, outgoing.headers, frame, upgrade=upgrade) + sent
    got = go.request(written)
    assert got["Rest"] == b"", written
    assert (got["Method"], got["Target"]) == (outgoing.method, outgoing.target)
    assert got["Body"] == (body if outgoing.body is None else outgoing.body)
    given = {name.lower() for name in got["Headers"]}
    assert given <= {name for name, _ in outgoing.headers} | {"connection", "upgrade", "content-length"}, written
    assert all(len(values) == 1 for values in got["Headers"].values()), written


def test_bytes_are_one_request(go: Any) -> None:
    outcomes: Counter[tuple[bool, bool]] = Counter()

    @settings(max_examples=100, deadline=None, database=None)
    @given(st.integers(0, 2**64))
    def law(seed: int) -> None:
        maker = Maker(seed)
        outcomes.update(check_request(go, maker.request()) for _ in range(100))

    law()
    assert min(outcomes[True, True], outcomes[True, False], outcomes[False, False]) > 100, outcomes


def test_stream_routes_are_among_what_passes(go: Any) -> None:
    data = b"POST /images/load HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nA: b\r\n\r\n"
    assert check_request(go, data) == (True, True)
    routed = routes.route(Head("POST", "/images/load", (), (1, 1), True), VIEW)
    assert isinstance(routed, Routed)
    assert routed.body is Body.STREAM
