"""Any bytes get a decision or a clean refusal: no hang, no fault of the gate's own, no power left behind."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intruder
from intruder import JSON as CONTENT
from intruder import PRIVILEGED, SMUGGLED, chunked, host, lines, raw

pytestmark = [pytest.mark.real, pytest.mark.req("R4", "R45"), pytest.mark.timeout(600)]

SEEDS = [
    raw("POST", "/v1.45/containers/create?name=fuzzed", PRIVILEGED),
    raw("POST", "/containers/create", host(DeviceRequests=[{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=1"]}])),
    raw("POST", "/containers/create", host(Binds=["/dev:/dev"], CapAdd=["SYS_ADMIN"], NetworkMode="host")),
    raw("POST", "/containers/nobody/exec", {"Cmd": ["sh"], "Privileged": True}),
    raw("POST", "/containers/nobody/update", {"DeviceCgroupRules": ["a *:* rwm"]}),
    raw("POST", "/volumes/create", {"Name": "fuzzed", "DriverOpts": {"type": "none", "o": "bind", "device": "/dev"}}),
    raw("POST", "/networks/create", {"Name": "fuzzed", "Driver": "macvlan"}),
    raw("POST", "/containers/nobody/attach?stream=1", None, "Connection: Upgrade", "Upgrade: tcp", close=False),
    raw("PUT", "/containers/nobody/archive?path=/", b"\0" * 1024, "Content-Type: application/x-tar"),
    raw("GET", "/containers/json?all=1&filters=%7B%22name%22%3A%5B%22x%22%5D%7D"),
    raw("GET", "/images/a/b/c:latest/json"),
    raw("GET", "/_ping", close=False) + SMUGGLED,
    lines(
        "POST /containers/create HTTP/1.1",
        "Host: d",
        CONTENT,
        "Transfer-Encoding: chunked",
        "Connection: close",
        body=chunked(json.dumps(PRIVILEGED).encode()),
    ),
]
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


def changed(data: bytes, changes: list[tuple[str, int, bytes | int]]) -> bytes:
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


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.sampled_from(SEEDS), changes=CHANGES, fit=st.booleans())
def test_changed_requests(
    ground: intruder.Ground, seed: bytes, changes: list[tuple[str, int, bytes | int]], fit: bool
) -> None:
    data = changed(seed, changes)
    check(ground, fitted(data) if fit else data)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.one_of(st.binary(max_size=400), st.lists(st.sampled_from(TOKENS), max_size=40).map(b"".join)))
def test_any_bytes(ground: intruder.Ground, data: bytes) -> None:
    check(ground, data)


def check(ground: intruder.Ground, data: bytes) -> None:
    """`talk` fails where no answer comes in time; here the answer's form, then what the daemon holds."""
    judge = ground.judge
    before = judge.look()
    answer = intruder.talk(ground.gate, data, quiet=intruder.HANG, half_close=True)
    assert not answer or intruder.STATUS.match(answer), answer
    # 500 is the daemon's own word for some requests; the gate itself has none of these
    assert not {502, 503, 504} & set(intruder.statuses(answer)), answer
    powers = judge.powers(before, judge.look())
    judge.clear(before)
    assert powers == []
    assert intruder.faults(ground.root) == []


def test_nothing_was_left(ground: intruder.Ground) -> None:
    assert ground.judge.look().containers == {}
