"""Whether a repo's daemon may be trusted with CDI devices (R52), from what it says of itself and where it looks.

Anything unexpected is unfit: a daemon that can't be understood gets no hardware.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from gpugrant_crds.reasons import Reason
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
    for check in CHECKS:
        fault = check(said, expected)
        if fault is not None:
            return Fitness(False, said.sealed, fault[0], fault[1], api_version, data_root)
    return Fitness(True, said.sealed, api_version=api_version, data_root=data_root)


def _old_engine(said: Said, expected: Expected) -> Fault | None:
    version = _text(said.version, "Version")
    major = re.match(r"([0-9]{1,4})\.", version, re.ASCII)
    if major is None:
        return Reason.DAEMON_UNFIT, f'the daemon says no Docker Engine version ("{version[:40]}")'
    if int(major[1]) < OLDEST_ENGINE:
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


def _not_sealed(said: Said, expected: Expected) -> Fault | None:
    if expected.sealed and not said.sealed:
        return (
            Reason.DAEMON_UNFIT,
            "the repo's file says sealed: true, but the daemon does not have the repo's sealed folder as its "
            f"{expected.cdi}: restart the daemon with the folder mounted there",
        )
    return None


CHECKS: tuple[Check, ...] = (_old_engine, _rootless, _other_cdi_folder, _other_runtime, _not_sealed)


def _daemon_json(expected: Expected) -> str:
    lines = {"features": {"cdi": True}, "cdi-spec-dirs": [str(expected.cdi)]}
    return json.dumps(lines)[1:-1]


def _text(said: dict[str, Any], key: str) -> str:
    value = said.get(key)
    return value if isinstance(value, str) else ""
