"""Decides: from a routed request, its body and the facts to the request that goes on, or a refusal.

What goes on is always written anew from what was judged. A fact that is wanted and absent refuses (fail closed), and so
does a daemon's answer that can't be understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from gpugrant_gate.policy import bodies, container, messages, mounts, rules, shapes, strictjson, target
from gpugrant_gate.policy.bodies import Kind
from gpugrant_gate.policy.container import Container
from gpugrant_gate.policy.model import (
    Admission,
    Body,
    ContainerFact,
    Decision,
    Exchange,
    ExecFact,
    Fact,
    Facts,
    Needs,
    Outgoing,
    Refusal,
    RepoView,
    Routed,
    Violation,
)
from gpugrant_gate.policy.routes import CONTAINER, echoed, refuse
from gpugrant_gate.policy.strictjson import BodyRefused, quoted

_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)
_JSON = ("content-type", "application/json")
_TAR = ("content-type", "application/x-tar")
_EMPTY = (b"", b"{}", b"null")
_NO_FACTS: Facts = {}


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
    return _pass(asked) if row is None else row.decide(asked)


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


# what goes on


def _outgoing(
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


def _pass(asked: Asked) -> Admission:
    return Admission(asked.routed.route, _outgoing(asked))


def _refused(asked: Asked, violations: tuple[Violation, ...], missing: tuple[str, ...] = ()) -> Refusal:
    return Refusal(403, violations, asked.routed.route, missing)


def _by_messages(asked: Asked, *found: tuple[str, str]) -> tuple[Violation, ...]:
    """Violations of (rule, message) pairs, then the body's faults."""
    return (*(Violation(rule, message) for rule, message in found), *asked.faults)


def _decide(asked: Asked, violations: tuple[Violation, ...], body: Mapping[str, Any] | None) -> Decision:
    if violations:
        return _refused(asked, violations)
    return Admission(asked.routed.route, _outgoing(asked, body))


# create


def _wanted_for_create(asked: Asked) -> tuple[Fact, ...]:
    wanted = container.from_body(asked.body, ())
    shared = tuple(
        ContainerFact(name)
        for field in ("NetworkMode", "IpcMode")
        if (name := rules.shared_with(wanted, field)) is not None and CONTAINER.fullmatch(name)
    )
    return (*shared, *mounts.lenders(wanted), *mounts.wanted(_with_borrowed(wanted, asked.facts), asked.repo))


def _with_borrowed(wanted: Container, facts: Facts) -> Container:
    """The container with the mounts that VolumesFrom brings, and a fault for each lender that isn't there."""
    lent: list[container.Mount] = []
    faults: list[Violation] = []
    for lender in mounts.lenders(wanted):
        found = facts.get(lender)
        known = _inspected(found)
        if known is None:
            faults.append(Violation("host.volumes-from", f"VolumesFrom: there is no container {quoted(lender.name)}"))
        else:
            lent.extend(known.mounts)
    return replace(wanted, mounts=(*wanted.mounts, *lent), faults=(*wanted.faults, *faults))


def _create(asked: Asked) -> Decision:
    wanted = _with_borrowed(container.from_body(asked.body, asked.faults), asked.facts)
    violations = rules.judge(wanted, asked.repo, asked.facts)
    if violations:
        return _refused(asked, violations, rules.missing(wanted, asked.repo))
    body = {**asked.body, "HostConfig": _rewritten(wanted, asked.facts)}
    return Admission("container.create", _outgoing(asked, body), devices=wanted.names)


def _rewritten(wanted: Container, facts: Facts) -> dict[str, Any]:
    """HostConfig as it goes on: runc, one CDI request, clean sources, other containers by id."""
    host = {**_without_silent(wanted.host), "Runtime": "runc"}
    if wanted.names:
        host["DeviceRequests"] = [
            {"Driver": "cdi", "Count": 0, "DeviceIDs": list(wanted.names), "Capabilities": None, "Options": None}
        ]
    if "CapAdd" in host:
        host["CapAdd"] = list(rules.capabilities(wanted))
    if "Binds" in host:
        host["Binds"] = [_clean_bind(text) for text in host["Binds"]]
    if "Mounts" in host:
        host["Mounts"] = [_clean_mount(entry) for entry in host["Mounts"]]
    if "VolumesFrom" in host:
        borrowed = mounts.borrowed(wanted)
        ids = [(_id_of(facts, name), modes) for name, modes in borrowed]
        host["VolumesFrom"] = [f"{id_}:{modes}" if modes else id_ for id_, modes in ids]
    for field in ("NetworkMode", "IpcMode"):
        name = rules.shared_with(wanted, field)
        if name is not None:
            host[field] = f"container:{_id_of(facts, name)}"
    return host


_SILENT = frozenset(
    {"Devices", "DeviceRequests", "DeviceCgroupRules", "Privileged", "PidMode", "Cgroup", "CgroupParent", "Annotations"}
)
"""Fields that say nothing wherever a request passes: a daemon never sees them from us."""


def _without_silent(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in _SILENT}


def _clean_bind(text: str) -> str:
    source, colon, rest = text.partition(":")
    return f"{mounts.clean(source) or source}{colon}{rest}" if colon else text


def _clean_mount(entry: dict[str, Any]) -> dict[str, Any]:
    if entry.get("Type") != "bind":
        return entry
    return {**entry, "Source": mounts.clean(entry.get("Source", "")) or ""}


def _id_of(facts: Facts, name: str) -> str:
    found = facts.get(ContainerFact(name))
    id_ = found.get("Id") if isinstance(found, dict) else None
    # Only reached when a rule has seen this container; a name that is no id would be looked up afresh by the daemon.
    return id_ if isinstance(id_, str) and _ID.fullmatch(id_) else "0" * 64


# start and what is judged like it


def _inspected(found: Any) -> Container | None:
    """The container of an inspect answer; None where there is none or it can't be understood."""
    if not isinstance(found, dict) or not _ID.fullmatch(str(found.get("Id", ""))):
        return None
    try:
        return container.from_inspect(found)
    except (BodyRefused, TypeError, AttributeError):
        return None


def _known(asked: Asked, fact: ContainerFact) -> tuple[Container, str] | Refusal:
    """The container and its full id, or why it can't be judged; Docker's own words where there is none."""
    if fact not in asked.facts:
        return _refused(asked, (Violation("gate.facts", f"the container {quoted(fact.name)} could not be looked at"),))
    found = asked.facts[fact]
    if found is None:
        return refuse(404, "gate.facts", f"No such container: {fact.name}", asked.routed.route)
    known = _inspected(found)
    if known is None:
        message = f"the daemon describes the container {quoted(fact.name)} in a way that the gate does not know"
        return _refused(asked, (Violation("gate.facts", message),))
    return known, found["Id"]


def _wanted_for_start(asked: Asked) -> tuple[Fact, ...]:
    known = _inspected(asked.facts.get(asked.named))
    if known is None:
        return (asked.named,)
    return (asked.named, *_wanted_of(known, asked.repo))


def _wanted_of(known: Container, repo: RepoView) -> tuple[Fact, ...]:
    shared = tuple(
        ContainerFact(name)
        for field in ("NetworkMode", "IpcMode")
        if (name := rules.shared_with(known, field)) is not None and CONTAINER.fullmatch(name)
    )
    return (*shared, *mounts.wanted(known, repo))


def _startable(asked: Asked) -> tuple[Container, str] | Refusal:
    known = _known(asked, asked.named)
    if isinstance(known, Refusal):
        return known
    held, id_ = known
    violations = rules.judge(held, asked.repo, asked.facts)
    if violations:
        return _refused(asked, violations, rules.missing(held, asked.repo))
    return held, id_


def _start(asked: Asked) -> Decision:
    startable = _startable(asked)
    if isinstance(startable, Refusal):
        return startable
    held, id_ = startable
    return Admission("container.start", _outgoing(asked, id_=id_), devices=held.names)


def _restart(asked: Asked) -> Decision:
    """Judged before it is stopped, so that a refused restart leaves it running, and again before it is started."""
    startable = _startable(asked)
    if isinstance(startable, Refusal):
        return startable
    held, id_ = startable
    if held.host.get("AutoRemove"):
        message = "a restart here is a stop and a start, and a container with --rm is gone once stopped: run it anew"
        return _refused(asked, (Violation("start.auto-remove", message),))
    routed = asked.routed
    stop = replace(routed, route="container.stop", segments=("containers", id_, "stop"))
    path = ("containers", id_, "start")
    start = replace(routed, route="container.start", segments=path, query=(), body=Body.NONE)
    return Admission("container.restart", _outgoing(replace(asked, routed=stop)), devices=held.names, then=start)


def _running(asked: Asked, fact: ContainerFact) -> tuple[Container, str] | Refusal:
    """For what goes on in a container that runs: only its hardware counts."""
    known = _known(asked, fact)
    if isinstance(known, Refusal):
        return known
    held, id_ = known
    violations = rules.hardware(held, asked.repo, asked.facts)
    if violations:
        return _refused(asked, violations, rules.missing(held, asked.repo))
    return held, id_


def _unpause(asked: Asked) -> Decision:
    running = _running(asked, asked.named)
    if isinstance(running, Refusal):
        return running
    held, id_ = running
    return Admission("container.unpause", _outgoing(asked, id_=id_), devices=held.names)


def _exec_create(asked: Asked) -> Decision:
    if asked.body.get("Privileged"):
        message = "a privileged exec is refused: it opens every capability of the machine"
        return _refused(asked, _by_messages(asked, ("hw.privileged", message)))
    if asked.faults:
        return _refused(asked, asked.faults)
    running = _running(asked, asked.named)
    if isinstance(running, Refusal):
        return running
    held, id_ = running
    return Admission("exec.create", _outgoing(asked, asked.body, id_=id_), devices=held.names)


def _exec_of(asked: Asked) -> ExecFact:
    return ExecFact(asked.routed.segments[1])


def _wanted_for_exec_start(asked: Asked) -> tuple[Fact, ...]:
    place = _place_of(asked.facts.get(_exec_of(asked)))
    return (_exec_of(asked),) if place is None else (_exec_of(asked), *_wanted_of_running(asked, place))


def _wanted_of_running(asked: Asked, fact: ContainerFact) -> tuple[Fact, ...]:
    """What the hardware rules want to know of a container that runs."""
    known = _inspected(asked.facts.get(fact))
    return (fact,) if known is None else (fact, *mounts.wanted_volumes(known))


def _place_of(found: Any) -> ContainerFact | None:
    id_ = found.get("ContainerID") if isinstance(found, dict) else None
    return ContainerFact(id_) if isinstance(id_, str) and _ID.fullmatch(id_) else None


def _exec_start(asked: Asked) -> Decision:
    fact = _exec_of(asked)
    found = asked.facts.get(fact, "")
    if found is None:
        return refuse(404, "gate.facts", f"No such exec instance: {fact.id}", asked.routed.route)
    place = _place_of(found)
    if place is None:
        return _refused(asked, (Violation("gate.facts", "the exec could not be looked at"),))
    process = found.get("ProcessConfig")
    if isinstance(process, dict) and process.get("privileged"):
        return _refused(asked, (Violation("hw.privileged", "a privileged exec is refused"),))
    if asked.faults:
        return _refused(asked, asked.faults)
    running = _running(asked, place)
    if isinstance(running, Refusal):
        return running
    held, _ = running
    exchange = Exchange.PLAIN if asked.body.get("Detach") else Exchange.HIJACK
    return Admission("exec.start", _outgoing(asked, asked.body, exchange=exchange), devices=held.names)


def _sets_policy(asked: Asked) -> bool:
    return asked.body.get("RestartPolicy", {}).get("Name", "") not in ("", "no")


def _update(asked: Asked) -> Decision:
    """Limits pass; hardware never comes by an update, and a policy that starts a container is judged like a start."""
    wanted = Container(
        host=asked.body, config={}, endpoints={}, requests=(), devices=(), mounts=(), faults=asked.faults
    )
    found = [
        ("hw.update", f"field {field} of an update is refused: make the container anew")
        for field in ("Devices", "DeviceRequests")
        if not bodies.is_zero(asked.body.get(field))
    ]
    named = [Violation(rule, message) for rule, message in found]
    violations = (*named, *rules.judge(wanted, asked.repo, asked.facts))
    if violations:
        return _refused(asked, violations)
    body = _without_silent(asked.body)
    if not _sets_policy(asked):
        return Admission("container.update", _outgoing(asked, body))
    running = _running(asked, asked.named)
    if isinstance(running, Refusal):
        return running
    held, id_ = running
    return Admission("container.update", _outgoing(asked, body, id_=id_), devices=held.names)


# files, images, volumes, networks, builds


def _archive(asked: Asked) -> Decision:
    """For files in and out the daemon mounts what the container has, running or not: only its mounts count."""
    known = _known(asked, asked.named)
    if isinstance(known, Refusal):
        return known
    held, id_ = known
    violations = rules.mounted(held, asked.repo, asked.facts)
    if violations:
        return _refused(asked, violations)
    plain_tar = asked.routed.body is Body.STREAM
    return Admission(asked.routed.route, replace(_outgoing(asked, id_=id_), plain_tar=plain_tar))


def _commit(asked: Asked) -> Decision:
    return _decide(asked, asked.faults, asked.body or None)


def _import(asked: Asked) -> Decision:
    source = dict(asked.routed.query).get("fromSrc")
    if source != "-":
        message = "an import from an address is refused, for the daemon would fetch it: docker import - < FILE"
        return _refused(asked, (Violation("host.import", message),))
    return _pass(asked)


_BUILD_NETWORKS = ("", "default", "none", "bridge")
_BUILD_EMPTY = {
    "cgroupparent": ("hw.cgroup", "a cgroup parent is refused"),
    "securityopt": ("host.security", "security options are refused"),
    "session": ("build.buildkit", messages.BUILDKIT),
    "remote": ("build.remote", "a build from an address is refused, for the daemon would fetch it: send the folder"),
}
_SAYS_NOTHING = ("", "[]", "{}", "null")
"""Of values that are JSON. As a cgroup's path `null` is a name like any other."""
_JSON_KEYS = frozenset({"securityopt", "outputs"})


def _build(asked: Asked) -> Decision:
    query = dict(asked.routed.query)
    found = [why for key, why in _BUILD_EMPTY.items() if _says(query, key)]
    if query.get("version", "") not in ("", "1") or _says(query, "outputs"):
        found.append(("build.buildkit", messages.BUILDKIT))
    if query.get("networkmode", "") not in _BUILD_NETWORKS:
        network = quoted(query["networkmode"])
        found.append(("host.network", f"the build network {network} is refused; default, bridge and none pass"))
    if query.get("isolation", "") not in ("", "default"):
        found.append(("host.isolation", "isolation is for Windows containers"))
    if asked.repo.unfit:
        # Its RUN steps run under the daemon's default runtime, which may add devices by itself.
        found.append(("hw.unfit", f"builds are refused in repo {asked.repo.name}: {asked.repo.unfit}"))
    found.sort(key=lambda why: not why[0].startswith("hw."))
    return _decide(asked, _by_messages(asked, *dict.fromkeys(found)), None)


def _says(query: Mapping[str, str], key: str) -> bool:
    return query.get(key, "") not in (_SAYS_NOTHING if key in _JSON_KEYS else ("",))


def _volume_create(asked: Asked) -> Decision:
    found = []
    driver = asked.body.get("Driver", "")
    if driver not in ("", "local"):
        found.append(("hw.volumes", f"the volume driver {quoted(driver)} is refused: only local volumes pass"))
    if asked.body.get("DriverOpts"):
        options = messages.listed(asked.body["DriverOpts"])
        found.append(("hw.volumes", f"the volume option {options} is refused: it mounts any part of the machine"))
    return _decide(asked, _by_messages(asked, *found), {**asked.body, "Driver": "local"})


_NETWORK_OPTIONS = frozenset(
    {"com.docker.network.bridge.enable_icc", "com.docker.network.bridge.enable_ip_masquerade",
     "com.docker.network.bridge.host_binding_ipv4", "com.docker.network.bridge.gateway_mode_ipv4",
     "com.docker.network.bridge.gateway_mode_ipv6", "com.docker.network.bridge.inhibit_ipv4",
     "com.docker.network.driver.mtu", "com.docker.network.container_iface_prefix",
     "com.docker.network.enable_ipv4", "com.docker.network.enable_ipv6"}
)  # fmt: skip


def _network_create(asked: Asked) -> Decision:
    body, found = asked.body, []
    driver, scope = body.get("Driver", ""), body.get("Scope", "")
    if driver not in ("", "bridge"):
        found.append(("host.network", f"the network driver {quoted(driver)} is refused: only bridge networks pass"))
    if scope not in ("", "local"):
        found.append(("host.network", f"the network scope {quoted(scope)} is refused"))
    unknown = [name for name in body.get("Options", {}) if name not in _NETWORK_OPTIONS]
    if unknown:
        found.append(("host.network", f"the network option {messages.listed(unknown)} is refused"))
    ipam = body.get("IPAM", {})
    if ipam.get("Driver", "") not in ("", "default") or ipam.get("Options"):
        found.append(("host.network", "an address driver other than the default, or options for it, are refused"))
    return _decide(asked, _by_messages(asked, *found), body)


def _network_member(asked: Asked) -> Decision:
    found = [("host.endpoint", text) for text in rules.endpoint_options(asked.body.get("EndpointConfig", {}))]
    if not CONTAINER.fullmatch(asked.body.get("Container", "")):
        found.append(("http.name", f"{quoted(asked.body.get('Container', ''))} is no container's name or id"))
    if asked.routed.segments[1] == "host":
        found.append(("host.network", "the host's network is refused"))
    return _decide(asked, _by_messages(asked, *found), asked.body)


def _as_read(asked: Asked) -> Decision:
    return _decide(asked, asked.faults, asked.body)


def _the_container(asked: Asked) -> tuple[Fact, ...]:
    return _wanted_of_running(asked, asked.named)


JUDGES: Mapping[str, _Judged] = {
    "system.auth": _Judged(_as_read, shapes.AUTH),
    "container.create": _Judged(_create, shapes.CREATE, _wanted_for_create),
    "container.start": _Judged(_start, wants=_wanted_for_start),
    "container.restart": _Judged(_restart, wants=_wanted_for_start),
    "container.unpause": _Judged(_unpause, wants=_the_container),
    "container.update": _Judged(
        _update, shapes.UPDATE, lambda asked: _the_container(asked) if _sets_policy(asked) else ()
    ),
    "exec.create": _Judged(_exec_create, shapes.EXEC_CREATE, _the_container),
    "exec.start": _Judged(_exec_start, shapes.EXEC_START, _wanted_for_exec_start, may_be_empty=True),
    "container.archive.get": _Judged(_archive, wants=_the_container),
    "container.archive.head": _Judged(_archive, wants=_the_container),
    "container.archive.put": _Judged(_archive, wants=_the_container),
    "image.commit": _Judged(_commit, shapes.COMMIT, may_be_empty=True),
    "image.import": _Judged(_import),
    "build": _Judged(_build),
    "volume.create": _Judged(_volume_create, shapes.VOLUME_CREATE),
    "network.create": _Judged(_network_create, shapes.NETWORK_CREATE),
    "network.connect": _Judged(_network_member, shapes.NETWORK_CONNECT),
    "network.disconnect": _Judged(_network_member, shapes.NETWORK_DISCONNECT),
}
"""The judged routes of the table in `routes`; the others pass as they were routed."""
