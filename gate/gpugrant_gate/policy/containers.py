"""Decides on containers: made, started, changed, entered; and on what is done to one that is there already.

A fact that is wanted and absent refuses (fail closed), and so does a daemon's answer that can't be understood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpugrant_gate.policy import bodies, container, hardware, messages, mounts, rules
from gpugrant_gate.policy import host as host_rules
from gpugrant_gate.policy.asking import Asked, by_messages, outgoing, refused
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
    Refusal,
    RepoView,
    Violation,
)
from gpugrant_gate.policy.routes import CONTAINER, refuse
from gpugrant_gate.policy.strictjson import BodyRefused, quoted

_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)

# create


def wanted_for_create(asked: Asked) -> tuple[Fact, ...]:
    wanted = container.from_body(asked.body, ())
    return (*mounts.lenders(wanted), *_wanted_of(_with_borrowed(wanted, asked.facts, asked.repo), asked.repo))


def _with_borrowed(wanted: Container, facts: Facts, repo: RepoView) -> Container:
    """The container with the mounts that VolumesFrom brings, and a fault for each lender that isn't there."""
    lent: list[container.Mount] = []
    faults: list[Violation] = []
    for lender in mounts.lenders(wanted):
        found = facts.get(lender)
        known = _inspected(found, repo)
        if known is None:
            faults.append(Violation("host.volumes-from", f"VolumesFrom: there is no container {quoted(lender.name)}"))
        else:
            lent.extend(known.mounts)
    return replace(wanted, mounts=(*wanted.mounts, *lent), faults=(*wanted.faults, *faults))


def create(asked: Asked) -> Decision:
    wanted = _with_borrowed(container.from_body(asked.body, asked.faults), asked.facts, asked.repo)
    violations = rules.judge(wanted, asked.repo, asked.facts)
    if violations:
        return refused(asked, violations, hardware.missing(wanted, asked.repo))
    pins = mounts.pins_of(wanted, asked.repo, asked.facts)
    body = {**asked.body, "HostConfig": _rewritten(wanted, asked.facts, {pin.source: pin.place for pin in pins})}
    if hardware.TRACER in hardware.capabilities(wanted):
        body["Healthcheck"] = _NO_HEALTHCHECK  # the image may have one
    return Admission("container.create", outgoing(asked, body), devices=wanted.names, pins=pins)


_NO_HEALTHCHECK = {"Test": ["NONE"]}


def _rewritten(wanted: Container, facts: Facts, places: Mapping[str, str]) -> dict[str, Any]:
    """HostConfig as it goes on: runc, one CDI request, clean sources or their places, other containers by id."""
    host = {**_without_silent(wanted.host), "Runtime": "runc"}
    if wanted.names:
        host["DeviceRequests"] = [
            {"Driver": "cdi", "Count": 0, "DeviceIDs": list(wanted.names), "Capabilities": None, "Options": None}
        ]
    if "CapAdd" in host:
        host["CapAdd"] = list(hardware.capabilities(wanted))
    if "Binds" in host:
        host["Binds"] = [_clean_bind(text, places) for text in host["Binds"]]
    if "Mounts" in host:
        host["Mounts"] = [_clean_mount(entry, places) for entry in host["Mounts"]]
    if "VolumesFrom" in host:
        borrowed = mounts.borrowed(wanted)
        ids = [(_id_of(facts, name), modes) for name, modes in borrowed]
        host["VolumesFrom"] = [f"{id_}:{modes}" if modes else id_ for id_, modes in ids]
    for field in ("NetworkMode", "IpcMode"):
        name = host_rules.shared_with(wanted, field)
        if name is not None:
            host[field] = f"container:{_id_of(facts, name)}"
    return host


_SILENT = frozenset(
    {"Devices", "DeviceRequests", "DeviceCgroupRules", "Privileged", "PidMode", "Cgroup", "CgroupParent", "Annotations"}
)
"""Fields that say nothing wherever a request passes: a daemon never sees them from us."""


def _without_silent(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in _SILENT}


def _clean_bind(text: str, places: Mapping[str, str]) -> str:
    source, colon, rest = text.partition(":")
    cleaned = mounts.clean(source) or source
    return f"{places.get(cleaned, cleaned)}{colon}{rest}" if colon else text


def _clean_mount(entry: dict[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    if entry.get("Type") != "bind":
        return entry
    cleaned = mounts.clean(entry.get("Source", "")) or ""
    return {**entry, "Source": places.get(cleaned, cleaned)}


def _id_of(facts: Facts, name: str) -> str:
    found = facts.get(ContainerFact(name))
    id_ = found.get("Id") if isinstance(found, dict) else None
    # Only reached when a rule has seen this container; a name that is no id would be looked up afresh by the daemon.
    return id_ if isinstance(id_, str) and _ID.fullmatch(id_) else "0" * 64


# start and what is judged like it


def _inspected(found: Any, repo: RepoView) -> Container | None:
    """The container of an inspect answer; None where there is none or it can't be understood."""
    if not isinstance(found, dict) or not _ID.fullmatch(str(found.get("Id", ""))):
        return None
    try:
        return container.from_inspect(found, repo.pins)
    except (BodyRefused, TypeError, AttributeError):
        return None


def _known(asked: Asked, fact: ContainerFact) -> tuple[Container, str] | Refusal:
    """The container and its full id, or why it can't be judged; Docker's own words where there is none."""
    if fact not in asked.facts:
        return refused(asked, (Violation("gate.facts", f"the container {quoted(fact.name)} could not be looked at"),))
    found = asked.facts[fact]
    if found is None:
        message = f"No such container: {fact.name}{_of_buildx(fact.name, asked.repo)}"
        return refuse(404, "gate.facts", message, asked.routed.route)
    known = _inspected(found, asked.repo)
    if known is None:
        message = f"the daemon describes the container {quoted(fact.name)} in a way that the gate does not know"
        return refused(asked, (Violation("gate.facts", message),))
    return known, found["Id"]


def _of_buildx(name: str, repo: RepoView) -> str:
    """For the container that buildx looks for, to build or to prune in, where the daemon's own BuildKit is refused."""
    if not name.startswith("buildx_buildkit_"):
        return ""
    return f"; {messages.builder_container(repo)} (and DOCKER_BUILDKIT=0 docker builder prune)"


def wanted_for_start(asked: Asked) -> tuple[Fact, ...]:
    known = _inspected(asked.facts.get(asked.named), asked.repo)
    if known is None:
        return (asked.named,)
    return (asked.named, *_wanted_of(known, asked.repo))


def _wanted_of(known: Container, repo: RepoView) -> tuple[Fact, ...]:
    """What the rules want to know of a container that is to run."""
    shared = tuple(
        ContainerFact(name)
        for field in ("NetworkMode", "IpcMode")
        if (name := host_rules.shared_with(known, field)) is not None and CONTAINER.fullmatch(name)
    )
    listeners = host_rules.listener_facts(repo) if host_rules.may_be_host(known) else ()
    named = host_rules.network_facts(known)
    return (*shared, *listeners, *named, *host_rules.log_facts(known), *mounts.wanted(known, repo))


def _startable(asked: Asked) -> tuple[Container, str] | Refusal:
    known = _known(asked, asked.named)
    if isinstance(known, Refusal):
        return known
    held, id_ = known
    violations = rules.judge(held, asked.repo, asked.facts)
    if violations:
        return refused(asked, violations, hardware.missing(held, asked.repo))
    return held, id_


def start(asked: Asked) -> Decision:
    startable = _startable(asked)
    if isinstance(startable, Refusal):
        return startable
    held, id_ = startable
    return Admission(
        "container.start",
        outgoing(asked, id_=id_),
        devices=held.names,
        starts=id_ if held.names else "",
        pins=mounts.pins_of(held, asked.repo, asked.facts),
    )


def restart(asked: Asked) -> Decision:
    """Judged before it is stopped, so that a refused restart leaves it running, and again before it is started."""
    startable = _startable(asked)
    if isinstance(startable, Refusal):
        return startable
    held, id_ = startable
    if held.host.get("AutoRemove"):
        message = "a restart here is a stop and a start, and a container with --rm is gone once stopped: run it anew"
        return refused(asked, (Violation("start.auto-remove", message),))
    routed = asked.routed
    stop = replace(routed, route="container.stop", segments=("containers", id_, "stop"))
    path = ("containers", id_, "start")
    start = replace(routed, route="container.start", segments=path, query=(), body=Body.NONE)
    return Admission("container.restart", outgoing(replace(asked, routed=stop)), devices=held.names, then=start)


def _running(asked: Asked, fact: ContainerFact) -> tuple[Container, str] | Refusal:
    """For what goes on in a container that runs: only its hardware counts."""
    known = _known(asked, fact)
    if isinstance(known, Refusal):
        return known
    held, id_ = known
    violations = rules.hardware(held, asked.repo, asked.facts)
    if violations:
        return refused(asked, violations, hardware.missing(held, asked.repo))
    return held, id_


def unpause(asked: Asked) -> Decision:
    running = _running(asked, asked.named)
    if isinstance(running, Refusal):
        return running
    held, id_ = running
    return Admission("container.unpause", outgoing(asked, id_=id_), devices=held.names)


def exec_create(asked: Asked) -> Decision:
    if asked.body.get("Privileged"):
        message = "a privileged exec is refused: it opens every capability of the machine"
        return refused(asked, by_messages(asked, ("hw.privileged", message)))
    if asked.faults:
        return refused(asked, asked.faults)
    running = _running(asked, asked.named)
    if isinstance(running, Refusal):
        return running
    held, id_ = running
    if (traced := _traced(asked, held)) is not None:
        return traced
    return Admission("exec.create", outgoing(asked, asked.body, id_=id_), devices=held.names)


def _traced(asked: Asked, held: Container) -> Refusal | None:
    found = by_messages(asked, *(("hw.tracer", text) for text in hardware.traced_exec(held)))
    return refused(asked, found) if found else None


def _exec_of(asked: Asked) -> ExecFact:
    return ExecFact(asked.routed.segments[1])


def wanted_for_exec_start(asked: Asked) -> tuple[Fact, ...]:
    place = _place_of(asked.facts.get(_exec_of(asked)))
    return (_exec_of(asked),) if place is None else (_exec_of(asked), *_wanted_of_running(asked, place))


def _wanted_of_running(asked: Asked, fact: ContainerFact) -> tuple[Fact, ...]:
    """What the hardware rules want to know of a container that runs."""
    known = _inspected(asked.facts.get(fact), asked.repo)
    return (fact,) if known is None else (fact, *mounts.wanted_volumes(known))


def _place_of(found: Any) -> ContainerFact | None:
    id_ = found.get("ContainerID") if isinstance(found, dict) else None
    return ContainerFact(id_) if isinstance(id_, str) and _ID.fullmatch(id_) else None


def exec_start(asked: Asked) -> Decision:
    fact = _exec_of(asked)
    found = asked.facts.get(fact, "")
    if found is None:
        return refuse(404, "gate.facts", f"No such exec instance: {fact.id}", asked.routed.route)
    place = _place_of(found)
    if place is None:
        return refused(asked, (Violation("gate.facts", "the exec could not be looked at"),))
    process = found.get("ProcessConfig")
    if isinstance(process, dict) and process.get("privileged"):
        return refused(asked, (Violation("hw.privileged", "a privileged exec is refused"),))
    if asked.faults:
        return refused(asked, asked.faults)
    running = _running(asked, place)
    if isinstance(running, Refusal):
        return running
    held, _ = running
    if (traced := _traced(asked, held)) is not None:
        return traced
    exchange = Exchange.PLAIN if asked.body.get("Detach") else Exchange.HIJACK
    return Admission("exec.start", outgoing(asked, asked.body, exchange=exchange), devices=held.names)


def wanted_for_update(asked: Asked) -> tuple[Fact, ...]:
    return the_container(asked) if _sets_policy(asked) else ()


def _sets_policy(asked: Asked) -> bool:
    return asked.body.get("RestartPolicy", {}).get("Name", "") not in ("", "no")


def update(asked: Asked) -> Decision:
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
        return refused(asked, violations)
    body = _without_silent(asked.body)
    if not _sets_policy(asked):
        return Admission("container.update", outgoing(asked, body))
    running = _running(asked, asked.named)
    if isinstance(running, Refusal):
        return running
    held, id_ = running
    return Admission("container.update", outgoing(asked, body, id_=id_), devices=held.names)


def attach(asked: Asked) -> Decision:
    """Whoever attaches talks to what runs: not to what no request through the gate could have made. A container whose
    grant ended keeps its console (design 5)."""
    known = _known(asked, asked.named)
    if isinstance(known, Refusal):
        return known
    held, id_ = known
    violations = rules.past(held, asked.repo, asked.facts)
    if violations:
        return refused(asked, violations)
    return Admission(asked.routed.route, outgoing(asked, id_=id_))


def attach_websocket(asked: Asked) -> Decision:
    """The same for a browser's client (RFC 6455 4.1): without these headers the daemon has no handshake to answer."""
    given = dict(asked.routed.headers)
    if given.get("upgrade", "").lower() != "websocket" or "sec-websocket-key" not in given:
        message = "attaching by WebSocket needs the headers Upgrade: websocket and Sec-WebSocket-Key"
        return refuse(400, "http.upgrade", message, asked.routed.route)
    return attach(asked)


def archive(asked: Asked) -> Decision:
    """For files in and out the daemon mounts what the container has, running or not: only its mounts count."""
    known = _known(asked, asked.named)
    if isinstance(known, Refusal):
        return known
    held, id_ = known
    violations = rules.mounted(held, asked.repo, asked.facts)
    if violations:
        return refused(asked, violations)
    plain_tar = asked.routed.body is Body.STREAM
    pins = mounts.pins_of(held, asked.repo, asked.facts)
    return Admission(asked.routed.route, replace(outgoing(asked, id_=id_), plain_tar=plain_tar), pins=pins)


def the_container(asked: Asked) -> tuple[Fact, ...]:
    return _wanted_of_running(asked, asked.named)
