"""The rules that a container is judged by: hardware first, then host power, each a small function in an ordered tuple.

A rule yields one clause for each thing that it refuses. Hardware rules can't be opened by any setting (R45); host rules
close what is only power over the machine, and are all closed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpugrant_crds import names
from gpugrant_gate.policy import messages, mounts
from gpugrant_gate.policy.container import MASKED, READONLY, Container
from gpugrant_gate.policy.model import ContainerFact, Facts, RepoView, Violation
from gpugrant_gate.policy.routes import CONTAINER
from gpugrant_gate.policy.strictjson import quoted

MOST_DEVICES = 64
"""More names than any machine has cards and partitions; bounds the message."""

DEFAULT_CAPABILITIES = frozenset(
    {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
     "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}
)  # fmt: skip
"""What every container has anyway (moby oci/caps/defaults.go)."""
HARMLESS_CAPABILITIES = frozenset({"IPC_LOCK", "SYS_NICE", "SYS_RESOURCE"})
"""What GPU libraries ask for: pinned memory, priorities, limits."""
HARDWARE_CAPABILITIES = frozenset({"ALL", "SYS_ADMIN", "SYS_RAWIO", "SYS_MODULE"})
"""Each of them makes or reaches devices by itself (R45)."""

_SYSCTLS = re.compile(
    r"net\.[a-z0-9_\-]+(?:[./][a-z0-9_\-]+)*|kernel\.(?:shm|msg)[a-z0-9_]*|kernel\.sem|fs\.mqueue\.[a-z0-9_]+", re.ASCII
)
"""What lives in the container's own namespaces (runc libcontainer/configs/validate)."""
_SECURITY = re.compile(r"no-new-privileges(?:[=:]true)?|label[=:]level:[A-Za-z0-9:,.]+", re.ASCII)
_LOG_DRIVERS = ("", "json-file", "local", "none", "journald")
_LOG_OPTIONS = frozenset(
    {"max-size", "max-file", "compress", "labels", "labels-regex", "env", "env-regex", "tag", "mode", "max-buffer-size"}
)
_ENDPOINT_OPTIONS = frozenset({"com.docker.network.endpoint.ifname", "com.docker.network.endpoint.sysctls"})
_RESTART = ("", "no", "always", "on-failure", "unless-stopped")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with its id and, for `gpugrant gate rules`, what it prevents."""

    id: str
    prevents: str
    check: Callable[[Container, RepoView], Iterator[str]] | None = None
    look: Callable[[Container, RepoView, Facts], Iterator[str]] | None = None
    """For rules that need facts."""

    @property
    def hardware(self) -> bool:
        return self.id.startswith("hw.")

    def broken(self, container: Container, repo: RepoView, facts: Facts) -> Iterator[str]:
        if self.check is not None:
            yield from self.check(container, repo)
        if self.look is not None:
            yield from self.look(container, repo, facts)


def missing(container: Container, repo: RepoView) -> tuple[str, ...]:
    """The CDI names asked for that this repo does not hold now, compared byte for byte."""
    return tuple(name for name in container.names if not holds(name, repo))


def holds(name: str, repo: RepoView) -> bool:
    # A name of one letter's vendor or class makes daemons panic: it must not reach one, whoever granted it.
    return not repo.unfit and name in repo.granted and names.is_qualified(name)


# hardware


def _unfit(container: Container, repo: RepoView) -> Iterator[str]:
    why = repo.unfit or repo.withheld
    if why and container.names:
        wanted = messages.listed(container.names)
        yield f"repo {repo.name} can't have {wanted} on {repo.machine}: it gets no hardware there, since {why}"


def _grant(container: Container, repo: RepoView) -> Iterator[str]:
    lacking = missing(container, repo)
    if lacking and not repo.unfit and not repo.withheld:
        note = "; the container was made while the device was granted" if container.started else ""
        yield messages.no_grant(lacking, repo) + note
    if len(container.names) > MOST_DEVICES:
        yield f"a container may ask for at most {MOST_DEVICES} devices, this one asks for {len(container.names)}"


def _gpus(container: Container, repo: RepoView) -> Iterator[str]:
    other = [request for request in container.requests if not request.is_cdi and not request.is_zero]
    if other:
        ids = [name for request in other for name in request.ids]
        meant = [*ids, *(f"nvidia.com/gpu={name}" for name in ids)]
        compose = container.compose
        spelling = "" if compose else "--gpus, "
        form = messages.gpu_form(repo, compose=compose, wanted=meant)
        yield f"GPUs by {spelling}gpus: or deploy.resources.reservations.devices are refused: write {form}"


def _runtime(container: Container, repo: RepoView) -> Iterator[str]:
    runtime = container.host.get("Runtime", "")
    # A container that exists without one runs under the daemon's default, which is runc where the daemon is fit.
    if runtime != "runc" and (runtime or (container.started and repo.unfit)):
        form = messages.gpu_form(repo, compose=container.compose)
        yield f"the runtime {quoted(runtime)} is refused, only runc runs here: for a GPU write {form}"


def _devices(container: Container, repo: RepoView) -> Iterator[str]:
    for device in container.devices:
        if device.is_cdi_name and not container.started:
            continue
        if names.is_qualified(device.host):
            yield f"the raw device {quoted(device.host)} is refused: write the CDI name alone, {device.host}"
        else:
            yield f"the raw device {messages.raw_device(device.host, repo, compose=container.compose)}"


def _cgroup_rules(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("DeviceCgroupRules"):
        form = messages.gpu_form(repo, compose=container.compose)
        yield f"device cgroup rules are refused: a device comes by a CDI grant, write {form}"


def _privileged(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("Privileged"):
        image = str(container.config.get("Image", ""))
        yield f"privileged is refused: it opens every device of the machine{_instead(image)}"


def _instead(image: str) -> str:
    """What to do instead, for the tools whose helpers always ask for it."""
    if "testcontainers/ryuk" in image:
        return "; for testcontainers set TESTCONTAINERS_RYUK_CONTAINER_PRIVILEGED=false"
    # buildx falls back to its container driver where the daemon has no /grpc, and shows the refusal of this create.
    return f"; {messages.BUILDKIT}" if "moby/buildkit" in image else ""


def _hardware_capabilities(container: Container, repo: RepoView) -> Iterator[str]:
    asked = [name for name in capabilities(container) if name in HARDWARE_CAPABILITIES]
    if asked:
        yield f"the capability {', '.join(asked)} is refused: it reaches devices by itself"


def capabilities(container: Container) -> tuple[str, ...]:
    """CapAdd without prefix and in capitals, as the daemon reads it."""
    asked = container.host.get("CapAdd", ())
    return tuple(name.upper().removeprefix("CAP_") if name.isascii() else name for name in asked)


def _pid(container: Container, repo: RepoView) -> Iterator[str]:
    mode = container.host.get("PidMode", "")
    if mode:
        yield (f"the PID mode {quoted(mode)} is refused: another process lends its root folder and its open devices")


def _cgroup(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("CgroupParent"):
        yield "a cgroup parent is refused: the place of a container's cgroup decides which devices it may open"
    if container.host.get("Cgroup"):
        yield "the cgroup of another container is refused: it decides which devices may be opened"


def _annotations(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("Annotations"):
        yield "annotations are refused: runc, systemd, CRIU and device plugins obey them"


def _masks(container: Container, repo: RepoView) -> Iterator[str]:
    for field, least in (("MaskedPaths", MASKED), ("ReadonlyPaths", READONLY)):
        given = container.host.get(field)
        if given is not None and not least <= frozenset(given):
            yield f"{field} without Docker's own list is refused (systempaths=unconfined): it opens /proc and /sys"


# host


def _network(container: Container, repo: RepoView) -> Iterator[str]:
    mode = container.host.get("NetworkMode", "")
    if mode == "host" or "host" in container.endpoints:
        yield "the host's network is refused: it reaches what listens on the machine for the machine alone"
    elif ":" in mode and not mode.startswith("container:"):
        yield f"the network mode {quoted(mode)} is refused"


def _ipc(container: Container, repo: RepoView) -> Iterator[str]:
    mode = container.host.get("IpcMode", "")
    if mode not in ("", "none", "private", "shareable") and not mode.startswith("container:"):
        yield f"the IPC mode {quoted(mode)} is refused: it shares memory with the machine's processes"


def _shared(container: Container, repo: RepoView, facts: Facts) -> Iterator[str]:
    for field in ("NetworkMode", "IpcMode"):
        name = shared_with(container, field)
        if name is None or not CONTAINER.fullmatch(name):
            continue
        found = facts.get(ContainerFact(name))
        host = found.get("HostConfig") if isinstance(found, dict) else None
        if not isinstance(host, dict):
            yield f"{field}: there is no container {quoted(name)} to share with"
        elif host.get(field) == "host":
            yield f"{field}: the container {quoted(name)} uses the host's own, which is refused"
        elif str(host.get(field)).startswith("container:"):
            yield f"{field}: the container {quoted(name)} uses another one's itself: name that one"


def shared_with(container: Container, field: str) -> str | None:
    """The container whose namespace is to be shared, or None."""
    kind, colon, name = container.host.get(field, "").partition(":")
    return name if colon and kind == "container" else None


def _shared_names(container: Container, repo: RepoView) -> Iterator[str]:
    for field in ("NetworkMode", "IpcMode"):
        name = shared_with(container, field)
        if name is not None and not CONTAINER.fullmatch(name):
            yield f"{field}: {quoted(name)} is no container's name or id"


def _userns(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("UsernsMode"):
        yield f"the user namespace mode {quoted(container.host['UsernsMode'])} is refused"


def _uts(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("UTSMode", "") not in ("", "host"):
        yield f"the UTS mode {quoted(container.host['UTSMode'])} is refused"


def _cgroupns(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("CgroupnsMode", "") not in ("", "private"):
        yield f"the cgroup namespace mode {quoted(container.host['CgroupnsMode'])} is refused"


def _capabilities(container: Container, repo: RepoView) -> Iterator[str]:
    known = DEFAULT_CAPABILITIES | HARMLESS_CAPABILITIES | HARDWARE_CAPABILITIES
    asked = [name for name in capabilities(container) if name not in known]
    if asked:
        free = ", ".join(sorted(HARMLESS_CAPABILITIES))
        yield f"the capability {messages.listed(asked)} is refused: beyond Docker's default set only {free} pass"


def _security(container: Container, repo: RepoView) -> Iterator[str]:
    asked = [text for text in container.host.get("SecurityOpt", ()) if not _SECURITY.fullmatch(text)]
    if asked:
        shown = messages.listed(text.partition("{")[0] for text in asked)
        yield f"the security option {shown} is refused: only no-new-privileges passes"


def _sysctls(container: Container, repo: RepoView) -> Iterator[str]:
    for name in container.host.get("Sysctls", {}):
        if not _SYSCTLS.fullmatch(name):
            yield f"the sysctl {quoted(name)} is refused: it is the machine's, not the container's"


def _log(container: Container, repo: RepoView) -> Iterator[str]:
    log = container.host.get("LogConfig", {})
    driver = log.get("Type", "")
    if driver not in _LOG_DRIVERS:
        free = ", ".join(_LOG_DRIVERS[1:])
        yield f"the log driver {quoted(driver)} is refused: the daemon itself would dial out; there are {free}"
    unknown = [name for name in log.get("Config", {}) if name not in _LOG_OPTIONS]
    if unknown:
        yield f"the log option {messages.listed(unknown)} is refused"


def _storage(container: Container, repo: RepoView) -> Iterator[str]:
    for name in container.host.get("StorageOpt", {}):
        if name != "size":
            yield f"the storage option {quoted(name)} is refused"


def _endpoints(container: Container, repo: RepoView) -> Iterator[str]:
    for endpoint in container.endpoints.values():
        yield from endpoint_options(endpoint or {})


def endpoint_options(endpoint: dict[str, object]) -> Iterator[str]:
    """The same for create's NetworkingConfig and for a later connect."""
    options = endpoint.get("DriverOpts")
    unknown = [name for name in options if name not in _ENDPOINT_OPTIONS] if isinstance(options, dict) else []
    if unknown:
        yield f"the network driver option {messages.listed(unknown)} is refused"


def _restart_policy(container: Container, repo: RepoView) -> Iterator[str]:
    yield from restart_policy(container.host.get("RestartPolicy", {}).get("Name", ""))


def restart_policy(name: str) -> Iterator[str]:
    if name not in _RESTART:
        yield f"the restart policy {quoted(name)} is refused; there are {', '.join(_RESTART[1:])}"


def _isolation(container: Container, repo: RepoView) -> Iterator[str]:
    if container.host.get("Isolation", "") not in ("", "default"):
        yield "isolation is for Windows containers"


RULES: tuple[Rule, ...] = (
    Rule("hw.unfit", "hardware in a repo whose daemon would not keep it apart (R52)", _unfit),
    Rule("hw.grant", "a device without a grant in force (R1, R5, R24)", _grant),
    Rule("hw.gpus", "every device request that is not a CDI name alone (R30, R32, R33, R46)", _gpus),
    Rule("hw.runtime", "another runtime, which could add devices by itself (R31)", _runtime),
    Rule("hw.devices", "raw device nodes (R34)", _devices),
    Rule("hw.cgroup-rules", "device cgroup rules: with mknod they are a device (R35)", _cgroup_rules),
    Rule("hw.privileged", "privileged containers: every device of the machine (R45)", _privileged),
    Rule("hw.capabilities", "capabilities that reach devices by themselves (R45)", _hardware_capabilities),
    Rule("hw.pid", "other processes' root folders and open devices (R45)", _pid),
    Rule("hw.cgroup", "a cgroup of the caller's choice, and with it its device list (R45)", _cgroup),
    Rule("hw.annotations", "annotations that systemd, CRIU or device plugins obey (R45)", _annotations),
    Rule("hw.masks", "the kernel's switches in /proc and /sys", _masks),
    Rule("hw.socket", "the way round the gate: the daemon's own socket (R45)", mounts.sockets),
    Rule("hw.trees", "folders that hold or lead to devices, the kernel or daemons (R34, R45)", mounts.trees),
    Rule("hw.volumes", "volumes that are mounts of the machine (R45)", mounts.volume_options, mounts.volumes),
    Rule("host.network", "the machine's own network", _network),
    Rule("host.ipc", "the machine's shared memory", _ipc),
    Rule("host.shared", "a host namespace by way of another container", _shared_names, _shared),
    Rule("host.userns", "leaving the daemon's user namespace", _userns),
    Rule("host.uts", "an unknown UTS mode", _uts),
    Rule("host.cgroupns", "the machine's view of its cgroups", _cgroupns),
    Rule("host.capabilities", "capabilities beyond Docker's default set", _capabilities),
    Rule("host.security", "a container without seccomp, AppArmor or SELinux", _security),
    Rule("host.sysctls", "kernel settings of the machine", _sysctls),
    Rule("host.log", "log drivers by which the daemon dials out or reads files", _log),
    Rule("host.storage", "storage options other than a size", _storage),
    Rule("host.endpoint", "network options of the machine's side", _endpoints),
    Rule("host.restart", "an unknown restart policy", _restart_policy),
    Rule("host.isolation", "Windows' isolation", _isolation),
    Rule("host.mounts", "mounts that can't be read or that spread to the machine", mounts.forms),
    Rule("host.tmpfs", "tmpfs with device nodes", mounts.tmpfs),
    Rule("host.anonymous", "anonymous volumes that are something else", mounts.anonymous),
    Rule("host.volumes-from", "VolumesFrom that can't be read", mounts.borrowed_forms),
    Rule("host.binds", "folders of the machine outside the repo's own", mounts.roots, mounts.sources),
)


MOUNT_RULES = frozenset({"hw.socket", "hw.trees", "hw.volumes"})


def judge(container: Container, repo: RepoView, facts: Facts) -> tuple[Violation, ...]:
    """Every rule that the container breaks, hardware first, then the fields that it may not have."""
    found = [Violation(rule.id, text) for rule in RULES for text in rule.broken(container, repo, facts)]
    return tuple(dict.fromkeys([*found, *container.faults]))


def mounted(container: Container, repo: RepoView, facts: Facts) -> tuple[Violation, ...]:
    """The hardware rules on mounts alone: for what reads or writes a container's files."""
    found = ((rule.id, rule.broken(container, repo, facts)) for rule in RULES if rule.id in MOUNT_RULES)
    return tuple(Violation(id_, text) for id_, texts in found for text in texts)


def hardware(container: Container, repo: RepoView, facts: Facts) -> tuple[Violation, ...]:
    """The hardware rules alone: for what is done to a container that runs already."""
    return tuple(
        Violation(rule.id, text) for rule in RULES if rule.hardware for text in rule.broken(container, repo, facts)
    )
