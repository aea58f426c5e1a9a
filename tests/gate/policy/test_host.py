"""Host rules: what is only power over the machine; what of it can be opened for a repo, and what stays open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dockerclient import ID, ask, create, inspected, knows, repo, rules_of, run_body, said, sent
from gpugrant_crds import openings
from gpugrant_gate.policy import judge, routes
from gpugrant_gate.policy.model import Admission, ContainerFact, ExecFact, Head, ListenersFact, NetworkFact, Routed

VIEW = repo()
JSON = (("content-type", "application/json"),)

REFUSED = {
    "host network": ({"NetworkMode": "host"}, "host.network"),
    "a network namespace by path": ({"NetworkMode": "ns:/proc/1/ns/net"}, "host.network"),
    "host IPC": ({"IpcMode": "host"}, "host.ipc"),
    "host user namespace": ({"UsernsMode": "host"}, "host.userns"),
    "host cgroup namespace": ({"CgroupnsMode": "host"}, "host.cgroupns"),
    "an unknown UTS mode": ({"UTSMode": "container:x"}, "host.uts"),
    "SYS_PTRACE": ({"CapAdd": ["SYS_PTRACE"]}, "host.capabilities"),
    "NET_ADMIN": ({"CapAdd": ["CAP_NET_ADMIN"]}, "host.capabilities"),
    "a capability with a long s": ({"CapAdd": ["\u017fys_nice"]}, "host.capabilities"),
    "no seccomp": ({"SecurityOpt": ["seccomp=unconfined"]}, "host.security"),
    "no seccomp, old form": ({"SecurityOpt": ["seccomp:unconfined"]}, "host.security"),
    "a seccomp profile": ({"SecurityOpt": ['seccomp={"defaultAction":"SCMP_ACT_ALLOW"}']}, "host.security"),
    "no AppArmor": ({"SecurityOpt": ["apparmor=unconfined"]}, "host.security"),
    "no SELinux": ({"SecurityOpt": ["label=disable"]}, "host.security"),
    "no SELinux, bare": ({"SecurityOpt": ["disable"]}, "host.security"),
    "new privileges": ({"SecurityOpt": ["no-new-privileges=false"]}, "host.security"),
    "writable cgroups": ({"SecurityOpt": ["writable-cgroups=true"]}, "host.security"),
    "a sysctl of the machine": ({"Sysctls": {"kernel.core_pattern": "|/x"}}, "host.sysctls"),
    "syslog": ({"LogConfig": {"Type": "syslog", "Config": {}}}, "host.log"),
    "an option that reads a file": ({"LogConfig": {"Type": "", "Config": {"syslog-tls-key": "/x"}}}, "host.log"),
    "a storage option": ({"StorageOpt": {"dm.basesize": "1"}}, "host.storage"),
    "isolation": ({"Isolation": "hyperv"}, "host.isolation"),
    "an unknown restart policy": ({"RestartPolicy": {"Name": "sometimes"}}, "host.restart"),
    "a tmpfs with devices": ({"Tmpfs": {"/x": "rw,dev"}}, "host.tmpfs"),
    "a tmpfs with options without end": ({"Tmpfs": {"/x": "rw," * 342}}, "host.tmpfs"),
    "a network of nothing but a colon": ({"NetworkMode": ":"}, "host.network"),
    "the namespace of a container without a name": ({"NetworkMode": "container:"}, "host.shared"),
    "the namespace of a container with a path for a name": ({"IpcMode": "container:../x"}, "host.shared"),
}


@pytest.mark.parametrize(("host", "rule"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses(host: dict[str, Any], rule: str) -> None:
    assert rules_of(create(VIEW, run_body(**host))) == [rule]


PASSES = {
    "capabilities of Docker's default set": {"CapAdd": ["NET_BIND_SERVICE", "mknod"]},
    "capabilities that GPU libraries want": {"CapAdd": ["IPC_LOCK", "SYS_NICE", "SYS_RESOURCE"]},
    "dropped capabilities": {"CapDrop": ["ALL"]},
    "host UTS": {"UTSMode": "host"},
    "private IPC": {"IpcMode": "private"},
    "shareable IPC": {"IpcMode": "shareable"},
    "a private cgroup namespace": {"CgroupnsMode": "private"},
    "no new privileges": {"SecurityOpt": ["no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"]},
    "sysctls of the container": {
        "Sysctls": {"net.core.somaxconn": "10", "kernel.shmmax": "1", "fs.mqueue.msg_max": "1"}
    },
    "a log that rotates": {"LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "3"}}},
    "no log": {"LogConfig": {"Type": "none"}},
    "a named network": {"NetworkMode": "proj_default"},
    "no network": {"NetworkMode": "none"},
    "a size": {"StorageOpt": {"size": "10G"}},
    "a tmpfs": {"Tmpfs": {"/x": "rw,noexec,nosuid,size=65536k,mode=1777", "/y": ""}},
    "limits": {
        "Memory": 1 << 30,
        "NanoCpus": 10**9,
        "PidsLimit": -1,
        "Ulimits": [{"Name": "nofile", "Soft": 1, "Hard": 1}],
    },
    "ports": {"PortBindings": {"80/tcp": [{"HostIp": "", "HostPort": "80"}], "81/tcp": None}},
    "a restart policy": {"RestartPolicy": {"Name": "unless-stopped", "MaximumRetryCount": 0}},
    "Docker's own masks, sent back": {
        "MaskedPaths": inspected()["HostConfig"]["MaskedPaths"],
        "ReadonlyPaths": inspected()["HostConfig"]["ReadonlyPaths"],
    },
    "a shared memory size": {"ShmSize": 1 << 30},
    "an init": {"Init": True},
}


@pytest.mark.parametrize("host", PASSES.values(), ids=PASSES.keys())
def test_passes(host: dict[str, Any]) -> None:
    passed = sent(create(VIEW, run_body(**host)))["HostConfig"]
    for field, value in host.items():
        if field != "CapAdd":
            assert passed[field] == value


def test_capabilities_go_on_as_they_were_compared() -> None:
    assert sent(create(VIEW, run_body(CapAdd=["cap_sys_nice"])))["HostConfig"]["CapAdd"] == ["SYS_NICE"]


ENDPOINT = "com.docker.network.endpoint."
ENDPOINTS = {
    "the host's network": ({"host": {}}, "host.network"),
    "an option of the machine's side": ({"x": {"DriverOpts": {"com.docker.network.host": "eth0"}}}, "host.endpoint"),
    "an interface that is a path": ({"x": {"DriverOpts": {f"{ENDPOINT}ifname": "../../x"}}}, "host.endpoint"),
    "an interface that is a folder": ({"x": {"DriverOpts": {f"{ENDPOINT}ifname": ".."}}}, "host.endpoint"),
    "a sysctl of the machine": (
        {"x": {"DriverOpts": {f"{ENDPOINT}sysctls": "kernel.x.y.IFNAME.z=1"}}},
        "host.endpoint",
    ),
    "a sysctl that is a path": (
        {"x": {"DriverOpts": {f"{ENDPOINT}sysctls": "net.ipv4/../../kernel.core_pattern/...IFNAME.z=1"}}},
        "host.endpoint",
    ),
    "a sysctl of the machine behind one that passes": (
        {"x": {"DriverOpts": {f"{ENDPOINT}sysctls": "net.ipv4.conf.IFNAME.log_martians=1,kernel.a.b.IFNAME.c=1"}}},
        "host.endpoint",
    ),
}


@pytest.mark.parametrize(("endpoints", "rule"), ENDPOINTS.values(), ids=ENDPOINTS.keys())
def test_refuses_endpoints(endpoints: dict[str, Any], rule: str) -> None:
    body = {"Image": "x", "NetworkingConfig": {"EndpointsConfig": endpoints}}
    assert rules_of(create(VIEW, body)) == [rule]


def test_an_interface_s_own_name_and_sysctls_pass() -> None:
    options = {
        f"{ENDPOINT}ifname": "lan0",
        f"{ENDPOINT}sysctls": "net.ipv4.conf.IFNAME.log_martians=1,net.ipv6.conf.IFNAME.accept_ra=2",
    }
    body = {"Image": "x", "NetworkingConfig": {"EndpointsConfig": {"bridge": {"DriverOpts": options}}}}
    assert sent(create(VIEW, body))["NetworkingConfig"]["EndpointsConfig"]["bridge"]["DriverOpts"] == options


@pytest.mark.parametrize("field", ["NetworkMode", "IpcMode"])
def test_a_namespace_of_another_container_is_asked_for_by_its_full_id(field: str) -> None:
    find = knows({ContainerFact("side"): inspected()})
    host = sent(create(VIEW, run_body(**{field: "container:side"}), find))["HostConfig"]
    assert host[field] == f"container:{ID}"


@pytest.mark.parametrize("field", ["NetworkMode", "IpcMode"])
def test_the_hosts_namespace_by_way_of_another_container_is_refused(field: str) -> None:
    find = knows({ContainerFact("side"): inspected(**{field: "host"})})
    assert rules_of(create(VIEW, run_body(**{field: "container:side"}), find)) == ["host.shared"]


def test_a_namespace_of_a_container_that_is_not_there_is_refused() -> None:
    decision = create(VIEW, run_body(NetworkMode="container:gone"))
    assert rules_of(decision) == ["host.shared"]
    assert 'no container "gone"' in said(decision)


def test_no_rule_closes_a_plain_container() -> None:
    assert isinstance(create(VIEW, run_body()), Admission)


# opened for a repo by name

OPENED = {
    "host network": ({"NetworkMode": "host"}, "host.network"),
    "host IPC": ({"IpcMode": "host"}, "host.ipc"),
    "host user namespace": ({"UsernsMode": "host"}, "host.userns"),
    "NET_ADMIN": ({"CapAdd": ["cap_net_admin"]}, "host.capabilities=NET_ADMIN"),
    "SYSLOG": ({"CapAdd": ["SYSLOG"]}, "host.capabilities=SYSLOG"),
    "no seccomp": ({"SecurityOpt": ["seccomp=unconfined"]}, "host.security=seccomp=unconfined"),
    "no seccomp, old form": ({"SecurityOpt": ["seccomp:unconfined"]}, "host.security=seccomp=unconfined"),
    "no AppArmor": ({"SecurityOpt": ["apparmor=unconfined"]}, "host.security=apparmor=unconfined"),
    "no SELinux, bare": ({"SecurityOpt": ["disable"]}, "host.security=label=disable"),
    "a type": ({"SecurityOpt": ["label:type:spc_t"]}, "host.security=label=type:spc_t"),
    "syslog": ({"LogConfig": {"Type": "syslog", "Config": {"syslog-address": "udp://x:514"}}}, "host.log=syslog"),
}


@pytest.mark.parametrize(("host", "opening"), OPENED.values(), ids=OPENED.keys())
@pytest.mark.req("R45")
def test_an_opening_lets_that_pass_and_nothing_else(host: dict[str, Any], opening: str) -> None:
    closed = create(VIEW, run_body(**host))
    assert rules_of(closed) == [opening.partition("=")[0]]
    assert f"an operator can open it: open: [{opening}] in the file of repo gpu-a in repos.d" in said(closed)
    view = repo(open=frozenset({opening}))
    passed = sent(create(view, run_body(**host)))["HostConfig"]
    assert {key: passed[key] for key in host if key != "CapAdd"} == {k: v for k, v in host.items() if k != "CapAdd"}
    for other, name in OPENED.values():
        if name != opening:
            assert rules_of(create(view, run_body(**other))) == [name.partition("=")[0]]


STAYS = {
    "a sysctl of the machine's network": ({"NetworkMode": "host", "Sysctls": {"net.a": "1"}}, ["host.sysctls"]),
    "a sysctl of another's network": ({"NetworkMode": "container:web", "Sysctls": {"net.a": "1"}}, ["host.sysctls"]),
    "a sysctl of the machine's memory": ({"IpcMode": "host", "Sysctls": {"kernel.sem": "1"}}, ["host.sysctls"]),
    "a capability of no opening": ({"CapAdd": ["NET_ADMIN", "BPF"]}, ["host.capabilities"]),
    "SYS_ADMIN": ({"CapAdd": ["SYS_ADMIN"]}, ["hw.capabilities"]),
    "a seccomp profile": ({"SecurityOpt": ['seccomp={"x":1}']}, ["host.security"]),
    "no masks": ({"MaskedPaths": []}, ["hw.masks"]),
    "a socket for a log": ({"LogConfig": {"Type": "syslog", "Config": {"syslog-address": "unix:///x"}}}, ["host.log"]),
    "a file for a log": ({"LogConfig": {"Type": "syslog", "Config": {"syslog-tls-key": "/x"}}}, ["host.log"]),
    "host PID": ({"PidMode": "host"}, ["hw.pid"]),
}
EVERYTHING = frozenset(opening.name for opening in openings.OPENINGS)
LENDER = knows({ContainerFact("web"): inspected(NetworkMode="host", IpcMode="host")})


@pytest.mark.parametrize(("host", "rules"), STAYS.values(), ids=STAYS.keys())
@pytest.mark.req("R45")
def test_what_stays_refused_when_everything_is_open(host: dict[str, Any], rules: list[str]) -> None:
    assert rules_of(create(repo(open=EVERYTHING), run_body(**host), LENDER)) == rules


def test_what_can_never_be_opened_says_why() -> None:
    message = said(create(VIEW, run_body(CapAdd=["BPF", "NET_ADMIN"])))
    assert "host.capabilities=BPF can't be opened: it changes what the kernel runs" in message
    assert "open: [host.capabilities=NET_ADMIN]" in message
    assert "can open it" not in said(create(VIEW, run_body(CapAdd=["BPF"])))


@pytest.mark.parametrize(("field", "opening"), [("NetworkMode", "host.network"), ("IpcMode", "host.ipc")])
def test_a_namespace_of_the_host_is_shared_where_it_is_open(field: str, opening: str) -> None:
    body = run_body(**{field: "container:web"})
    assert rules_of(create(VIEW, body, LENDER)) == ["host.shared"]
    assert isinstance(create(repo(open=frozenset({opening})), body, LENDER), Admission)


NETWORKS = {
    "the host's by its id": ("host", "host.network", "host.network"),
    "macvlan": ("macvlan", "host.network-driver", "host.network-driver=macvlan"),
    "a plugin's": ("x/y", "host.network-driver", ""),
}


@pytest.mark.parametrize(("driver", "rule", "opening"), NETWORKS.values(), ids=NETWORKS.keys())
@pytest.mark.parametrize("where", ["mode", "endpoint"])
def test_a_network_is_what_the_daemon_finds_by_its_name(driver: str, rule: str, opening: str, where: str) -> None:
    body: dict[str, Any] = {"Image": "x", "HostConfig": {"NetworkMode": ID}}
    if where == "endpoint":
        body = {"Image": "x", "NetworkingConfig": {"EndpointsConfig": {ID: {}}}}
    find = knows({NetworkFact(ID): {"Id": ID, "Name": "n", "Driver": driver}})
    assert rules_of(create(VIEW, body, find)) == [rule]
    if opening:
        assert isinstance(create(repo(open=frozenset({opening})), body, find), Admission)
    connect = ask("POST", f"/networks/{ID}/connect", VIEW, {"Container": "web"}, find=find)
    assert rules_of(connect) == [rule]


@pytest.mark.parametrize("name", ["a:b", "a/b", "ns:/proc/1/ns/net", ":"])
def test_a_network_whose_name_can_not_be_asked_for_is_refused(name: str) -> None:
    endpoint = {"Image": "x", "NetworkingConfig": {"EndpointsConfig": {name: {}}}}
    assert rules_of(create(repo(open=EVERYTHING), endpoint)) == ["host.network"]
    assert rules_of(create(repo(open=EVERYTHING), run_body(NetworkMode=name))) == ["host.network"]


def test_a_network_that_could_not_be_looked_at_is_refused() -> None:
    routed = routes.route(Head("POST", "/containers/create", JSON, (1, 1), True), VIEW)
    assert isinstance(routed, Routed)
    body = json.dumps(run_body(NetworkMode="proj_default")).encode()
    assert rules_of(judge.judge(routed, body, {}, VIEW)) == ["host.network"]


HANDS_OUT = {
    "an X server": "/tmp/.X11-unix/X0",
    "NVIDIA's driver for X": "/var/run/nvidia-xdriver-5e2c1a",
    "a session bus": "/tmp/dbus-Qx1",
    "upstart": "/com/ubuntu/upstart",
    "an old containerd": "/containerd-shim/moby/x/shim.sock",
    "a console of LXC": "/var/lib/lxc/web/command",
}


@pytest.mark.parametrize("name", HANDS_OUT.values(), ids=HANDS_OUT.keys())
@pytest.mark.req("R45")
def test_the_hosts_network_is_not_open_beside_who_hands_out_devices(name: str) -> None:
    view = repo(open=frozenset({"host.network"}))
    listening = ("ISCSIADM_ABSTRACT_NAMESPACE", name)
    find = knows({ListenersFact(): listening, ContainerFact("web"): inspected(NetworkMode="host")})
    for mode in ("host", "container:web"):
        assert rules_of(create(view, run_body(NetworkMode=mode), find)) == ["hw.listeners"]
    assert isinstance(create(view, run_body(NetworkMode="proj_default"), find), Admission)
    assert rules_of(ask("POST", "/containers/web/start", view, find=find)) == ["hw.listeners"]
    assert rules_of(ask("POST", "/build?networkmode=host", view, find=find)) == ["hw.listeners"]
    for deed, body in (("attach", None), ("exec", {"Cmd": ["sh"]}), ("unpause", None)):
        # it is on that network already
        assert isinstance(ask("POST", f"/containers/web/{deed}", view, body, find=find), Admission)


def test_a_build_may_use_the_hosts_network_where_it_is_open() -> None:
    assert rules_of(ask("POST", "/build?networkmode=host", VIEW)) == ["host.network"]
    assert isinstance(ask("POST", "/build?networkmode=host", repo(open=frozenset({"host.network"}))), Admission)


# who may trace

TRACES = repo(open=frozenset({"host.capabilities=SYS_PTRACE"}))


@pytest.mark.req("R45")
def test_a_tracer_gets_no_healthcheck() -> None:
    assert sent(create(TRACES, run_body(CapAdd=["SYS_PTRACE"])))["Healthcheck"] == {"Test": ["NONE"]}
    assert "Healthcheck" not in sent(create(TRACES, run_body()))
    for test in (["CMD", "true"], ["CMD-SHELL", "true"]):
        body = run_body(config={"Healthcheck": {"Test": test}}, CapAdd=["SYS_PTRACE"])
        decision = create(TRACES, body)
        assert rules_of(decision) == ["hw.tracer"]
        assert "healthcheck: {disable: true}" in said(decision)


@pytest.mark.req("R45")
def test_a_tracer_takes_no_exec_whatever_is_open() -> None:
    view = repo(open=EVERYTHING)
    find = knows({ContainerFact("web"): inspected(CapAdd=["CAP_SYS_PTRACE"])})
    decision = ask("POST", "/containers/web/exec", view, {"Cmd": ["sh"]}, find=find)
    assert rules_of(decision) == ["hw.tracer"]
    assert "start what you need with the container" in said(decision)
    exec_id = "ab" * 32
    started = knows({ExecFact(exec_id): {"ContainerID": ID}, ContainerFact(ID): inspected(CapAdd=["SYS_PTRACE"])})
    assert rules_of(ask("POST", f"/exec/{exec_id}/start", view, {}, find=started)) == ["hw.tracer"]


@pytest.mark.req("R45")
def test_a_tracer_whose_image_brought_a_healthcheck_past_the_gate_does_not_start() -> None:
    found = inspected(CapAdd=["SYS_PTRACE"])
    found["Config"]["Healthcheck"] = {"Test": ["CMD", "true"]}
    find = knows({ContainerFact("web"): found})
    assert rules_of(ask("POST", "/containers/web/start", TRACES, find=find)) == ["hw.tracer"]


def test_a_seccomp_profile_of_ones_own_is_told_why() -> None:
    message = said(create(VIEW, run_body(SecurityOpt=['seccomp={"defaultAction":"SCMP_ACT_ALLOW"}'])))
    assert "a seccomp profile of one's own is never taken" in message
    assert "SCMP_ACT_ALLOW" not in message
