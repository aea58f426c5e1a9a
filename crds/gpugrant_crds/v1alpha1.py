"""The resources of `gpu.rediacc.io/v1alpha1`; the CRDs are generated from these models (`gpugrant_crds.schema`).

Docstrings of fields are what `kubectl explain` prints. A spec has no defaults in its schema (GitOps tools would show
drift): an absent field means what its text says, and the code reads it so.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from gpugrant_crds import timestamps
from gpugrant_crds.names import DEVICE_NAME, DNS_SUBDOMAIN, REPO_ID, REPO_NAME

GROUP = "gpu.rediacc.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
FINALIZER = f"{GROUP}/enforced"
"""On grants and machines: held until the gate has answered for what was taken away (design 2.5)."""
DETECT_ANNOTATION = f"{GROUP}/detect"
"""On a GpuMachine: a new value asks for a detection; `status.detection.request` repeats it when that has ended."""
FORCE_RELEASE_ANNOTATION = f"{GROUP}/force-release"
"""On a GpuMachine: its own uid drops it without the gate's answer (design 2.5)."""
TAKE_OVER_ANNOTATION = f"{GROUP}/take-over"
"""On a GpuMachine: the uid of the machine whose gate it takes over, where that one is of another API or still there."""

REBIND_ANNOTATION = f"{GROUP}/rebind"
"""On a RepoGpuGrant: a new value binds it to the hardware that its name stands for now (R47)."""

Text = Annotated[str, StringConstraints(max_length=4096)]


def _stated(pattern: str, length: int) -> Any:
    """A text whose rule stands in the CRD; read leniently, so that `decide` can say what is wrong with a stored one."""
    return Field(json_schema_extra={"pattern": f"^{pattern}$", "minLength": 1, "maxLength": length})


Repo = Annotated[str, _stated(REPO_NAME, 63)]
RepoId = Annotated[str, _stated(REPO_ID, 128)]
Device = Annotated[str, _stated(DEVICE_NAME, 512)]
MachineName = Annotated[str, _stated(DNS_SUBDOMAIN, 253)]
GoDuration = Annotated[str, StringConstraints(pattern=r"^([0-9]+(s|m|h))+$", max_length=32)]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class Model(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )

    def to_json(self) -> dict[str, Any]:
        """As it stands in the API: camelCase, nothing that is absent."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Condition(Model):
    """One observation, as metav1.Condition."""

    type: Annotated[str, StringConstraints(max_length=316)]
    """What is observed, for example Ready."""
    status: Literal["True", "False", "Unknown"]
    """Whether it is so."""
    reason: Annotated[str, StringConstraints(pattern=r"^[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?$", max_length=1024)]
    """Why, as one CamelCase word."""
    message: Annotated[str, StringConstraints(max_length=32768)]
    """Why, for a person."""
    observed_generation: int | None = None
    """The generation that this was observed of."""
    last_transition_time: Time
    """When the status last changed."""


class Toolkit(Model):
    """The NVIDIA Container Toolkit on this machine."""

    install: Literal["Auto", "Always", "Never"] | None = None
    """Auto (also when absent): generate NVIDIA's spec when an NVIDIA GPU is present. Always: in any case.
    Never: leave all of NVIDIA's alone."""


class Detection(Model):
    """When the machine's GPUs are looked for."""

    interval: GoDuration | None = None
    """Look again after this time even if nothing changed, for example 30m; absent: 1h."""


class GateWishes(Model):
    """What the machine's gate and the operator do when one of them is silent."""

    release_timeout: GoDuration | None = None
    """How long an exclusive device is kept from others while the daemon of a repo that may hold it does not answer;
    absent: 10m. It then counts as free, with the reason ReleaseUnverified."""
    max_snapshot_age: GoDuration | None = None
    """How long the gate lets hardware in without hearing from the operator; absent: without an end."""


class GpuMachineSpec(Model):
    """What is wanted of a machine."""

    node_name: MachineName | None = None
    """The node that this machine is; absent: the object's own name. Can't be added, changed or removed."""
    toolkit: Toolkit | None = None
    """The NVIDIA Container Toolkit on this machine."""
    revocation: Literal["Retain", "Stop"] | None = None
    """What becomes of a running container whose device is taken away. Retain (also when absent): it goes on running
    and can't be started again. Stop: it is stopped."""
    detection: Detection | None = None
    """When the machine's GPUs are looked for."""
    gate: GateWishes | None = None
    """What happens when the gate, a daemon or the operator is silent."""


class GpuStatus(Model):
    """One physical card."""

    id: Text
    """Its identity, stable over reboots."""
    vendor: Text
    """nvidia, amd, intel or other."""
    name: Text
    """The product's name."""
    pci_address: Text | None = None
    """Where it is now."""
    driver: Text | None = None
    """The kernel driver that holds it."""
    driver_version: Text | None = None
    """That driver's version."""
    memory_bytes: int | None = None
    """Its own memory; absent: unknown."""


class DeviceStatus(Model):
    """One CDI device that can be granted."""

    name: Text
    """The qualified CDI name."""
    hardware: tuple[Text, ...] | None = None
    """The hardware that it stands for, for example gpu/nvidia:GPU-...; names that share some share a card. Absent:
    unknown."""


class SpecStatus(Model):
    """One CDI spec file of the machine."""

    file: Text
    """The file's name in the CDI folder."""
    kind: Text | None = None
    """vendor/class of its devices; absent: it can't be read."""
    hash: Text | None = None
    """sha256 of its bytes."""


class Problem(Model):
    """Something on the machine that somebody should mend."""

    reason: Text
    """Why, as one CamelCase word."""
    message: Text
    """What is wrong and what to do."""


class HeldGrant(Model):
    """A grant as the ledger remembers it."""

    namespace: Text
    """The grant's namespace."""
    name: Text
    """The grant's name."""
    uid: Text
    """The grant's uid: an object of the same name made anew is another grant."""
    exclusive: bool = False
    """It reserves the device for its repo."""
    waits: bool = False
    """It is not in force yet: a container of another repo still runs with the device."""
    expires_at: Time | None = None
    """It ends then."""
    hardware: Text | None = None
    """The hardware that the name stood for when it was accepted, or bound again; absent: unknown, or a name for a
    set such as all, which never counts as moved."""
    rebound: Text | None = None
    """The value of the annotation gpu.rediacc.io/rebind that was answered last."""


class Holder(Model):
    """A repo that holds the device."""

    repo: Text
    """The repo's name."""
    repo_id: Text
    """The repo's id when it was accepted."""
    grants: tuple[HeldGrant, ...] = ()
    """Its grants of this device, by namespace and name."""


class Debt(Model):
    """A repo that lost the device; nobody else gets what would exclude it until the gate has answered."""

    repo: Text
    """The repo's name."""
    repo_id: Text
    """The repo's id."""
    epoch: int
    """The first epoch without it: the gate has to answer this one or a later one."""
    exclusive: bool = False
    """It held the device exclusively."""
    uids: tuple[Text, ...] = ()
    """The grants that ended."""


class Allocation(Model):
    """Who holds one device name; an entry of the ledger."""

    device: Text
    """The qualified CDI name."""
    state: Literal["Held", "Releasing"] = "Held"
    """Releasing: taken from a repo, and the gate has not answered yet."""
    repos: tuple[Holder, ...] = ()
    """Those that hold it."""
    releasing: tuple[Debt, ...] = ()
    """Those that it is being taken from."""
    given_up: tuple[Text, ...] = ()
    """Repos whose containers may still hold it: somebody gave up waiting for them."""


class GateRepo(Model):
    """A repo as the machine's gate sees it."""

    name: Text
    """The repo's name."""
    id: Text | None = None
    """Its id; absent: it has none and gets no hardware."""
    fit: bool = False
    """Its daemon can be trusted with CDI devices."""
    sealed: bool = False
    """Its daemon sees only the specs of its granted devices."""
    reason: Text | None = None
    """Why it is not fit."""


class GateSync(Model):
    """What the machine's gate enforces."""

    epoch: int | None = None
    """The epoch of the snapshot that it last answered for."""
    repos: tuple[GateRepo, ...] = ()
    """The repos of this machine."""


class DetectionStatus(Model):
    """The last detection that ended."""

    request: Text | None = None
    """The value of the annotation gpu.rediacc.io/detect that it answered."""
    succeeded: bool | None = None
    """Whether it ended without an error."""


class GpuMachineStatus(Model):
    """What is there and what is enforced."""

    observed_generation: int = -1
    """The generation of the spec that this status is of; -1: not looked at yet."""
    platform: Text | None = None
    """native or wsl."""
    model: Text | None = None
    """The cards in short, for example 2 x NVIDIA L40S."""
    driver_version: Text | None = None
    """The version of the cards' driver; several: NVIDIA's, else the first card's."""
    gpu_count: int | None = None
    """Physical cards."""
    device_count: int | None = None
    """CDI names that can be granted."""
    grant_count: int | None = None
    """Grants in the ledger."""
    gpus: tuple[GpuStatus, ...] | None = None
    """The physical cards."""
    devices: tuple[DeviceStatus, ...] | None = None
    """Every CDI device that can be granted; absent: never detected."""
    specs: tuple[SpecStatus, ...] | None = None
    """The CDI spec files."""
    problems: tuple[Problem, ...] | None = None
    """What somebody should mend."""
    inventory_time: Time | None = None
    """When the inventory was made."""
    inventory_hash: Text | None = None
    """contentHash of the inventory."""
    boot_id: Text | None = None
    """The boot that the inventory is of."""
    detection: DetectionStatus | None = None
    """The last detection that ended."""
    allocations: tuple[Allocation, ...] = ()
    """The ledger: who holds which device. It alone decides what the gate enforces."""
    ledger_epoch: int = 0
    """Rises by one with each change of what the gate has to enforce."""
    revocation: Literal["Retain", "Stop"] | None = None
    """What the gate was told to do with running containers whose device is taken away."""
    max_snapshot_age: Text | None = None
    """What the gate was told of how long it lets hardware in without hearing from the operator."""
    gate: GateSync | None = None
    """What the gate enforces."""
    conditions: tuple[Condition, ...] = ()
    """Detected, SpecsCurrent, GateSynced, Ready, Reconciling, Stalled."""


class RepoGpuGrantSpec(Model):
    """One device, for one repo, on one machine."""

    machine: MachineName
    """The GpuMachine's name. Can't be changed."""
    repo: Repo
    """The repo's name. Can't be changed."""
    device: Device
    """Exactly one qualified CDI name, vendor/class=name; nvidia.com/gpu=all does not include nvidia.com/gpu=0.
    Can't be changed."""
    exclusive: bool | None = None
    """Reserve this name for the repo; absent: false."""
    repo_id: RepoId | None = None
    """The repo's own id; absent: the id that the machine's gate reports when the grant is accepted.
    Can't be changed."""
    expires_at: Time | None = None
    """The grant ends at this RFC 3339 time; absent: it doesn't end by itself."""

    def expiry(self) -> datetime | None:
        """When it ends; raises ValueError for a text that is no RFC 3339 time."""
        return None if self.expires_at is None else timestamps.read(self.expires_at)


class RepoGpuGrantStatus(Model):
    """What became of the grant."""

    observed_generation: int = -1
    """The generation of the spec that this status is of; -1: not looked at yet."""
    accepted_at: Time | None = None
    """When the ledger took it in."""
    repo_id: Text | None = None
    """The id of the repo that it was accepted for; a repo of the same name with another id gets nothing."""
    hardware: tuple[Text, ...] | None = None
    """The hardware that the name stood for when it was accepted, or bound again; absent: unknown."""
    conditions: tuple[Condition, ...] = ()
    """Accepted, Programmed, Conflicted, Moved, Ready, Reconciling, Stalled. Moved is there while other hardware stands
    behind the name than when it was accepted."""


class Metadata(Model):
    """The part of ObjectMeta that we read."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    annotations: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)


class GpuMachine(Model):
    """A machine whose GPUs can be granted to repos."""

    metadata: Metadata
    spec: GpuMachineSpec = GpuMachineSpec()
    status: GpuMachineStatus = GpuMachineStatus()

    @property
    def node(self) -> str:
        return self.spec.node_name or self.metadata.name

    @property
    def device_names(self) -> tuple[str, ...] | None:
        """Every name that can be granted; None: never detected."""
        devices = self.status.devices
        return None if devices is None else tuple(device.name for device in devices)

    @property
    def hardware(self) -> dict[str, tuple[str, ...]]:
        """Every name that can be granted and whose hardware is known → the atoms that it stands for now."""
        return {device.name: device.hardware for device in self.status.devices or () if device.hardware is not None}


class RepoGpuGrant(Model):
    """Lets one repo use one CDI device of one machine."""

    metadata: Metadata
    spec: RepoGpuGrantSpec
    status: RepoGpuGrantStatus = RepoGpuGrantStatus()

    @property
    def ref(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"
