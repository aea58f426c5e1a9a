"""Host rules: what is only power over the machine, all closed in this form; and what stays open."""

from __future__ import annotations

from typing import Any

import pytest

from dockerclient import ID, create, inspected, knows, repo, rules_of, run_body, said, sent
from gpugrant_gate.policy.model import Admission, ContainerFact

VIEW = repo()

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


ENDPOINTS = {
    "the host's network": ({"host": {}}, "host.network"),
    "an option of the machine's side": ({"x": {"DriverOpts": {"com.docker.network.host": "eth0"}}}, "host.endpoint"),
}


@pytest.mark.parametrize(("endpoints", "rule"), ENDPOINTS.values(), ids=ENDPOINTS.keys())
def test_refuses_endpoints(endpoints: dict[str, Any], rule: str) -> None:
    body = {"Image": "x", "NetworkingConfig": {"EndpointsConfig": endpoints}}
    assert rules_of(create(VIEW, body)) == [rule]


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
