"""Shapes: spelling, types, zero values, and fields that nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from dockerclient import create, repo, rules_of, run_body, said, sent
from gpugrant_gate.policy import bodies
from gpugrant_gate.policy.model import Refusal

VIEW = repo()


def test_the_whole_body_of_docker_run_passes_with_runc_and_without_what_says_nothing() -> None:
    body = sent(create(VIEW, run_body()))
    host = body["HostConfig"]
    assert host["Runtime"] == "runc"
    assert not {"Devices", "DeviceRequests", "BlkioDeviceReadBps", "CpuCount", "MaskedPaths"} & set(host)
    assert host["MemorySwappiness"] == -1
    assert (body["Image"], body["Cmd"], body["Labels"]) == ("ubuntu:24.04", ["sleep", "1000"], {})


def test_a_body_without_host_config_passes() -> None:
    assert sent(create(VIEW, {"Image": "x"})) == {"Image": "x", "HostConfig": {"Runtime": "runc"}}


SPELLINGS = {
    "lower case": {"image": "x", "hostconfig": {"binds": None, "autoremove": True}},
    "capitals": {"IMAGE": "x", "HOSTCONFIG": {"AUTOREMOVE": True}},
}


@pytest.mark.parametrize("body", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_maps_keys_to_their_canonical_spelling(body: dict[str, Any]) -> None:
    assert sent(create(VIEW, body)) == {"Image": "x", "HostConfig": {"AutoRemove": True, "Runtime": "runc"}}


MALFORMED = {
    "keys that fold to one field": b'{"HostConfig":{"Privileged":true},"hostconfig":{}}',
    "keys that fold to one field, one of them null": b'{"HostConfig":{"Privileged":true},"HOSTCONFIG":null}',
    "unknown keys that fold together": b'{"x":null,"X":null}',
    "a long s": '{"Ho\u017ftConfig":{"Privileged":true}}'.encode(),
    "an escaped long s": b'{"Ho\\u017ftConfig":{}}',
    "a Kelvin sign": '{"HostConfig":{"Networ\u212aMode":"host"}}'.encode(),
    "null": b"null",
    "a list": b"[]",
    "a string for a flag": b'{"HostConfig":{"Privileged":"true"}}',
    "a number for a flag": b'{"HostConfig":{"Privileged":1}}',
    "a flag for a number": b'{"HostConfig":{"Memory":true}}',
    "a number for a string": b'{"Image":1}',
    "a string for a list": b'{"HostConfig":{"Binds":"/dev:/x"}}',
    "an object for a list": b'{"HostConfig":{"DeviceRequests":{}}}',
    "a list for an object": b'{"HostConfig":[]}',
    "null in a list of strings": b'{"HostConfig":{"Binds":[null]}}',
    "null in a list of requests": b'{"HostConfig":{"DeviceRequests":[null]}}',
    "a number in a list of strings": b'{"HostConfig":{"DeviceRequests":[{"Driver":"cdi","DeviceIDs":[0]}]}}',
    "a control character in an enum": b'{"HostConfig":{"NetworkMode":"none\\n"}}',
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
def test_refuses_as_malformed(raw: bytes) -> None:
    decision = create(VIEW, raw)
    assert isinstance(decision, Refusal)
    assert decision.status == 400
    assert decision.violations[0].rule.startswith("body.")


UNKNOWN = {
    "an unknown field": ({"HostConfig": {"Telemetry": True}}, "HostConfig.Telemetry"),
    "an embedded struct's name": ({"Config": {"Privileged": True}}, "Config"),
    "a field with a blank": ({"HostConfig ": {"Privileged": True}}, "HostConfig "),
    "a field with an underscore": ({"Host_Config": {"Privileged": True}}, "Host_Config"),
    "an unknown field of a device request": (
        {"HostConfig": {"DeviceRequests": [{"Driver": "", "Extra": 1}]}},
        "HostConfig.DeviceRequests[0].Extra",
    ),
    "an unknown field of a mount": (
        {"HostConfig": {"Mounts": [{"Type": "tmpfs", "Target": "/x", "Magic": 1}]}},
        "Magic",
    ),
    "block devices to throttle": (
        {"HostConfig": {"BlkioDeviceReadBps": [{"Path": "/dev/sda", "Rate": 1}]}},
        "HostConfig.BlkioDeviceReadBps",
    ),
    "a Windows field": ({"HostConfig": {"CpuCount": 2}}, "HostConfig.CpuCount"),
    "the capability list of API 1.40": ({"HostConfig": {"Capabilities": ["ALL"]}}, "HostConfig.Capabilities"),
}


@pytest.mark.parametrize(("body", "field"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_refuses_by_name(body: dict[str, Any], field: str) -> None:
    decision = create(VIEW, body)
    assert isinstance(decision, Refusal)
    assert decision.status == 403
    assert field in said(decision)


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, {"a": None, "b": {"c": 0}}])
def test_drops_what_it_does_not_know_where_it_says_nothing(value: object) -> None:
    body = sent(create(VIEW, {"Image": "x", "Future": value, "HostConfig": {"Future": value}}))
    assert body == {"Image": "x", "HostConfig": {"Runtime": "runc"}}


@pytest.mark.parametrize("value", [True, 1, -1, " ", [0], [None], {"a": 1}])
def test_zero_is_only_what_says_nothing(value: object) -> None:
    assert not bodies.is_zero(value)


def test_drops_what_only_old_clients_send() -> None:
    assert "KernelMemory" not in sent(create(VIEW, run_body(KernelMemory=1 << 20)))["HostConfig"]


def test_a_null_for_a_network_keeps_the_network() -> None:
    body = {"Image": "x", "NetworkingConfig": {"EndpointsConfig": {"front": None}}}
    assert sent(create(VIEW, body))["NetworkingConfig"] == {"EndpointsConfig": {"front": None}}


def test_one_string_for_a_command_is_a_list_of_it() -> None:
    assert sent(create(VIEW, {"Image": "x", "Cmd": "date"}))["Cmd"] == ["date"]


def test_all_faults_are_told_at_once() -> None:
    decision = create(VIEW, {"A": 1, "B": 2, "HostConfig": {"Privileged": True}})
    assert rules_of(decision) == ["hw.privileged", "body.field", "body.field"]


def test_a_body_without_end_is_answered_with_413() -> None:
    decision = create(VIEW, b" " * (2 * 1024 * 1024 + 1))
    assert isinstance(decision, Refusal)
    assert decision.status == 413


MANY = [f"n{number}" for number in range(257)]


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"HostConfig": {"Binds": [f"{name}:/x" for name in MANY]}}, "HostConfig.Binds"),
        ({"HostConfig": {"Mounts": [{"Type": "tmpfs", "Target": f"/{name}"} for name in MANY]}}, "HostConfig.Mounts"),
        ({"HostConfig": {"VolumesFrom": MANY}}, "HostConfig.VolumesFrom"),
        ({"HostConfig": {"CapAdd": MANY}}, "HostConfig.CapAdd"),
        ({"HostConfig": {"Devices": [{"PathOnHost": name} for name in MANY]}}, "HostConfig.Devices"),
        ({"HostConfig": {"DeviceRequests": [{"DeviceIDs": MANY}]}}, "HostConfig.DeviceRequests[0].DeviceIDs"),
        ({"HostConfig": {"DeviceRequests": [{"Driver": "cdi"} for _ in MANY]}}, "HostConfig.DeviceRequests"),
        ({"HostConfig": {"Tmpfs": {f"/{name}": "" for name in MANY}}}, "HostConfig.Tmpfs"),
        (
            {"NetworkingConfig": {"EndpointsConfig": {name: {} for name in MANY}}},
            "NetworkingConfig.EndpointsConfig",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_costs_a_question_or_a_sentence_each_is_bounded(body: dict[str, Any], field: str) -> None:
    decision = create(repo(), {"Image": "x", **body})
    assert isinstance(decision, Refusal)
    assert decision.status == 413
    assert f"field {field} holds 257 entries; at most 256 are taken here" in decision.message


def test_a_message_tells_of_so_many_faults_and_how_many_more() -> None:
    said_ = said(create(repo(), {"Image": "x", **dict.fromkeys(MANY, 1)}))
    assert said_.count("[body.field]") == 64
    assert said_.endswith("; and 193 more")
