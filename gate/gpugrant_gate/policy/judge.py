"""Decides: from a routed request, its body and the facts to the request that goes on, or a refusal.

What goes on is always written anew from what was judged. A fact that is wanted and absent refuses (fail closed), and so
does a daemon's answer that can't be understood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpugrant_gate.policy import asking, bodies, containers, resources, shapes, strictjson
from gpugrant_gate.policy.asking import Asked
from gpugrant_gate.policy.bodies import Kind
from gpugrant_gate.policy.model import Body, Decision, Fact, Facts, Needs, Refusal, RepoView, Routed, Violation
from gpugrant_gate.policy.routes import echoed, refuse
from gpugrant_gate.policy.strictjson import BodyRefused

_EMPTY = (b"", b"{}", b"null")
_NO_FACTS: Facts = {}


@dataclass(frozen=True, slots=True)
class _Judged:
    """A judged route: the shape of its body, the facts it wants and the decision."""

    decide: Callable[[Asked], Decision]
    shape: Kind | None = None
    wants: Callable[[Asked], tuple[Fact, ...]] = lambda asked: ()
    may_be_empty: bool = False
    """The daemon takes the request without a body as well."""


def needs(routed: Routed, body: bytes | None, repo: RepoView, facts: Facts = _NO_FACTS) -> Needs | Refusal:
    """The facts that `judge` wants, those in `facts` included; more may follow from them (see `model`)."""
    asked = _read(routed, body, facts, repo)
    if isinstance(asked, Refusal):
        return asked
    row = JUDGES.get(routed.route)
    return Needs() if row is None else Needs(tuple(dict.fromkeys(row.wants(asked))))


def judge(routed: Routed, body: bytes | None, facts: Facts, repo: RepoView) -> Decision:
    """The decision on one request."""
    asked = _read(routed, body, facts, repo)
    if isinstance(asked, Refusal):
        return asked
    row = JUDGES.get(routed.route)
    return asking.passed(asked) if row is None else row.decide(asked)


def _read(routed: Routed, body: bytes | None, facts: Facts, repo: RepoView) -> Asked | Refusal:
    row = JUDGES.get(routed.route)
    shape = row.shape if row is not None else None
    try:
        if shape is None:
            _leave_out(routed, (body or b"").strip())
            return Asked(routed, {}, (), facts, repo)
        if not body and row is not None and row.may_be_empty:
            return Asked(routed, {}, (), facts, repo)
        value, faults = _shaped(shape, body or b"")
    except BodyRefused as error:
        return refuse(error.status, error.rule, str(error), routed.route)
    return Asked(routed, value, faults, facts, repo)


@lru_cache(maxsize=4)
def _shaped(shape: Kind, body: bytes) -> tuple[Mapping[str, Any], tuple[Violation, ...]]:
    """The canonical body; kept for a moment, for one request is read once a round of facts. Nobody changes it."""
    return bodies.read(shape, strictjson.decode(body))


def _leave_out(routed: Routed, body: bytes) -> None:
    """Nothing of this body goes on; it may be empty or, where the route is echoed, repeat the query."""
    if routed.body is Body.STREAM or body in _EMPTY:
        return
    repeated = strictjson.decode(body) if routed.body is Body.JUDGED else None
    if type(repeated) is not dict or not frozenset(repeated) <= echoed(routed.route):
        raise BodyRefused("this request takes no body", rule="body.unwanted")


JUDGES: Mapping[str, _Judged] = {
    "system.auth": _Judged(resources.as_read, shapes.AUTH),
    "container.create": _Judged(containers.create, shapes.CREATE, containers.wanted_for_create),
    "container.start": _Judged(containers.start, wants=containers.wanted_for_start),
    "container.restart": _Judged(containers.restart, wants=containers.wanted_for_start),
    "container.unpause": _Judged(containers.unpause, wants=containers.the_container),
    "container.update": _Judged(containers.update, shapes.UPDATE, containers.wanted_for_update),
    "container.attach": _Judged(containers.attach, wants=containers.the_container),
    "container.attach.ws": _Judged(containers.attach_websocket, wants=containers.the_container),
    "exec.create": _Judged(containers.exec_create, shapes.EXEC_CREATE, containers.the_container),
    "exec.start": _Judged(
        containers.exec_start, shapes.EXEC_START, containers.wanted_for_exec_start, may_be_empty=True
    ),
    "container.archive.get": _Judged(containers.archive, wants=containers.the_container),
    "container.archive.head": _Judged(containers.archive, wants=containers.the_container),
    "container.archive.put": _Judged(containers.archive, wants=containers.the_container),
    "image.commit": _Judged(resources.commit, shapes.COMMIT, may_be_empty=True),
    "image.pull": _Judged(resources.pull),
    "image.import": _Judged(resources.import_image),
    "build": _Judged(resources.build, wants=resources.wanted_for_build),
    "build.grpc": _Judged(resources.tunnel, wants=resources.wanted_for_build),
    "build.session": _Judged(resources.tunnel, wants=resources.wanted_for_build),
    "volume.create": _Judged(resources.volume_create, shapes.VOLUME_CREATE),
    "network.create": _Judged(resources.network_create, shapes.NETWORK_CREATE),
    "network.connect": _Judged(resources.network_member, shapes.NETWORK_CONNECT, resources.the_network),
    "network.disconnect": _Judged(resources.network_member, shapes.NETWORK_DISCONNECT, resources.the_network),
}
"""The judged routes of the table in `routes`; the others pass as they were routed."""
