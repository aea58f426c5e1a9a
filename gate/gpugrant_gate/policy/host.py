"""The host rules: what is only power over the machine. Some can be opened for a repo by name, see `crds` openings.

Each yields one clause for each thing that it refuses; `rules` has them in their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpugrant_gate.policy import hardware, messages
from gpugrant_gate.policy.container import Container
from gpugrant_gate.policy.model import ContainerFact, Facts, InfoFact, ListenersFact, NetworkFact, RepoView
from gpugrant_gate.policy.routes import CONTAINER, NETWORK
from gpugrant_gate.policy.strictjson import quoted

DEFAULT_CAPABILITIES = frozenset(
    {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
     "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}
)  # fmt: skip
"""What every container has anyway (moby oci/caps/defaults.go)."""
HARMLESS_CAPABILITIES = frozenset({"IPC_LOCK", "SYS_NICE", "SYS_RESOURCE"})
_SYSCTLS = re.compile(
    r"net\.[a-z0-9_\-]+(?:[./][a-z0-9_\-]+)*|kernel\.(?:shm|msg)[a-z0-9_]*|kernel\.sem|fs\.mqueue\.[a-z0-9_]+", re.ASCII
)
"""What lives in the container's own namespaces (runc libcontainer/configs/validate)."""
_SECURITY = re.compile(r"no-new-privileges(?:[=:]true)?|label[=:]level:[A-Za-z0-9:,.]+", re.ASCII)
_LOG_DRIVERS = ("", "json-file", "local", "none", "journald")
_LOG_OPTIONS = frozenset(
    {"max-size", "max-file", "compress", "labels", "labels-regex", "env", "env-regex", "tag", "mode", "max-buffer-size"}
)
DIALS: Mapping[str, frozenset[str]] = {
    "awslogs": frozenset(
        {"awslogs-region", "awslogs-group", "awslogs-stream", "awslogs-create-group", "awslogs-create-stream",
         "awslogs-datetime-format", "awslogs-multiline-pattern", "awslogs-format", "awslogs-max-buffered-events",
         "awslogs-force-flush-interval-seconds"}
    ),
    "fluentd": frozenset(
        {"fluentd-address", "fluentd-async", "fluentd-async-reconnect-interval", "fluentd-buffer-limit",
         "fluentd-max-retries", "fluentd-read-timeout", "fluentd-request-ack", "fluentd-retry-wait",
         "fluentd-sub-second-precision", "fluentd-write-timeout"}
    ),
    "gelf": frozenset(
        {"gelf-address", "gelf-compression-type", "gelf-compression-level", "gelf-tcp-max-reconnect",
         "gelf-tcp-reconnect-delay"}
    ),
    "splunk": frozenset(
        {"splunk-token", "splunk-url", "splunk-source", "splunk-sourcetype", "splunk-index", "splunk-caname",
         "splunk-insecureskipverify", "splunk-format", "splunk-verify-connection", "splunk-gzip", "splunk-gzip-level",
         "splunk-index-acknowledgment"}
    ),
    "syslog": frozenset({"syslog-address", "syslog-facility", "syslog-format", "syslog-tls-skip-verify"}),
}  # fmt: skip
"""What each log driver that dials out may be told (moby daemon/logger/*): no option that names a file."""
_ADDRESSES = frozenset({"fluentd-address", "gelf-address", "splunk-url", "syslog-address"})
_ENDPOINT_SYSCTL = r"net\.[a-z0-9_]+\.[a-z0-9_]+\.IFNAME\.[a-z0-9_]+=[A-Za-z0-9 _.:-]{1,64}"
_ENDPOINT_OPTIONS: Mapping[str, re.Pattern[str]] = {
    "com.docker.network.endpoint.ifname": re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,15}", re.ASCII),
    "com.docker.network.endpoint.sysctls": re.compile(rf"{_ENDPOINT_SYSCTL}(?:,{_ENDPOINT_SYSCTL})*", re.ASCII),
}
"""What their values may be: the daemon makes a path below /proc/sys of both (moby libnetwork osl)."""
_RESTART = ("", "no", "always", "on-failure", "unless-stopped")


def network(container: Container, repo: RepoView) -> Iterator[str]:
    mode = container.host.get("NetworkMode", "")
    if mode == "host" or "host" in container.endpoints:
        yield from host_network(repo)
    named = container.endpoints if mode.startswith("container:") else (mode, *container.endpoints)
    for name in named:
        if name not in _BUILT_IN and not _is_network(name):
            yield f"the network {quoted(name)} is refused: it can't be looked at by such a name"


def host_network(repo: RepoView) -> Iterator[str]:
    """Wherever the machine's network is asked for."""
    if not repo.opens("host.network"):
        opening = messages.to_open(repo, "host.network")
        yield f"the host's network is refused: it reaches what listens on the machine for the machine alone{opening}"


def may_be_host(container: Container) -> bool:
    """Whether the container's network could be the machine's, by any of its names."""
    mode = container.host.get("NetworkMode", "")
    named = mode == "host" or mode.startswith("container:") or "host" in container.endpoints
    return named or bool(network_facts(container))


_HANDS_OUT = re.compile(
    r"/tmp/\.X11-unix/X[0-9]+|/tmp/dbus-.*|"  # noqa: S108  # names, not files
    r"/var/run/nvidia-xdriver-.*|/com/ubuntu/upstart|/containerd-shim/.*|.*/lxc/.*"
)
"""An X server sends its clients render nodes (DRI3), NVIDIA's driver for X talks of its cards; a session bus, upstart,
a containerd before 1.4.3 (CVE-2020-15257) and LXC's monitors start programs or lend consoles for whoever is root."""


def listener_facts(repo: RepoView) -> tuple[ListenersFact, ...]:
    return (ListenersFact(),) if repo.opens("host.network") else ()


def handed_out(repo: RepoView, facts: Facts) -> Iterator[str]:
    """Where the machine's network is open: who on it would hand out devices, or run programs where devices are."""
    if not repo.opens("host.network"):
        return
    found = facts.get(ListenersFact())
    if not isinstance(found, tuple):
        yield "the host's network is refused: who listens on it could not be looked at"
        return
    names = [name for name in found if _HANDS_OUT.fullmatch(name)]
    if names:
        yield (
            f"the host's network is refused: {messages.listed(names)} listens on it, which hands out devices or starts "
            "programs outside; an X server does not with -nolisten local"
        )


def listeners(container: Container, repo: RepoView, facts: Facts) -> Iterator[str]:
    if _is_host(container, facts):
        yield from handed_out(repo, facts)


def _is_host(container: Container, facts: Facts) -> bool:
    """Whether the network is the machine's; a fact that is not there is another rule's concern."""
    if container.host.get("NetworkMode", "") == "host" or "host" in container.endpoints:
        return True
    networks = (facts.get(fact) for fact in network_facts(container))
    by_name = any(isinstance(found, dict) and found.get("Driver") == "host" for found in networks)
    return by_name or _lends_host(container, "NetworkMode", facts)


def _lends_host(container: Container, field: str, facts: Facts) -> bool:
    """Whether the container whose namespace is shared has the machine's."""
    lender = shared_with(container, field)
    found = facts.get(ContainerFact(lender)) if lender is not None else None
    host = found.get("HostConfig") if isinstance(found, dict) else None
    return isinstance(host, dict) and host.get(field) == "host"


def networks(container: Container, repo: RepoView, facts: Facts) -> Iterator[str]:
    """A network has other names than its own, such as its id: what counts is what the daemon finds by it."""
    for fact in network_facts(container):
        found = facts.get(fact, "")
        if isinstance(found, dict) and found.get("Driver") == "host":
            yield from host_network(repo)
        elif found == "":
            yield f"the network {quoted(fact.name)} could not be looked at"


def drivers(container: Container, repo: RepoView, facts: Facts) -> Iterator[str]:
    for fact in network_facts(container):
        found = facts.get(fact)
        if isinstance(found, dict) and found.get("Driver") != "host":
            yield from network_driver(str(found.get("Driver", "")), repo)


_OWN_DRIVERS = ("", "bridge", "null")
"""null: of the network that is called none."""


def network_driver(driver: str, repo: RepoView) -> Iterator[str]:
    """The same for a network that is made and for one that is used."""
    if driver not in _OWN_DRIVERS and not repo.opens("host.network-driver", driver):
        opening = messages.to_open(repo, f"host.network-driver={driver}")
        yield f"the network driver {quoted(driver)} is refused: only bridge networks pass{opening}"


_BUILT_IN = ("", "default", "bridge", "none", "host")


def network_facts(container: Container) -> tuple[NetworkFact, ...]:
    """The networks that are asked for by a name that could be anything's."""
    mode = container.host.get("NetworkMode", "")
    named = (mode, *container.endpoints)
    return tuple(dict.fromkeys(NetworkFact(name) for name in named if name not in _BUILT_IN and _is_network(name)))


def _is_network(name: str) -> bool:
    return ":" not in name and NETWORK.fullmatch(name) is not None


def ipc(container: Container, repo: RepoView) -> Iterator[str]:
    mode = container.host.get("IpcMode", "")
    own = mode in ("", "none", "private", "shareable") or mode.startswith("container:")
    if not own and not (mode == "host" and repo.opens("host.ipc")):
        opening = messages.to_open(repo, "host.ipc") if mode == "host" else ""
        yield f"the IPC mode {quoted(mode)} is refused: it shares memory with the machine's processes{opening}"


def shared(container: Container, repo: RepoView, facts: Facts) -> Iterator[str]:
    for field in _OF_FIELD:
        name = shared_with(container, field)
        if name is None or not CONTAINER.fullmatch(name):
            continue
        found = facts.get(ContainerFact(name))
        host = found.get("HostConfig") if isinstance(found, dict) else None
        if not isinstance(host, dict):
            yield f"{field}: there is no container {quoted(name)} to share with"
        elif host.get(field) == "host" and not repo.opens(_OF_FIELD[field]):
            yield f"{field}: the container {quoted(name)} uses the host's own, which is refused"
        elif str(host.get(field)).startswith("container:"):
            yield f"{field}: the container {quoted(name)} uses another one's itself: name that one"


_OF_FIELD = {"NetworkMode": "host.network", "IpcMode": "host.ipc"}
"""The rule that closes the host's own."""


def shared_with(container: Container, field: str) -> str | None:
    """The container whose namespace is to be shared, or None."""
    kind, colon, name = container.host.get(field, "").partition(":")
    return name if colon and kind == "container" else None


def shared_names(container: Container, repo: RepoView) -> Iterator[str]:
    for field in ("NetworkMode", "IpcMode"):
        name = shared_with(container, field)
        if name is not None and not CONTAINER.fullmatch(name):
            yield f"{field}: {quoted(name)} is no container's name or id"


def userns(container: Container, repo: RepoView) -> Iterator[str]:
    mode = container.host.get("UsernsMode", "")
    if mode and not (mode == "host" and repo.opens("host.userns")):
        opening = messages.to_open(repo, "host.userns") if mode == "host" else ""
        yield f"the user namespace mode {quoted(mode)} is refused{opening}"


def uts(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("UTSMode", "") not in ("", "host"):
        yield f"the UTS mode {quoted(container.host['UTSMode'])} is refused"


def cgroupns(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("CgroupnsMode", "") not in ("", "private"):
        yield f"the cgroup namespace mode {quoted(container.host['CgroupnsMode'])} is refused"


def capabilities(container: Container, repo: RepoView) -> Iterator[str]:
    known = DEFAULT_CAPABILITIES | HARMLESS_CAPABILITIES | hardware.CAPABILITIES
    asked = [name for name in hardware.capabilities(container) if name not in known]
    closed = [name for name in dict.fromkeys(asked) if not repo.opens("host.capabilities", name)]
    if closed:
        free = ", ".join(sorted(HARMLESS_CAPABILITIES))
        opening = messages.to_open(repo, *(f"host.capabilities={name}" for name in closed))
        yield (
            f"the capability {messages.listed(closed)} is refused: "
            f"beyond Docker's default set only {free} pass{opening}"
        )


def security(container: Container, repo: RepoView) -> Iterator[str]:
    asked = [text for text in container.host.get("SecurityOpt", ()) if not _SECURITY.fullmatch(text)]
    own = _LABEL_OF_HOST_IPC if container.started and container.host.get("IpcMode") == "host" else ""
    options = {text: security_option(text) for text in asked}
    closed = [text for text, option in options.items() if option != own and not repo.opens("host.security", option)]
    if closed:
        shown = messages.listed(text.partition("{")[0] for text in closed)
        opening = messages.to_open(repo, *(f"host.security={options[text]}" for text in closed))
        if any(options[text].startswith("seccomp={") for text in closed):
            opening += "; a seccomp profile of one's own is never taken, for it may name a socket of the machine"
        yield f"the security option {shown} is refused: only no-new-privileges passes{opening}"


_LABEL_OF_HOST_IPC = "label=disable"
"""What a daemon adds by itself to the machine's shared memory (moby daemon/create.go generateSecurityOpt)."""


def security_option(text: str) -> str:
    """`key=value` of an option in any spelling that the daemon takes (moby daemon_unix.go parseSecurityOpt)."""
    if text == "disable":
        return "label=disable"
    return text if "=" in text else text.replace(":", "=", 1)


def sysctls(container: Container, repo: RepoView, facts: Facts) -> Iterator[str]:
    for name in container.host.get("Sysctls", {}):
        shared = _is_host(container, facts) if name.startswith("net.") else _shares_memory(container, facts)
        if not _SYSCTLS.fullmatch(name) or shared:
            yield f"the sysctl {quoted(name)} is refused: it is the machine's, not the container's"


def _shares_memory(container: Container, facts: Facts) -> bool:
    """Whether the IPC namespace is the machine's."""
    return container.host.get("IpcMode", "") == "host" or _lends_host(container, "IpcMode", facts)


def log(container: Container, repo: RepoView, facts: Facts) -> Iterator[str]:
    settings = container.host.get("LogConfig", {})
    driver = settings.get("Type", "")
    if container.started and driver == _daemons_own(facts):
        return
    if driver not in _LOG_DRIVERS and not repo.opens("host.log", driver):
        free = ", ".join(_LOG_DRIVERS[1:])
        opening = messages.to_open(repo, f"host.log={driver}")
        yield f"the log driver {quoted(driver)} is refused: the daemon itself would dial out; there are {free}{opening}"
        return
    options = settings.get("Config", {})
    known = _LOG_OPTIONS | DIALS.get(driver, frozenset())
    unknown = [name for name in options if name not in known]
    if unknown:
        yield f"the log option {messages.listed(unknown)} is refused"
    for name in options.keys() & _ADDRESSES:
        if options[name].lower().startswith(("unix", "/")):
            yield f"the log option {quoted(name)} is refused: the daemon would dial a socket of the machine"


def _daemons_own(facts: Facts) -> str | None:
    found = facts.get(InfoFact())
    return found.get("LoggingDriver") if isinstance(found, dict) else None


def log_facts(container: Container) -> tuple[InfoFact, ...]:
    """A container that exists may have its log driver from the daemon's own settings."""
    driver = container.host.get("LogConfig", {}).get("Type", "")
    return (InfoFact(),) if container.started and driver not in _LOG_DRIVERS else ()


def storage(container: Container, repo: RepoView) -> Iterator[str]:
    for name in container.host.get("StorageOpt", {}):
        if name != "size":
            yield f"the storage option {quoted(name)} is refused"


def endpoints(container: Container, repo: RepoView) -> Iterator[str]:
    for endpoint in container.endpoints.values():
        yield from endpoint_options(endpoint or {})


def endpoint_options(endpoint: dict[str, object]) -> Iterator[str]:
    """The same for create's NetworkingConfig and for a later connect."""
    options = endpoint.get("DriverOpts")
    if not isinstance(options, dict):
        return
    unknown = [name for name in options if name not in _ENDPOINT_OPTIONS]
    if unknown:
        yield f"the network driver option {messages.listed(unknown)} is refused"
    for name, allowed in _ENDPOINT_OPTIONS.items():
        value = options.get(name)
        if value and not allowed.fullmatch(value):
            yield (
                f"the network driver option {name} is refused: {quoted(value)} is not the name of an interface or a "
                "list such as net.ipv4.conf.IFNAME.log_martians=1"
            )


def restart(container: Container, repo: RepoView) -> Iterator[str]:
    yield from restart_policy(container.host.get("RestartPolicy", {}).get("Name", ""))


def restart_policy(name: str) -> Iterator[str]:
    if name not in _RESTART:
        yield f"the restart policy {quoted(name)} is refused; there are {', '.join(_RESTART[1:])}"


def isolation(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("Isolation", "") not in ("", "default"):
        yield "isolation is for Windows containers"
