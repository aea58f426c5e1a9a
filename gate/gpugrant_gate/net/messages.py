"""What parent and worker say to each other, as values: nothing of it ever comes from outside the gate."""

from __future__ import annotations

from dataclasses import asdict
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
COUNTED = "counted"
LINES = "lines"
PONG = "pong"
PAUSED = "paused"


def write_settings(settings: Settings) -> dict[str, Any]:
    """What a worker needs of them."""
    return {"limits": asdict(settings.limits), "audit": None if settings.audit is None else str(settings.audit)}


def read_settings(data: dict[str, Any]) -> tuple[Limits, Path | None]:
    """The limits, and where decisions are written."""
    return Limits(**data["limits"]), None if data["audit"] is None else Path(data["audit"])


def write_enforced(enforced: Enforced) -> dict[str, Any]:
    return {
        "machine": enforced.machine,
        "epoch": enforced.epoch,
        "devices": list(enforced.devices),
        "autoAllowed": list(enforced.auto_allowed),
        "grants": [
            [grant.repo, grant.repo_id, grant.device, grant.expires_at and grant.expires_at.isoformat()]
            for grant in enforced.grants
        ],
    }


def read_enforced(data: dict[str, Any]) -> Enforced:
    grants = tuple(
        Grant(repo, repo_id, device, datetime.fromisoformat(expires) if expires else None)
        for repo, repo_id, device, expires in data["grants"]
    )
    devices, auto_allowed = tuple(data["devices"]), tuple(data["autoAllowed"])
    return Enforced(data["machine"], data["epoch"], grants, devices, auto_allowed)


def write_repo(repo: Repo) -> dict[str, Any]:
    return asdict(repo) | {
        "upstream": str(repo.upstream),
        "listen": str(repo.listen),
        "binds": [str(folder) for folder in repo.binds],
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
            "open": frozenset(data["open"]),
            "daemon_config": None if data["daemon_config"] is None else Path(data["daemon_config"]),
        }
    )
