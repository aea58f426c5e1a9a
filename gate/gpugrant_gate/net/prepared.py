"""Admitted requests as they go to the daemon, and the memory of those that come again and again.

What was decided is decided again only when something changed: equal bytes under the same view are an equal request. So
it is for a GET without a body whose decision needs nothing but its head and the view. A view is a new object at every
change (a snapshot, an expiry, a repo file, a verdict on the daemon), and under another view all is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gpugrant_gate.policy import pins
from gpugrant_gate.policy.model import Admission, Exchange, Outgoing, RepoView
from gpugrant_gate.settings import Limits
from gpugrant_gate.wire import framing, messages, versions
from gpugrant_gate.wire.exchange import Call, Rewrite
from gpugrant_gate.wire.framing import Kind
from gpugrant_gate.wire.heads import RequestHead

HEAD_MAX = 2048
"""Bytes of a head that is remembered; a client's own are 100 to 200."""
MOST = 256
"""Heads of one repo: half a MiB, and more kinds of GET than its clients repeat in a moment."""


_VERSION_TARGET = re.compile(r"(/v[0-9.]+)?/version")


@dataclass(frozen=True, slots=True)
class Prepared:
    """One admitted request."""

    route: str
    devices: tuple[str, ...]
    call: Call
    request: bytes
    """Its head, and its body where that was judged."""
    repeatable: bool
    """A GET without a body: it may use a connection that was used before, and goes out again where that was closed."""


def prepare(
    decision: Admission, request: RequestHead, limits: Limits, *, body_left: bool, places: str = ""
) -> Prepared:
    """`body_left`: the client's body was not read; where the decision has none of its own, it is passed on. `places`:
    the folder of the repo's pinned sources, which answers name by themselves again."""
    outgoing = decision.outgoing
    hijack = outgoing.exchange is Exchange.HIJACK
    plain = not hijack and not decision.devices and decision.then is None
    repeatable = plain and outgoing.method == "GET" and outgoing.body == b"" and request.framing.kind is Kind.NONE
    upload = request.framing if outgoing.body is None and body_left else framing.NONE
    call = Call(
        method=outgoing.method,
        version=request.version,
        keep_alive=request.keep_alive,
        upload=upload,
        plain_tar=outgoing.plain_tar,
        hijack=hijack,
        upgrade=request.upgrade,
        rewrite=_rewrite(decision, places),
        hidden=_shown if decision.then is None else _worked,
        held_max=limits.fact_max,
    )
    head = messages.request(
        outgoing.method,
        outgoing.target,
        outgoing.headers,
        upload if outgoing.body is None else framing.of_length(len(outgoing.body)),
        upgrade=_protocol(outgoing) if hijack else "",
        keep_alive=repeatable,
    )
    return Prepared(decision.route, decision.devices, call, head + (outgoing.body or b""), repeatable)


def _rewrite(decision: Admission, places: str) -> Callable[[int], Rewrite | None]:
    outgoing = decision.outgoing
    if outgoing.method == "GET" and _VERSION_TARGET.fullmatch(outgoing.target) is not None:
        return _clamped
    return partial(pins.rewrite, decision.route, places) if places else _as_it_is


def _clamped(status: int) -> Rewrite | None:
    """The answer of `/version` promises no newer API than the gate knows."""
    return versions.clamp_version_body if status == 200 else None


def _as_it_is(status: int) -> Rewrite | None:
    return None


def _protocol(outgoing: Outgoing) -> str:
    """The daemon looks only at the presence of the header for attach and exec; the policy names any other."""
    return next((value for name, value in outgoing.headers if name == "upgrade"), "tcp")


def _shown(status: int) -> bool:
    return False


def _worked(status: int) -> bool:
    """The first of two requests: its success is for the gate only."""
    return 200 <= status < 300 or status == 304


class Memo:
    """What one repo's heads came to under one view."""

    def __init__(self) -> None:
        self._view: RepoView | None = None
        self._prepared: dict[bytes, Prepared] = {}

    def find(self, head: bytes, view: RepoView) -> Prepared | None:
        """What `head` came to under this very view."""
        return self._prepared.get(head) if view is self._view and len(head) <= HEAD_MAX else None

    def keep(self, head: bytes, view: RepoView, prepared: Prepared) -> None:
        """`prepared` followed from nothing but `head` and `view`."""
        if not prepared.repeatable or len(head) > HEAD_MAX:
            return
        if view is not self._view or len(self._prepared) >= MOST:
            self._prepared = {}
            self._view = view
        self._prepared[head] = prepared
