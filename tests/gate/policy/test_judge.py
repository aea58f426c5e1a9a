"""The other judged endpoints, and how a request that passes is written anew."""

from __future__ import annotations

from typing import Any

import pytest

from dockerclient import ask, create, inspected, knows, repo, rules_of, run_body, said, sent
from gpugrant_gate.policy.model import Admission, ContainerFact, Exchange, Refusal

VIEW = repo()
PLAIN = knows({ContainerFact("web"): inspected()})

# how it is written


def test_a_request_without_a_version_gets_the_one_that_both_know() -> None:
    decision = ask("GET", "/containers/json?all=1", repo(api_version="1.45"))
    assert isinstance(decision, Admission)
    assert decision.outgoing.target == "/v1.45/containers/json?all=1"


def test_a_version_that_is_too_new_gets_the_daemons_own_answer() -> None:
    decision = ask("GET", "/v1.99/info", VIEW)
    assert isinstance(decision, Refusal)
    assert decision.status == 400
    assert "client version 1.99 is too new. Maximum supported API version is 1.45" in decision.message


def test_names_are_encoded_anew() -> None:
    decision = ask("POST", "/v1.45/networks/my%20n%65t%3F/disconnect", VIEW, {"Container": "web", "Force": True})
    assert isinstance(decision, Admission)
    assert decision.outgoing.target == "/v1.45/networks/my%20net%3F/disconnect"


def test_a_judged_body_is_json_whatever_the_client_said_of_it() -> None:
    headers = (("content-type", "application/json; charset=utf-8"), ("user-agent", "x"), ("x-evil", "y"))
    decision = ask("POST", "/containers/create", VIEW, {"Image": "x"}, headers=headers)
    assert isinstance(decision, Admission)
    assert decision.outgoing.headers == (("user-agent", "x"), ("content-type", "application/json"))


def test_a_stream_goes_on_as_a_tar() -> None:
    decision = ask("POST", "/images/load", VIEW)
    assert isinstance(decision, Admission)
    assert decision.outgoing.body is None
    assert decision.outgoing.headers == (("content-type", "application/x-tar"),)


def test_an_attach_is_a_pipe() -> None:
    decision = ask("POST", "/containers/web/attach?stream=1", VIEW, find=PLAIN)
    assert isinstance(decision, Admission)
    assert (decision.outgoing.exchange, decision.outgoing.body) == (Exchange.HIJACK, b"")


@pytest.mark.parametrize(
    "raw", [b'{"Image":"x","Tty":true}', b' {\n "Tty" : true ,"Image":"x"}', b'{"tty":true,"IMAGE":"x"}']
)
def test_order_blanks_and_spelling_make_no_difference(raw: bytes) -> None:
    assert sent(create(VIEW, raw)) == {"Image": "x", "Tty": True, "HostConfig": {"Runtime": "runc"}}


def test_what_is_not_ascii_is_escaped() -> None:
    decision = create(VIEW, {"Image": "x", "Labels": {"gr\u00f6\u00dfe": "\U0001f600"}})
    assert isinstance(decision, Admission)
    assert decision.outgoing.body is not None
    assert decision.outgoing.body.isascii()
    assert sent(decision)["Labels"] == {"gr\u00f6\u00dfe": "\U0001f600"}


def test_a_message_never_quotes_environment_or_command() -> None:
    body = run_body(config={"Env": ["TOKEN=s3cret"], "Cmd": ["s3cret"]}, Privileged=True, NetworkMode="host")
    assert "s3cret" not in said(create(VIEW, body))


# dockerode: what it says in the query, it says in the body as well

ECHOES = {
    "stop": ("/containers/web/stop?t=5", {"t": 5}),
    "kill": ("/containers/web/kill?signal=INT", {"signal": "INT"}),
    "wait": ("/containers/web/wait?condition=removed", {"condition": "removed"}),
    "resize": ("/containers/web/resize?h=10&w=20", {"h": 10, "w": 20}),
    "attach": ("/containers/web/attach?stream=true&stdin=true&hijack=true", {"stream": True, "hijack": True}),
    "pull": ("/images/create?fromImage=x&tag=1", {"fromImage": "x", "tag": "1"}),
    "tag": ("/images/x/tag?repo=y", {"repo": "y"}),
}


@pytest.mark.parametrize(("target", "body"), ECHOES.values(), ids=ECHOES.keys())
def test_a_body_that_repeats_the_query_is_left_out(target: str, body: dict[str, Any]) -> None:
    decision = ask("POST", target, VIEW, body, find=PLAIN)
    assert isinstance(decision, Admission)
    assert (decision.outgoing.body, decision.outgoing.headers) == (b"", ())


@pytest.mark.parametrize(
    "raw", [b"[]", b"1", b'{"t":1,"t":2}', b"x", b'{"T":5}', b'{"HostConfig":{"Privileged":true}}']
)
def test_a_body_that_repeats_nothing_is_malformed(raw: bytes) -> None:
    decision = ask("POST", "/containers/web/stop?t=5", VIEW, raw)
    assert isinstance(decision, Refusal)
    assert decision.status == 400


def test_a_create_whose_fields_are_in_the_query_too_is_judged_by_its_body() -> None:
    body = {"name": "c", "Image": "x", "HostConfig": {"AutoRemove": True}}
    target = "/containers/create?name=c&Image=x&HostConfig=%7B%22Privileged%22%3Atrue%7D"
    decision = ask("POST", target, VIEW, body)
    assert sent(decision) == {"Image": "x", "HostConfig": {"AutoRemove": True, "Runtime": "runc"}}
    assert isinstance(decision, Admission)
    assert decision.outgoing.target == "/v1.45/containers/create?name=c"


def test_a_commit_whose_fields_are_in_the_query_too_is_judged_by_its_body() -> None:
    body = {"container": "web", "repo": "r", "Cmd": ["ls"]}
    decision = ask("POST", "/commit?container=web&repo=r&Cmd=ls", VIEW, body)
    assert sent(decision) == {"Cmd": ["ls"]}
    assert isinstance(decision, Admission)
    assert decision.outgoing.target == "/v1.45/commit?container=web&repo=r"


# docker-java: fields of its own in the body

JAVA = {
    "exec": ("/containers/web/exec", {"containerId": "web", "Cmd": ["ls"]}, {"Cmd": ["ls"]}),
    "commit": (
        "/commit?container=web",
        {"containerId": "web", "repository": "r", "message": "m", "Memory": 1, "MemorySwap": 1, "Cmd": ["ls"]},
        {"Cmd": ["ls"]},
    ),
    "network, one flag in two spellings": (
        "/networks/create",
        {"enableIPv6": True, "Name": "n", "EnableIPv6": True},
        {"EnableIPv6": True, "Name": "n"},
    ),
    "network, neither says anything": (
        "/networks/create",
        {"enableIPv6": None, "Name": "n", "EnableIPv6": None},
        {"Name": "n"},
    ),
    "connect": (
        "/networks/n/connect",
        {"containerConfig": {"Aliases": ["a"]}, "Container": "web", "EndpointConfig": {"Aliases": ["a"]}},
        {"Container": "web", "EndpointConfig": {"Aliases": ["a"]}},
    ),
}


@pytest.mark.parametrize(("target", "body", "goes_on"), JAVA.values(), ids=JAVA.keys())
def test_what_docker_java_says_to_itself_is_left_out(
    target: str, body: dict[str, Any], goes_on: dict[str, Any]
) -> None:
    find = knows({ContainerFact("web"): inspected()})
    assert sent(ask("POST", target, VIEW, body, find=find)) == goes_on


@pytest.mark.parametrize("other", [False, None, 1, "true"])
def test_a_flag_that_is_said_twice_and_differently_is_malformed(other: object) -> None:
    decision = ask("POST", "/networks/create", VIEW, {"enableIPv6": other, "Name": "n", "EnableIPv6": True})
    assert isinstance(decision, Refusal)
    assert (decision.status, decision.violations[0].rule.partition(".")[0]) == (400, "body")


# builds

CLASSIC = (
    "/v1.45/build?buildargs=%7B%7D&cachefrom=%5B%5D&cgroupparent=&cpuperiod=0&cpuquota=0&cpusetcpus=&cpusetmems="
    "&cpushares=0&dockerfile=Dockerfile&labels=%7B%7D&memory=0&memswap=0&networkmode=default&rm=1&shmsize=0&t=foo"
    "&target=&ulimits=%5B%5D&version=1"
)
"""What the docker CLI 26 sends without BuildKit."""


@pytest.mark.parametrize(
    "target", [CLASSIC, "/build", "/build?t=a&t=b&networkmode=none&ulimits=null&extrahosts=a:1&extrahosts=b:2"]
)
def test_a_classic_build_passes(target: str) -> None:
    decision = ask("POST", target, VIEW)
    assert isinstance(decision, Admission)
    assert (decision.route, decision.outgoing.body) == ("build", None)


BUILDS = {
    "BuildKit": ("version=2", "build.buildkit"),
    "a session": ("session=abc", "build.buildkit"),
    "outputs": ("outputs=%5B%7B%22Type%22%3A%22local%22%7D%5D", "build.buildkit"),
    "the host's network": ("networkmode=host", "host.network"),
    "another container's network": ("networkmode=container:x", "host.network"),
    "a cgroup parent": ("cgroupparent=%2Fx", "hw.cgroup"),
    "a cgroup parent of that name": ("cgroupparent=null", "hw.cgroup"),
    "a folder elsewhere": ("remote=https%3A%2F%2Fx%2Fy.git", "build.remote"),
    "security options": ("securityopt=%5B%22seccomp%3Dunconfined%22%5D", "host.security"),
    "isolation": ("isolation=hyperv", "host.isolation"),
    "entitlements": ("entitlements=device", "http.query"),
}


@pytest.mark.parametrize(("query", "rule"), BUILDS.values(), ids=BUILDS.keys())
@pytest.mark.req("R45")
def test_refuses_a_build_with(query: str, rule: str) -> None:
    assert rules_of(ask("POST", f"/build?t=x&{query}", VIEW)) == [rule]


@pytest.mark.req("R52")
def test_refuses_builds_where_the_daemon_is_unfit_for_they_run_under_its_default_runtime() -> None:
    decision = ask("POST", "/build?t=x&networkmode=host", repo(unfit="its default runtime is nvidia"))
    assert rules_of(decision) == ["hw.unfit", "host.network"]
    assert "its default runtime is nvidia" in said(decision)


# images


@pytest.mark.parametrize("source", ["http%3A%2F%2Fx%2Fy.tar", "https%3A%2F%2Fx", "/etc/x", ""])
def test_refuses_an_import_that_the_daemon_would_fetch(source: str) -> None:
    assert rules_of(ask("POST", f"/images/create?fromSrc={source}&repo=x", VIEW)) == ["host.import"]


def test_an_import_of_what_the_client_sends_passes() -> None:
    decision = ask("POST", "/images/create?fromSrc=-&repo=x&changes=CMD+a", VIEW)
    assert isinstance(decision, Admission)
    assert decision.outgoing.body is None


def test_a_commit_passes_with_and_without_a_body() -> None:
    empty = ask("POST", "/commit?container=web&repo=x&changes=CMD+a&changes=ENV+b%3Dc", VIEW)
    assert isinstance(empty, Admission)
    assert (empty.outgoing.body, empty.outgoing.headers) == (b"", ())
    assert sent(ask("POST", "/commit?container=web", VIEW, {"Cmd": ["a"], "Env": None})) == {"Cmd": ["a"]}


def test_a_commit_with_a_host_config_is_refused() -> None:
    assert rules_of(ask("POST", "/commit?container=web", VIEW, {"HostConfig": {"Privileged": True}})) == ["body.field"]


def test_credentials_pass_with_their_own_spelling() -> None:
    body = {"username": "a", "password": "b", "serveraddress": "localhost:1"}
    assert sent(ask("POST", "/auth", VIEW, body)) == body


# volumes


def test_a_volume_is_made_with_the_local_driver() -> None:
    body = {"Name": "data", "Labels": {"a": "b"}, "DriverOpts": {}}
    assert sent(ask("POST", "/volumes/create", VIEW, body)) == {**body, "Driver": "local"}


VOLUMES = {
    "a bind of /dev": (
        {"Driver": "local", "DriverOpts": {"type": "none", "o": "bind", "device": "/dev"}},
        "hw.volumes",
    ),
    "a tmpfs": ({"DriverOpts": {"type": "tmpfs"}}, "hw.volumes"),
    "a plug-in's volume": ({"Driver": "convoy"}, "hw.volumes"),
    "a cluster volume": ({"ClusterVolumeSpec": {"Group": "x"}}, "body.field"),
}


@pytest.mark.parametrize(("body", "rule"), VOLUMES.values(), ids=VOLUMES.keys())
@pytest.mark.req("R45")
def test_refuses_a_volume(body: dict[str, Any], rule: str) -> None:
    assert rules_of(ask("POST", "/volumes/create", VIEW, {"Name": "x", **body})) == [rule]


# networks

NETWORK = {
    "Name": "front", "CheckDuplicate": True, "Driver": "bridge", "Scope": "", "EnableIPv6": False,
    "IPAM": {"Driver": "default", "Options": {}, "Config": [{"Subnet": "10.9.0.0/24", "AuxiliaryAddresses": None}]},
    "Internal": True, "Attachable": False, "Ingress": False, "ConfigOnly": False, "ConfigFrom": {"Network": ""},
    "Options": {"com.docker.network.driver.mtu": "1400"}, "Labels": {"a": "b"},
}  # fmt: skip


def test_a_bridge_network_passes() -> None:
    body = sent(ask("POST", "/networks/create", VIEW, NETWORK))
    assert (body["Driver"], body["Internal"], body["Options"]) == ("bridge", True, NETWORK["Options"])
    assert not {"ConfigFrom", "Ingress", "ConfigOnly"} & set(body)


NETWORKS = {
    "macvlan": ({"Driver": "macvlan", "Options": {"parent": "eth0"}}, "host.network-driver"),
    "ipvlan": ({"Driver": "ipvlan"}, "host.network-driver"),
    "host": ({"Driver": "host"}, "host.network-driver"),
    "overlay": ({"Driver": "overlay"}, "host.network-driver"),
    "a swarm network": ({"Scope": "swarm"}, "host.network-driver"),
    "another bridge of the machine": ({"Options": {"com.docker.network.bridge.name": "virbr0"}}, "host.network-driver"),
    "another address driver": ({"IPAM": {"Driver": "dhcp"}}, "host.network-driver"),
    "options for the address driver": ({"IPAM": {"Options": {"a": "b"}}}, "host.network-driver"),
    "a network by reference": ({"ConfigFrom": {"Network": "x"}}, "body.field"),
    "a configuration": ({"ConfigOnly": True}, "body.field"),
    "an ingress network": ({"Ingress": True}, "body.field"),
}


@pytest.mark.parametrize(("changes", "rule"), NETWORKS.values(), ids=NETWORKS.keys())
def test_refuses_a_network(changes: dict[str, Any], rule: str) -> None:
    assert set(rules_of(ask("POST", "/networks/create", VIEW, {**NETWORK, **changes}))) == {rule}


def test_a_container_joins_and_leaves_a_network() -> None:
    joined = {"Container": "web", "EndpointConfig": {"Aliases": ["a"], "IPAMConfig": {"IPv4Address": "10.9.0.2"}}}
    assert sent(ask("POST", "/networks/front/connect", VIEW, joined)) == joined
    assert sent(ask("POST", "/networks/front/disconnect", VIEW, {"Container": "web", "Force": False})) == {
        "Container": "web",
        "Force": False,
    }


JOINS = {
    "an option of the machine's side": ("front", {"EndpointConfig": {"DriverOpts": {"x": "y"}}}, "host.endpoint"),
    "the host's network": ("host", {}, "host.network"),
    "a name with a slash": ("front", {"Container": "a/b"}, "http.name"),
    "an unknown field": ("front", {"Extra": 1}, "body.field"),
}


@pytest.mark.parametrize(("network", "changes", "rule"), JOINS.values(), ids=JOINS.keys())
def test_refuses_to_join(network: str, changes: dict[str, Any], rule: str) -> None:
    body = {"Container": "web", **changes}
    assert rules_of(ask("POST", f"/networks/{network}/connect", VIEW, body)) == [rule]


def test_a_body_that_is_wanted_and_missing_is_malformed() -> None:
    decision = ask("POST", "/volumes/create", VIEW)
    assert isinstance(decision, Refusal)
    assert decision.status == 400


def test_a_body_that_is_not_wanted_is_malformed() -> None:
    decision = ask("GET", "/info", VIEW, {"a": 1})
    assert isinstance(decision, Refusal)
    assert decision.status == 400
