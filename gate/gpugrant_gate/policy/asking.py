"""One request with all that is known of it, and the three ways in which it ends: sent on as it was routed, sent on with
what was judged of its body, or refused. What goes on is always written anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpugrant_gate.policy import strictjson, target
from gpugrant_gate.policy.model import (
    Admission,
    Body,
    ContainerFact,
    Decision,
    Exchange,
    Facts,
    Outgoing,
    Refusal,
    RepoView,
    Routed,
    Violation,
)

_JSON = ("content-type", "application/json")
_TAR = ("content-type", "application/x-tar")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request with all that is known of it."""

    routed: Routed
    body: Mapping[str, Any]
    faults: tuple[Violation, ...]
    """Fields that the body may not have."""
    facts: Facts
    repo: RepoView

    @property
    def named(self) -> ContainerFact:
        """The container in the path."""
        return ContainerFact(self.routed.segments[1])


def outgoing(
    asked: Asked, body: Mapping[str, Any] | None = None, *, id_: str = "", exchange: Exchange | None = None
) -> Outgoing:
    """The request written anew: with `body` as JSON, else as its route has it; `id_` takes the place of the name."""
    routed = asked.routed
    segments = (routed.segments[0], id_, *routed.segments[2:]) if id_ else routed.segments
    version = routed.version or asked.repo.api_version
    path = target.build(version, segments, routed.query)
    headers, raw = _content(routed, body)
    return Outgoing(routed.method, path, (*routed.headers, *headers), raw, exchange or routed.exchange)


def _content(routed: Routed, body: Mapping[str, Any] | None) -> tuple[tuple[tuple[str, str], ...], bytes | None]:
    """The headers that describe the body, and the body."""
    if body is not None:
        return (_JSON,), strictjson.encode(body)
    if routed.body is Body.STREAM:
        return (_TAR,), None
    return (), b""


def passed(asked: Asked) -> Admission:
    return Admission(asked.routed.route, outgoing(asked))


def refused(asked: Asked, violations: tuple[Violation, ...], missing: tuple[str, ...] = ()) -> Refusal:
    return Refusal(403, violations, asked.routed.route, missing)


def by_messages(asked: Asked, *found: tuple[str, str]) -> tuple[Violation, ...]:
    """Violations of (rule, message) pairs, then the body's faults."""
    return (*(Violation(rule, message) for rule, message in found), *asked.faults)


def decide(asked: Asked, violations: tuple[Violation, ...], body: Mapping[str, Any] | None) -> Decision:
    if violations:
        return refused(asked, violations)
    return Admission(asked.routed.route, outgoing(asked, body))
