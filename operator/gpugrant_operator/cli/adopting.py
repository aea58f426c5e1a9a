"""`gpugrant repo adopt` as a plan: which devices a repo's containers use already, and what becomes of each. Pure.

Only a CDI device can be granted. A container that asks for its hardware in another way goes on under no grant: the
plan names the devices that it stands for, so that the same container made anew with them is allowed. Which other ways
there are is known by the gate's rules alone: what they would refuse comes in as clauses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpugrant_crds import cdi, names

_ALIVE = frozenset({"running", "paused", "restarting"})
"""States (moby container/state.go) in which a container has its devices, or will have them in a moment."""
_NO_POLICY = ("", "no")

_NVIDIA = "nvidia.com/gpu"
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
"""What the runtime of the NVIDIA Container Toolkit reads (its user guide); "void" and the empty text: no device."""
_NONE = frozenset({"", "void", "none"})


@dataclass(frozen=True, slots=True)
class Use:
    """One way in which a container has hardware. `devices`: the CDI names that stand for it, if any are known."""

    way: str
    devices: tuple[str, ...] = ()
    granted_as_it_is: bool = False
    """The container goes on under a grant of these names."""
    ruled: bool = False
    """The gate's rules have a clause for it."""


@dataclass(frozen=True, slots=True)
class User:
    """A container that has hardware, or will have it when it is started. `refused`: what the gate's rules say."""

    id: str
    name: str
    uses: tuple[Use, ...]
    refused: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return self.name or self.id[:12]


@dataclass(frozen=True, slots=True)
class Plan:
    """`devices`: what is to be granted, sorted. `left`: one sentence for each use that no grant covers as it is."""

    devices: tuple[str, ...]
    left: tuple[str, ...]


def nodes(specs: Iterable[cdi.Spec]) -> dict[str, tuple[str, ...]]:
    """By path of a device node on the host: the names that inject this one node and no other hardware."""
    found: dict[str, list[str]] = {}
    for spec in specs:
        for device in spec.devices:
            own = {node.source for node in device.edits.device_nodes}
            if len(own) == 1:
                found.setdefault(own.pop(), []).append(spec.qualified(device))
    return {path: tuple(sorted(those, key=cdi.natural)) for path, those in found.items()}


def user(
    inspected: Any,
    by_node: Mapping[str, tuple[str, ...]],
    refused: Iterable[str] = (),
    real: Callable[[str], str] = str,
) -> User | None:
    """Of `GET /containers/{id}/json`; None: without hardware, or not running and never by itself, or no such answer.

    `refused` is what the gate's rules say of it, device requests apart; `real` follows the links of a host path.
    """
    try:
        host = inspected["HostConfig"]
        policy = str((host.get("RestartPolicy") or {}).get("Name", ""))
        if inspected["State"]["Status"] not in _ALIVE and policy in _NO_POLICY:
            return None
        uses = (
            *_requests(host.get("DeviceRequests") or ()),
            *_runtime(host, inspected.get("Config") or {}),
            *_nodes(host.get("Devices") or (), by_node, real),
        )
        name, clauses = str(inspected.get("Name", "")).lstrip("/"), tuple(refused)
        return User(str(inspected["Id"]), name, uses, clauses) if uses or clauses else None
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def _requests(requests: Iterable[Mapping[str, Any]]) -> Iterable[Use]:
    for request in requests:
        ids = tuple(str(one) for one in request.get("DeviceIDs") or ())
        if request.get("Driver") == "cdi":
            yield Use("a CDI device", ids, granted_as_it_is=True)
        elif request.get("Driver") in ("", "nvidia", None):
            every = int(request.get("Count") or 0) == -1
            yield Use("--gpus", _nvidia(("all",) if every else ids))
        else:
            yield Use(f'a device request of driver "{request.get("Driver")}"')


def _runtime(host: Mapping[str, Any], config: Mapping[str, Any]) -> Iterable[Use]:
    if host.get("Runtime") != "nvidia":
        return
    env = dict(line.partition("=")[::2] for line in config.get("Env") or ())
    asked = tuple(part.strip() for part in env.get(_VISIBLE, "").split(","))
    if not _NONE.issuperset(asked):
        yield Use("--runtime nvidia", _nvidia(asked), ruled=True)


def _nvidia(ids: Iterable[str]) -> tuple[str, ...]:
    """Indices, UUIDs and `all` are names of nvidia-ctk's specs; what is a CDI name already stays."""
    return tuple(one if "=" in one else f"{_NVIDIA}={one}" for one in ids if one)


def _nodes(
    devices: Iterable[Mapping[str, Any]], by_node: Mapping[str, tuple[str, ...]], real: Callable[[str], str]
) -> Iterable[Use]:
    """The raw nodes that one name stands for."""
    for device in devices:
        path = str(device.get("PathOnHost", ""))
        those = by_node.get(real(path), ())
        if len(those) == 1:
            yield Use(f"--device {path}", those, ruled=True)


def plan(users: Iterable[User], grantable: Collection[str], machine: str) -> Plan:
    """What can be granted of what is used, and a sentence for the rest."""
    devices: set[str] = set()
    left: list[str] = []
    for its in users:
        for use in its.uses:
            can = tuple(device for device in use.devices if device in grantable)
            devices.update(can)
            for device in use.devices:
                if device not in grantable:
                    hint = names.did_you_mean(device, sorted(grantable))
                    left.append(f"container {its.shown}: {device} is no device of machine {machine}{hint}")
            if not use.granted_as_it_is and not use.ruled:
                left.append(f"container {its.shown} has {use.way}, which no grant is for: {_instead(can)}")
        left += [f"container {its.shown}: {clause}" for clause in its.refused]
    return Plan(tuple(sorted(devices, key=cdi.natural)), tuple(left))


def _instead(devices: tuple[str, ...]) -> str:
    if not devices:
        return "make it anew with --device and a CDI device name (rdc machine gpu list MACHINE shows them)"
    return "make it anew with " + " ".join(f"--device {device}" for device in devices)
