"""For each host rule that can be opened: what an attacker asks for once it is open, and what stays refused then.

A container with these settings runs `inside.py`, which tries every known way to a device. An opening without a row
here, or whose row finds a device, must not be in `gpugrant_crds.openings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpugrant_crds import openings

Host = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Opened:
    """One opening as a repo's file has it, and what it is tried with."""

    opening: str
    hope: str
    """How a device could come of it."""
    host: Host = field(default_factory=dict)
    """HostConfig of the container."""
    network: Host | None = None
    """A network that is made first, called `opened`."""
    stays: tuple[tuple[Host, str], ...] = ()
    """HostConfigs that are refused although it is open, with the rule."""


def capability(name: str, hope: str, *stays: tuple[Host, str]) -> Opened:
    return Opened(f"host.capabilities={name}", hope, {"CapAdd": [name]}, stays=stays)


def security(option: str, hope: str, *stays: tuple[Host, str], spelt: str = "") -> Opened:
    return Opened(f"host.security={option}", hope, {"SecurityOpt": [spelt or option]}, stays=stays)


def log(driver: str, address: str, *others: str, **options: str) -> Opened:
    """`others`: addresses that are no address of a network."""
    stays = tuple(({"LogConfig": {"Type": driver, "Config": {address: other}}}, "host.log") for other in others)
    config = {"Type": driver, "Config": {key.replace("_", "-"): value for key, value in options.items()}}
    return Opened(f"host.log={driver}", "the daemon dials a daemon for it", {"LogConfig": config}, stays=stays)


SOCKETS = ("unix:///run/docker.sock", "UNIX:///run/docker.sock", "unixgram:///run/docker.sock", "/run/docker.sock")
SCMP: Host = {"SecurityOpt": ['seccomp={"defaultAction":"SCMP_ACT_NOTIFY","listenerPath":"/run/docker.sock"}']}
MASKS: Host = {"MaskedPaths": [], "ReadonlyPaths": []}

DOCKER: Host = {"Binds": ["/var/run/docker.sock:/var/run/docker.sock"]}

CASES: tuple[Opened, ...] = (
    Opened(
        "host.docker-socket",
        "the daemon itself, if the socket were its own and not the gate's",
        DOCKER,
        stays=(
            ({"Binds": ["/srv/docker.sock:/var/run/docker.sock"]}, "hw.socket"),
            ({"Binds": ["/run/containerd/containerd.sock:/x"]}, "hw.trees"),
            ({**DOCKER, "Privileged": True}, "hw.privileged"),
        ),
    ),
    Opened(
        "host.network",
        "abstract sockets of X servers and old containerds, a Docker API on loopback",
        {"NetworkMode": "host"},
        stays=(
            ({"NetworkMode": "host", "Sysctls": {"net.ipv4.ip_forward": "1"}}, "host.sysctls"),
            ({"NetworkMode": "ns:/proc/1/ns/net"}, "host.network"),
            ({"NetworkMode": "host", "IpcMode": "host"}, "host.ipc"),
            ({"NetworkMode": "host", "PidMode": "host"}, "hw.pid"),
        ),
    ),
    Opened(
        "host.network-driver=macvlan",
        "the machine's own card by another way",
        {"NetworkMode": "opened"},
        network={"Driver": "macvlan", "Internal": True},
        stays=(({"NetworkMode": "host"}, "host.network"),),
    ),
    Opened(
        "host.network-driver=ipvlan",
        "the machine's own card by another way",
        {"NetworkMode": "opened"},
        network={"Driver": "ipvlan", "Internal": True},
        stays=(({"NetworkMode": "host"}, "host.network"),),
    ),
    Opened(
        "host.ipc",
        "a node in the machine's /dev/shm, memory of its processes",
        {"IpcMode": "host"},
        stays=(({"IpcMode": "host", "Sysctls": {"kernel.shmmax": "1"}}, "host.sysctls"),),
    ),
    Opened("host.userns", "root's own number", {"UsernsMode": "host"}),
    capability("BLOCK_SUSPEND", "nothing but sleep"),
    capability(
        "CHECKPOINT_RESTORE",
        "mapped files of other processes, a process id of one's choice",
        ({"CapAdd": ["CHECKPOINT_RESTORE", "SYS_ADMIN"]}, "hw.capabilities"),
        ({"CapAdd": ["CHECKPOINT_RESTORE"], "Annotations": {"org.criu.config": "/x"}}, "hw.annotations"),
    ),
    capability("LEASE", "files that others open"),
    capability("LINUX_IMMUTABLE", "files that nobody can take away"),
    capability(
        "NET_ADMIN",
        "a device filter of one's own in the container's cgroup, a tunnel device",
        ({"CapAdd": ["NET_ADMIN", "BPF"]}, "host.capabilities"),
        ({"CapAdd": ["ALL"]}, "hw.capabilities"),
    ),
    capability("NET_BROADCAST", "nothing"),
    capability("SYSLOG", "the kernel's addresses"),
    capability(
        "SYS_PTRACE",
        "what the daemon starts in the container, while that has all capabilities",
        ({"CapAdd": ["SYS_PTRACE"], "PidMode": "host"}, "hw.pid"),
        ({"CapAdd": ["SYS_PTRACE"], "PidMode": "container:x"}, "hw.pid"),
    ),
    capability("WAKE_ALARM", "nothing but sleep"),
    security("apparmor=unconfined", "mounts, /proc/sys", (MASKS, "hw.masks")),
    security(
        "seccomp=unconfined",
        "a user namespace with a cgroup or a fresh /proc and /sys, bpf, kexec",
        (SCMP, "host.security"),
        (MASKS, "hw.masks"),
        ({"SecurityOpt": ["seccomp=unconfined", "writable-cgroups=true"]}, "host.security"),
    ),
    security("label=disable", "files of the machine", spelt="label:disable"),
    security("label=type:spc_t", "files of the machine", ({"SecurityOpt": ["label=type:other_t"]}, "host.security")),
    security("no-new-privileges=false", "a program that is root by itself"),
    log("awslogs", "awslogs-endpoint", "http://127.0.0.1", awslogs_group="x", awslogs_region="eu-central-1"),
    log("fluentd", "fluentd-address", *SOCKETS, fluentd_address="127.0.0.1:9", fluentd_async="true"),
    log("gelf", "gelf-address", *SOCKETS, gelf_address="udp://127.0.0.1:9"),
    log(
        "splunk",
        "splunk-url",
        *SOCKETS,
        splunk_url="http://127.0.0.1:9",
        splunk_token="x",
        splunk_verify_connection="false",
    ),
    log("syslog", "syslog-address", *SOCKETS, syslog_address="udp://127.0.0.1:9"),
)


def of(opening: str) -> Opened:
    """The row of one opening."""
    return next(case for case in CASES if case.opening == opening)


def together(names: frozenset[str]) -> Host:
    """One container that asks for all of it at once (of log drivers and networks it can have one)."""
    lists: dict[str, list[Any]] = {}
    others: dict[str, Any] = {}
    for case in (case for case in CASES if case.opening in names and case.network is None):
        for key, value in case.host.items():
            if isinstance(value, list):
                lists.setdefault(key, []).extend(value)
            else:
                others.setdefault(key, value)
    return {**others, **lists, "LogConfig": {"Type": "json-file", "Config": {}}}


EVERYTHING = frozenset(case.opening for case in CASES)
PROFILES = {name: frozenset(items) for name, items in openings.PROFILES.items()}
