"""Builders of resources for tests: every value that a test doesn't name is fixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from gpugrant_crds import snapshot, timestamps
from gpugrant_crds.decide import Decision, verdicts
from gpugrant_crds.v1alpha1 import Condition, GpuMachine, GpuMachineStatus, RepoGpuGrant

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
MACHINE = "wsl-gpu"
DEVICES = ("nvidia.com/gpu=0", "nvidia.com/gpu=all", "rediacc.io/dri=renderD128")
REPOS = {"gpu-a": "id-a", "gpu-b": "id-b", "gpu-c": "id-c"}


def machine(
    *,
    name: str = MACHINE,
    uid: str = "machine-1",
    devices: Iterable[str] | None = DEVICES,
    hardware: Mapping[str, tuple[str, ...]] | None = None,
    annotations: Mapping[str, str] | None = None,
    deleted: datetime | None = None,
    **status: Any,
) -> GpuMachine:
    """A detected machine; `devices=None`: never detected. `hardware`: what devices stand for, where it is known."""
    stands_for = hardware or {}
    shown = None
    if devices is not None:
        shown = tuple(
            {"name": device, "hardware": stands_for.get(device)} for device in {**stands_for, **dict.fromkeys(devices)}
        )
    return GpuMachine.model_validate(
        {
            "metadata": {
                "name": name,
                "uid": uid,
                "annotations": dict(annotations or {}),
                "deletionTimestamp": None if deleted is None else timestamps.write(deleted),
            },
            "spec": {},
            "status": {"devices": shown, **status},
        }
    )


def grant(
    repo: str = "gpu-a",
    device: str = "nvidia.com/gpu=all",
    *,
    name: str | None = None,
    namespace: str = "default",
    uid: str | None = None,
    machine: str = MACHINE,
    exclusive: bool | None = None,
    repo_id: str | None = None,
    expires: datetime | None = None,
    created: datetime = NOW - timedelta(hours=1),
    deleted: datetime | None = None,
    annotations: Mapping[str, str] | None = None,
    status_repo_id: str | None = None,
    not_ready_since: datetime | None = None,
) -> RepoGpuGrant:
    """A stored grant."""
    name = name or f"{repo}-{device.rpartition('=')[2].lower()}"
    ready = () if not_ready_since is None else (not_ready(not_ready_since).to_json(),)
    return RepoGpuGrant.model_validate(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid or f"{namespace}-{name}",
                "creationTimestamp": timestamps.write(created),
                "deletionTimestamp": None if deleted is None else timestamps.write(deleted),
                "annotations": dict(annotations or {}),
            },
            "spec": {
                "machine": machine,
                "repo": repo,
                "device": device,
                "exclusive": exclusive,
                "repoId": repo_id,
                "expiresAt": None if expires is None else timestamps.write(expires),
            },
            "status": {"repoId": status_repo_id, "conditions": ready},
        }
    )


def not_ready(since: datetime) -> Condition:
    return Condition(
        type="Ready",
        status="False",
        reason="DeviceNotFound",
        message="",
        last_transition_time=timestamps.write(since),
    )


def gate(
    epoch: int = 0,
    *,
    machine_uid: str = "machine-1",
    repos: Mapping[str, str] | None = None,
    pending: Iterable[tuple[str, str]] = (),
    unfit: Mapping[str, str] | None = None,
    unsealed: Iterable[str] = (),
) -> snapshot.GateStatus:
    """A gate's report: `repos` by name to id; `unfit` by name to reason."""
    unfit = unfit or {}
    return snapshot.GateStatus(
        machine=MACHINE,
        machine_uid=machine_uid,
        api_id="api-1",
        epoch=epoch,
        repos=tuple(
            snapshot.RepoStatus(
                name=name,
                id=repo_id,
                fit=name not in unfit,
                sealed=name not in unsealed,
                reason=unfit.get(name, ""),
                message="the daemon has CDI off" if name in unfit else "",
            )
            for name, repo_id in (REPOS if repos is None else repos).items()
        ),
        pending=tuple(snapshot.Pending(repo=repo, device=device, since=NOW) for repo, device in pending),
    )


def answering(machine: GpuMachine, gate: snapshot.GateStatus | None) -> snapshot.GateStatus | None:
    """The report with the digest of this machine's ledger, where it is of the ledger's epoch."""
    if gate is None or gate.epoch != machine.status.ledger_epoch:
        return gate
    grants = snapshot.ordered(ledger_grants(machine))
    policy = verdicts.policy(machine.status.revocation, machine.status.max_snapshot_age)
    digest = snapshot.digest(gate.api_id, machine.metadata.name, machine.metadata.uid, grants, policy)
    return gate.model_copy(update={"digest": digest})


def after(before: GpuMachine, decision: Decision) -> GpuMachine:
    """The machine as it is stored once the decision's ledger is written."""
    update = {
        "allocations": decision.allocations,
        "ledger_epoch": decision.epoch,
        "revocation": decision.revocation,
        "max_snapshot_age": decision.max_snapshot_age,
    }
    status = before.status.model_copy(update=update)
    return before.model_copy(update={"status": GpuMachineStatus.model_validate(status.to_json())})


def ledger_grants(machine: GpuMachine) -> tuple[snapshot.SnapshotGrant, ...]:
    """What a machine's stored ledger makes its gate enforce."""
    return tuple(
        snapshot.SnapshotGrant(
            repo=holder.repo,
            repo_id=holder.repo_id,
            device=allocation.device,
            expires_at=None if grant.expires_at is None else timestamps.read(grant.expires_at),
            grant=snapshot.GrantRef(namespace=grant.namespace, name=grant.name, uid=grant.uid),
        )
        for allocation in machine.status.allocations
        for holder in allocation.repos
        for grant in holder.grants
        if not grant.waits
    )
