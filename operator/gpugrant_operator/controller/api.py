"""Our objects in a Kubernetes API, typed. Every write carries the resourceVersion that it was decided on."""

from __future__ import annotations

from typing import Any, Protocol

from pydantic import ValidationError

from gpugrant_crds.v1alpha1 import (
    API_VERSION,
    GROUP,
    VERSION,
    GpuMachine,
    GpuMachineStatus,
    RepoGpuGrant,
    RepoGpuGrantStatus,
)
from gpugrant_operator.kubeclient import JsonObject, KubeClient, NotFound
from gpugrant_operator.reconcile.transitions import Occurrence

MACHINES = "gpumachines"
GRANTS = "repogpugrants"
NAMESPACES = "namespaces"

_BASE = f"/apis/{GROUP}/{VERSION}"
_COMPONENT = "gpugrant-operator"
_MESSAGE_MAX = 1024
"""events.k8s.io's limit of a note."""


class Unreadable(ValueError):
    """A stored object that this version can't read; the text says which and why."""


class Api(Protocol):
    """All that the controller asks of an API. Writes raise Conflict or NotFound where the object moved on."""

    async def api_id(self) -> str: ...

    async def machines(self) -> list[JsonObject]: ...

    async def grants(self) -> list[JsonObject]: ...

    async def namespaces(self) -> list[JsonObject]: ...

    async def machine(self, name: str) -> GpuMachine | None: ...

    async def grant(self, namespace: str, name: str) -> RepoGpuGrant | None: ...

    async def put_machine_status(self, machine: GpuMachine, status: GpuMachineStatus) -> GpuMachine: ...

    async def put_grant_status(self, grant: RepoGpuGrant, status: RepoGpuGrantStatus) -> RepoGpuGrant: ...

    async def set_machine_finalizers(self, machine: GpuMachine, finalizers: tuple[str, ...]) -> GpuMachine: ...

    async def set_grant_finalizers(self, grant: RepoGpuGrant, finalizers: tuple[str, ...]) -> RepoGpuGrant: ...

    async def record(self, occurrence: Occurrence, moment: str) -> None: ...


def read_machine(raw: JsonObject) -> GpuMachine:
    """The machine; raises Unreadable."""
    try:
        return GpuMachine.model_validate(raw)
    except ValidationError as error:
        raise Unreadable(_why("GpuMachine", raw, error)) from error


def read_grant(raw: JsonObject) -> RepoGpuGrant:
    """The grant; raises Unreadable."""
    try:
        return RepoGpuGrant.model_validate(raw)
    except ValidationError as error:
        raise Unreadable(_why("RepoGpuGrant", raw, error)) from error


def _why(kind: str, raw: JsonObject, error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    name = (raw.get("metadata") or {}).get("name", "")
    return f"{kind} {name}: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


class KubeApi:
    """The real one."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def api_id(self) -> str:
        """The uid of kube-system: the usual name of a cluster, and of a standalone store."""
        return str((await self._client.get("/api/v1/namespaces/kube-system"))["metadata"]["uid"])

    async def machines(self) -> list[JsonObject]:
        return await self._client.list(f"{_BASE}/{MACHINES}")

    async def grants(self) -> list[JsonObject]:
        return await self._client.list(f"{_BASE}/{GRANTS}")

    async def namespaces(self) -> list[JsonObject]:
        return await self._client.list("/api/v1/namespaces")

    async def machine(self, name: str) -> GpuMachine | None:
        try:
            return read_machine(await self._client.get(_machine_path(name)))
        except NotFound:
            return None

    async def grant(self, namespace: str, name: str) -> RepoGpuGrant | None:
        try:
            return read_grant(await self._client.get(_grant_path(namespace, name)))
        except NotFound:
            return None

    async def put_machine_status(self, machine: GpuMachine, status: GpuMachineStatus) -> GpuMachine:
        body = _body("GpuMachine", machine, {"spec": machine.spec.to_json(), "status": status.to_json()})
        return read_machine(await self._client.put(f"{_machine_path(machine.metadata.name)}/status", body))

    async def put_grant_status(self, grant: RepoGpuGrant, status: RepoGpuGrantStatus) -> RepoGpuGrant:
        body = _body("RepoGpuGrant", grant, {"spec": grant.spec.to_json(), "status": status.to_json()})
        path = f"{_grant_path(grant.metadata.namespace, grant.metadata.name)}/status"
        return read_grant(await self._client.put(path, body))

    async def set_machine_finalizers(self, machine: GpuMachine, finalizers: tuple[str, ...]) -> GpuMachine:
        body = _finalizers(machine, finalizers)
        return read_machine(await self._client.patch(_machine_path(machine.metadata.name), body))

    async def set_grant_finalizers(self, grant: RepoGpuGrant, finalizers: tuple[str, ...]) -> RepoGpuGrant:
        path = _grant_path(grant.metadata.namespace, grant.metadata.name)
        return read_grant(await self._client.patch(path, _finalizers(grant, finalizers)))

    async def record(self, occurrence: Occurrence, moment: str) -> None:
        """Creates the Event, or counts up the one that says the same."""
        namespace = occurrence.namespace or "default"
        path = f"/api/v1/namespaces/{namespace}/events"
        try:
            stored = await self._client.get(f"{path}/{occurrence.event_name}")
        except NotFound:
            await self._client.post(path, event(occurrence, moment))
            return
        counted = {"count": int(stored.get("count") or 1) + 1, "lastTimestamp": moment}
        await self._client.patch(f"{path}/{occurrence.event_name}", counted)


def event(occurrence: Occurrence, moment: str) -> JsonObject:
    """A core/v1 Event."""
    namespace = occurrence.namespace or "default"
    about = {"apiVersion": API_VERSION, "kind": occurrence.kind, "name": occurrence.name, "uid": occurrence.uid}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": occurrence.event_name, "namespace": namespace},
        "involvedObject": about | ({"namespace": occurrence.namespace} if occurrence.namespace else {}),
        "type": occurrence.type,
        "reason": occurrence.reason,
        "message": occurrence.message[:_MESSAGE_MAX],
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "reportingInstance": "",
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def _machine_path(name: str) -> str:
    return f"{_BASE}/{MACHINES}/{name}"


def _grant_path(namespace: str, name: str) -> str:
    return f"{_BASE}/namespaces/{namespace}/{GRANTS}/{name}"


def _body(kind: str, item: GpuMachine | RepoGpuGrant, rest: dict[str, Any]) -> JsonObject:
    meta = item.metadata
    metadata = {"name": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version}
    namespace = {"namespace": meta.namespace} if meta.namespace else {}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata | namespace, **rest}


def _finalizers(item: GpuMachine | RepoGpuGrant, finalizers: tuple[str, ...]) -> JsonObject:
    return {"metadata": {"resourceVersion": item.metadata.resource_version, "finalizers": list(finalizers)}}
