"""Whether builds with BuildKit may pass in a repo (design 5): what a build reaches is settled in its daemon.

`/grpc` and `/session` are tunnels: nothing of what runs in one is seen here. So they open only where the daemon's own
configuration, as it was when the daemon started, keeps every device and the host's network away from every build. Pure;
what isn't known is a reason to refuse.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpugrant_crds import cdi
from gpugrant_gate.policy import strictjson
from gpugrant_gate.policy.strictjson import BodyRefused

AUTO_ALLOW = "org.mobyproject.buildkit.device.autoallow"
"""A CDI spec's or device's annotation: BuildKit gives it to any build that asks, whatever the daemon's entitlements say
(moby/buildkit solver/llbsolver/cdidevices)."""

RUNC_COMMAND = "DOCKER_BUILDKIT_RUNC_COMMAND"
"""A daemon with this in its environment runs build steps by another program than runc (moby
daemon/internal/builder-next/executor_linux.go)."""

_FIXED = (25, 0, 2)
"""The first engine of our range with BuildKit 0.12.5: before, a build could become privileged without an entitlement
(CVE-2024-23653)."""
_DEVICES_SINCE = 28
"""The first engine whose builder reads CDI specs; it gives what is annotated with AUTO_ALLOW and nothing else."""
_ENTITLEMENT_SINCE = 29
"""The first engine with `builder.entitlements.device`, which is on when it is not set."""
NEWEST_ENGINE = 29
"""The newest engine whose entitlements and their defaults are known here."""

Engine = tuple[int, int, int]
Annotations = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Entitlements:
    """What a daemon's configuration lets builds ask for, its defaults filled in."""

    network_host: bool = True
    security_insecure: bool = False
    device: bool = True


@dataclass(frozen=True, slots=True)
class Builder:
    """What is known of a daemon's BuildKit."""

    engine: Engine | None = None
    config: str = ""
    """The path of its configuration file, for messages."""
    entitlements: Entitlements | str = "it is not known what it lets builds reach"
    """Why they are not known, a clause with its mend."""
    runc: bool = False
    """Build steps are run by runc."""
    own_specs: bool = False
    """Its CDI folder is the very one that this machine's gate reads, by device and inode."""


@dataclass(frozen=True, slots=True)
class Question:
    """One repo's case."""

    builder: Builder
    sealed: bool
    """The daemon sees the repo's sealed folder, in whose specs no device is annotated with AUTO_ALLOW."""
    auto_allowed: tuple[str, ...]
    """Spec files of this machine that may give a device to any build."""
    network_open: bool = False
    """The host rule host.network is open for this repo."""


def read(data: bytes) -> Entitlements | str:
    """The entitlements of a daemon.json, or why they can't be told; as strict as a request's body is read."""
    try:
        settings = strictjson.decode(data)
        entitlements = _section(_section(settings, "builder"), "entitlements")
        return Entitlements(
            network_host=_flag(entitlements, "network-host", default=True),
            security_insecure=_flag(entitlements, "security-insecure", default=False),
            device=_flag(entitlements, "device", default=True),
        )
    except (BodyRefused, _Unclear) as error:
        return str(error).replace("the body", "the file")


def has_devices(builder: Builder) -> bool:
    """Whether this daemon's builder knows devices at all: a build may hold one if anything here was overlooked."""
    return _since(builder, _DEVICES_SINCE)


def auto_allowed(specs: Mapping[str, cdi.Spec | cdi.Problem]) -> tuple[str, ...]:
    """The files that may give a device to any build; one that can't be read here may be read by a daemon."""
    return tuple(sorted(name for name, spec in specs.items() if isinstance(spec, cdi.Problem) or _gives(spec)))


def withheld(spec: cdi.Spec) -> cdi.Spec:
    """The same spec without what gives its devices to any build: a device in a build is no grant's (R45)."""
    devices = tuple(replace(device, annotations=_without(device.annotations)) for device in spec.devices)
    return replace(spec, annotations=_without(spec.annotations), devices=devices)


def _without(annotations: Annotations) -> Annotations:
    return tuple((key, value) for key, value in annotations if key != AUTO_ALLOW)


def refusal(question: Question) -> str:
    """Why BuildKit is refused here, clauses with their mend; empty: it passes."""
    return "; ".join(why for rule in RULES if (why := rule(question)))


def _engine(question: Question) -> str:
    engine = question.builder.engine
    if engine is None:
        return "it is not known which Docker Engine the repo's daemon is"
    if engine < _FIXED:
        said = ".".join(map(str, engine))
        return f"in Docker {said} a build can become privileged (CVE-2024-23653): install 25.0.2 or newer"
    if engine[0] > NEWEST_ENGINE:
        return f"it is not known here what builds of Docker {engine[0]} may reach: update gpugrant"
    return ""


def _entitlements(question: Question) -> str:
    builder = question.builder
    allowed = builder.entitlements
    if isinstance(allowed, str):
        return allowed
    open_ = [
        what
        for what, is_open in (
            ("become privileged (security-insecure)", allowed.security_insecure),
            ("use the host's network (network-host)", allowed.network_host and not question.network_open),
            ("use devices (device)", allowed.device and _since(builder, _ENTITLEMENT_SINCE)),
        )
        if is_open
    ]
    if not open_:
        return ""
    return f"its daemon lets builds {' and '.join(open_)}: put {daemon_json()} into {builder.config} and restart it"


def _runc(question: Question) -> str:
    if question.builder.runc or isinstance(question.builder.entitlements, str):
        return ""
    return f"its daemon runs builds by another program than runc: start it without {RUNC_COMMAND} in its environment"


def _specs(question: Question) -> str:
    """A sealed folder is written by the gate, without the annotation."""
    if question.sealed or not _since(question.builder, _DEVICES_SINCE):
        return ""
    if not question.builder.own_specs:
        return (
            "its daemon reads another CDI folder than this machine's gate, so it is not known what it gives to builds"
        )
    if not question.auto_allowed:
        return ""
    files = ", ".join(question.auto_allowed)
    return f"{files} may give devices to any build: mend it, or take the annotation {AUTO_ALLOW} away"


RULES: tuple[Callable[[Question], str], ...] = (_engine, _entitlements, _runc, _specs)


def daemon_json() -> str:
    """The line of a daemon.json with which builds reach nothing."""
    closed = {"network-host": False, "security-insecure": False, "device": False}
    return json.dumps({"builder": {"entitlements": closed}})[1:-1]


def _since(builder: Builder, major: int) -> bool:
    return builder.engine is None or builder.engine[0] >= major


def _gives(spec: cdi.Spec) -> bool:
    annotated = (spec.annotations, *(device.annotations for device in spec.devices))
    return any(key == AUTO_ALLOW for annotations in annotated for key, _ in annotations)


class _Unclear(ValueError):
    """The daemon's own reader takes it in another way, or not at all."""


def _section(settings: Any, name: str) -> dict[str, Any]:
    """An object by its name; encoding/json takes a name in any case, so a second spelling is refused."""
    if type(settings) is not dict:
        raise _Unclear("the file is no JSON object")
    value = _value(settings, name)
    if value is None:
        return {}
    if type(value) is not dict:
        raise _Unclear(f'"{name}" is no JSON object')
    return value


def _flag(settings: dict[str, Any], name: str, *, default: bool) -> bool:
    value = _value(settings, name)
    if value is None:
        return default
    if type(value) is not bool:
        raise _Unclear(f'"{name}" is neither true nor false')
    return value


def _value(settings: dict[str, Any], name: str) -> Any:
    other = next((key for key in settings if key != name and _folded(key) == name), None)
    if other is not None:
        raise _Unclear(f'the key "{other}" must be written "{name}"')
    return settings.get(name)


def _folded(key: str) -> str:
    """As encoding/json compares: two more letters than ASCII's fold to it (U+017F, U+212A)."""
    return key.casefold()
