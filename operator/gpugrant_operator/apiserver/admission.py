"""Admission of grants: ask the gate what devices are there now (before the decision), then let `gpugrant_crds` judge.

The question to the gate is never asked inside the decision: it may take a second, and the store decides in one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import aiohttp
from pydantic import ValidationError

from gpugrant_crds import admission as rules
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import DevicesAnswer, GateStatus
from gpugrant_crds.v1alpha1 import GROUP, GpuMachine, RepoGpuGrant
from gpugrant_operator.apiserver.objects.resources import Resource
from gpugrant_operator.apiserver.objects.status import ApiError, Obj

GRANTS = f"repogpugrants.{GROUP}"
MACHINES = f"gpumachines.{GROUP}"
MAX_ANSWER = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Live:
    """What this machine's gate reads in the CDI specs now, and the GpuMachine that it enforces."""

    machine: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class World:
    """What a grant is judged in: the newest objects, committed or not."""

    machines: Sequence[Obj]
    stored: Sequence[Obj]
    live: Live | None
    now: datetime


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


@dataclass
class Reviewer:
    """Judges grants. Stored ones are parsed once a version: 2,000 of them cost 30 ms to parse."""

    parsed: dict[str, tuple[str, RepoGpuGrant]] = field(default_factory=dict)

    def review(self, old: Obj | None, new: Obj, world: World) -> tuple[str, ...]:
        """The warnings of an allowed grant; raises ApiError 403, in a webhook's words, for a refused one."""
        try:
            answer = rules.review(self._request(old, new, world))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            answer = rules.Review(False, Reason.INVALID_GRANT, f"{place}: {first['msg']}")
        if not answer.allowed:
            raise ApiError(
                403,
                str(answer.reason or "Forbidden"),
                f'admission webhook "grants.{GROUP}" denied the request: {answer.message}',
                details={"name": new["metadata"]["name"], "group": GROUP, "kind": "repogpugrants"},
            )
        return answer.warnings

    def _request(self, old: Obj | None, new: Obj, world: World) -> rules.Request:
        grant = RepoGpuGrant.model_validate(new)
        machine = next((m for m in world.machines if m["metadata"]["name"] == grant.spec.machine), None)
        live = world.live if world.live is not None and world.live.machine == grant.spec.machine else None
        stored = tuple(self._parsed(item) for item in world.stored)
        if len(self.parsed) > 2 * len(stored) + 100:
            self.parsed = {item["metadata"]["uid"]: self.parsed[item["metadata"]["uid"]] for item in world.stored}
        return rules.Request(
            grant=grant,
            old=None if old is None else RepoGpuGrant.model_validate(old),
            machine=None if machine is None else GpuMachine.model_validate(machine),
            stored=stored,
            live_devices=None if live is None else live.devices,
            now=world.now,
        )

    def _parsed(self, obj: Obj) -> RepoGpuGrant:
        metadata = obj["metadata"]
        version, grant = self.parsed.get(metadata["uid"], ("", None))
        if grant is None or version != metadata.get("resourceVersion"):
            grant = RepoGpuGrant.model_validate(obj)
            self.parsed[metadata["uid"]] = (metadata.get("resourceVersion", ""), grant)
        return grant
