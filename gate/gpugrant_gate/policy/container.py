"""A container as it is asked for, or as a daemon remembers it: one value, whatever spelling it came in.

Both a create body and an inspect answer end here, so that one set of rules judges both. Parsing only; what may pass is
for `rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpugrant_crds import names
from gpugrant_gate.policy import pins, shapes
from gpugrant_gate.policy.bodies import Reading
from gpugrant_gate.policy.model import Violation

DIALING = frozenset({"awslogs", "fluentd", "gcplogs", "gelf", "splunk", "syslog"})
"""Log drivers by which the daemon sends lines elsewhere (moby daemon/logger)."""
COMPOSE_LABEL = "com.docker.compose.project"
"""Every Compose v2 sets it on what it creates; docker run does not (R46)."""

MASKED = frozenset(
    {"/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
     "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"}
)  # fmt: skip
"""What every supported engine masks (moby oci/defaults.go); newer ones add to it."""
READONLY = frozenset({"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"})


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    driver: str
    count: int
    ids: tuple[str, ...]
    capabilities: bool
    options: bool

    @property
    def is_zero(self) -> bool:
        return not (self.driver or self.count or self.ids or self.capabilities or self.options)

    @property
    def is_cdi(self) -> bool:
        """The only hardware door (R46); whether its names are granted is another question."""
        return self.driver == "cdi" and not self.count and bool(self.ids) and not self.capabilities and not self.options


@dataclass(frozen=True, slots=True)
class RawDevice:
    host: str
    container: str
    permissions: str

    @property
    def is_cdi_name(self) -> bool:
        """How Compose before 2.30 writes `devices: [vendor/class=name]`, the long form without permissions (R36)."""
        return self.host == self.container and self.permissions in ("rwm", "") and names.is_qualified(self.host)


@dataclass(frozen=True, slots=True)
class Mount:
    """One entry of Binds, of Mounts, or of the Mounts that a daemon resolved."""

    kind: str
    """`bind`, `volume`, `tmpfs`, `image` or what the client wrote."""
    source: str
    target: str
    where: str
    """The field, for messages."""
    modes: tuple[str, ...] = ()
    """The words behind the second colon of a bind."""
    propagation: str = ""
    driver: str = ""
    driver_options: bool = False
    tmpfs_options: tuple[tuple[str, ...], ...] = ()
    broken: str = ""
    """Why it can't be read, a clause; empty: it can."""
    made: bool = False
    """A daemon has it already: its source can't be pinned any more."""
    pinned: bool = False
    """Made with the source's place instead of its name."""


@dataclass(frozen=True, slots=True)
class Container:
    """What the rules look at."""

    host: Mapping[str, Any]
    """The canonical HostConfig."""
    config: Mapping[str, Any]
    endpoints: Mapping[str, Any]
    requests: tuple[DeviceRequest, ...]
    devices: tuple[RawDevice, ...]
    mounts: tuple[Mount, ...]
    started: bool = False
    """It exists already: what the daemon fills in by itself is no wish."""
    faults: tuple[Violation, ...] = ()
    """Fields that it may not have."""

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(self.config.get("Labels") or ())

    @property
    def compose(self) -> bool:
        return COMPOSE_LABEL in self.labels

    @property
    def names(self) -> tuple[str, ...]:
        """The CDI names asked for through the door, each once, in order."""
        asked = [name for request in self.requests if request.is_cdi for name in request.ids]
        asked += [device.host for device in self.devices if device.is_cdi_name]
        return tuple(dict.fromkeys(asked))


def from_body(body: Mapping[str, Any], faults: tuple[Violation, ...]) -> Container:
    """The container that a canonical create body asks for."""
    host = body.get("HostConfig", {})
    endpoints = body.get("NetworkingConfig", {}).get("EndpointsConfig", {})
    return _container(host, body, endpoints, (), faults, started=False)


def from_inspect(inspected: Mapping[str, Any], places: str = "") -> Container:
    """The container that `GET /containers/{id}/json` describes; raises BodyRefused where it can't be understood.

    `places`: the folder of the repo's pinned sources, which stand here under their own names again.
    """
    reading = Reading()
    host = shapes.INSPECTED_HOST(_without_own(inspected.get("HostConfig")), "HostConfig", reading)
    config = inspected.get("Config")
    labels = config.get("Labels") if type(config) is dict else None
    healthcheck = config.get("Healthcheck") if type(config) is dict else None
    resolved = inspected.get("Mounts")
    mounts = tuple(_resolved(entry, f"Mounts[{index}]") for index, entry in enumerate(resolved or ()))
    settings = {"Labels": labels if type(labels) is dict else {}}
    if healthcheck is not None:
        settings["Healthcheck"] = shapes.HEALTHCHECK(healthcheck, "Config.Healthcheck", reading)
    endpoints: dict[str, Any] = {name: {} for name in _networks(inspected.get("NetworkSettings"))}
    found = _container(host, settings, endpoints, mounts, tuple(reading.violations), started=True)
    return replace(found, mounts=tuple(_made(mount, places) for mount in found.mounts))


def _made(mount: Mount, places: str) -> Mount:
    source = pins.source(places, mount.source) if mount.kind == "bind" else None
    return replace(mount, made=True) if source is None else replace(mount, made=True, pinned=True, source=source)


def _networks(settings: Any) -> tuple[str, ...]:
    """The networks that a container is a member of."""
    networks = settings.get("Networks") if type(settings) is dict else None
    return tuple(networks) if type(networks) is dict else ()


def _container(
    host: Mapping[str, Any],
    config: Mapping[str, Any],
    endpoints: Mapping[str, Any],
    resolved: tuple[Mount, ...],
    faults: tuple[Violation, ...],
    *,
    started: bool,
) -> Container:
    binds = tuple(bind(text, f"HostConfig.Binds[{index}]") for index, text in enumerate(host.get("Binds", ())))
    mounts = tuple(_mount(entry, f"HostConfig.Mounts[{index}]") for index, entry in enumerate(host.get("Mounts", ())))
    requests = tuple(_request(entry) for entry in host.get("DeviceRequests", ()))
    devices = tuple(
        RawDevice(entry.get("PathOnHost", ""), entry.get("PathInContainer", ""), entry.get("CgroupPermissions", ""))
        for entry in host.get("Devices", ())
    )
    return Container(
        host=host,
        config=config,
        endpoints=endpoints,
        requests=requests,
        devices=devices,
        mounts=binds + mounts + resolved,
        started=started,
        faults=faults,
    )


def _without_own(host: Any) -> Any:
    """HostConfig less what a daemon fills in for a plain container."""
    if type(host) is not dict:
        return host
    return {key: value for key, value in host.items() if not _filled_in(key, value)}


def _filled_in(key: str, value: Any) -> bool:
    match key:
        case "CgroupnsMode":
            return bool(value == "host")  # the daemon's default under cgroup v1
        case "LogConfig":
            # the daemon's own log driver, with its options, unless it is one that dials out: a rule asks then
            return not (type(value) is dict and value.get("Type") in DIALING)
        case _:
            return False


def _request(entry: Mapping[str, Any]) -> DeviceRequest:
    return DeviceRequest(
        driver=entry.get("Driver", ""),
        count=entry.get("Count", 0),
        ids=tuple(entry.get("DeviceIDs", ())),
        capabilities=bool(entry.get("Capabilities")),
        options=bool(entry.get("Options")),
    )


def bind(text: str, where: str) -> Mount:
    """One entry of Binds, split as moby's volume/mounts/linux_parser.go does: a path, `source:target` or with modes."""
    parts = text.split(":")
    if len(parts) > 3 or not text.isprintable() or not all(parts):
        return Mount("bind", text, "", where, broken="write source:target or source:target:modes")
    if len(parts) == 1:
        return Mount("volume", "", text, where)
    source, target, *modes = parts
    kind = "bind" if source.startswith("/") else "volume"
    return Mount(kind, source, target, where, tuple(modes[0].split(",")) if modes else ())


def _mount(entry: Mapping[str, Any], where: str) -> Mount:
    volume = entry.get("VolumeOptions", {}).get("DriverConfig", {})
    options = entry.get("TmpfsOptions", {}).get("Options", ())
    source, target = entry.get("Source", ""), entry.get("Target", "")
    printable = source.isprintable() and target.isprintable()
    return Mount(
        kind=entry.get("Type", ""),
        source=source,
        target=target,
        where=where,
        propagation=entry.get("BindOptions", {}).get("Propagation", ""),
        driver=volume.get("Name", ""),
        driver_options=bool(volume.get("Options")),
        tmpfs_options=tuple(tuple(option) for option in options),
        broken="" if printable else "it holds a control character",
    )


def _resolved(entry: Any, where: str) -> Mount:
    """One entry of an inspect answer's Mounts: what is mounted when the container starts."""
    if type(entry) is not dict or not all(type(entry.get(key, "")) is str for key in _RESOLVED):
        return Mount("bind", "", "", where, broken="the daemon describes it in a way that the gate does not know")
    kind, target = entry.get("Type", ""), entry.get("Destination", "")
    if kind == "volume":
        return Mount(kind, entry.get("Name", ""), target, where, driver=entry.get("Driver", ""))
    return Mount(kind, entry.get("Source", ""), target, where, propagation=entry.get("Propagation", ""))


_RESOLVED = ("Type", "Name", "Source", "Destination", "Driver", "Propagation")
