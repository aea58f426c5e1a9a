"""Specs as text again: byte-stable, and read the same by every release of the CDI library.

Texts that any YAML reader could take for something else are quoted; keys stand in the order of SPEC.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import yaml

from gpugrant_crds.cdi import yaml11
from gpugrant_crds.cdi.spec import Device, DeviceNode, Edits, Hook, IntelRdt, Mount, NetDevice, Spec

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./:=@%+,-]*")


def restrict(spec: Spec, names: Collection[str]) -> Spec | None:
    """The same spec with only the devices of those qualified names; None when none is left.

    What the spec gives to every device (its own containerEdits) stays: without it the devices would not work.
    """
    wanted = frozenset(names)
    devices = tuple(device for device in spec.devices if spec.qualified(device) in wanted)
    return replace(spec, devices=devices) if devices else None


def dump(spec: Spec) -> str:
    """The spec as YAML; equal specs give equal bytes, whatever file they came from."""
    # width: a folded line would still be right, but not one entry a line
    return yaml.dump(to_dict(spec), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20)


def to_dict(spec: Spec) -> dict[str, Any]:
    """As a JSON object, without empty fields."""
    return _filled(
        cdiVersion=spec.version,
        kind=spec.kind,
        annotations=dict(spec.annotations),
        devices=[_device(device) for device in spec.devices],
        containerEdits=_edits(spec.edits),
    )


def _device(device: Device) -> dict[str, Any]:
    return _filled(name=device.name, annotations=dict(device.annotations), containerEdits=_edits(device.edits))


def _edits(edits: Edits) -> dict[str, Any]:
    return _filled(
        env=list(edits.env),
        deviceNodes=[_device_node(node) for node in edits.device_nodes],
        netDevices=[_net_device(device) for device in edits.net_devices],
        hooks=[_hook(hook) for hook in edits.hooks],
        mounts=[_mount(mount) for mount in edits.mounts],
        additionalGids=list(edits.additional_gids),
    ) | ({} if edits.intel_rdt is None else {"intelRdt": _intel_rdt(edits.intel_rdt)})


def _device_node(node: DeviceNode) -> dict[str, Any]:
    return _filled(
        path=node.path,
        hostPath=node.host_path,
        type=node.type,
        major=node.major or None,
        minor=node.minor or None,
        fileMode=node.file_mode,
        permissions=node.permissions,
        uid=node.uid,
        gid=node.gid,
    )


def _net_device(device: NetDevice) -> dict[str, Any]:
    return _filled(hostInterfaceName=device.host_interface_name, name=device.name)


def _hook(hook: Hook) -> dict[str, Any]:
    return _filled(
        hookName=hook.hook_name, path=hook.path, args=list(hook.args), env=list(hook.env), timeout=hook.timeout
    )


def _mount(mount: Mount) -> dict[str, Any]:
    return _filled(
        hostPath=mount.host_path, containerPath=mount.container_path, options=list(mount.options), type=mount.type
    )


def _intel_rdt(rdt: IntelRdt) -> dict[str, Any]:
    return _filled(
        closID=rdt.clos_id,
        l3CacheSchema=rdt.l3_cache_schema,
        memBwSchema=rdt.mem_bw_schema,
        schemata=list(rdt.schemata),
        enableMonitoring=rdt.enable_monitoring or None,
    )


def _filled(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in (None, "", [], {})}


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Never an anchor: every entry is written out."""
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = bool(_PLAIN.fullmatch(text)) and not text.endswith(":") and yaml11.resolve(text) == text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _write_text)
_Dumper.add_representer(dict, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data.items()))
