"""Laws of the policy, for any request at all."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dockerclient import (
    COMPOSE_LABELS,
    DEVICES,
    DRI,
    ID,
    NVIDIA,
    ask,
    cdi,
    create,
    gpus,
    inspected,
    knows,
    raw,
    repo,
    run_body,
    sent,
)
from gpugrant_crds import openings
from gpugrant_gate.policy import routes
from gpugrant_gate.policy.model import Admission, ContainerFact, Decision, Head, NetworkFact, Refusal, Routed

settings.register_profile("laws", deadline=None)
settings.load_profile("laws")

NAMES = st.sampled_from([*DEVICES, "nvidia.com/gpu=al", "a/b=c", "nvidia.com/gpu", "", "Nvidia.com/gpu=all"])
GRANTS = st.frozensets(NAMES, max_size=4)

REQUESTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "Driver": st.sampled_from(["cdi", "", "nvidia", "nvidia.cdi", "amd", "CDI"]) | st.none(),
            "Count": st.sampled_from([0, -1, 1]) | st.none(),
            "DeviceIDs": st.lists(NAMES, max_size=3) | st.none(),
            "Capabilities": st.sampled_from([None, [], [[]], [["gpu"]]]),
            "Options": st.sampled_from([None, {}, {"a": "b"}]),
        },
    ),
    max_size=3,
)
RAW = st.lists(
    st.fixed_dictionaries(
        {
            "PathOnHost": NAMES | st.sampled_from(["/dev/dri", "/dev/nvidia0"]),
            "PathInContainer": NAMES,
            "CgroupPermissions": st.sampled_from(["rwm", "rw", ""]),
        }
    )
    | NAMES.map(lambda name: raw(name)[0]),
    max_size=2,
)
WILD = st.fixed_dictionaries(
    {},
    optional={
        "DeviceRequests": REQUESTS | st.none(),
        "Devices": RAW | st.none(),
        "Privileged": st.sampled_from([False, None, True]),
        "Runtime": st.sampled_from(["", "runc", "nvidia", None]),
        "Binds": st.lists(st.sampled_from(["data:/x", "/srv/a//b/:/y:ro", "/dev:/dev", "/z"]), max_size=2),
        "CapAdd": st.lists(
            st.sampled_from(
                ["sys_nice", "CAP_KILL", "SYS_ADMIN", "cap_net_admin", "SYS_PTRACE", "BPF", "SYSLOG", "LEASE"]
            ),
            max_size=2,
        ),
        "GroupAdd": st.sampled_from([None, ["video"]]),
        "NetworkMode": st.sampled_from(["default", "none", "host", "container:web", "lan", "wire"]),
        "MaskedPaths": st.sampled_from([None, []]),
        "Annotations": st.sampled_from([None, {}, {"a": "b"}]),
        "IpcMode": st.sampled_from(["", "private", "host", "container:web", "ns:x"]),
        "UsernsMode": st.sampled_from(["", "host", "x"]),
        "PidMode": st.sampled_from(["", "host", "container:web"]),
        "SecurityOpt": st.lists(
            st.sampled_from(
                ["no-new-privileges", "seccomp=unconfined", "apparmor:unconfined", "label=disable", "label=type:spc_t",
                 "disable", "writable-cgroups=true", "seccomp={}", "label=level:s0", "no-new-privileges=false"]
            ),
            max_size=2,
        ),
        "Sysctls": st.dictionaries(st.sampled_from(["net.a", "kernel.sem", "kernel.core_pattern"]), st.just("1")),
        "LogConfig": st.sampled_from(
            [{"Type": "", "Config": {}}, {"Type": "syslog", "Config": {"syslog-address": "udp://x"}},
             {"Type": "gelf", "Config": {"gelf-address": "unix:///x"}}]
        ),
        "DeviceCgroupRules": st.sampled_from([None, [], ["c 195:* rwm"]]),
        "CgroupParent": st.sampled_from(["", "/x"]),
    },
)  # fmt: skip
TAME = st.fixed_dictionaries(
    {},
    optional={
        "DeviceRequests": st.sampled_from([None, cdi(NVIDIA), cdi(DRI, NVIDIA)]),
        "CapAdd": st.lists(st.sampled_from(["sys_nice", "cap_net_admin", "SYS_PTRACE", "LEASE"]), max_size=3),
        "NetworkMode": st.sampled_from(["default", "host", "container:web", "lan", "wire"]),
        "IpcMode": st.sampled_from(["", "host", "container:web"]),
        "UsernsMode": st.sampled_from(["", "host"]),
        "SecurityOpt": st.lists(st.sampled_from(["seccomp=unconfined", "apparmor:unconfined", "disable"]), max_size=2),
        "Sysctls": st.dictionaries(st.sampled_from(["net.a", "kernel.sem"]), st.just("1")),
    },
)
"""Of these many pass where enough is open."""
HOSTS = WILD | TAME
LABELS = st.sampled_from([{}, COMPOSE_LABELS])
FIND = knows(
    {
        ContainerFact("web"): inspected(),
        ContainerFact(ID): inspected(),
        NetworkFact("lan"): {"Driver": "macvlan"},
        NetworkFact("wire"): {"Driver": "host"},
    }
)
OPENINGS = st.frozensets(
    st.sampled_from([opening.name.replace("<type>", "spc_t") for opening in openings.OPENINGS])
) | st.just(openings.opened((), "rediacc"))


def body(host: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    return run_body(config={"Labels": labels}, **host)


@given(HOSTS, LABELS, GRANTS)
@pytest.mark.req("R1", "R4", "R5")
def test_a_device_goes_on_only_by_a_granted_name_in_the_one_form(
    host: dict[str, Any], labels: dict[str, str], grants: frozenset[str]
) -> None:
    decision = create(repo(*grants, binds=("/srv",)), body(host, labels), FIND)
    if isinstance(decision, Refusal):
        return
    passed = sent(decision)["HostConfig"]
    requests = passed.get("DeviceRequests", [])
    assert len(requests) <= 1
    for request in requests:
        assert request == {**cdi()[0], "DeviceIDs": list(decision.devices)}
        assert set(decision.devices) <= grants
        assert decision.devices
    assert bool(requests) == bool(decision.devices)
    assert passed["Runtime"] == "runc"
    assert not {"Devices", "DeviceCgroupRules", "Annotations", "MaskedPaths", "Privileged", "PidMode"} & set(passed)


@given(HOSTS, LABELS)
@pytest.mark.req("R1", "R4")
def test_without_grants_no_request_for_a_device_ever_passes(host: dict[str, Any], labels: dict[str, str]) -> None:
    decision = create(repo(binds=("/srv",)), body(host, labels), FIND)
    if isinstance(decision, Admission):
        assert "DeviceRequests" not in sent(decision)["HostConfig"]
        assert decision.devices == ()


@given(HOSTS, LABELS, GRANTS, NAMES)
@pytest.mark.req("R5")
def test_one_more_grant_never_refuses_what_passed(
    host: dict[str, Any], labels: dict[str, str], grants: frozenset[str], more: str
) -> None:
    before = create(repo(*grants, binds=("/srv",)), body(host, labels), FIND)
    after = create(repo(*grants, more, binds=("/srv",)), body(host, labels), FIND)
    if isinstance(before, Admission):
        assert after == before


@given(HOSTS, LABELS, GRANTS, OPENINGS, OPENINGS)
@pytest.mark.req("R45")
def test_an_opening_admits_nothing_of_hardware_and_refuses_nothing_that_passed(
    host: dict[str, Any], labels: dict[str, str], grants: frozenset[str], some: frozenset[str], more: frozenset[str]
) -> None:
    before = create(repo(*grants, binds=("/srv",), open=some), body(host, labels), FIND)
    after = create(repo(*grants, binds=("/srv",), open=some | more), body(host, labels), FIND)
    assert [found for found in _broken(before) if found.startswith("hw.")] == [
        found for found in _broken(after) if found.startswith("hw.")
    ]
    assert set(_broken(after)) <= set(_broken(before))
    if isinstance(before, Admission):
        assert after == before
    if isinstance(after, Admission):
        assert after.devices == tuple(dict.fromkeys(after.devices))
        assert set(after.devices) <= grants


def _broken(decision: Decision) -> list[str]:
    return [found.rule for found in decision.violations] if isinstance(decision, Refusal) else []


DEEDS = ("start", "restart", "unpause", "attach", "exec")


@given(HOSTS, OPENINGS, st.sampled_from(DEEDS))
@pytest.mark.req("R1", "R45")
def test_without_grants_nothing_of_hardware_is_set_going_whatever_is_open(
    host: dict[str, Any], opened: frozenset[str], deed: str
) -> None:
    found = inspected(**copy.deepcopy(host))
    find = knows({ContainerFact("web"): found, ContainerFact(ID): found})
    asked = {"Cmd": ["sh"]} if deed == "exec" else None
    decision = ask("POST", f"/containers/web/{deed}", repo(open=opened), asked, find=find)
    if isinstance(decision, Admission):
        assert decision.devices == ()
        assert not host.get("Privileged")
        assert not host.get("PidMode")
        assert not host.get("DeviceCgroupRules")
        assert not host.get("Devices")
        held = [name for request in host.get("DeviceRequests") or [] for name in request.get("DeviceIDs") or []]
        assert deed == "attach" or not held


@given(HOSTS, LABELS, GRANTS, OPENINGS, st.data())
def test_the_case_of_keys_makes_no_difference(
    host: dict[str, Any], labels: dict[str, str], grants: frozenset[str], opened: frozenset[str], data: st.DataObject
) -> None:
    view = repo(*grants, binds=("/srv",), open=opened)
    whole = body(host, labels)
    spelt = {
        data.draw(st.sampled_from([key, key.lower(), key.upper(), key.swapcase()])): value
        for key, value in whole["HostConfig"].items()
    }
    assert _outcome(create(view, {**whole, "HostConfig": spelt}, FIND)) == _outcome(create(view, whole, FIND))


@given(HOSTS, LABELS, GRANTS, OPENINGS, st.data())
def test_a_key_that_is_there_twice_is_refused_whatever_it_says(
    host: dict[str, Any], labels: dict[str, str], grants: frozenset[str], opened: frozenset[str], data: st.DataObject
) -> None:
    view = repo(*grants, binds=("/srv",), open=opened)
    whole = body(host, labels)
    key = data.draw(st.sampled_from(sorted(whole["HostConfig"])))
    again = data.draw(st.sampled_from([key, key.lower(), key.upper()]))
    value = data.draw(st.sampled_from([None, "", [], {}, False, 0]))
    text = json.dumps(whole)
    twice = text.replace('"HostConfig": {', f'"HostConfig": {{{json.dumps(again)}: {json.dumps(value)}, ', 1)
    assert _broken(create(view, twice.encode(), FIND))[0] in ("body.keys", "body.type")


@given(HOSTS, LABELS, GRANTS, OPENINGS)
def test_what_was_written_anew_passes_as_it_is(
    host: dict[str, Any], labels: dict[str, str], grants: frozenset[str], opened: frozenset[str]
) -> None:
    view = repo(*grants, binds=("/srv",), open=opened)
    first = create(view, body(host, labels), FIND)
    if isinstance(first, Refusal):
        return
    again = ask(first.outgoing.method, first.outgoing.target, view, first.outgoing.body, find=FIND)
    assert again == first


@given(HOSTS, LABELS, GRANTS, st.randoms(), st.sampled_from([None, 1, "\t"]))
def test_order_of_keys_and_blanks_make_no_difference(
    host: dict[str, Any], labels: dict[str, str], grants: frozenset[str], chance: random.Random, indent: Any
) -> None:
    view = repo(*grants, binds=("/srv",))
    whole = body(host, labels)
    mixed = json.dumps(_mixed(whole, chance), indent=indent).encode()
    assert _outcome(create(view, mixed, FIND)) == _outcome(create(view, whole, FIND))


def _outcome(decision: Decision) -> object:
    return set(decision.violations) if isinstance(decision, Refusal) else decision


def _mixed(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, _mixed(entry, chance)) for key, entry in value.items()]
        chance.shuffle(items)
        return dict(items)
    return [_mixed(entry, chance) for entry in value] if isinstance(value, list) else value


TARGETS = st.sampled_from(
    ["/containers/create", "/v1.45/containers/create?name=x", "/containers/web/update", "/containers/web/exec",
     "/volumes/create", "/networks/create", "/networks/x/connect", "/commit?container=x", "/auth", "/build",
     "/containers/web/start", "/containers/web/restart", f"/exec/{'ab' * 32}/start", "/grpc", "/plugins/pull"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["host", "cdi", NVIDIA, "/dev"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["HostConfig", "DeviceRequests", "Devices", "Binds", "Mounts", "Driver", "DeviceIDs", "Labels", "Type"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(TARGETS, st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()), GRANTS)
@settings(max_examples=300)
def test_any_bytes_give_a_decision(target: str, raw_body: bytes, grants: frozenset[str]) -> None:
    decision = ask("POST", target, repo(*grants, binds=("/srv",)), raw_body, find=FIND)
    assert isinstance(decision, Admission | Refusal)
    if isinstance(decision, Refusal):
        assert 400 <= decision.status < 500
        assert decision.violations
        assert all(found.message and found.rule for found in decision.violations)


INSPECTS = st.recursive(
    JSON, lambda inner: st.fixed_dictionaries({"Id": st.just(ID), "HostConfig": inner, "Mounts": inner})
)


@given(st.sampled_from(["start", "restart", "unpause"]), INSPECTS, GRANTS)
def test_any_answer_of_a_daemon_gives_a_decision(line: str, answer: Any, grants: frozenset[str]) -> None:
    find = knows({ContainerFact("web"): answer})
    decision = ask("POST", f"/containers/web/{line}", repo(*grants), find=find)
    if isinstance(decision, Admission):
        assert set(decision.devices) <= grants


@given(HOSTS, GRANTS)
@pytest.mark.req("R1", "R51")
def test_what_starts_holds_only_granted_devices(host: dict[str, Any], grants: frozenset[str]) -> None:
    found = inspected(**copy.deepcopy(host))
    decision = ask(
        "POST",
        "/containers/web/start",
        repo(*grants),
        find=knows({ContainerFact("web"): found, ContainerFact(ID): found}),
    )
    if isinstance(decision, Admission):
        asked = [name for request in host.get("DeviceRequests") or [] for name in request.get("DeviceIDs") or []]
        assert set(asked) <= grants
        assert not host.get("Devices")
        assert not host.get("Privileged")


METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "post", ""])
PIECES = st.sampled_from(
    [*{part for row in routes.ROUTES for part in row.parts}, "x", "..", "%2e", "%2F", "v1.45", "libpod"]
)
PATHS = st.lists(PIECES, max_size=6).map(lambda parts: "/" + "/".join(parts))
HEADERS = st.lists(
    st.tuples(st.sampled_from(["content-type", "host", "upgrade", "x-meta-a"]), st.text(max_size=8)), max_size=3
)


@given(METHODS, PATHS | st.text(max_size=30), HEADERS, st.booleans())
def test_any_head_is_routed_or_refused(
    method: str, target: str, headers: list[tuple[str, str]], has_body: bool
) -> None:
    found = routes.route(Head(method, target, tuple(headers), (1, 1), has_body), repo())
    if isinstance(found, Routed):
        assert found.method == method
        assert all(part not in ("", ".", "..") for part in found.segments)
    else:
        assert 400 <= found.status < 500


def test_the_door_is_open_for_a_grant_and_closed_for_every_spelling_of_the_flag() -> None:
    assert isinstance(create(repo(DRI), run_body(DeviceRequests=cdi(DRI))), Admission)
    assert isinstance(create(repo(DRI), run_body(DeviceRequests=gpus())), Refusal)
