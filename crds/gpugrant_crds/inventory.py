"""The inventory: what hardware a machine has, as `renet setup` records it (design 7, R10).

Values only. The file's bytes are canonical (sorted keys, a newline at the end), so that equal machines give equal
files; `contentHash` covers all but `generatedAt`, so that a reader can tell a new detection from a new machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

SCHEMA = 1


class InventoryUnreadable(ValueError):
    """The bytes are no inventory; the message is one clause for a person."""


class Part(BaseModel):
    """camelCase in the file; what a newer version says more is not read."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class PciIds(Part):
    """Hexadecimal, four digits, lower case."""

    vendor: str
    device: str
    subsystem_vendor: str | None = None
    subsystem_device: str | None = None


class Health(Part):
    """Whether a card can be used. Reasons: Ok, NoDriver, NouveauDriver, PassedThrough, FellOffBus, NeedsReset,
    NvmlMismatch, NoDeviceNode, Excluded, Unknown."""

    state: Literal["ok", "unusable", "unknown"]
    reason: str
    text: str = ""


class Partition(Part):
    """A part of a card that is a device of its own: AMD's compute partition, a MIG device, a virtual function."""

    id: str
    """`nvidia:MIG-…`, else the card's id with `/p<n>`, `/gi<n>/ci<n>` or `/vf<address>`."""
    index: int
    """Its place among the card's."""
    name: str | None = None
    """A MIG device's profile."""
    render_node: str | None = None
    gi: int | None = None
    """MIG: the GPU instance."""
    ci: int | None = None
    """MIG: the compute instance in it."""


class Gpu(Part):
    """One physical card."""

    id: str
    """`nvidia:GPU-…`, `amd:<unique id>`, `pci:<address>`, `platform:<name>` or `wsl:dxg`: stable over reboots."""
    vendor: Literal["nvidia", "amd", "intel", "other"]
    name: str
    name_source: str
    """Where the name comes from: nvml, nvidia-smi, procfs, sysfs, amdgpu.ids, pci.ids, device-tree or fallback."""
    pci_address: str | None = None
    pci_ids: PciIds | None = None
    driver: str | None = None
    driver_version: str | None = None
    memory_bytes: int | None = None
    memory_source: str | None = None
    uuid: str | None = None
    serial: str | None = None
    index: int | None = None
    """NVML's; may change over reboots."""
    minor: int | None = None
    """N of /dev/nvidia<N>; may differ from the index."""
    card_node: str | None = None
    render_nodes: tuple[str, ...] = ()
    """Names such as renderD128, its partitions' included."""
    numa_node: int | None = None
    mig_mode: Literal["enabled", "disabled"] | None = None
    partitions: tuple[Partition, ...] = ()
    health: Health


class RenderNode(Part):
    """One /dev/dri/renderD<N>."""

    path: str
    driver: str | None = None
    pci_address: str | None = None
    platform_path: str | None = None
    """The platform device's name, where there is no PCI address."""
    by_path: str | None = None
    """The name below /dev/dri/by-path, which does not change with the order of probing."""
    gpu_id: str | None = None
    virtual: bool = False
    """No GPU stands behind it, or a hypervisor's only."""


class SpecFile(Part):
    """One file of the CDI folder."""

    path: str
    sha256: str
    kind: str | None = None
    cdi_version: str | None = None
    generator: str | None = None
    """renet or nvidia-ctk where setup wrote the file."""
    error: str | None = None


class CdiDevice(Part):
    """One qualified CDI name."""

    name: str
    usable: bool
    """It can be granted."""
    reason: str | None = None
    """Why not."""
    atoms: tuple[str, ...] = ()
    """The hardware that it stands for, such as `gpu/nvidia:GPU-…` (gpugrant_crds.atoms)."""


class CdiConflict(Part):
    """A name that stands in several files."""

    name: str
    files: tuple[str, ...]


class Cdi(Part):
    """The CDI folder after setup."""

    directories: tuple[str, ...] = ()
    files: tuple[SpecFile, ...] = ()
    devices: tuple[CdiDevice, ...] = ()
    conflicts: tuple[CdiConflict, ...] = ()


class RefreshUnit(Part):
    """The service that makes NVIDIA's spec anew after an installation, a driver change and a boot (R42)."""

    name: str
    output: str
    """The file that setup has told it to write."""


class Nvidia(Part):
    """NVIDIA's software on the machine."""

    module_version: str | None = None
    toolkit_version: str | None = None
    persistenced_socket: str | None = None
    """Of a running nvidia-persistenced (R44)."""
    refresh_unit: RefreshUnit | None = None


class Problem(Part):
    """Something that somebody should mend. `since` is RFC 3339: the first detection that saw it."""

    reason: str
    message: str
    since: str


class Inventory(Part):
    """The whole file."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    generated_at: str
    """RFC 3339, UTC: the last successful detection."""
    boot_id: str | None = None
    kernel: str | None = None
    hostname: str
    platform: Literal["native", "wsl"]
    fingerprint: str | None = None
    """Of the hardware and drivers when this detection began (gpugrant_crds.fingerprint)."""
    gpus: tuple[Gpu, ...] = ()
    render_nodes: tuple[RenderNode, ...] = ()
    cdi: Cdi = Cdi()
    nvidia: Nvidia = Nvidia()
    problems: tuple[Problem, ...] = ()

    @property
    def content_hash(self) -> str:
        """`sha256:<hex>` over the canonical JSON without generatedAt and the hash itself."""
        content = self._content()
        del content["generatedAt"]
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def hardware(self) -> Mapping[str, tuple[str, ...]]:
        """Every CDI name that can be granted → the atoms that it stands for."""
        return {device.name: device.atoms for device in self.cdi.devices if device.usable}

    @property
    def device_names(self) -> tuple[str, ...]:
        """Every CDI name that can be granted."""
        return tuple(device.name for device in self.cdi.devices if device.usable)

    def dump(self) -> str:
        """The file's text."""
        content = self._content() | {"contentHash": self.content_hash}
        return json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False) + "\n"

    def _content(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


SCHEMA_FILE = "inventory.schema.json"


def json_schema() -> str:
    """The published JSON Schema (2020-12) of the file, as text."""
    made = _Whole.model_json_schema(by_alias=True, mode="serialization")
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The inventory of a machine's GPUs: /etc/rediacc/gpu/inventory.json",
        **{key: value for key, value in made.items() if key != "title"},
    }
    return json.dumps(schema, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def parse(text: str | bytes) -> Inventory:
    """The inventory in a file's bytes; raises InventoryUnreadable."""
    try:
        return Inventory.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        said = first["msg"].lower()
        raise InventoryUnreadable(f"{place}: {said}" if place else said) from error


class _Whole(Inventory):
    """The whole file."""

    content_hash_: str = Field(alias="contentHash", pattern="^sha256:[0-9a-f]{64}$")
    """sha256 over everything but generatedAt and itself: equal machines have the same."""


def carry_since(problems: tuple[tuple[str, str], ...], previous: Inventory | None, now: str) -> tuple[Problem, ...]:
    """(reason, message) pairs as problems, sorted; one that was there before keeps its time."""
    known = {(p.reason, p.message): p.since for p in previous.problems} if previous is not None else {}
    return tuple(Problem(reason=r, message=m, since=known.get((r, m), now)) for r, m in sorted(set(problems)))
