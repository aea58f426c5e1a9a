"""The rules that a container is judged by: hardware first, then host power, each a small function in an ordered tuple.

A rule yields one clause for each thing that it refuses. Hardware rules can't be opened by any setting (R45); host rules
close what is only power over the machine, and some are opened for a repo by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpugrant_crds import openings
from gpugrant_crds.openings import Opening
from gpugrant_gate.policy import hardware as hw
from gpugrant_gate.policy import host, mounts
from gpugrant_gate.policy.container import Container, from_inspect
from gpugrant_gate.policy.model import Facts, RepoView, Violation
from gpugrant_gate.policy.strictjson import BodyRefused


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with its id and, for `gpugrant gate rules`, what it prevents."""

    id: str
    prevents: str
    check: Callable[[Container, RepoView], Iterator[str]] | None = None
    look: Callable[[Container, RepoView, Facts], Iterator[str]] | None = None
    """For rules that need facts."""
    closed: str = ""
    """Why a host rule can't be opened, a clause; empty where it can, and for hardware."""

    @property
    def hardware(self) -> bool:
        return self.id.startswith("hw.")

    @property
    def openings(self) -> tuple[Opening, ...]:
        """What of it can be opened for a repo, each with what that costs."""
        return tuple(opening for opening in openings.OPENINGS if opening.rule == self.id)

    def broken(self, container: Container, repo: RepoView, facts: Facts) -> Iterator[str]:
        if self.check is not None:
            yield from self.check(container, repo)
        if self.look is not None:
            yield from self.look(container, repo, facts)


RULES: tuple[Rule, ...] = (
    Rule("hw.unfit", "hardware in a repo whose daemon would not keep it apart (R52)", hw.unfit),
    Rule("hw.grant", "a device without a grant in force (R1, R5, R24)", hw.grant),
    Rule("hw.gpus", "every device request that is not a CDI name alone (R30, R32, R33, R46)", hw.gpus),
    Rule("hw.runtime", "another runtime, which could add devices by itself (R31)", hw.runtime),
    Rule("hw.devices", "raw device nodes (R34)", hw.devices),
    Rule("hw.cgroup-rules", "device cgroup rules: with mknod they are a device (R35)", hw.cgroup_rules),
    Rule("hw.privileged", "privileged containers: every device of the machine (R45)", hw.privileged),
    Rule("hw.capabilities", "capabilities that reach devices by themselves (R45)", hw.all_mighty),
    Rule("hw.pid", "other processes' root folders and open devices (R45)", hw.pid),
    Rule("hw.cgroup", "a cgroup of the caller's choice, and with it its device list (R45)", hw.cgroup),
    Rule("hw.tracer", "what the daemon starts beside a process that may trace it (R45)", hw.tracer),
    Rule("hw.listeners", "the machine's network beside those on it who hand out devices (R45)", look=host.listeners),
    Rule("hw.annotations", "annotations that systemd, CRIU or device plugins obey (R45)", hw.annotated),
    Rule("hw.masks", "the kernel's switches in /proc and /sys", hw.masks),
    Rule("hw.socket", "the way round the gate: the daemon's own socket (R45)", mounts.sockets),
    Rule("hw.trees", "folders that hold or lead to devices, the kernel or daemons (R34, R45)", mounts.trees),
    Rule("hw.volumes", "volumes that are mounts of the machine (R45)", mounts.volume_options, mounts.volumes),
    Rule("host.docker-socket", "the gate's own socket in a container", mounts.gate_socket),
    Rule("host.network", "the machine's own network", host.network, host.networks),
    Rule("host.network-driver", "networks other than a bridge of the daemon's own", look=host.drivers),
    Rule("host.ipc", "the machine's shared memory", host.ipc),
    Rule("host.shared", "a host namespace by way of another container", host.shared_names, host.shared,
         closed=openings.NEVER["host.shared"]),
    Rule("host.userns", "leaving the daemon's user namespace", host.userns),
    Rule("host.uts", "an unknown UTS mode", host.uts, closed="the modes that there are pass"),
    Rule("host.cgroupns", "the machine's view of its cgroups", host.cgroupns, closed=openings.NEVER["host.cgroupns"]),
    Rule("host.capabilities", "capabilities beyond Docker's default set", host.capabilities),
    Rule("host.security", "a container without seccomp, AppArmor or SELinux", host.security),
    Rule("host.sysctls", "kernel settings of the machine", look=host.sysctls,
         closed="the daemon itself takes only those of a container's own namespaces"),
    Rule("host.log", "log drivers by which the daemon dials out or reads files", look=host.log),
    Rule("host.storage", "storage options other than a size", host.storage, closed="there is none that a repo needs"),
    Rule("host.endpoint", "network options of the machine's side", host.endpoints,
         closed="those of the container's own side pass"),
    Rule("host.restart", "an unknown restart policy", host.restart, closed="the policies that there are pass"),
    Rule("host.isolation", "Windows' isolation", host.isolation, closed="there is none on Linux"),
    Rule("host.mounts", "mounts that can't be read or that spread to the machine", mounts.forms,
         closed="a mount that spreads reaches what the machine mounts later"),
    Rule("host.tmpfs", "tmpfs with device nodes", mounts.tmpfs, closed="a tmpfs needs no device nodes"),
    Rule("host.anonymous", "anonymous volumes that are something else", mounts.anonymous,
         closed="they are folders of the daemon's own or nothing"),
    Rule("host.volumes-from", "VolumesFrom that can't be read", mounts.borrowed_forms,
         closed="what is not understood is not passed on"),
    Rule("host.binds", "folders of the machine outside the repo's own", mounts.roots, mounts.sources,
         closed=openings.NEVER["host.binds"]),
)  # fmt: skip


MOUNT_RULES = frozenset({"hw.socket", "hw.trees", "hw.volumes"})


def judge(container: Container, repo: RepoView, facts: Facts) -> tuple[Violation, ...]:
    """Every rule that the container breaks, hardware first, then the fields that it may not have."""
    found = [Violation(rule.id, text) for rule in RULES for text in rule.broken(container, repo, facts)]
    return tuple(dict.fromkeys([*found, *container.faults]))


def mounted(container: Container, repo: RepoView, facts: Facts) -> tuple[Violation, ...]:
    """The hardware rules on mounts alone: for what reads or writes a container's files."""
    found = ((rule.id, rule.broken(container, repo, facts)) for rule in RULES if rule.id in MOUNT_RULES)
    return tuple(Violation(id_, text) for id_, texts in found for text in texts)


_AT_START = frozenset({"hw.listeners"})
"""What counts when a container starts and can't be taken back from one that runs."""


def hardware(container: Container, repo: RepoView, facts: Facts) -> tuple[Violation, ...]:
    """The hardware rules alone: for what is done to a container that runs already."""
    counted = (rule for rule in RULES if rule.hardware and rule.id not in _AT_START)
    return tuple(Violation(rule.id, text) for rule in counted for text in rule.broken(container, repo, facts))


PASSABLE = frozenset({"hw.grant", "hw.unfit"})
"""What a container that passed the gate can break later, when a grant or its daemon's fitness ends."""


def past(container: Container, repo: RepoView, facts: Facts) -> tuple[Violation, ...]:
    """The hardware rules that no container breaks which was made through the gate."""
    return tuple(found for found in hardware(container, repo, facts) if found.rule not in PASSABLE)


def seen(inspected: Mapping[str, Any], repo: RepoView) -> tuple[str, ...]:
    """Of a container that nobody asks anything for: how it has hardware otherwise than by a device request, as far as
    its own description shows that."""
    try:
        container = from_inspect(inspected, repo.pins)
    except (BodyRefused, TypeError, AttributeError):
        return ()
    counted = (rule for rule in RULES if rule.hardware and rule.check and rule.id not in _BY_REQUEST)
    return tuple(text for rule in counted if rule.check for text in rule.check(container, repo))


_BY_REQUEST = PASSABLE | {"hw.gpus"}
