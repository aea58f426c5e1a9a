"""What was read of a machine, before anything is concluded from it. Frozen values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpugrant_operator.node.vendors.amd import KfdNode
from gpugrant_operator.node.vendors.nvidia import Answer, Cap, ProcCard


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
    physical: str | None = None
    """Of a virtual function (SR-IOV): the address of the card that it is a part of."""


@dataclass(frozen=True, slots=True)
class DrmNode:
    """A `card<N>` or `renderD<N>` of /sys/class/drm."""

    name: str
    parent: str | None
    """The device's folder name: a PCI address, or a platform device's name."""
    driver: str | None
    compatible: str | None = None
    """A platform device's first OF_COMPATIBLE, such as `nvidia,ga10b`."""


@dataclass(frozen=True, slots=True)
class Tegra:
    """A Jetson: its GPU is no PCI function."""

    gpu: str
    """The platform device's name."""
    model: str | None
    """The board's, of the device tree."""
    release: str | None
    """Of Jetson Linux, such as 36.4.3."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What NVML or nvidia-smi said. `failure`: one clause where it gave no answer."""

    answer: Answer | None
    failure: str | None = None
    timed_out: bool = False
    source: Literal["NVML", "nvidia-smi"] = "nvidia-smi"
    notes: tuple[str, ...] = ()
    """What went wrong before there was an answer."""


@dataclass(frozen=True, slots=True)
class Observed:
    hostname: str
    boot_id: str | None
    kernel: str | None
    platform: Literal["native", "wsl"]
    pci: tuple[PciFunction, ...] = ()
    pci_unread: bool = False
    """A PCI function could not be read: there may be a card that is not known."""
    drm: tuple[DrmNode, ...] = ()
    by_path: Mapping[str, str] = field(default_factory=dict)
    """Node name → its name below /dev/dri/by-path."""
    device_nodes: frozenset[str] = frozenset()
    """Paths below /dev that are there, such as `dri/renderD128`, `kfd`, `nvidia0`."""
    kfd: tuple[KfdNode, ...] = ()
    kfd_there: bool = False
    """The kernel has KFD's topology, with or without a GPU in it."""
    proc_cards: tuple[ProcCard, ...] = ()
    caps: tuple[Cap, ...] = ()
    """What each /dev/nvidia-caps/nvidia-cap<N> gives."""
    instances: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Minor of an NVIDIA card → its MIG instances as procfs has them, (GI, CI)."""
    tool: ToolRun | None = None
    """None: there is neither NVML nor nvidia-smi, or no card to ask about."""
    wsl_driver: bool = False
    """On WSL: the driver store holds NVIDIA's libcuda."""
    tegra: Tegra | None = None
    nvidia_module: str | None = None
    module_versions: Mapping[str, str] = field(default_factory=dict)
    """Driver → /sys/module/<driver>/version, where there is one."""
    pci_names: Mapping[tuple[str, str], str] = field(default_factory=dict)
    amd_names: Mapping[tuple[str, str], str] = field(default_factory=dict)
    fingerprint: str | None = None
    """Of the machine before anything was asked (gpugrant_crds.fingerprint)."""
    problems: tuple[tuple[str, str], ...] = ()
    """(reason, message)."""
