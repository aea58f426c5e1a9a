"""Admission of grants: ask the gate what devices are there now (before the decision), then let `gpugrant_crds` judge.

The question to the gate is never asked inside the decision: it may take a second, and the store decides in one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import aiohttp

from gpugrant_crds import admission as rules
from gpugrant_crds.snapshot import DevicesAnswer, GateStatus
from gpugrant_operator.apiserver.objects.resources import Resource
from gpugrant_operator.apiserver.objects.status import ApiError, Obj

GROUP = "gpu.rediacc.io"
GRANTS = f"repogpugrants.{GROUP}"
MACHINES = f"gpumachines.{GROUP}"
MAX_ANSWER = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Live:
    """What this machine's gate reads in the CDI specs now, and the GpuMachine that it enforces."""

    machine: str
    devices: tuple[str, ...]


async def ask_gate(socket: Path, timeout: float) -> Live | None:  # noqa: ASYNC109  # the limit is part of the question
    """The devices that are there now; None: no gate, no answer in time, or one that can't be read."""
    try:
        async with asyncio.timeout(timeout):
            connector = aiohttp.UnixConnector(path=str(socket))
            async with aiohttp.ClientSession(connector=connector) as session:
                status = GateStatus.model_validate_json(await _get(session, "/v1/status"))
                devices = DevicesAnswer.model_validate_json(await _get(session, "/v1/devices"))
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return None
    return Live(status.machine, devices.devices)


async def _get(session: aiohttp.ClientSession, path: str) -> bytes:
    async with session.get(f"http://gate{path}", raise_for_status=True) as answer:
        return await answer.content.read(MAX_ANSWER)


def is_reviewed(resource: Resource) -> bool:
    return resource.id == GRANTS


def review(
    resource: Resource,
    old: Obj | None,
    new: Obj,
    *,
    machines: Sequence[Obj],
    stored: Sequence[Obj],
    live: Live | None,
    now: datetime,
) -> tuple[str, ...]:
    """The warnings of an allowed grant; raises ApiError 403, in a webhook's words, for a refused one."""
    known = {machine["metadata"]["name"]: machine for machine in machines}
    here = live is not None and live.machine == new["spec"].get("machine")
    answer = rules.review_objects(
        old,
        new,
        machines=known,
        stored=stored,
        live_devices=live.devices if live is not None and here else None,
        now=now,
    )
    if not answer.allowed:
        raise ApiError(
            403,
            str(answer.reason or "Forbidden"),
            f'admission webhook "grants.{GROUP}" denied the request: {answer.message}',
            details={"name": new["metadata"]["name"], "group": resource.group, "kind": resource.plural},
        )
    return answer.warnings
