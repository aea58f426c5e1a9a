"""Judges one request that was read from a file, and says why: the rules, the message, the request as it would go on.

For people who write a policy or wonder about a refusal. It opens nothing: what only a daemon can tell comes from
answers that are handed in, else it is taken as absent, and that is said; bind sources are looked at by a function that
is handed in.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpugrant_gate.net import facts as questions
from gpugrant_gate.policy import judge, routes, strictjson
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
    came: bytes = b""
    """The client's body."""

    @property
    def admitted(self) -> bool:
        return isinstance(self.decision, Admission)

    @property
    def asks_for_hardware(self) -> bool:
        """Whether grants had a say in the verdict."""
        match self.decision:
            case Admission() as admission:
                return bool(admission.devices)
            case Refusal() as refusal:
                return any(found.rule == "hw.grant" for found in refusal.violations)

    @property
    def text(self) -> str:
        """The verdict for a terminal, ending with a newline."""
        match self.decision:
            case Admission() as admission:
                lines = _admitted(admission, self.came)
            case Refusal() as refusal:
                lines = _refused(refusal)
        first, *rest = lines
        head = [first, f"route:   {self.route or '-'}", *rest]
        return "\n".join([*(f"note:    {note}" for note in self.notes), *head]) + "\n"


@dataclass(frozen=True, slots=True)
class Answers:
    """What a daemon said, as `docker inspect` and `docker info -f json` print it."""

    objects: tuple[Mapping[str, Any], ...] = ()
    given: bool = False
    """There are answers; what they don't tell is not there. Otherwise nobody was asked."""

    def to(self, fact: Fact) -> Any:
        """The object that answers the fact; None where there is none."""
        return next((found for found in self.objects if _answers(found, fact)), None)

    @property
    def info(self) -> Mapping[str, Any] | None:
        """`docker info -f json`."""
        found: Mapping[str, Any] | None = self.to(InfoFact())
        return found

    @property
    def version(self) -> dict[str, Any] | None:
        """The server's part of `docker version -f json`, or `GET /version`."""
        for found in self.objects:
            server = found.get("Server", found)
            if type(server) is dict and "ApiVersion" in server and "Version" in server:
                return server
        return None


def answers(values: Iterable[Any]) -> Answers:
    """The answers in decoded JSON values, lists of objects among them; raises ValueError for anything else."""
    objects: list[Mapping[str, Any]] = []
    for value in values:
        for entry in value if type(value) is list else [value]:
            if type(entry) is not dict or not _KINDS & entry.keys():
                raise ValueError("it must hold JSON objects, as docker inspect prints them, or docker info")
            objects.append(entry)
    return Answers(tuple(objects), given=True)


_KINDS = frozenset({"HostConfig", "Mountpoint", "IPAM", "ContainerID", "DefaultRuntime", "Server", "ApiVersion"})
"""The keys by which a container's answer is known, a volume's, a network's, an exec's, the daemon's own."""


def _answers(found: Mapping[str, Any], fact: Fact) -> bool:
    names = {str(found.get(key, "")).lstrip("/") for key in ("Id", "ID", "Name")}
    match fact:
        case ContainerFact(name):
            return "HostConfig" in found and (name in names or _is_short(name, found))
        case VolumeFact(name):
            return "Mountpoint" in found and name in names
        case NetworkFact(name):
            return "IPAM" in found and (name in names or _is_short(name, found))
        case ExecFact(id_):
            return "ContainerID" in found and id_ in names
        case InfoFact():
            return "DefaultRuntime" in found
        case _:
            return False


_SHORT = 12
"""Digits of an id as docker prints it."""


def _is_short(name: str, found: Mapping[str, Any]) -> bool:
    return len(name) >= _SHORT and str(found.get("Id", "")).startswith(name)


def explain(raw: bytes, repo: RepoView, look: Callable[[str], PathInfo], known: Answers | None = None) -> Explanation:
    """The verdict on the HTTP request that `raw` holds: head, empty line, body; lines of the head may end with LF."""
    notes: list[str] = []
    try:
        head, body = _parsed(raw, notes)
    except (Malformed, Truncated) as error:
        return Explanation(_malformed(error), "", tuple(notes))
    routed = routes.route(head, repo)
    if isinstance(routed, Refusal):
        return Explanation(routed, routed.route, tuple(notes))
    decision = _judged(routed, body, repo, look, known or Answers(), notes)
    return Explanation(decision, routed.route, tuple(notes), body)


def _parsed(raw: bytes, notes: list[str]) -> tuple[Head, bytes]:
    head_bytes, rest = _split(raw, notes)
    parsed = heads.parse_request(head_bytes)
    body = _body(parsed, rest, notes)
    return Head(parsed.method, parsed.target, parsed.headers, parsed.version, bool(body)), body


def _split(raw: bytes, notes: list[str]) -> tuple[bytes, bytes]:
    """The head with CRLF line ends, its empty line included, and what follows it."""
    if b"\r\n\r\n" in raw:
        head, _, rest = raw.partition(b"\r\n\r\n")
    else:
        head, end, rest = raw.partition(b"\n\n")
        if not end:
            notes.append("the file ends before the empty line that ends a head: the gate would wait for it")
        if b"\n" in head.replace(b"\r\n", b""):
            notes.append("lines of the file's head end with LF, which the gate refuses (wire.line-end): judged as CRLF")
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


def _judged(
    routed: Routed, body: bytes, repo: RepoView, look: Callable[[str], PathInfo], known: Answers, notes: list[str]
) -> Decision:
    facts: dict[Fact, Any] = {}
    for _ in range(MAX_ROUNDS):
        needs = judge.needs(routed, body, repo, facts)
        if isinstance(needs, Refusal):
            return needs
        asked = [fact for fact in needs.facts if fact not in facts]
        if not asked:
            break
        for fact in asked:
            facts[fact] = _found(fact, look, known)
            notes.append(_note(fact, facts[fact], known))
    if not known.given and any(_is_daemons(fact) for fact in facts):
        notes.append("the verdict depends on the daemon's answers: give them with --facts FILE")
    return judge.judge(routed, body, facts, repo)


def _is_daemons(fact: Fact) -> bool:
    return not isinstance(fact, PathFact | ListenersFact)


def _found(fact: Fact, look: Callable[[str], PathInfo], known: Answers) -> Any:
    match fact:
        case PathFact(path):
            return look(path)
        case ListenersFact():
            return ()
        case _:
            return known.to(fact)


def _note(fact: Fact, found: Any, known: Answers) -> str:
    if isinstance(fact, PathFact):
        return f"{fact.path} on this machine: {found.kind}"
    if isinstance(fact, ListenersFact):
        return "nobody on the machine's network is taken to hand out devices"
    question = f"GET {questions.target(fact, '')}"
    if not known.given:
        return f"the gate would ask the daemon {question}: it is taken to have no {_what(fact)}"
    return f"the daemon's answer to {question} is {'given' if found is not None else f'taken to be: no {_what(fact)}'}"


def _what(fact: questions.Asked) -> str:
    match fact:
        case ContainerFact(name):
            return f"container {name}"
        case VolumeFact(name):
            return f"volume {name}"
        case NetworkFact(name):
            return f"network {name}"
        case ExecFact(id_):
            return f"exec {id_}"
        case ImageFact(name):
            return f"image {name}"
        case InfoFact():
            return "settings of its own"


def _malformed(error: Exception) -> Refusal:
    if isinstance(error, Malformed):
        return routes.refuse(error.status, error.rule, error.message)
    return routes.refuse(400, "wire.truncated", "the request ends in the middle")


def _admitted(admission: Admission, came: bytes) -> list[str]:
    outgoing = admission.outgoing
    lines = ["verdict: admitted"]
    if admission.devices:
        lines.append(f"devices: {', '.join(admission.devices)}")
    if admission.then is not None:
        lines.append(f"then:    {admission.then.route}, judged afresh")
    lines += ["sent on:", f"  {outgoing.method} {outgoing.target} HTTP/1.1"]
    lines += [f"  {name}: {value}" for name, value in outgoing.headers if name not in _SECRET]
    lines += ["", *_bodies(came, outgoing.body)]
    return [line.rstrip() for line in lines]


def _bodies(came: bytes, goes_on: bytes | None) -> list[str]:
    """The body that goes on, whole, with what the gate changed in it."""
    if goes_on is None:
        return ["  (the body as it comes)"]
    before, after = _written(came), _written(goes_on)
    if not after:
        return ["  (no body)"]
    if before == after:
        return ["body, as it came:", *after]
    return list(difflib.unified_diff(before, after, "body as it came", "body as it goes on", n=len(after), lineterm=""))


def _written(body: bytes) -> list[str]:
    """The JSON value a line a member, keys sorted, without credentials."""
    if not body:
        return []
    value = _without_secrets(strictjson.decode(body))
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2).splitlines()


_SECRET = ("x-registry-auth", "x-registry-config")
_SECRET_KEYS = frozenset({"password", "auth", "authconfig", "identitytoken", "registrytoken"})
"""Of a registry's credentials (moby api/types/registry AuthConfig), and what dockerode calls them."""


def _without_secrets(value: Any) -> Any:
    if type(value) is list:
        return [_without_secrets(entry) for entry in value]
    if type(value) is not dict:
        return value
    return {
        key: "(not shown)" if key.lower() in _SECRET_KEYS and entry else _without_secrets(entry)
        for key, entry in value.items()
    }


def _refused(refusal: Refusal) -> list[str]:
    lines = [f"verdict: refused with status {refusal.status}"]
    return [*lines, *(f"rule:    {found.rule}: {found.message}" for found in refusal.violations)]
