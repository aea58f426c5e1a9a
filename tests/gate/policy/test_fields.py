"""Every field of every body has its verdict: it goes on, is left out, or is refused by a rule that is named.

The fields are those of moby's api/types (Config, HostConfig, Resources, mount.Mount, EndpointSettings, ExecOptions,
volume.CreateOptions, network.CreateRequest), API 1.24 to 1.56, with a value that says something.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from dockerclient import ID, NVIDIA, ask, cdi, create, gpus, inspected, knows, raw, repo, rules_of, sent
from gpugrant_gate.policy import shapes
from gpugrant_gate.policy.model import Admission, ContainerFact, Decision

VIEW = repo(NVIDIA, binds=("/srv",))
FIND = knows({ContainerFact("web"): inspected()})
GOES_ON, LEFT_OUT = "goes on", "left out"
Verdicts = Mapping[str, tuple[Any, str]]

CONFIG: Verdicts = {
    "Hostname": ("h", GOES_ON), "Domainname": ("d", GOES_ON), "User": ("1000:1000", GOES_ON),
    "AttachStdin": (True, GOES_ON), "AttachStdout": (True, GOES_ON), "AttachStderr": (True, GOES_ON),
    "ExposedPorts": ({"80/tcp": {}}, GOES_ON), "Tty": (True, GOES_ON), "OpenStdin": (True, GOES_ON),
    "StdinOnce": (True, GOES_ON), "Env": (["NVIDIA_VISIBLE_DEVICES=all"], GOES_ON), "Cmd": (["sh"], GOES_ON),
    "Healthcheck": ({"Test": ["CMD", "true"], "Interval": 1}, GOES_ON), "ArgsEscaped": (True, GOES_ON),
    "Image": ("y", GOES_ON), "Volumes": ({"/data": {}}, GOES_ON), "WorkingDir": ("/w", GOES_ON),
    "Entrypoint": (["e"], GOES_ON), "NetworkDisabled": (True, GOES_ON), "MacAddress": ("02:00:00:00:00:01", GOES_ON),
    "OnBuild": (["RUN x"], GOES_ON), "Labels": ({"a": "b"}, GOES_ON), "StopSignal": ("INT", GOES_ON),
    "StopTimeout": (5, GOES_ON), "Shell": (["sh", "-c"], GOES_ON), "PortSpecs": (["80"], "body.field"),
}  # fmt: skip
RESOURCES: Verdicts = {
    "CpuShares": (1, GOES_ON), "Memory": (1, GOES_ON), "NanoCpus": (1, GOES_ON), "CgroupParent": ("/x", "hw.cgroup"),
    "BlkioWeight": (10, GOES_ON), "BlkioWeightDevice": ([{"Path": "/dev/sda", "Weight": 1}], "host.blkio"),
    "BlkioDeviceReadBps": ([{"Path": "/dev/sda", "Rate": 1}], "host.blkio"),
    "BlkioDeviceWriteBps": ([{"Path": "/dev/sda", "Rate": 1}], "host.blkio"),
    "BlkioDeviceReadIOps": ([{"Path": "/dev/sda", "Rate": 1}], "host.blkio"),
    "BlkioDeviceWriteIOps": ([{"Path": "/dev/sda", "Rate": 1}], "host.blkio"),
    "CpuPeriod": (1, GOES_ON), "CpuQuota": (1, GOES_ON), "CpuRealtimePeriod": (1, GOES_ON),
    "CpuRealtimeRuntime": (1, GOES_ON), "CpusetCpus": ("0", GOES_ON), "CpusetMems": ("0", GOES_ON),
    "Devices": (raw("/dev/kfd"), "hw.devices"), "DeviceCgroupRules": (["c 1:1 r"], "hw.cgroup-rules"),
    "DeviceRequests": (gpus(), "hw.gpus"), "MemoryReservation": (1, GOES_ON), "MemorySwap": (1, GOES_ON),
    "MemorySwappiness": (1, GOES_ON), "OomKillDisable": (True, GOES_ON), "PidsLimit": (1, GOES_ON),
    "Ulimits": ([{"Name": "nofile", "Soft": 1, "Hard": 1}], GOES_ON), "CpuCount": (1, "body.windows"),
    "CpuPercent": (1, "body.windows"), "IOMaximumIOps": (1, "body.windows"), "IOMaximumBandwidth": (1, "body.windows"),
    "KernelMemory": (1, LEFT_OUT), "KernelMemoryTCP": (1, LEFT_OUT),
}  # fmt: skip
HOST: Verdicts = {
    **RESOURCES,
    "Binds": (["/srv:/x"], GOES_ON), "ContainerIDFile": ("/x", GOES_ON),
    "LogConfig": ({"Type": "syslog", "Config": {}}, "host.log"), "NetworkMode": ("host", "host.network"),
    "PortBindings": ({"80/tcp": [{"HostIp": "", "HostPort": "80"}]}, GOES_ON),
    "RestartPolicy": ({"Name": "always", "MaximumRetryCount": 0}, GOES_ON), "AutoRemove": (True, GOES_ON),
    "VolumeDriver": ("x", "hw.volumes"), "VolumesFrom": (["gone"], "host.volumes-from"),
    "ConsoleSize": ([1, 1], GOES_ON),
    "Annotations": ({"a": "b"}, "hw.annotations"),
    "Mounts": ([{"Type": "bind", "Source": "/dev", "Target": "/x"}], "hw.trees"),
    "CapAdd": (["SYS_ADMIN"], "hw.capabilities"), "CapDrop": (["ALL"], GOES_ON),
    "CgroupnsMode": ("host", "host.cgroupns"),
    "Dns": (["1.1.1.1"], GOES_ON), "DnsOptions": (["x"], GOES_ON), "DnsSearch": (["x"], GOES_ON),
    "ExtraHosts": (["a:1.1.1.1"], GOES_ON), "GroupAdd": (["video", "44"], GOES_ON), "IpcMode": ("host", "host.ipc"),
    "Cgroup": ("container:x", "hw.cgroup"), "Links": (["x:y"], GOES_ON), "OomScoreAdj": (1, GOES_ON),
    "PidMode": ("host", "hw.pid"), "Privileged": (True, "hw.privileged"), "PublishAllPorts": (True, GOES_ON),
    "ReadonlyRootfs": (True, GOES_ON), "SecurityOpt": (["seccomp=unconfined"], "host.security"),
    "StorageOpt": ({"x": "1"}, "host.storage"), "Tmpfs": ({"/x": "dev"}, "host.tmpfs"), "UTSMode": ("x", "host.uts"),
    "UsernsMode": ("host", "host.userns"), "ShmSize": (1, GOES_ON), "Sysctls": ({"kernel.x": "1"}, "host.sysctls"),
    "Runtime": ("nvidia", "hw.runtime"), "Isolation": ("hyperv", "host.isolation"), "MaskedPaths": ([], "hw.masks"),
    "ReadonlyPaths": ([], "hw.masks"), "Init": (True, GOES_ON), "Capabilities": (["x"], "host.capabilities"),
}  # fmt: skip
UNKNOWN: Verdicts = {
    "Umask": ("0022", "body.field"), "CredentialSpec": ("x", "body.field"), "Resources": ({"a": 1}, "body.field"),
}  # fmt: skip
"""New in API 1.56, Windows', and a struct that Go has flattened: no daemon that is spoken to here takes them."""
ENDPOINT: Verdicts = {
    "IPAMConfig": ({"IPv4Address": "10.0.0.2"}, GOES_ON), "Links": (["a:b"], GOES_ON), "Aliases": (["a"], GOES_ON),
    "MacAddress": ("02:00:00:00:00:01", GOES_ON), "DriverOpts": ({"parent": "eth0"}, "host.endpoint"),
    "GwPriority": (1, GOES_ON), "NetworkID": ("x", LEFT_OUT), "EndpointID": ("x", LEFT_OUT),
}  # fmt: skip
MOUNT: Verdicts = {
    "Consistency": ("cached", GOES_ON), "ReadOnly": (True, GOES_ON),
    "BindOptions": ({"Propagation": "rshared"}, "host.mounts"),
    "VolumeOptions": ({"DriverConfig": {"Name": "local", "Options": {"device": "/dev"}}}, "hw.volumes"),
    "TmpfsOptions": ({"Options": [["dev"]]}, "host.mounts"), "ImageOptions": ({"Subpath": "x"}, GOES_ON),
    "ClusterOptions": ({"x": 1}, "body.field"),
}  # fmt: skip
EXEC: Verdicts = {
    "User": ("0", GOES_ON), "Privileged": (True, "hw.privileged"), "Tty": (True, GOES_ON),
    "ConsoleSize": ([1, 1], GOES_ON), "AttachStdin": (True, GOES_ON), "AttachStderr": (True, GOES_ON),
    "AttachStdout": (True, GOES_ON), "Detach": (True, GOES_ON), "DetachKeys": ("ctrl-p", GOES_ON),
    "Env": (["A=b"], GOES_ON),
    "WorkingDir": ("/w", GOES_ON), "Container": ("other", LEFT_OUT), "CapAdd": (["ALL"], "body.field"),
}  # fmt: skip
VOLUME: Verdicts = {
    "Name": ("v", GOES_ON), "Labels": ({"a": "b"}, GOES_ON), "Driver": ("x", "hw.volumes"),
    "DriverOpts": ({"type": "none"}, "hw.volumes"), "ClusterVolumeSpec": ({"Group": "x"}, "body.field"),
}  # fmt: skip
NETWORK: Verdicts = {
    "CheckDuplicate": (True, GOES_ON), "Driver": ("macvlan", "host.network-driver"),
    "Scope": ("swarm", "host.network-driver"), "EnableIPv4": (True, GOES_ON), "EnableIPv6": (True, GOES_ON),
    "IPAM": ({"Driver": "x"}, "host.network-driver"), "Internal": (True, GOES_ON), "Attachable": (True, GOES_ON),
    "Ingress": (True, "body.field"), "ConfigOnly": (True, "body.field"), "ConfigFrom": ({"Network": "x"}, "body.field"),
    "Options": ({"parent": "eth0"}, "host.network-driver"), "Labels": ({"a": "b"}, GOES_ON),
}  # fmt: skip


def of_create(field: str, value: Any) -> Decision:
    return create(VIEW, {"Image": "x", field: value}, FIND)


def of_host(field: str, value: Any) -> Decision:
    return create(VIEW, {"Image": "x", "HostConfig": {field: value}}, FIND)


def of_endpoint(field: str, value: Any) -> Decision:
    return create(VIEW, {"Image": "x", "NetworkingConfig": {"EndpointsConfig": {"lan": {field: value}}}}, FIND)


def of_mount(field: str, value: Any) -> Decision:
    kind = {"VolumeOptions": "volume", "TmpfsOptions": "tmpfs", "ImageOptions": "image"}.get(field, "bind")
    source = {"bind": "/srv", "tmpfs": ""}.get(kind, "x")
    mount = {"Type": kind, "Source": source, "Target": "/x", field: value}
    return create(VIEW, {"Image": "x", "HostConfig": {"Mounts": [mount]}}, FIND)


def of_update(field: str, value: Any) -> Decision:
    return ask("POST", "/containers/web/update", VIEW, {field: value}, find=FIND)


def of_commit(field: str, value: Any) -> Decision:
    return ask("POST", "/commit?container=web", VIEW, {field: value}, find=FIND)


def of_exec(field: str, value: Any) -> Decision:
    return ask("POST", "/containers/web/exec", VIEW, {"Cmd": ["sh"], field: value}, find=FIND)


def of_volume(field: str, value: Any) -> Decision:
    return ask("POST", "/volumes/create", VIEW, {field: value})


def of_network(field: str, value: Any) -> Decision:
    return ask("POST", "/networks/create", VIEW, {"Name": "n", field: value})


UPDATE: Verdicts = {
    **RESOURCES, "RestartPolicy": ({"Name": "always"}, GOES_ON), "Privileged": (True, "body.field"),
    "DeviceRequests": (cdi(NVIDIA), "hw.update"), "Devices": (raw("/dev/kfd"), "hw.update"),
}  # fmt: skip
BODIES = {
    "Config": (of_create, CONFIG),
    "HostConfig": (of_host, {**HOST, **UNKNOWN}),
    "EndpointSettings": (of_endpoint, ENDPOINT),
    "Mount": (of_mount, MOUNT),
    "update": (of_update, UPDATE),
    "commit": (of_commit, CONFIG),
    "exec": (of_exec, EXEC),
    "volume": (of_volume, VOLUME),
    "network": (of_network, NETWORK),
}
CASES = {
    f"{body}.{field}": (decide, field, value, verdict)
    for body, (decide, fields) in BODIES.items()
    for field, (value, verdict) in fields.items()
}


@pytest.mark.parametrize(("decide", "field", "value", "verdict"), CASES.values(), ids=CASES.keys())
@pytest.mark.req("R4", "R45")
def test_has_its_verdict(decide: Any, field: str, value: Any, verdict: str) -> None:
    decision = decide(field, value)
    if verdict not in (GOES_ON, LEFT_OUT):
        assert verdict in rules_of(decision)
        return
    assert isinstance(decision, Admission), decision
    text = json.dumps(sent(decision), sort_keys=True)
    assert (f'"{field}": {json.dumps(value, sort_keys=True)}' in text) == (verdict == GOES_ON)


def test_each_field_that_the_gate_knows_has_its_verdict() -> None:
    assert set(shapes.CONFIG) == set(CONFIG)
    assert set(shapes.HOST_CONFIG) == set(HOST)
    assert set(shapes.RESOURCES) == set(RESOURCES)


def test_an_update_goes_to_the_container_by_its_full_id_where_it_could_start_it() -> None:
    decision = of_update("RestartPolicy", {"Name": "always"})
    assert isinstance(decision, Admission)
    assert f"/containers/{ID}/update" in decision.outgoing.target
