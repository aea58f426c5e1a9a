"""What real clients and daemons say, as values: requests of docker 28 and Compose, inspect answers of 26 and 28."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

from gpugrant_gate.policy import judge, routes
from gpugrant_gate.policy.model import (
    MAX_ROUNDS,
    Admission,
    Decision,
    Fact,
    Head,
    ListenersFact,
    PathFact,
    PathInfo,
    Refusal,
    RepoView,
    Routed,
)

NVIDIA = "nvidia.com/gpu=all"
DRI = "rediacc.io/dri=renderD128"
DEVICES = ("nvidia.com/gpu=0", NVIDIA, "rediacc.io/amd=all", "rediacc.io/amd=gpu0", DRI, "rediacc.io/dri=renderD129")
ID = "13d57efdd83f6b4601e068a1ce591c217157d9e7db3f38832c795940b6facb05"
OTHER_ID = "2c3f21296a1b91e0799d714179248ce1e33c3570c8e898b9d4206a22b3e18536"

COMPOSE_LABELS = {
    "com.docker.compose.project": "proj",
    "com.docker.compose.service": "inference",
    "com.docker.compose.version": "2.40.3",
}

_CONFIG: dict[str, Any] = {
    "Hostname": "", "Domainname": "", "User": "", "AttachStdin": False, "AttachStdout": False, "AttachStderr": False,
    "Tty": False, "OpenStdin": False, "StdinOnce": False, "Env": None, "Cmd": ["sleep", "1000"],
    "Image": "ubuntu:24.04", "Volumes": {}, "WorkingDir": "", "Entrypoint": None, "OnBuild": None, "Labels": {},
}  # fmt: skip
_HOST: dict[str, Any] = {
    "Binds": None, "ContainerIDFile": "", "LogConfig": {"Type": "", "Config": {}}, "NetworkMode": "default",
    "PortBindings": {}, "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0}, "AutoRemove": False,
    "VolumeDriver": "", "VolumesFrom": None, "ConsoleSize": [0, 0], "CapAdd": None, "CapDrop": None,
    "CgroupnsMode": "", "Dns": [], "DnsOptions": [], "DnsSearch": [], "ExtraHosts": None, "GroupAdd": None,
    "IpcMode": "", "Cgroup": "", "Links": None, "OomScoreAdj": 0, "PidMode": "", "Privileged": False,
    "PublishAllPorts": False, "ReadonlyRootfs": False, "SecurityOpt": None, "UTSMode": "", "UsernsMode": "",
    "ShmSize": 0, "Isolation": "", "CpuShares": 0, "Memory": 0, "NanoCpus": 0, "CgroupParent": "", "BlkioWeight": 0,
    "BlkioWeightDevice": [], "BlkioDeviceReadBps": [], "BlkioDeviceWriteBps": [], "BlkioDeviceReadIOps": [],
    "BlkioDeviceWriteIOps": [], "CpuPeriod": 0, "CpuQuota": 0, "CpuRealtimePeriod": 0, "CpuRealtimeRuntime": 0,
    "CpusetCpus": "", "CpusetMems": "", "Devices": [], "DeviceCgroupRules": None, "DeviceRequests": None,
    "MemoryReservation": 0, "MemorySwap": 0, "MemorySwappiness": -1, "OomKillDisable": False, "PidsLimit": 0,
    "Ulimits": [], "CpuCount": 0, "CpuPercent": 0, "IOMaximumIOps": 0, "IOMaximumBandwidth": 0, "MaskedPaths": None,
    "ReadonlyPaths": None,
}  # fmt: skip
_INSPECTED_HOST: dict[str, Any] = {
    **_HOST, "LogConfig": {"Type": "json-file", "Config": {}}, "CgroupnsMode": "host", "IpcMode": "private",
    "ShmSize": 67108864, "Runtime": "runc", "MemorySwappiness": None, "PidsLimit": None,
    "MaskedPaths": ["/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
                    "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
                    "/sys/firmware", "/sys/devices/virtual/powercap"],
    "ReadonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
}  # fmt: skip


def cdi(*names: str) -> list[dict[str, Any]]:
    """DeviceRequests of `docker run --device vendor/class=name`."""
    return [{"Driver": "cdi", "Count": 0, "DeviceIDs": list(names), "Capabilities": None, "Options": None}]


def gpus(**fields: Any) -> list[dict[str, Any]]:
    """DeviceRequests of `docker run --gpus all`, with changes."""
    request = {"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}
    return [{**request, **fields}]


def raw(path: str, permissions: str = "rwm") -> list[dict[str, str]]:
    """Devices of `docker run --device /dev/…`."""
    return [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": permissions}]


def run_body(*, config: Mapping[str, Any] | None = None, **host: Any) -> dict[str, Any]:
    """The whole body that `docker run` of CLI 28 sends, with changes to its HostConfig."""
    body = {**copy.deepcopy(_CONFIG), **(config or {})}
    body["HostConfig"] = {**copy.deepcopy(_HOST), **host}
    body["NetworkingConfig"] = {"EndpointsConfig": {"default": ENDPOINT}}
    return body


def compose_body(**host: Any) -> dict[str, Any]:
    """The body that Compose sends for a service."""
    return run_body(config={"Labels": dict(COMPOSE_LABELS)}, **host)


ENDPOINT: dict[str, Any] = {
    "IPAMConfig": None, "Links": None, "Aliases": None, "MacAddress": "", "DriverOpts": None, "NetworkID": "",
    "EndpointID": "", "Gateway": "", "IPAddress": "", "IPPrefixLen": 0, "IPv6Gateway": "", "GlobalIPv6Address": "",
    "GlobalIPv6PrefixLen": 0, "DNSNames": None, "GwPriority": 0,
}  # fmt: skip


def inspected(*, mounts: list[dict[str, Any]] | None = None, id_: str = ID, **host: Any) -> dict[str, Any]:
    """`GET /containers/{id}/json` of Docker 28.5.2 for a plain container under cgroup v1, with changes."""
    return {
        "Id": id_,
        "Name": "/plain",
        "State": {"Status": "created", "Running": False},
        "HostConfig": {**copy.deepcopy(_INSPECTED_HOST), **host},
        "Mounts": mounts or [],
        "Config": copy.deepcopy(_CONFIG),
    }


def repo(*granted: str, **fields: Any) -> RepoView:
    """The repo gpu-a on wsl-gpu."""
    view: dict[str, Any] = {
        "name": "gpu-a",
        "machine": "wsl-gpu",
        "granted": frozenset(granted),
        "devices": DEVICES,
        "api_version": "1.45",
    }
    return RepoView(**{**view, **fields})


def head(method: str, target: str, *headers: tuple[str, str], body: bool = False) -> Head:
    return Head(method, target, headers, (1, 1), body)


FOLDER = PathInfo("directory", symlink=False, swappable=False)


def nothing(fact: Fact) -> Any:
    """A machine where every path is a root-owned folder and nobody listens, and a daemon that has nothing."""
    return FOLDER if isinstance(fact, PathFact) else () if isinstance(fact, ListenersFact) else None


def knows(facts: Mapping[Fact, Any]) -> Callable[[Fact], Any]:
    """A daemon and a machine that have these; any other volume is unknown, any other path a plain folder."""
    return lambda fact: facts[fact] if fact in facts else nothing(fact)


def ask(
    method: str,
    target: str,
    view: RepoView,
    body: Any = None,
    *,
    find: Callable[[Fact], Any] = nothing,
    headers: tuple[tuple[str, str], ...] = (),
) -> Decision:
    """One request through the whole policy, with facts gathered as the net gathers them."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    given = headers or ((("content-type", "application/json"),) if data else ())
    routed = routes.route(Head(method, target, given, (1, 1), bool(data)), view)
    return routed if isinstance(routed, Refusal) else judge_with(routed, data, view, find)


def judge_with(routed: Routed, data: bytes, view: RepoView, find: Callable[[Fact], Any] = nothing) -> Decision:
    """The rounds of facts, then the decision."""
    facts: dict[Fact, Any] = {}
    for _ in range(MAX_ROUNDS):
        needs = judge.needs(routed, data, view, facts)
        if isinstance(needs, Refusal):
            return needs
        wanted = [fact for fact in needs.facts if fact not in facts]
        if not wanted:
            break
        facts.update({fact: find(fact) for fact in wanted})
    return judge.judge(routed, data, facts, view)


def create(view: RepoView, body: Any, find: Callable[[Fact], Any] = nothing) -> Decision:
    return ask("POST", "/v1.45/containers/create?name=c", view, body, find=find)


def sent(decision: Decision) -> dict[str, Any]:
    """The body that goes on; fails the test where the request was refused."""
    assert isinstance(decision, Admission), decision
    assert decision.outgoing.body is not None
    value: dict[str, Any] = json.loads(decision.outgoing.body)
    return value


def rules_of(decision: Decision) -> list[str]:
    """The ids of the broken rules, in order; empty for an admission."""
    return [found.rule for found in decision.violations] if isinstance(decision, Refusal) else []


def said(decision: Decision) -> str:
    """The refusal's message; fails the test where the request passed."""
    assert isinstance(decision, Refusal), decision
    return decision.message
