"""What was read of a machine, before anything is concluded from it. Frozen values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpugrant_operator.node.vendors.amd import KfdNode
from gpugrant_operator.node.vendors.nvidia import ProcCard, SmiAnswer


@dataclass(frozen=True, slots=True)
class PciFunction:
    """A folder of /sys/bus/pci/devices. Ids are four hexadecimal digits, `class_code` six."""

    address: str
    vendor: str
    device: str
    class_code: str
    subsystem_vendor: str | None = None
    subsystem_device: str | None = None
    revision: str | None = None
    driver: str | None = None
    drm: tuple[str, ...] = ()
    numa_node: int | None = None
    vram_bytes: int | None = None
    product_name: str | None = None
    serial: str | None = None
    unique_id: str | None = None


@dataclass(frozen=True, slots=True)
class DrmNode:
    """A `card<N>` or `renderD<N>` of /sys/class/drm."""

    name: str
    parent: str | None
    """The device's folder name: a PCI address, or a platform device's name."""
    driver: str | None


@dataclass(frozen=True, slots=True)
class SmiRun:
    """What nvidia-smi said. `failure`: one clause where it gave no answer."""

    answer: SmiAnswer | None
    failure: str | None = None
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    hostname: str
    boot_id: str | None
    kernel: str | None
    platform: Literal["native", "wsl"]
    pci: tuple[PciFunction, ...] = ()
    drm: tuple[DrmNode, ...] = ()
    by_path: Mapping[str, str] = field(default_factory=dict)
    """Node name → its name below /dev/dri/by-path."""
    device_nodes: frozenset[str] = frozenset()
    """Paths below /dev that are there, such as `dri/renderD128`, `kfd`, `nvidia0`."""
    kfd: tuple[KfdNode, ...] = ()
    proc_cards: tuple[ProcCard, ...] = ()
    smi: SmiRun | None = None
    """None: there is no nvidia-smi, or no card to ask it about."""
    wsl_driver: bool = False
    """On WSL: the driver store holds NVIDIA's libcuda."""
    nvidia_module: str | None = None
    module_versions: Mapping[str, str] = field(default_factory=dict)
    """Driver → /sys/module/<driver>/version, where there is one."""
    pci_names: Mapping[tuple[str, str], str] = field(default_factory=dict)
    amd_names: Mapping[tuple[str, str], str] = field(default_factory=dict)
    problems: tuple[tuple[str, str], ...] = ()
    """(reason, message)."""
