"""The systemd unit of a standalone instance, as text. Pure.

systemd.service(5) and systemd.exec(5) say what a line means. Nothing here may give the unit a mount namespace of its
own (ProtectSystem=, PrivateTmp= and the like): bind sources are pinned where the repos' daemons see them, and `renet
setup` installs packages.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpugrant_operator.node.units import SYSTEM, word

NAME = "gpugrant.service"
PATH = f"{SYSTEM}/{NAME}"

HEAD = "# Written by gpugrant service install; a change is lost with its next run: use systemctl edit.\n"

_UNNEEDED = (
    "AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF IPC_LOCK LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE "
    "NET_ADMIN NET_BROADCAST NET_RAW PERFMON SYSLOG SYS_BOOT SYS_PACCT SYS_RAWIO SYS_TIME SYS_TTY_CONFIG WAKE_ALARM"
)
"""capabilities(7). What stays: reading other processes' mounts and entering their namespaces (SYS_PTRACE, SYS_ADMIN,
SYS_CHROOT), files of other users, and what a package manager and nvidia-ctk need."""


def unit(command: Sequence[str]) -> str:
    """The whole file; `command` is the program and its words."""
    bounds = " ".join(f"CAP_{name}" for name in _UNNEEDED.split())
    return (
        f"{HEAD}[Unit]\nDescription=gpugrant: GPU access for Docker repos, granted by name\n"
        "After=local-fs.target network.target\nStartLimitIntervalSec=0\n\n"
        f"[Service]\nType=exec\nExecStart={' '.join(map(word, command))}\n"
        # It ends and leaves its parts running; the one that systemd starts then takes them over and replaces those of
        # another version, without a pause.
        "ExecReload=/bin/kill -s USR2 $MAINPID\n"
        # The gate outlives a supervisor that dies; at a stop the supervisor ends the parts itself.
        "KillMode=process\nRestart=always\nRestartSec=1\nTimeoutStopSec=90\n"
        # A repo has a socket and hundreds of connections, each of them two descriptors.
        "LimitNOFILE=1048576\nTasksMax=infinity\nOOMScoreAdjust=-500\n"
        f"NoNewPrivileges=yes\nCapabilityBoundingSet=~{bounds}\n"
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\n"
        "LockPersonality=yes\nRestrictRealtime=yes\nSystemCallArchitectures=native\n"
        "SystemCallFilter=~@clock @cpu-emulation @obsolete @raw-io @reboot @swap\nKeyringMode=private\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
