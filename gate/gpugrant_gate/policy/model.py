"""The values that the policy takes and gives; what passes is always a newly written request.

The order of one request: `routes.route(head, repo)` names the route, the net reads the body that the route
asks for, `judge.needs(routed, body, repo, facts)` names the facts that only the daemon or the file system can tell, the
net gathers them, and `judge.judge(routed, body, facts, repo)` decides. Each step may refuse.

Facts come in rounds, for one may lead to the next (an exec to its container, a container to its volumes):

    facts: dict[Fact, Any] = {}
    while missing := needs.facts not yet in facts:      # needs = judge.needs(routed, body, repo, facts)
        gather them all into facts
    decision = judge.judge(routed, body, facts, repo)

It ends after at most `MAX_ROUNDS` rounds. `judge` refuses where a fact that it wants is absent. The body is handed
over for `Body.JUDGED` and `Body.NONE` (there it may only be empty, `{}` or `null`); it is empty for `Body.STREAM`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gpugrant_gate.policy.pins import Pin

MAX_ROUNDS = 3
"""The longest chain of facts: an exec, its container, that container's volumes and paths."""


MOST_TOLD = 64
"""Violations in one message: more than anybody mends in one go."""


class Body(Enum):
    """What the net does with the client's body."""

    NONE = "none"
    """Must be empty (or `{}`/`null` where a client sends that); nothing is sent on."""
    JUDGED = "judged"
    """Read whole, at most 2 MiB and 20,000 JSON nodes (design 5), judged, written anew."""
    STREAM = "stream"
    """Copied as it comes, with back-pressure."""


class Exchange(Enum):
    """How the answer is carried."""

    PLAIN = "plain"
    HIJACK = "hijack"
    """A byte pipe both ways, opened only on the daemon's 101 or its known 200 form (reference: moby hijack routes)."""


@dataclass(frozen=True, slots=True)
class Head:
    """A request head whose framing the wire has accepted."""

    method: str
    target: str
    """Origin-form as sent, ASCII."""
    headers: tuple[tuple[str, str], ...]
    """Names in lower case, in the order sent."""
    version: tuple[int, int]
    has_body: bool
    """True when Content-Length is above 0 or the body is chunked."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule that a request breaks."""

    rule: str
    """The rule's id, e.g. `hw.devices`."""
    message: str
    """One clause for a person, lower case, without a full stop; says what to write instead where there is something."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The request is answered by the gate itself."""

    status: int
    violations: tuple[Violation, ...]
    """Hardware first (design 5)."""
    route: str = ""
    missing: tuple[str, ...] = ()
    """Device names that were asked for without a grant."""

    @property
    def message(self) -> str:
        """The text of Docker's `{"message": …}`: every violation with its rule's id, at most `MOST_TOLD` of them."""
        told = [f"{found.message} [{found.rule}]" for found in self.violations[:MOST_TOLD]]
        more = len(self.violations) - len(told)
        return "; ".join([*told, f"and {more} more"] if more else told)


@dataclass(frozen=True, slots=True)
class Routed:
    """A request whose endpoint is known."""

    route: str
    """The route's id, e.g. `container.create`: a key of the route table, a label in audit and metrics."""
    method: str
    version: str
    """`1.45`, or "" when the client sent no prefix."""
    segments: tuple[str, ...]
    """Decoded path segments behind the prefix."""
    query: tuple[tuple[str, str], ...]
    """Decoded, known keys only, in the order sent."""
    headers: tuple[tuple[str, str], ...]
    """Those that are sent on."""
    body: Body
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class ContainerFact:
    """`GET /containers/{name}/json`; the fact is the decoded object, or None when the daemon has no such container."""

    name: str


@dataclass(frozen=True, slots=True)
class VolumeFact:
    """`GET /volumes/{name}`; the decoded object, or None."""

    name: str


@dataclass(frozen=True, slots=True)
class NetworkFact:
    """`GET /networks/{name}`; the decoded object, or None."""

    name: str


@dataclass(frozen=True, slots=True)
class ListenersFact:
    """Who listens on abstract Unix sockets of the machine's network: a tuple of their names, without `@`."""


@dataclass(frozen=True, slots=True)
class InfoFact:
    """`GET /info`; the decoded object, or None."""


@dataclass(frozen=True, slots=True)
class ExecFact:
    """`GET /exec/{id}/json`; the decoded object, or None."""

    id: str


@dataclass(frozen=True, slots=True)
class ImageFact:
    """`GET /images/{name}/json`; the decoded object, or None."""

    name: str


@dataclass(frozen=True, slots=True)
class PathFact:
    """What lies at a bind source now; the fact is a PathInfo."""

    path: str


@dataclass(frozen=True, slots=True)
class PathInfo:
    """A bind source as the gate's own lstat of every component sees it."""

    kind: str
    """`directory`, `file`, `socket`, `other` or `missing`."""
    symlink: bool
    """A component is a symbolic link."""
    swappable: bool
    """Somebody other than root, or a container of this repo (it is root in its binds), can rename or replace a
    component between this look and the daemon's."""


Fact = ContainerFact | VolumeFact | NetworkFact | ListenersFact | InfoFact | ExecFact | ImageFact | PathFact
Facts = Mapping[Fact, Any]


@dataclass(frozen=True, slots=True)
class Needs:
    """The facts without which a decision can't be made; empty: none."""

    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as the gate writes it to the daemon."""

    method: str
    target: str
    """With an explicit API version wherever the route has one."""
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
    """None: the client's stream follows, chunked. Otherwise sent with its Content-Length."""
    exchange: Exchange = Exchange.PLAIN
    plain_tar: bool = False
    """The client's stream must be a tar that is not compressed; the net looks at its first block."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The request passes, as `outgoing`."""

    route: str
    outgoing: Outgoing
    devices: tuple[str, ...] = ()
    """CDI names that this request attaches or starts; a snapshot that takes one of them away waits for it."""
    pins: tuple[Pin, ...] = ()
    """Bind sources that must be in their places, in the daemon's mount namespace, before the request is sent."""
    starts: str = ""
    """The full id of the container that this starts with devices: it is noted down before it goes on."""
    then: Routed | None = None
    """After a success (2xx or 304) of `outgoing`, whose answer isn't shown, this is judged afresh: a restart is a stop,
    then a start."""
    build: bool = False
    """A request to the daemon's BuildKit, most often a tunnel in which nothing is seen: it goes to the daemon that was
    judged and no other, and is cut as soon as it would not be let in any more."""


Decision = Admission | Refusal


@dataclass(frozen=True, slots=True)
class RepoView:
    """All that a decision may know of a repo, at one moment."""

    name: str
    machine: str
    granted: frozenset[str]
    """CDI names in force for this repo now; empty where the repo or its daemon is unfit, see `unfit`."""
    devices: tuple[str, ...] = ()
    """Every usable CDI name of this machine now, sorted; for hints only."""
    unfit: str = ""
    """Why this repo gets no hardware at all (R52), a clause with its mend; empty: fit."""
    withheld: str = ""
    """Why no grant counts here although the daemon may be fit (no snapshot, a broken file, a doubled id); a clause."""
    binds: tuple[str, ...] = ()
    """Folders below which a bind's source may lie."""
    above: tuple[str, ...] = ()
    """Folders above them in which other repos are root."""
    pins: str = ""
    """The folder in which swappable sources are pinned; empty: the repo has no id, and such sources are refused."""
    as_named: bool = False
    """Sources are mounted by the daemon as they are named, whoever may swap them (`bindsPinned: false`)."""
    socket: str = ""
    """The gate's own socket for this repo."""
    hidden: tuple[str, ...] = ()
    """Host trees of this installation that no container may see: the gate's and the daemons' folders and sockets."""
    open: frozenset[str] = frozenset()
    """Host rules that are open for this repo, as `gpugrant_crds.openings` names them."""
    api_version: str = ""
    """min(the daemon's newest, the gate's newest); upstream requests without a prefix get this one."""
    buildkit: str = "it is not known what its daemon lets builds reach"
    """Why builds with BuildKit are refused here, clauses with their mend; empty: they pass."""

    def opens(self, rule: str, value: str = "") -> bool:
        """Whether this host rule is open, for this value where it has values."""
        return (f"{rule}={value}" if value else rule) in self.open

    @property
    def translated(self) -> str:
        """`pins` where a daemon's answers may name places in it; empty elsewhere, so that answers pass untouched."""
        return self.pins if self.binds or self.opens("host.docker-socket") else ""
