"""What the operator sends to a gate and what the gate says (design 6): shapes, digest, fencing. Values only.

A snapshot is complete and idempotent: a lost, doubled or reordered push changes nothing in the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from gpugrant_crds import timestamps
from gpugrant_crds.names import DEVICE_NAME, REPO_ID, REPO_NAME
from gpugrant_crds.reasons import Reason

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


def _moment(value: object) -> datetime:
    """Of RFC 3339 text or a time; a number could be seconds or milliseconds, so it is neither."""
    if isinstance(value, str):
        return timestamps.read(value)
    if isinstance(value, datetime):
        return timestamps.in_utc(value)
    raise ValueError("a time must be RFC 3339 text")


Moment = Annotated[datetime, BeforeValidator(_moment)]


class Wire(BaseModel):
    """camelCase on the wire, unknown fields refused: a field that this version doesn't know could be a restriction."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Lenient(Wire):
    """Answers: a newer gate may say more than this version reads."""

    model_config = ConfigDict(extra="ignore")


class GrantRef(Wire):
    namespace: str
    name: str
    uid: str


class SnapshotGrant(Wire):
    """One repo may use one device. `expires_at` is RFC 3339, UTC."""

    repo: Annotated[str, StringConstraints(pattern=rf"^{REPO_NAME}$")]
    repo_id: Annotated[str, StringConstraints(pattern=rf"^{REPO_ID}$")]
    device: Annotated[str, StringConstraints(pattern=rf"^{DEVICE_NAME}$")]
    expires_at: Moment | None = None
    grant: GrantRef

    def in_force(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at

    def to_json(self) -> dict[str, Any]:
        data = super().to_json()
        if self.expires_at is not None:
            data["expiresAt"] = timestamps.write(self.expires_at)
        return data


class SnapshotPolicy(Wire):
    """What the machine's owner wants of its gate."""

    revocation: Literal["Retain", "Stop"] = "Retain"
    """What becomes of running containers that use a device which is taken away."""
    max_snapshot_age: Annotated[int, Field(gt=0)] | None = None
    """Seconds since its receipt after which the snapshot gives no hardware any more; absent: it never gets too old."""


class Snapshot(Wire):
    """All that one gate enforces. `digest` covers everything but `epoch`, `supersedes` and `issued_at`."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    api_id: str = Field(min_length=1)
    machine: str = Field(min_length=1)
    machine_uid: str = Field(min_length=1)
    epoch: int = Field(ge=0)
    supersedes: str | None = None
    """The uid of the machine whose snapshot it takes the place of: that one is gone, or somebody said so."""
    issued_at: Moment
    policy: SnapshotPolicy | None = None
    """Absent: all defaults, so that a snapshot without wishes is the same for every version."""
    grants: tuple[SnapshotGrant, ...]
    digest: Digest

    @property
    def stops(self) -> bool:
        """Running containers that use a device which is taken away are stopped."""
        return self.policy is not None and self.policy.revocation == "Stop"

    def to_json(self) -> dict[str, Any]:
        data = super().to_json()
        data["issuedAt"] = timestamps.write(self.issued_at)
        data["grants"] = [grant.to_json() for grant in self.grants]
        return data

    def granted(self, repo: str, repo_id: str, now: datetime) -> frozenset[str]:
        """The names in force for the repo of that name and id; a repo with another id gets nothing (R9)."""
        if not repo_id:
            return frozenset()
        return frozenset(
            grant.device
            for grant in self.grants
            if grant.repo == repo and grant.repo_id == repo_id and grant.in_force(now)
        )


def digest(
    api_id: str,
    machine: str,
    machine_uid: str,
    grants: tuple[SnapshotGrant, ...],
    policy: SnapshotPolicy | None = None,
) -> str:
    """`sha256:<hex>` over the canonical JSON (sorted keys, no blanks, grants in their total order)."""
    body: dict[str, Any] = {
        "schema": 1,
        "apiId": api_id,
        "machine": machine,
        "machineUid": machine_uid,
        "grants": [grant.to_json() for grant in grants],
    }
    if policy is not None:
        body["policy"] = policy.to_json()
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def build(
    *,
    api_id: str,
    machine: str,
    machine_uid: str,
    epoch: int,
    issued_at: datetime,
    grants: tuple[SnapshotGrant, ...],
    policy: SnapshotPolicy | None = None,
    supersedes: str | None = None,
) -> Snapshot:
    """A snapshot with its grants in order and its digest."""
    in_order = ordered(grants)
    return Snapshot(
        api_id=api_id,
        machine=machine,
        machine_uid=machine_uid,
        epoch=epoch,
        supersedes=supersedes,
        issued_at=issued_at,
        policy=policy,
        grants=in_order,
        digest=digest(api_id, machine, machine_uid, in_order, policy),
    )


def ordered(grants: Iterable[SnapshotGrant]) -> tuple[SnapshotGrant, ...]:
    """The grants in their total order."""
    return tuple(sorted(grants, key=_order))


def _order(grant: SnapshotGrant) -> tuple[str, ...]:
    return (grant.device, grant.repo, grant.repo_id, grant.grant.namespace, grant.grant.name, grant.grant.uid)


def sound(snapshot: Snapshot) -> bool:
    """Whether the digest is that of the contents: a torn or edited file is not."""
    its = snapshot
    return its.digest == digest(its.api_id, its.machine, its.machine_uid, its.grants, its.policy)


def fence(current: Snapshot | None, retired: tuple[str, ...], incoming: Snapshot) -> Reason | None:
    """Why a gate that holds `current` must not take `incoming`; None: it may (design 4).

    `retired` are the uids of machines that this gate served before: a paused operator that still speaks for one
    can't bring its grants back. A machine whose last snapshot is empty gives way to another of the same API; any other
    one only to a snapshot that says whose place it takes.
    """
    if current is None:
        return Reason.OTHER_MACHINE if incoming.machine_uid in retired else None
    if incoming.machine_uid != current.machine_uid:
        free = not current.grants and incoming.api_id == current.api_id
        free = free or incoming.supersedes == current.machine_uid
        return None if free and incoming.machine_uid not in retired else Reason.OTHER_MACHINE
    if incoming.api_id != current.api_id:
        return None if incoming.supersedes == current.machine_uid else Reason.OTHER_MACHINE
    if incoming.epoch < current.epoch:
        return Reason.STALE_EPOCH
    if incoming.epoch == current.epoch and incoming.digest != current.digest:
        return Reason.EPOCH_REUSED
    return None


class ClockMark(Wire):
    """A moment by a gate's clock, to go on from: whatever the wall clock says later, it is not before that."""

    wall: float
    """Seconds since the epoch."""
    boottime: float
    """CLOCK_BOOTTIME at that moment; seconds."""
    boot_id: str
    """The boot that it counts from."""


class StoredSnapshot(Wire):
    """The gate's file: the snapshot in force, when it came, how late it is at least, and the machines served before."""

    snapshot: Snapshot
    received: float | None = None
    """By the gate's clock, in seconds since the epoch."""
    clock: ClockMark | None = None
    retired: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"snapshot": self.snapshot.to_json()}


class RepoStatus(Lenient):
    """A repo as its gate sees it."""

    name: str
    id: str = ""
    """Empty: it has none, or its name or id occurs twice; it gets no hardware."""
    fit: bool = False
    sealed: bool = False
    reason: str = ""
    """A Reason when not fit, or a warning (RawSocketReachable)."""
    message: str = ""
    unseen: bool = False
    """Its containers were not looked at yet: what they use is not known."""
    down_since: datetime | None = None
    """Its daemon has not answered since then; absent: it answers, or was not asked yet."""
    released: bool = False
    """Its daemon is not there, was sealed and without live-restore when it last was, and has left no container running:
    nothing of it holds a device that its sealed folder has not."""


class Pending(Lenient):
    """What still stands against an answer: a hardware request that was judged under an older epoch and has not ended,
    or containers that were not brought to their end yet."""

    repo: str
    device: str
    since: datetime
    reason: str = ""
    """RevokeStuck: a container survives being killed."""
    message: str = ""


class GrantInForce(Lenient):
    repo: str
    device: str


class InUse(Lenient):
    """A running container that holds a device."""

    repo: str
    device: str
    container: str
    """Full id."""
    name: str = ""


class Case(Lenient):
    """One thing that the sweep found or did."""

    reason: str
    """UngrantedDeviceInUse, RestartPolicyRemoved, ContainerStopped, ContainerStarted or RevokeStuck."""
    repo: str
    container: str
    """Full id."""
    name: str = ""
    devices: tuple[str, ...] = ()
    message: str
    time: datetime


class SnapshotAnswer(Lenient):
    """200 of `PUT /v1/snapshot`."""

    epoch: int
    applied_at: datetime
    repos: tuple[RepoStatus, ...] = ()
    pending: tuple[Pending, ...] = ()
    running: tuple[InUse, ...] = ()
    """As in the status."""


class WorkerStatus(Lenient):
    """One process of the gate, and how often it had to be replaced since the gate started."""

    number: int
    pid: int = 0
    """0: it is being started."""
    repos: tuple[str, ...] = ()
    died: int = 0
    hung: int = 0


class GateStatus(Lenient):
    """`GET /v1/status`. `epoch` -1 and empty uids: no snapshot is held, all hardware is refused."""

    machine: str = ""
    machine_uid: str = ""
    api_id: str = ""
    epoch: int = -1
    digest: str = ""
    applied_at: datetime | None = None
    grants: tuple[GrantInForce, ...] = ()
    repos: tuple[RepoStatus, ...] = ()
    pending: tuple[Pending, ...] = ()
    in_use: tuple[InUse, ...] | None = None
    """Only with `?inUse=1`; None: not asked."""
    running: tuple[InUse, ...] = ()
    """The containers that hold devices, as each repo's daemon was last looked at."""
    cases: tuple[Case, ...] = ()
    """The latest that the sweep found, oldest first."""
    inventory_hash: str = ""
    fingerprint: str = ""
    """Of this machine's hardware and drivers, at most a minute old (gpugrant_crds.fingerprint)."""
    workers: tuple[WorkerStatus, ...] = ()
    problems: tuple[str, ...] = ()
    """Sentences: broken files in repos.d, an unreadable snapshot."""


class DevicesAnswer(Lenient):
    """`GET /v1/devices`: the usable names of the specs as they are now, sorted, and what is wrong with the others."""

    devices: tuple[str, ...]
    problems: tuple[str, ...] = ()


class ErrorAnswer(Lenient):
    """Every answer of the control socket that is no 2xx."""

    reason: str
    message: str
