"""Every rule by which the gate refuses, with what it prevents and whether it can be opened: for people.

The rules on containers stand in `rules`; the others, which look at a request as such, are named here.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpugrant_crds import openings
from gpugrant_gate.policy import rules

_NO_DEVICE = "a way to a device stays shut (R45)"
_NOT_READ = "what can be read in two ways is not passed on"
_UNKNOWN = "what is not known is not passed on"

OTHERS: tuple[tuple[str, str, str], ...] = (
    ("hw.update", "hardware that comes by an update (R45)", _NO_DEVICE),
    ("hw.plugins", "plugins, which run as root with the machine's devices (R45)", _NO_DEVICE),
    ("hw.swarm", "services, which start containers that nobody judged (R45)", _NO_DEVICE),
    ("hw.checkpoints", "containers restored from what was not judged (R45)", _NO_DEVICE),
    ("host.blkio", "paths of the machine that a daemon looks at for its limits", "its errors tell what is there"),
    ("host.import", "images that the daemon fetches from an address", openings.NEVER["host.import"]),
    ("build.buildkit", "builds in which the daemon itself would give devices", "its daemon's own settings decide"),
    ("build.container", "a builder in a privileged container, before its image is fetched", _NO_DEVICE),
    ("build.remote", "builds that the daemon fetches from an address", "the daemon would fetch any address"),
    ("start.auto-remove", "a restart of a container that is gone once it is stopped", "there is nothing to start"),
    ("route.unknown", "endpoints that the gate does not know", _UNKNOWN),
    ("route.options", "OPTIONS, which says the same of every path", "nobody needs it"),
    ("route.libpod", "podman's API", "no Docker daemon has it"),
    ("route.debug", "the daemon's debug pages", "they show its memory"),
    ("http.version", "an API version that the daemon or the gate does not know", _UNKNOWN),
    ("http.path", "paths with more than one meaning", _NOT_READ),
    ("http.escape", "escapes that are none", _NOT_READ),
    ("http.query", "query keys that are unknown or there twice", _UNKNOWN),
    ("http.name", "names that no container, volume or exec has", _NOT_READ),
    ("http.header", "headers that are there twice", _NOT_READ),
    ("http.content-type", "bodies in whose form a daemon would read parameters", _NOT_READ),
    ("http.upgrade", "a tunnel that is not asked for as one", _NOT_READ),
    ("body.json", "bodies that are not JSON to everybody", _NOT_READ),
    ("body.keys", "keys that two readers tell apart, or don't", _NOT_READ),
    ("body.type", "values of another type than the field's", _NOT_READ),
    ("body.characters", "control characters in names and paths", _NOT_READ),
    ("body.field", "fields that the gate does not know, with a value", _UNKNOWN),
    ("body.windows", "fields of Windows containers", "they mean nothing on Linux"),
    ("body.unwanted", "a body where there is none", _NOT_READ),
    ("body.size", "bodies so large that neighbours would wait", "the limit is the machine's"),
    ("gate.facts", "what the daemon does not tell, or tells in another way", _UNKNOWN),
    ("gate.upstream", "requests to a daemon that does not answer", "there is nobody to ask"),
    ("gate.admitted", "starts with devices that can't be noted down", "the sweep would take it for a fork's"),
    ("gate.connections", "more connections than a repo may have", "the limit is the machine's"),
    ("wire.*", "requests whose bytes could be read in two ways, or come too slowly", _NOT_READ),
)
"""Id, what it prevents, why it can't be opened."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One rule."""

    id: str
    prevents: str
    opens: tuple[openings.Opening, ...] = ()
    """What of it can be opened for a repo."""
    closed: str = ""
    """Why nothing of it can, a clause."""


def entries() -> tuple[Entry, ...]:
    """All rules: hardware, host power, then what is wrong with a request as such."""
    found = [_of_rule(rule) for rule in rules.RULES]
    found += [Entry(id_, prevents, closed=why) for id_, prevents, why in OTHERS]
    return tuple(sorted(found, key=lambda entry: (not entry.id.startswith("hw."), not entry.id.startswith("host."))))


def _of_rule(rule: rules.Rule) -> Entry:
    return Entry(rule.id, rule.prevents, rule.openings, _NO_DEVICE if rule.hardware else rule.closed)
