"""What parent and worker say to each other, as values: nothing of it ever comes from outside the gate."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from gpugrant_gate.life.grants import Enforced, Grant
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.settings import Limits, Settings

# parent → worker
SETTINGS = "settings"
ENFORCE = "enforce"
REPO = "repo"
DROP = "drop"
IN_USE = "in-use"
COUNT = "count"
FOLLOW = "follow"
REOPEN = "reopen"
PING = "ping"
PAUSE = "pause"
LEAVE = "leave"
STOP = "stop"
# worker → parent
READY = "ready"
SETTLED = "settled"
STATUS = "status"
CONTAINERS = "containers"
RUNNING = "running"
FOUND = "found"
COUNTED = "counted"
LINES = "lines"
PONG = "pong"
PAUSED = "paused"


def write_settings(settings: Settings) -> dict[str, Any]:
    """What a worker needs of them; bounds of the machine are shared out."""
    limits = replace(settings.limits, inspects=max(settings.limits.inspects // settings.workers, 1))
    given = {"limits": asdict(limits), "enforces": settings.enforces}
    return given | {"audit": None if settings.audit is None else str(settings.audit)}


def read_settings(data: dict[str, Any]) -> tuple[Limits, Path | None, bool]:
    """The limits, where decisions are written, and whether the sweep acts."""
    return Limits(**data["limits"]), None if data["audit"] is None else Path(data["audit"]), data["enforces"]


def write_enforced(enforced: Enforced) -> dict[str, Any]:
    return {
        "machine": enforced.machine,
        "epoch": enforced.epoch,
        "devices": list(enforced.devices),
        "autoAllowed": list(enforced.auto_allowed),
        "stops": enforced.stops,
        "tooOldAt": enforced.too_old_at and enforced.too_old_at.isoformat(),
        "at": enforced.at and enforced.at.isoformat(),
        "uids": [grant.uid for grant in enforced.grants],
        "grants": [
            [grant.repo, grant.repo_id, grant.device, grant.expires_at and grant.expires_at.isoformat()]
            for grant in enforced.grants
        ],
    }


def read_enforced(data: dict[str, Any]) -> Enforced:
    grants = tuple(
        Grant(repo, repo_id, device, datetime.fromisoformat(expires) if expires else None, uid)
        for (repo, repo_id, device, expires), uid in zip(data["grants"], data["uids"], strict=True)
    )
    devices, auto_allowed = tuple(data["devices"]), tuple(data["autoAllowed"])
    too_old_at, at = (datetime.fromisoformat(data[key]) if data[key] else None for key in ("tooOldAt", "at"))
    return Enforced(data["machine"], data["epoch"], grants, devices, auto_allowed, data["stops"], too_old_at, at)


def write_repo(repo: Repo) -> dict[str, Any]:
    return asdict(repo) | {
        "upstream": str(repo.upstream),
        "listen": str(repo.listen),
        "binds": [str(folder) for folder in repo.binds],
        "above": [str(folder) for folder in repo.above],
        "open": sorted(repo.open),
        "daemon_config": None if repo.daemon_config is None else str(repo.daemon_config),
    }


def read_repo(data: dict[str, Any]) -> Repo:
    return Repo(
        **data
        | {
            "upstream": Path(data["upstream"]),
            "listen": Path(data["listen"]),
            "binds": tuple(Path(folder) for folder in data["binds"]),
            "above": tuple(Path(folder) for folder in data["above"]),
            "open": frozenset(data["open"]),
            "daemon_config": None if data["daemon_config"] is None else Path(data["daemon_config"]),
        }
    )
