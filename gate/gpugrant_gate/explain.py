"""Judges one request that was read from a file, and says why: the rules, the message, the request as it would go on.

For people who write a policy or wonder about a refusal. It opens nothing: what only a daemon can tell is taken as
absent, and that is said; bind sources are looked at by the function that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpugrant_gate.policy import judge, routes
from gpugrant_gate.policy.model import (
    MAX_ROUNDS,
    Admission,
    ContainerFact,
    Decision,
    ExecFact,
    Fact,
    Head,
    ImageFact,
    InfoFact,
    ListenersFact,
    NetworkFact,
    PathFact,
    PathInfo,
    Refusal,
    RepoView,
    Routed,
    VolumeFact,
)
from gpugrant_gate.wire import framing, heads
from gpugrant_gate.wire.faults import Malformed, Truncated
from gpugrant_gate.wire.framing import Kind


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the gate would do with the request."""

    decision: Decision
    route: str
    """The route's id; empty where the endpoint is not known."""
    notes: tuple[str, ...]
    """What was taken for granted."""

    @property
    def admitted(self) -> bool:
        return isinstance(self.decision, Admission)

    @property
    def text(self) -> str:
        """The verdict for a terminal, ending with a newline."""
        match self.decision:
            case Admission() as admission:
                lines = _admitted(admission)
            case Refusal() as refusal:
                lines = _refused(refusal)
        first, *rest = lines
        head = [first, f"route:   {self.route or '-'}", *rest]
        return "\n".join([*(f"note:    {note}" for note in self.notes), *head]) + "\n"


def explain(raw: bytes, repo: RepoView, look: Callable[[str], PathInfo]) -> Explanation:
    """The verdict on the HTTP request that `raw` holds: head, empty line, body; lines of the head may end with LF."""
    notes: list[str] = []
    try:
        head, body = _parsed(raw, notes)
    except (Malformed, Truncated) as error:
        return Explanation(_malformed(error), "", tuple(notes))
    routed = routes.route(head, repo)
    if isinstance(routed, Refusal):
        return Explanation(routed, routed.route, tuple(notes))
    decision = _judged(routed, body, repo, look, notes)
    return Explanation(decision, routed.route, tuple(notes))


def _parsed(raw: bytes, notes: list[str]) -> tuple[Head, bytes]:
    head_bytes, rest = _split(raw)
    parsed = heads.parse_request(head_bytes)
    body = _body(parsed, rest, notes)
    return Head(parsed.method, parsed.target, parsed.headers, parsed.version, bool(body)), body


def _split(raw: bytes) -> tuple[bytes, bytes]:
    """The head with CRLF line ends, its empty line included, and what follows it."""
    if b"\r\n\r\n" in raw:
        head, _, rest = raw.partition(b"\r\n\r\n")
    else:
        head, _, rest = raw.partition(b"\n\n")
        head = head.rstrip(b"\r\n").replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    return head + b"\r\n\r\n", rest


def _body(parsed: heads.RequestHead, rest: bytes, notes: list[str]) -> bytes:
    if parsed.framing.kind is Kind.CHUNKED:
        decoder = framing.decoder(parsed.framing)
        body = decoder.feed(rest)
        if not decoder.done:
            decoder.eof()
        return body
    length = parsed.framing.length if parsed.framing.kind is Kind.LENGTH else 0
    if length not in (len(rest), len(rest.rstrip(b"\r\n"))):
        notes.append(f"the head announces {length} bytes of body; the file's {len(rest)} are judged")
    return rest.rstrip(b"\r\n")


def _judged(routed: Routed, body: bytes, repo: RepoView, look: Callable[[str], PathInfo], notes: list[str]) -> Decision:
    facts: dict[Fact, Any] = {}
    for _ in range(MAX_ROUNDS):
        needs = judge.needs(routed, body, repo, facts)
        if isinstance(needs, Refusal):
            return needs
        asked = [fact for fact in needs.facts if fact not in facts]
        if not asked:
            break
        for fact in asked:
            facts[fact] = _found(fact, look)
            notes.append(_note(fact, facts[fact]))
    return judge.judge(routed, body, facts, repo)


def _found(fact: Fact, look: Callable[[str], PathInfo]) -> Any:
    match fact:
        case PathFact(path):
            return look(path)
        case ListenersFact():
            return ()
        case _:
            return None


def _note(fact: Fact, found: Any) -> str:
    match fact:
        case PathFact(path):
            return f"{path} on this machine: {found.kind}"
        case ContainerFact(name):
            return f"no daemon is asked: there is no container {name}"
        case VolumeFact(name):
            return f"no daemon is asked: there is no volume {name} yet"
        case NetworkFact(name):
            return f"no daemon is asked: there is no network {name}"
        case ListenersFact():
            return "nobody on the machine's network is taken to hand out devices"
        case InfoFact():
            return "no daemon is asked for its own settings"
        case ExecFact(id_):
            return f"no daemon is asked: there is no exec {id_}"
        case ImageFact(name):
            return f"no daemon is asked: there is no image {name}"


def _malformed(error: Exception) -> Refusal:
    if isinstance(error, Malformed):
        return routes.refuse(error.status, error.rule, error.message)
    return routes.refuse(400, "wire.truncated", "the request ends in the middle")


def _admitted(admission: Admission) -> list[str]:
    outgoing = admission.outgoing
    lines = ["verdict: admitted"]
    if admission.devices:
        lines.append(f"devices: {', '.join(admission.devices)}")
    if admission.then is not None:
        lines.append(f"then:    {admission.then.route}, judged afresh")
    lines += ["sent on:", f"  {outgoing.method} {outgoing.target} HTTP/1.1"]
    lines += [f"  {name}: {value}" for name, value in outgoing.headers if name not in _SECRET]
    lines.append("")
    lines.append("  (the body as it comes)" if outgoing.body is None else f"  {outgoing.body.decode()}")
    return [line.rstrip() for line in lines]


_SECRET = ("x-registry-auth", "x-registry-config")


def _refused(refusal: Refusal) -> list[str]:
    lines = [f"verdict: refused with status {refusal.status}"]
    return [*lines, *(f"rule:    {found.rule}: {found.message}" for found in refusal.violations)]
