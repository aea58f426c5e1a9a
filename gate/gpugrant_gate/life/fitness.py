"""Whether a repo's daemon may be trusted with CDI devices (R52), from what it says of itself and where it looks.

Anything unexpected is unfit: a daemon that can't be understood gets no hardware. Two things are looked past on purpose:
more `runtimes` than runc (every create is sent on with runc, a start with another is refused, and the default is runc,
which no daemon lets be redefined), and an experimental daemon (it only has more endpoints, which the gate refuses).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from gpugrant_crds.reasons import Reason
from gpugrant_gate.life.buildkit import Builder, Engine, Entitlements
from gpugrant_gate.wire import versions

OLDEST_ENGINE = 25
"""The first Docker Engine with CDI (R4)."""


@dataclass(frozen=True, slots=True)
class Said:
    """`GET /version` and `GET /info` of a daemon, decoded, and what was seen of its mount namespace."""

    version: dict[str, Any]
    info: dict[str, Any]
    sealed: bool
    """Its CDI folder is this repo's sealed one, by device and inode."""
    own_specs: bool = False
    """Its CDI folder is this machine's own, by device and inode."""
    config: str = ""
    """The path of its configuration file."""
    entitlements: Entitlements | str = Builder().entitlements
    """What that file lets builds reach, or why it isn't known."""
    runc: bool = False
    """Its builds are run by runc."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What this installation wants of a daemon."""

    cdi: PurePath
    sealed: bool
    """The repo's file says that it is sealed."""


@dataclass(frozen=True, slots=True)
class Fitness:
    """A verdict on a daemon; `reason` and `message` are empty when it is fit."""

    fit: bool
    sealed: bool = False
    reason: str = ""
    message: str = ""
    """One clause for a person, with its mend."""
    api_version: str = ""
    """min(the daemon's newest, the gate's newest); empty while unknown."""
    data_root: str = ""
    builder: Builder = field(default_factory=Builder)
    """What is known of its BuildKit."""


Fault = tuple[Reason, str]
Check = Callable[[Said, Expected], Fault | None]


def unreachable(upstream: PurePath, why: str) -> Fitness:
    """Of a daemon that does not answer: unknown, so unfit."""
    message = f"the repo's Docker daemon at {upstream} does not answer ({why}), so it is not known whether it is fit"
    return Fitness(False, reason=Reason.DAEMON_UNFIT, message=message)


def judge(said: Said, expected: Expected) -> Fitness:
    """The first fault counts: each is mended by itself."""
    api_version = versions.at_most(_text(said.version, "ApiVersion"))
    data_root = _text(said.info, "DockerRootDir")
    builder = Builder(engine(said.version), said.config, said.entitlements, said.runc, said.own_specs)
    for check in CHECKS:
        fault = check(said, expected)
        if fault is not None:
            return Fitness(False, said.sealed, fault[0], fault[1], api_version, data_root, builder)
    return Fitness(True, said.sealed, api_version=api_version, data_root=data_root, builder=builder)


def engine(version: dict[str, Any]) -> Engine | None:
    """The three numbers at the head of the engine's version (`26.1.5+dfsg1`); None where it says none."""
    found = re.match(r"([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})", _text(version, "Version"), re.ASCII)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def _old_engine(said: Said, expected: Expected) -> Fault | None:
    version = _text(said.version, "Version")
    found = engine(said.version)
    if found is None:
        return Reason.DAEMON_UNFIT, f'the daemon says no Docker Engine version ("{version[:40]}")'
    if found[0] < OLDEST_ENGINE:
        return Reason.DAEMON_UNFIT, f"the daemon is Docker {version}: install Docker {OLDEST_ENGINE} or newer"
    return None


def _rootless(said: Said, expected: Expected) -> Fault | None:
    options = said.info.get("SecurityOptions")
    if not isinstance(options, list):
        return Reason.DAEMON_UNFIT, "the daemon does not say its security options"
    if any("name=rootless" in str(option).split(",") for option in options):
        return (
            Reason.ROOTLESS_DAEMON,
            "the daemon is rootless: it has no device cgroup to keep hardware apart; run the repo's daemon as root",
        )
    return None


def _other_cdi_folder(said: Said, expected: Expected) -> Fault | None:
    folders = said.info.get("CDISpecDirs")
    if not isinstance(folders, list) or not folders:
        return (
            Reason.DAEMON_UNFIT,
            f"CDI is off in the daemon: put {_daemon_json(expected)} into its daemon.json and restart it",
        )
    if folders != [str(expected.cdi)]:
        listed = ", ".join(str(folder) for folder in folders)
        return (
            Reason.DAEMON_UNFIT,
            f"the daemon reads CDI specs from {listed} and must read {expected.cdi} only: "
            f"put {_daemon_json(expected)} into its daemon.json and restart it",
        )
    return None


def _other_runtime(said: Said, expected: Expected) -> Fault | None:
    runtime = said.info.get("DefaultRuntime")
    if runtime != "runc":
        return (
            Reason.DAEMON_UNFIT,
            f'the daemon\'s default runtime is "{runtime}": put "default-runtime": "runc" into its daemon.json '
            "and restart it",
        )
    return None


def _starts_by_itself(said: Said, expected: Expected) -> Fault | None:
    """Swarm's tasks are containers that nobody judged, placed here by a manager that may be another machine."""
    swarm = said.info.get("Swarm")
    state = swarm.get("LocalNodeState", "") if isinstance(swarm, dict) else ""
    if state in ("", "inactive"):
        return None
    return (
        Reason.DAEMON_UNFIT,
        f"the daemon is part of a swarm ({_short(state)}), whose tasks no gate judges: run docker swarm leave --force "
        f"on its own socket",
    )


def _plugins_of_containers(said: Said, expected: Expected) -> Fault | None:
    """NRI plug-ins change a container's devices behind the gate (API 1.53; the field is there when NRI is on)."""
    if said.info.get("NRI") in (None, {}):
        return None
    return (
        Reason.DAEMON_UNFIT,
        'NRI is on in the daemon, whose plug-ins give devices to containers: put "nri-opts": {"enable": false} into '
        "its daemon.json and restart it",
    )


_OPEN_API = re.compile(r"API is accessible on (\S+) without")
"""moby daemon/info.go fillAPIInfo: an address without TLS, or without a check of its clients' certificates."""


def _open_api(said: Said, expected: Expected) -> Fault | None:
    """Containers of the repo reach such an address, and with it all that the gate refuses (compare CVE-2025-9074)."""
    warnings = said.info.get("Warnings")
    for warning in warnings if isinstance(warnings, list) else []:
        if found := _OPEN_API.search(str(warning)):
            return (
                Reason.DAEMON_UNFIT,
                f"the daemon's API is open to everybody at {_short(found[1])}, past the gate: leave only its Unix "
                'socket in "hosts" of its daemon.json and restart it',
            )
    return None


def _survives(said: Said, expected: Expected) -> Fault | None:
    """A sealed daemon's survivors hold the mounts of the namespace that is gone: exec into them breaks (design 5)."""
    if expected.sealed and said.info.get("LiveRestoreEnabled"):
        return (
            Reason.DAEMON_UNFIT,
            'the repo is sealed, and live-restore is on in its daemon: put "live-restore": false into its daemon.json '
            "and restart it",
        )
    return None


def _not_sealed(said: Said, expected: Expected) -> Fault | None:
    if expected.sealed and not said.sealed:
        return (
            Reason.DAEMON_UNFIT,
            "the repo's file says sealed: true, but the daemon does not have the repo's sealed folder as its "
            f"{expected.cdi}: restart the daemon with the folder mounted there",
        )
    return None


CHECKS: tuple[Check, ...] = (
    _old_engine,
    _rootless,
    _other_cdi_folder,
    _other_runtime,
    _starts_by_itself,
    _plugins_of_containers,
    _open_api,
    _survives,
    _not_sealed,
)


def _short(value: object) -> str:
    return str(value)[:60]


def _daemon_json(expected: Expected) -> str:
    lines = {"features": {"cdi": True}, "cdi-spec-dirs": [str(expected.cdi)]}
    return json.dumps(lines)[1:-1]


def _text(said: dict[str, Any], key: str) -> str:
    value = said.get(key)
    return value if isinstance(value, str) else ""
