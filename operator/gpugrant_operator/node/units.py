"""The texts of the systemd units, drop-ins and udev rules that setup writes (R42, R44). Pure.

systemd.unit(5) and systemd.service(5) say what a line means; `%` and blanks in our own paths are quoted for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

HEAD = "# Written by renet setup; a change is lost with its next run.\n"

SYSTEM = "etc/systemd/system"
REFRESH = "nvidia-cdi-refresh"
"""The toolkit's own service and path unit, since 1.18."""
SINCE = (1, 18)
REFRESH_ENV = "etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
REFRESH_DROP_IN = f"{SYSTEM}/{REFRESH}.service.d/50-gpugrant.conf"
EQUAL = "gpugrant-nvidia-cdi-refresh"
"""Its equal for a toolkit that has none. Under another name: a later toolkit brings a file of its own."""
OURS = "gpugrant-refresh"
UDEV_RULES = "etc/udev/rules.d/90-gpugrant.rules"

UNIT_FOLDERS = ("usr/lib/systemd/system", "lib/systemd/system", SYSTEM)

OUTPUT = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH"
FLAGS = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS"


def path_of(unit: str) -> str:
    """Where a unit of ours lies, below the root."""
    return f"{SYSTEM}/{unit}"


def environment(text: str, values: Mapping[str, str]) -> str:
    """An environment file with these variables set and all else as it was; flags that are there are kept beside."""
    kept = []
    wanted = dict(values)
    for line in text.splitlines():
        name = line.partition("=")[0].strip()
        if name not in values:
            kept.append(line)
        elif name == FLAGS:
            before = [flag for flag in line.partition("=")[2].strip().strip("\"'").split(",") if flag]
            wanted[name] = ",".join(dict.fromkeys([*before, *wanted[name].split(",")]))
    return "\n".join([*kept, *(f"{name}={_value(value)}" for name, value in wanted.items())]) + "\n"


def _value(value: str) -> str:
    plain = value.replace("/", "").replace("-", "").replace(".", "").replace("_", "").replace(",", "")
    return value if plain.isalnum() else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def refresh_drop_in() -> str:
    """After persistenced: the toolkit writes its socket's mount only when the socket is there."""
    return f"{HEAD}[Unit]\nAfter=nvidia-persistenced.service\n"


def equal_service(output: str, flags: str) -> str:
    """What the toolkit's own unit does, for a release before 1.18."""
    conditions = "\n".join(
        f"ConditionPathExists=|{place}/nvidia-smi" for place in ("/usr/bin", "/usr/sbin", "/usr/lib/wsl/lib")
    )
    return (
        f"{HEAD}[Unit]\nDescription=Refresh the NVIDIA CDI specification\n{conditions}\n"
        "ConditionPathExists=/usr/bin/nvidia-ctk\nAfter=nvidia-persistenced.service\n"
        f"Before={_ENGINES}\nStartLimitIntervalSec=10s\nStartLimitBurst=5\n\n"
        f"[Service]\nType=oneshot\nEnvironment={FLAGS}={flags}\n"
        f"ExecStart=/usr/bin/nvidia-ctk cdi generate {word(f'--output={output}')}\n"
        "CapabilityBoundingSet=CAP_SYS_MODULE CAP_SYS_ADMIN CAP_MKNOD\n"
        # as the toolkit's drop-in: a card that hangs must not keep the engines from starting
        "TimeoutStartSec=90s\nRestart=on-failure\nRestartSec=1s\n\n[Install]\nWantedBy=multi-user.target\n"
    )


def path_unit(description: str, watched: Iterable[str]) -> str:
    """Starts the service of the same name when one of the files or folders changes."""
    lines = "".join(f"PathChanged={path}\n" for path in watched)
    return f"{HEAD}[Unit]\nDescription={description}\n\n[Path]\n{lines}\n[Install]\nWantedBy=multi-user.target\n"


DRIVER_FILES = ("/lib/modules/%v/modules.dep", "/lib/modules/%v/modules.dep.bin", "/usr/bin/nvidia-ctk")
"""As the toolkit's path unit: an installed or updated driver or toolkit."""


def our_service(command: Sequence[str]) -> str:
    """Brings specs and inventory up to date before containers start; installs nothing, so that no network is waited
    for at boot."""
    return (
        f"{HEAD}[Unit]\nDescription=Refresh the GPU inventory and the CDI specs of gpugrant\n"
        f"After=local-fs.target nvidia-persistenced.service {REFRESH}.service {EQUAL}.service\n"
        # a burst of udev events is no loop
        f"Before={_ENGINES}\nStartLimitIntervalSec=0\n\n"
        # what udev still makes is waited for, so that the last card of a burst is seen
        "[Service]\nType=oneshot\nExecStartPre=-/usr/bin/udevadm settle --timeout=30\n"
        f"ExecStart={' '.join(map(word, command))} --offline\n"
        # as the toolkit's: daemons wait for it at boot, but not for a card that hangs
        "TimeoutStartSec=120s\n\n[Install]\nWantedBy=multi-user.target\n"
    )


def daemon_drop_in() -> str:
    """A repo's daemon starts containers by itself at boot: the specs are made before."""
    return f"{HEAD}[Unit]\nAfter={OURS}.service {REFRESH}.service {EQUAL}.service\n"


def udev_rules(systemctl: str) -> str:
    """A card, a partition or a driver that comes or goes."""
    start = f'RUN+="{systemctl} --no-block start {OURS}.service"'
    matches = (
        'SUBSYSTEM=="drm", KERNEL=="renderD*"',
        'SUBSYSTEM=="kfd"',
        'SUBSYSTEM=="module", KERNEL=="nvidia|nvidia_current|amdgpu"',
    )
    return HEAD + "".join(f'ACTION=="add|remove", {match}, {start}\n' for match in matches)


def persistenced_drop_in(folder: str) -> str:
    """The folder, not the socket: persistenced makes a new socket when it starts again. Absent is no error (`-`)."""
    return f"{HEAD}[Unit]\nAfter=nvidia-persistenced.service\n\n[Service]\nBindReadOnlyPaths=-{folder}\n"


_ENGINES = "docker.service containerd.service crio.service"


def drop_in_folder(pattern: str) -> str | None:
    """The folder whose drop-ins count for all units of a pattern: `docker@*.service` → `docker@.service.d`,
    `docker-*.service` → `docker-.service.d`, a whole name its own; None: systemd has no such folder."""
    stem, dot, suffix = pattern.rpartition(".")
    if not dot or suffix != "service" or "/" in stem or not stem.strip("*"):
        return None
    if "*" not in stem:
        return f"{pattern}.d"
    prefix, _, rest = stem.partition("*")
    # a prefix of a name counts up to a dash (systemd.unit(5)); a template up to its @
    if rest or not prefix.endswith(("-", "@")):
        return None
    return f"{prefix}.service.d"


def word(text: str) -> str:
    """One word of ExecStart=: `%` and `$` doubled, quoted where blanks or quotes stand in it."""
    text = text.replace("%", "%%").replace("$", "$$")
    if not any(char in text for char in " \t\"'\\;"):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
