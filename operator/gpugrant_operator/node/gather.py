"""Reads a machine: boot, PCI, DRM, KFD, NVIDIA's procfs, NVML or nvidia-smi, names (design 7, in this order).

Each step is bounded in time and none is fatal: what fails is a problem entry. Nothing is concluded here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gpugrant_operator.node import bounded, fingerprint
from gpugrant_operator.node.observed import Observed, PciFunction, ToolRun
from gpugrant_operator.node.sources import drm, host, kfd, nvidia, pci, tools, values
from gpugrant_operator.node.tree import Tree
from gpugrant_operator.node.vendors import pci as pci_ids

Progress = Callable[[str], None]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds. A healthy NVML or nvidia-smi answers in 1 to 5, with eight sleeping cards in 15."""

    smi: float = 20.0
    toolkit: float = 60.0
    install: float = 900.0
    """Of one call of a package manager: minutes over a slow line."""
    systemctl: float = 120.0
    """A restart of the refresh unit waits for nvidia-ctk."""
    lock: float = 150.0
    """A second setup waits for the first: longer than a run whose programs all time out."""
    read: float = 5.0
    """One step that reads files: a machine with 65 KFD nodes takes 0.1."""


@dataclass
class _Steps:
    """Runs readers within their time; one that takes longer costs what it would have read."""

    limit: float
    problems: list[tuple[str, str]] = field(default_factory=list)

    def read(self, what: str, call: Callable[[], T]) -> T | None:
        """None: it took too long."""
        try:
            return bounded.within(self.limit, call)
        except TimeoutError:
            self.problems.append(("DetectionTimeout", f"reading {what} did not end in {self.limit:g} s"))
            return None


def gather(tree: Tree, env: Mapping[str, str], limits: Limits, progress: Progress) -> Observed:
    """All that detection looks at; `env` is given to the tree's programs."""
    steps = _Steps(limits.read)
    # first: what changes while it is looked at is then seen as a change
    taken = steps.read("the fingerprint", lambda: fingerprint.take(tree))
    progress("looking at PCI, DRM and KFD")
    platform = host.platform(tree)
    functions, unread = steps.read(f"/{pci.BASE}", lambda: pci.functions(tree)) or ((), True)
    drm_nodes = steps.read(f"/{drm.BASE}", lambda: drm.nodes(tree)) or ()
    kfd_nodes = steps.read(f"/{kfd.TOPOLOGY}", lambda: kfd.nodes(tree)) or ()
    proc_cards = steps.read(f"/{nvidia.CARDS}", lambda: nvidia.cards(tree)) or ()
    instances = steps.read(f"/{nvidia.CAPABILITIES}", lambda: nvidia.instances(tree)) or {}
    wsl_driver = platform == "wsl" and host.wsl_driver(tree)
    tool: ToolRun | None = None
    if wsl_driver or proc_cards or any(map(_has_nvidia_driver, functions)):
        progress("asking NVML or nvidia-smi")
        tool = tools.ask(tree, env, limits.smi)
    drivers = {function.driver for function in functions} | {node.driver for node in drm_nodes}
    seen = Observed(
        hostname=host.hostname(tree),
        boot_id=host.boot_id(tree),
        kernel=host.kernel(tree),
        platform=platform,
        pci=functions,
        pci_unread=unread,
        drm=drm_nodes,
        by_path=drm.by_path(tree),
        device_nodes=host.device_nodes(tree),
        kfd=kfd_nodes,
        kfd_there=kfd.is_there(tree),
        proc_cards=proc_cards,
        caps=nvidia.caps(tree),
        instances=instances,
        tool=tool,
        wsl_driver=wsl_driver,
        tegra=host.tegra(tree),
        nvidia_module=nvidia.module_version(tree),
        module_versions={
            name: text for name in sorted(filter(None, drivers)) if (text := _driver_version(tree, name)) is not None
        },
        pci_names=pci.names(tree, functions),
        amd_names=pci.amd_names(tree, functions),
        fingerprint=taken,
    )
    faults = (("ProbeFailed", fault) for fault in tree.faults)
    unreached = host.wsl_fault(tree, seen.kernel)
    lost = (("NoDeviceNode", unreached),) if unreached is not None else ()
    return replace(seen, problems=(*steps.problems, *faults, *lost))


def _has_nvidia_driver(function: PciFunction) -> bool:
    return function.vendor == pci_ids.NVIDIA and function.driver == "nvidia"


def _driver_version(tree: Tree, name: str) -> str | None:
    return values.read(
        tree,
        f"sys/module/{name}/version",
        lambda text: text[:64] if re.fullmatch(r"[!-~]+", text) else None,
        "a version",
    )
