"""Any bytes get a decision or a clean refusal: no hang, no fault of the gate's own, no power left behind."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intruder
from corpus.changes import CHANGES, TOKENS, Change, changed, fitted
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


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.sampled_from(SEEDS), changes=CHANGES, fit=st.booleans())
def test_changed_requests(ground: intruder.Ground, seed: bytes, changes: list[Change], fit: bool) -> None:
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
