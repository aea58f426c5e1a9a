"""The CDI library's own rules in its own order (pkg/cdi/spec.go, device.go, container-edits.go, version.go).

Each rule is a small function from values to what is wrong, or None; the first answer counts, as in the library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from gpugrant_crds.cdi.spec import (
    VERSIONS,
    Device,
    DeviceNode,
    Edits,
    Hook,
    IntelRdt,
    Mount,
    NetDevice,
    Problem,
    ProblemReason,
    Spec,
)

_HOOKS = frozenset(("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"))
_NODE_TYPES = frozenset(("", "b", "c", "u", "p"))
_CLOS_ID_MAX = 4096
_LETTER = re.compile(r"[A-Za-z]")
_LETTER_OR_DIGIT = re.compile(r"[A-Za-z0-9]")


def first_fault(spec: Spec) -> Problem | None:
    """What the library refuses the file for, or what its releases disagree on; None: all of them take it alike."""
    found = (Problem(reason, message, spec.filename) for reason, rule in _RULES for message in rule(spec))
    return next(found, None)


def _kind(spec: Spec) -> tuple[str, str]:
    """Vendor and class; a kind that isn't both has no vendor (parser.ParseQualifier)."""
    return (spec.vendor, spec.cls) if spec.vendor and spec.cls else ("", spec.kind)


def _vendor_crashes(spec: Spec) -> Iterator[str]:
    yield from _crashes("vendor", _kind(spec)[0])


def _vendor(spec: Spec) -> Iterator[str]:
    yield from _prefixed("invalid vendor. ", _vendor_or_class(_kind(spec)[0]))


def _class_crashes(spec: Spec) -> Iterator[str]:
    yield from _crashes("class", _kind(spec)[1])


def _class(spec: Spec) -> Iterator[str]:
    yield from _prefixed("invalid class. ", _vendor_or_class(_kind(spec)[1]))


def _contents(spec: Spec) -> Iterator[str]:
    yield from _edits(spec.edits)
    seen: set[str] = set()
    for device in spec.devices:
        yield from _prefixed(f'failed to add device "{device.name}": ', _device(device))
        if device.name in seen:
            yield f'invalid spec, multiple device "{device.name}"'
        seen.add(device.name)
    if not spec.devices:
        yield "invalid spec, no devices"


def _disputed(spec: Spec) -> Iterator[str]:
    for device in spec.devices:
        # from 1.1.1 on group 0 is dropped before the edits are looked at
        if replace(device.edits, additional_gids=()).empty and not any(device.edits.additional_gids):
            yield f'device "{device.name}" holds nothing but group 0, which newer releases take for nothing'
    every = (spec.edits, *(device.edits for device in spec.devices))
    root_group = any(edits.intel_rdt is not None and edits.intel_rdt.clos_id == "/" for edits in every)
    if root_group and spec.version.removeprefix("v") != VERSIONS[-1]:
        # since 1.1.0 of the library; what declares that version is refused by the others anyway
        yield 'the intelRdt closID "/" is taken by newer releases and refused by older ones'


def minimum_version(spec: Spec) -> str:
    """The lowest version that may be declared for what the spec uses (specs-go/version.go)."""
    every = (spec.edits, *(device.edits for device in spec.devices))
    nodes = [node for edits in every for node in edits.device_nodes]
    rdts = [edits.intel_rdt for edits in every if edits.intel_rdt is not None]
    needs = (
        ("1.1.0", any(edits.net_devices for edits in every) or any(r.schemata or r.enable_monitoring for r in rdts)),
        ("0.7.0", bool(rdts) or any(edits.additional_gids for edits in every)),
        ("0.6.0", bool(spec.annotations) or any(d.annotations for d in spec.devices) or "." in spec.cls),
        ("0.5.0", any(node.host_path for node in nodes) or any(d.name[:1].isdigit() for d in spec.devices)),
        ("0.4.0", any(mount.type for edits in every for mount in edits.mounts)),
    )
    return next((version for version, needed in needs if needed), "0.3.0")


def _version(spec: Spec) -> Iterator[str]:
    declared = spec.version.removeprefix("v")
    if declared not in VERSIONS:
        yield f'invalid version "{spec.version}"'
        return
    least = minimum_version(spec)
    if VERSIONS.index(declared) < VERSIONS.index(least):
        yield f"the spec version must be at least v{least}"


def _crashes(part: str, name: str) -> Iterator[str]:
    if len(name) == 1 and _LETTER.match(name):
        yield f'the {part} "{name}" has one letter, which makes the CDI library crash: rename the kind'


def _vendor_or_class(name: str) -> Iterator[str]:
    if not name:
        yield "empty name"
        return
    if not _LETTER.match(name):
        yield f'"{name}", should start with letter'
    yield from _characters(name, r"[A-Za-z0-9_.-]")


def _device_name(name: str) -> Iterator[str]:
    if not name:
        yield "invalid (empty) device name"
        return
    if not _LETTER_OR_DIGIT.match(name):
        yield f'invalid name "{name}", should start with a letter or digit'
    yield from _characters(name, r"[A-Za-z0-9_.:-]")


def _characters(name: str, allowed: str) -> Iterator[str]:
    for char in name[1:-1]:
        if not re.fullmatch(allowed, char):
            yield f"invalid character '{char}' in name \"{name}\""
    if not _LETTER_OR_DIGIT.match(name[-1]):
        yield f'"{name}", should end with a letter or digit'


def _device(device: Device) -> Iterator[str]:
    yield from _device_name(device.name)
    if device.edits.empty:
        yield "invalid device, empty device edits"
    yield from _prefixed(f'invalid device "{device.name}": ', _edits(device.edits))


def _edits(edits: Edits) -> Iterator[str]:
    yield from _env(edits.env)
    for node in edits.device_nodes:
        yield from _device_node(node)
    yield from _net_devices(edits.net_devices)
    for hook in edits.hooks:
        yield from _hook(hook)
    for mount in edits.mounts:
        yield from _mount(mount)
    if edits.intel_rdt is not None:
        yield from _intel_rdt(edits.intel_rdt)


def _env(entries: tuple[str, ...]) -> Iterator[str]:
    for entry in entries:
        if entry.find("=") <= 0:
            yield f'invalid environment variable "{entry}"'


def _device_node(node: DeviceNode) -> Iterator[str]:
    if not node.path:
        yield "invalid (empty) device path"
    if node.type not in _NODE_TYPES:
        yield f'device "{node.path}": invalid type "{node.type}"'
    if any(char not in "rwm" for char in node.permissions):
        yield f'device "{node.path}": invalid permissions "{node.permissions}"'


def _net_devices(devices: tuple[NetDevice, ...]) -> Iterator[str]:
    hosts: set[str] = set()
    names: set[str] = set()
    for device in devices:
        if not device.host_interface_name:
            yield "invalid linux net device, empty HostInterfaceName"
        if not device.name:
            yield "invalid linux net device, empty Name"
        if device.host_interface_name in hosts:
            yield f'invalid linux net device, duplicate HostInterfaceName "{device.host_interface_name}"'
        if device.name in names:
            yield f'invalid linux net device, duplicate Name "{device.name}"'
        hosts.add(device.host_interface_name)
        names.add(device.name)


def _hook(hook: Hook) -> Iterator[str]:
    if hook.hook_name not in _HOOKS:
        yield f'invalid hook name "{hook.hook_name}"'
    if not hook.path:
        yield f'invalid hook "{hook.hook_name}", empty path'
    yield from _prefixed(f'hook "{hook.hook_name}": ', _env(hook.env))


def _mount(mount: Mount) -> Iterator[str]:
    if not mount.host_path:
        yield "invalid mount, empty host path"
    if not mount.container_path:
        yield "invalid mount, empty container path"


def _intel_rdt(rdt: IntelRdt) -> Iterator[str]:
    # "/" names the root group (runtime-spec config-linux.md)
    if rdt.clos_id == "/":
        return
    if len(rdt.clos_id.encode()) >= _CLOS_ID_MAX or rdt.clos_id in (".", "..") or re.search(r"[/\n]", rdt.clos_id):
        yield f'invalid intelRdt closID "{rdt.clos_id[:40]}"'


def _prefixed(prefix: str, faults: Iterator[str]) -> Iterator[str]:
    return (prefix + fault for fault in faults)


_RULES: tuple[tuple[ProblemReason, Callable[[Spec], Iterator[str]]], ...] = (
    (ProblemReason.SPEC_INVALID, _version),
    (ProblemReason.AMBIGUOUS_SPEC, _vendor_crashes),
    (ProblemReason.SPEC_INVALID, _vendor),
    (ProblemReason.AMBIGUOUS_SPEC, _class_crashes),
    (ProblemReason.SPEC_INVALID, _class),
    (ProblemReason.SPEC_INVALID, _contents),
    (ProblemReason.AMBIGUOUS_SPEC, _disputed),
)
"""In the library's order: what is refused before it could crash a release crashes none."""
