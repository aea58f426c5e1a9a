"""What an operator may open for a repo in its file in `repos.d`, and what is never opened (design 5, R45).

A host rule of the gate closes what is only power over the machine. It stands in this table only if
`tests/gate/attacks/opened.py` has an attack that shows on a real daemon that no device comes of opening it, neither
alone nor beside all the others. An opening is one thing, never a class: where a rule has values, one value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpugrant_crds import names


@dataclass(frozen=True, slots=True)
class Opening:
    """One thing that can be opened."""

    rule: str
    value: str
    """Empty: the rule as a whole. `<…>` stands for a word of the operator's."""
    costs: str
    """What the repo's users can do then, a clause."""

    @property
    def name(self) -> str:
        """As it is written in `open:`."""
        return f"{self.rule}={self.value}" if self.value else self.rule

    def is_meant(self, text: str) -> bool:
        """Whether `text` names this, with a word in the place of `<…>`."""
        pattern = re.sub(r"<[a-z]+>", "[A-Za-z0-9_]+", re.escape(self.name))
        return re.fullmatch(pattern, text, re.ASCII) is not None


OPENINGS: tuple[Opening, ...] = (
    Opening("host.docker-socket", "", "what runs in their containers may use the repo's gate like they themselves"),
    Opening("host.network", "", "they reach what listens on the machine for itself, and see its network"),
    Opening("host.network-driver", "macvlan", "their containers are neighbours in the machine's own network"),
    Opening("host.network-driver", "ipvlan", "their containers are neighbours in the machine's own network"),
    Opening("host.ipc", "", "they read and write the shared memory of the machine's processes"),
    Opening("host.userns", "", "root in a container is root's number outside, where the daemon would remap it"),
    Opening("host.capabilities", "BLOCK_SUSPEND", "they keep the machine from sleeping"),
    Opening("host.capabilities", "CHECKPOINT_RESTORE", "they choose process ids and read maps of their own processes"),
    Opening("host.capabilities", "LEASE", "they delay who opens a file of theirs"),
    Opening("host.capabilities", "LINUX_IMMUTABLE", "they make files in bound folders that only root's chattr removes"),
    Opening("host.capabilities", "NET_ADMIN", "they set up networks: their own, with host.network the machine's"),
    Opening("host.capabilities", "NET_BROADCAST", "nothing that a kernel of today asks for"),
    Opening("host.capabilities", "SYSLOG", "they read the kernel's log with its addresses"),
    Opening(
        "host.capabilities", "SYS_PTRACE", "they trace their processes; such a container takes no exec, no healthcheck"
    ),
    Opening("host.capabilities", "WAKE_ALARM", "they wake the machine from sleep"),
    Opening("host.security", "apparmor=unconfined", "one of the kernel's fences less around what runs as root"),
    Opening("host.security", "seccomp=unconfined", "the whole kernel is in reach, and each of its faults"),
    Opening("host.security", "label=disable", "SELinux no longer keeps containers from the machine's files"),
    Opening("host.security", "label=type:<type>", "SELinux allows what that type may"),
    Opening("host.security", "no-new-privileges=false", "set-user-ID programs count although the daemon says no"),
    Opening("host.log", "awslogs", "the daemon sends their lines to AWS with the machine's own credentials"),
    Opening("host.log", "fluentd", "the daemon sends their lines to any address"),
    Opening("host.log", "gelf", "the daemon sends their lines to any address"),
    Opening("host.log", "splunk", "the daemon sends their lines to any address"),
    Opening("host.log", "syslog", "the daemon sends their lines to any address"),
)
"""In the order of `gpugrant gate rules`."""

NEVER: Mapping[str, str] = {
    "host.capabilities=AUDIT_CONTROL": "it switches the machine's audit off",
    "host.capabilities=BPF": "it changes what the kernel runs, device filters included",
    "host.capabilities=DAC_READ_SEARCH": "it opens files of the machine by their number, the daemons' sockets too",
    "host.capabilities=MAC_ADMIN": "it changes the machine's security policy",
    "host.capabilities=MAC_OVERRIDE": "it leaves the machine's security policy",
    "host.capabilities=PERFMON": "it reads every process's memory, and GPUs' counters",
    "host.capabilities=SYS_BOOT": "with it another kernel is loaded",
    "host.capabilities=SYS_TIME": "it sets the clock by which grants end",
    "host.capabilities=ALL": "it reaches devices by itself",
    "host.capabilities=SYS_ADMIN": "it reaches devices by itself",
    "host.capabilities=SYS_MODULE": "it reaches devices by itself",
    "host.capabilities=SYS_RAWIO": "it reaches devices by itself",
    "host.security=systempaths=unconfined": "it opens /proc and /sys, where the kernel is told to run programs",
    "host.security=writable-cgroups=true": "a container's cgroup decides which devices it may open",
    "host.binds": "a folder is bound by naming it in `binds:`",
    "host.cgroupns": "the machine's cgroups decide which devices may be opened",
    "host.import": "the daemon would fetch any address; send the file",
    "host.shared": "it follows host.network and host.ipc",
}
"""Why these can't be opened, a clause: what somebody could ask for and must not have."""

PASS: Mapping[str, frozenset[str]] = {
    "host.capabilities": frozenset(
        {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "IPC_LOCK", "KILL", "MKNOD", "NET_BIND_SERVICE",
         "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT", "SYS_NICE", "SYS_RESOURCE"}
    ),
    "host.log": frozenset({"journald", "json-file", "local", "none"}),
}  # fmt: skip
"""What needs no opening: values that pass in every repo, by the rule that has others."""

PROFILES: Mapping[str, tuple[str, ...]] = {
    "rediacc": (
        "host.network",
        "host.userns",
        "host.capabilities=CHECKPOINT_RESTORE",
        "host.capabilities=NET_ADMIN",
        "host.capabilities=SYS_PTRACE",
        "host.security=apparmor=unconfined",
    ),
}
"""What set-ups with checkpoint and restore need (design 5)."""

RULES = tuple(dict.fromkeys(opening.rule for opening in OPENINGS))


class NotOpenable(ValueError):
    """The text names nothing that can be opened; the message is one clause for a person."""


def check(text: str) -> str:
    """The opening itself; raises NotOpenable."""
    if is_openable(text):
        return text
    rule, _, value = text.partition("=")
    if rule.startswith("hw."):
        raise NotOpenable(f"{rule} can't be opened: no setting opens a way to a device (R45)")
    if (why := NEVER.get(text) or NEVER.get(rule)) is not None:
        raise NotOpenable(f"{text} can't be opened: {why}")
    if value in PASS.get(rule, ()):
        raise NotOpenable(f"{text} needs no opening: it passes in every repo; take it out")
    if rule in RULES:
        raise NotOpenable(_of_rule(rule, value, text))
    known = [opening.name for opening in OPENINGS]
    raise NotOpenable(f'"{text}" is nothing that can be opened{names.did_you_mean(text, known)}; {LIST}')


def is_openable(text: str) -> bool:
    return any(opening.is_meant(text) for opening in OPENINGS)


LIST = "gpugrant gate rules lists what can be"


def _of_rule(rule: str, value: str, text: str) -> str:
    values = [opening.value for opening in OPENINGS if opening.rule == rule]
    if values == [""]:
        return f"{text} can't be opened: {rule} is opened as a whole, write {rule}"
    if not value:
        return f"{rule} is opened for one thing at a time: write {rule}={values[0]}, or another; {LIST}"
    known = [opening.name for opening in OPENINGS if opening.rule == rule]
    return f"{text} can't be opened{names.did_you_mean(text, known)}; {LIST}"


def check_profile(name: str) -> str:
    """The profile's name itself; raises NotOpenable."""
    if name not in PROFILES:
        there = ", ".join(PROFILES)
        raise NotOpenable(f'there is no profile "{name}"; there is {there}')
    return name


def opened(written: Iterable[str], profile: str | None) -> frozenset[str]:
    """All that a file opens."""
    return frozenset((*written, *(PROFILES[profile] if profile else ())))
