"""`rediacc.io/dri` and `rediacc.io/amd` as CDI specs (R15, R16, R18; reference cdi-gpu 7.4). Pure.

One owner a kind, one file a kind; device files only, by path and without numbers; equal input gives equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpugrant_crds import cdi
from gpugrant_crds.cdi import Device, DeviceNode, Edits, Spec
from gpugrant_operator.node.cards import AmdDevice

DRI_FILE, DRI_KIND = "rediacc-dri.yaml", "rediacc.io/dri"
AMD_FILE, AMD_KIND = "rediacc-amd.yaml", "rediacc.io/amd"
NVIDIA_FILE, NVIDIA_KIND = "nvidia.yaml", "nvidia.com/gpu"

Locate = Callable[[str], str]
"""A path below /dev to where the node lies on this machine; the same path where nothing is moved."""


def dri(render_nodes: Iterable[str], locate: Locate) -> Spec | None:
    """One device a render node (`renderD128`); None when there is none: an empty spec is an error."""
    names = sorted(set(render_nodes), key=cdi.natural)
    return _spec(DRI_FILE, DRI_KIND, [_device(name, [f"/dev/dri/{name}"], locate) for name in names])


def amd(devices: Iterable[AmdDevice], locate: Locate) -> Spec | None:
    """`gpu<N>` and `all`; each holds /dev/kfd too, so that it is complete on its own."""
    cards = list(devices)
    if not cards:
        return None
    singles = [_device(card.name, ["/dev/kfd", f"/dev/dri/{card.render_node}"], locate) for card in cards]
    every = _device("all", ["/dev/kfd", *(f"/dev/dri/{card.render_node}" for card in cards)], locate)
    return _spec(AMD_FILE, AMD_KIND, [*singles, every])


def _device(name: str, paths: list[str], locate: Locate) -> Device:
    nodes = tuple(_node(path, locate(path)) for path in paths)
    return Device(name, Edits(device_nodes=nodes))


def _node(path: str, source: str) -> DeviceNode:
    return DeviceNode(path) if source == path else DeviceNode(path, host_path=source)


def _spec(filename: str, kind: str, devices: list[Device]) -> Spec | None:
    if not devices:
        return None
    spec = Spec(filename, "0.3.0", kind, tuple(devices))
    # the lowest version that may be declared: Docker 25 reads nothing above 0.6.0
    return Spec(filename, cdi.minimum_version(spec), kind, tuple(devices))
