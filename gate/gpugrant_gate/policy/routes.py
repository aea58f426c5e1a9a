"""Which endpoints there are, and what each may carry. What the table does not hold is refused.

A route is matched as a whole, from its fixed last segment on: a daemon's `{name:.*}` spans slashes, so that
`POST /containers/foo/start/exec` is an exec; here a container's name never holds one, an image's may
(reference: moby daemon/server/router/*).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from gpugrant_crds import names
from gpugrant_gate.policy import messages, shapes, target
from gpugrant_gate.policy.model import Body, Exchange, Head, Refusal, RepoView, Routed, Violation
from gpugrant_gate.policy.strictjson import quoted
from gpugrant_gate.policy.target import Target, TargetRefused
from gpugrant_gate.wire import versions


@dataclass(frozen=True, slots=True)
class Key:
    """One known query key."""

    name: str
    flag: bool = False
    """Docker's BoolValue: sent on as 1 or 0."""
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One row: `id method pattern`, and in `query` the known keys (`key?`: a flag, `key*`: may repeat)."""

    id: str
    method: str
    pattern: str
    query: str = ""
    body: Body = Body.NONE
    exchange: Exchange = Exchange.PLAIN
    judged: bool = False
    """`judge` has a function of this id; otherwise the request passes as it was routed."""
    when: str = ""
    """A query key that must be there for this row to count."""
    echoed: bool = False
    """Clients may say the query again as a JSON body (dockerode does): it is read and left out."""
    parts: tuple[str, ...] = field(init=False, default=())
    keys: dict[str, Key] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.pattern[1:].split("/")))
        keys = (Key(word.rstrip("?*"), word.endswith("?"), word.endswith("*")) for word in self.query.split())
        object.__setattr__(self, "keys", {key.name: key for key in keys})


JUDGED, STREAM = Body.JUDGED, Body.STREAM
HIJACK = Exchange.HIJACK

_BUILD = (
    "dockerfile t* q? nocache? rm? forcerm? pull? version remote session buildid outputs target platform "
    "networkmode cgroupparent isolation securityopt squash? extrahosts* ulimits cachefrom labels buildargs "
    "memory memswap cpushares cpusetcpus cpusetmems cpuperiod cpuquota shmsize"
)
_LOGS = "stdout? stderr? since until timestamps? follow? tail details?"
_ATTACH = "stream? stdin? stdout? stderr? logs? detachKeys hijack?"

ROUTES: tuple[Route, ...] = (
    # system
    Route("system.ping", "GET", "/_ping"),
    Route("system.ping", "HEAD", "/_ping"),
    Route("system.version", "GET", "/version"),
    Route("system.info", "GET", "/info"),
    Route("system.events", "GET", "/events", "since until filters"),
    Route("system.df", "GET", "/system/df", "type* verbose?"),
    Route("system.auth", "POST", "/auth", body=JUDGED, judged=True),
    # containers
    Route("container.list", "GET", "/containers/json", "all? limit size? filters since before trunc_cmd?"),
    Route("container.create", "POST", "/containers/create", "name platform", JUDGED, judged=True),
    Route("container.prune", "POST", "/containers/prune", "filters stream?", body=JUDGED, echoed=True),
    Route("container.inspect", "GET", "/containers/{c}/json", "size?"),
    Route("container.top", "GET", "/containers/{c}/top", "ps_args"),
    Route("container.logs", "GET", "/containers/{c}/logs", _LOGS),
    Route("container.stats", "GET", "/containers/{c}/stats", "stream? one-shot?"),
    Route("container.changes", "GET", "/containers/{c}/changes"),
    Route("container.export", "GET", "/containers/{c}/export"),
    Route("container.archive.get", "GET", "/containers/{c}/archive", "path", judged=True),
    Route("container.archive.head", "HEAD", "/containers/{c}/archive", "path", judged=True),
    Route("container.archive.put", "PUT", "/containers/{c}/archive", "path noOverwriteDirNonDir? copyUIDGID?", STREAM,
          judged=True),
    Route("container.start", "POST", "/containers/{c}/start", "detachKeys", judged=True),
    Route("container.restart", "POST", "/containers/{c}/restart", "t signal", judged=True, body=JUDGED, echoed=True),
    Route("container.stop", "POST", "/containers/{c}/stop", "t signal", body=JUDGED, echoed=True),
    Route("container.kill", "POST", "/containers/{c}/kill", "signal", body=JUDGED, echoed=True),
    Route("container.pause", "POST", "/containers/{c}/pause"),
    Route("container.unpause", "POST", "/containers/{c}/unpause", judged=True),
    Route("container.wait", "POST", "/containers/{c}/wait", "condition", body=JUDGED, echoed=True),
    Route("container.resize", "POST", "/containers/{c}/resize", "h w", body=JUDGED, echoed=True),
    Route("container.rename", "POST", "/containers/{c}/rename", "name", body=JUDGED, echoed=True),
    Route("container.update", "POST", "/containers/{c}/update", body=JUDGED, judged=True),
    Route("container.attach", "POST", "/containers/{c}/attach", _ATTACH, exchange=HIJACK, body=JUDGED, echoed=True,
          judged=True),
    Route("container.attach.ws", "GET", "/containers/{c}/attach/ws", _ATTACH, exchange=HIJACK, judged=True),
    Route("container.remove", "DELETE", "/containers/{c}", "v? link? force?"),
    Route("exec.create", "POST", "/containers/{c}/exec", body=JUDGED, judged=True),
    Route("exec.start", "POST", "/exec/{e}/start", body=JUDGED, exchange=HIJACK, judged=True),
    Route("exec.resize", "POST", "/exec/{e}/resize", "h w", body=JUDGED, echoed=True),
    Route("exec.inspect", "GET", "/exec/{e}/json"),
    # images
    Route("image.list", "GET", "/images/json",
          "all? filters filter only_ids? digests? shared-size? manifests? identity?"),
    Route("image.search", "GET", "/images/search", "term limit filters"),
    Route("image.save", "GET", "/images/get", "names* platform*"),
    Route("image.save", "GET", "/images/{i}/get", "platform*"),
    Route("image.history", "GET", "/images/{i}/history", "platform"),
    Route("image.inspect", "GET", "/images/{i}/json", "platform manifests? identity?"),
    Route("image.attestations", "GET", "/images/{i}/attestations", "platform type* statement?"),
    Route("image.load", "POST", "/images/load", "quiet? platform*", STREAM),
    Route("image.import", "POST", "/images/create", "fromSrc repo tag message changes* platform", STREAM, judged=True,
          when="fromSrc"),
    Route("image.pull", "POST", "/images/create", "fromImage repo tag platform", body=JUDGED, echoed=True,
          judged=True),
    Route("image.push", "POST", "/images/{i}/push", "tag platform", body=JUDGED, echoed=True),
    Route("image.tag", "POST", "/images/{i}/tag", "repo tag", body=JUDGED, echoed=True),
    Route("image.prune", "POST", "/images/prune", "filters stream?", body=JUDGED, echoed=True),
    Route("image.remove", "DELETE", "/images/{i}", "force? noprune? platforms*"),
    Route("image.distribution", "GET", "/distribution/{i}/json"),
    Route("image.commit", "POST", "/commit", "container repo tag comment author pause? changes*", JUDGED, judged=True),
    # builds
    Route("build", "POST", "/build", _BUILD, STREAM, judged=True),
    Route("build.cancel", "POST", "/build/cancel", "id"),
    # BuildKit: tunnels, h2c behind an upgrade
    Route("build.grpc", "POST", "/grpc", exchange=HIJACK, judged=True),
    Route("build.session", "POST", "/session", exchange=HIJACK, judged=True),
    Route("build.prune", "POST", "/build/prune",
          "all? filters keep-storage reserved-space max-used-space min-free-space stream?"),
    # volumes
    Route("volume.list", "GET", "/volumes", "filters"),
    Route("volume.create", "POST", "/volumes/create", body=JUDGED, judged=True),
    Route("volume.prune", "POST", "/volumes/prune", "filters stream?", body=JUDGED, echoed=True),
    Route("volume.inspect", "GET", "/volumes/{v}"),
    Route("volume.remove", "DELETE", "/volumes/{v}", "force?"),
    # networks
    Route("network.list", "GET", "/networks", "filters"),
    Route("network.create", "POST", "/networks/create", body=JUDGED, judged=True),
    Route("network.prune", "POST", "/networks/prune", "filters stream?", body=JUDGED, echoed=True),
    Route("network.inspect", "GET", "/networks/{n}", "verbose? scope"),
    Route("network.remove", "DELETE", "/networks/{n}"),
    Route("network.connect", "POST", "/networks/{n}/connect", body=JUDGED, judged=True),
    Route("network.disconnect", "POST", "/networks/{n}/disconnect", body=JUDGED, judged=True),
    # plugins and swarm: what is there may be looked at
    Route("plugin.list", "GET", "/plugins", "filters"),
    Route("plugin.inspect", "GET", "/plugins/{i}/json"),
    Route("swarm.services", "GET", "/services", "filters status?"),
    Route("swarm.service", "GET", "/services/{c}", "insertDefaults?"),
    Route("swarm.tasks", "GET", "/tasks", "filters"),
    Route("swarm.task", "GET", "/tasks/{c}"),
    Route("swarm.nodes", "GET", "/nodes", "filters"),
    Route("swarm.node", "GET", "/nodes/{c}"),
)  # fmt: skip
_BY_START: dict[tuple[str, str], list[Route]] = {}
for _row in ROUTES:
    _BY_START.setdefault((_row.method, _row.parts[0]), []).append(_row)


@dataclass(frozen=True, slots=True)
class Closed:
    """Endpoints that a daemon has and the gate refuses: those of `pattern` and all below it that `ROUTES` lacks."""

    method: str
    """`*`: any."""
    pattern: str
    """`*`: any segment."""
    rule: str
    reason: str

    def has(self, method: str, segments: tuple[str, ...]) -> bool:
        wanted = tuple(self.pattern[1:].split("/")) if self.pattern != "/" else ()
        found = segments[: len(wanted)]
        same = len(found) == len(wanted) and all(want in ("*", got) for want, got in zip(wanted, found, strict=True))
        return same and self.method in ("*", method)


_PLUGINS = "plugins are refused: a managed plugin runs as root on the machine, with its devices"
_SECRETS = "the swarm's tokens, secrets and configurations are not told"
CLOSED: tuple[Closed, ...] = (
    Closed("*", "/containers/*/checkpoints", "hw.checkpoints",
           "checkpoints are refused: what is restored from one was not judged"),
    Closed("PUT", "/volumes/*", "hw.volumes",
           "cluster volumes are refused: their drivers mount any part of the machine"),
    Closed("GET", "/swarm", "hw.swarm", _SECRETS),
    Closed("GET", "/secrets", "hw.swarm", _SECRETS),
    Closed("GET", "/configs", "hw.swarm", _SECRETS),
    Closed("*", "/swarm", "hw.swarm", messages.SWARM),
    Closed("*", "/services", "hw.swarm", messages.SWARM),
    Closed("*", "/nodes", "hw.swarm", messages.SWARM),
    Closed("*", "/tasks", "hw.swarm", messages.SWARM),
    Closed("*", "/secrets", "hw.swarm", messages.SWARM),
    Closed("*", "/configs", "hw.swarm", messages.SWARM),
    Closed("*", "/plugins", "hw.plugins", _PLUGINS),
    Closed("*", "/debug", "route.debug",
           "the daemon's debug pages are refused: they show its memory and its command line"),
    Closed("OPTIONS", "/", "route.options", "a daemon answers OPTIONS for any path alike: ask for the endpoint itself"),
)  # fmt: skip

_HEADERS = frozenset(
    {"accept", "user-agent", "x-registry-auth", "x-registry-config", "traceparent", "tracestate", "baggage",
     "if-none-match"}
)  # fmt: skip
TUNNEL = ("upgrade", "h2c")
"""What a tunnel's request must ask for: moby daemon/server/router/grpc answers nothing else."""
_TUNNELS = ("build.grpc", "build.session")
_WEBSOCKET = "container.attach.ws"
_OF_WEBSOCKET = "sec-websocket-"
_OF_SESSION = "x-docker-expose-session-"
"""What a client's session offers to the builder (moby/buildkit session.Manager); one of them for each method."""
_REPEATED = frozenset({f"{_OF_SESSION}grpc-method"})
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
"""A body of these kinds outvotes the query in the daemon's FormValue."""
_TAR_TYPES = frozenset(
    {"application/x-tar", "application/tar", "application/octet-stream", "application/gzip", "application/x-gzip",
     "application/x-bzip2", "application/bzip2", "application/x-xz", "application/zstd", "application/x-zstd",
     "application/x-compressed-tar", "text/plain", "application_x_tar"}
)  # fmt: skip
"""text/plain: what the docker CLI sends for cp and import; application_x_tar: docker-java for cp."""
CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}", re.ASCII)
"""A container's or volume's name or id as dockerd checks it (RestrictedNamePattern)."""
NETWORK = re.compile(r"[^/]{1,255}")
_NAMES: dict[str, tuple[re.Pattern[str], str]] = {
    "{c}": (CONTAINER, "container"),
    "{v}": (CONTAINER, "volume"),
    "{e}": (re.compile(r"[0-9a-f]{1,64}", re.ASCII), "exec"),
    "{n}": (NETWORK, "network"),
}
_FALSE = ("", "0", "no", "false", "none")
"""moby httputils.BoolValue; everything else is true."""


def route(head: Head, repo: RepoView) -> Routed | Refusal:
    """The endpoint that this head asks for, with the parts that are known; a refusal where there is none."""
    try:
        asked = target.parse(head.target)
    except TargetRefused as error:
        return refuse(400, error.rule, str(error))
    if asked.version and versions.too_new(asked.version, repo.api_version or versions.NEWEST):
        return refuse(400, "http.version", _too_new(asked.version, repo))
    rows = _BY_START.get((head.method, asked.segments[0]), ())
    candidates = [row for row in rows if _matches(row.parts, asked.segments)]
    row = next((row for row in candidates if not row.when or any(key == row.when for key, _ in asked.query)), None)
    if row is None:
        return _unknown(head.method, asked, repo)
    return _routed(row, head, asked)


def _too_new(version: str, repo: RepoView) -> str:
    """A daemon's own words (moby daemon/server/middleware/version.go): clients look for them."""
    most = repo.api_version or versions.NEWEST
    return f"client version {version} is too new. Maximum supported API version is {most}"


def echoed(route_id: str) -> frozenset[str]:
    """The keys that a body may repeat on this route; empty where it takes none."""
    return frozenset(key for row in ROUTES if row.id == route_id and row.echoed for key in row.keys)


def refuse(status: int, rule: str, message: str, route_id: str = "") -> Refusal:
    """A refusal by one rule."""
    return Refusal(status, (Violation(rule, message),), route_id)


def _matches(parts: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    if "{i}" not in parts:
        return len(parts) == len(segments) and all(map(_fits, parts, segments))
    before = parts.index("{i}")
    after = len(parts) - before - 1
    middle = len(segments) - before - after
    if middle < 1:
        return False
    tail = segments[len(segments) - after :]
    return segments[:before] == parts[:before] and tail == parts[before + 1 :]


def _fits(part: str, segment: str) -> bool:
    return part.startswith("{") or part == segment


_PODMAN_VERSION = re.compile(r"v[0-9][0-9A-Za-z.-]*", re.ASCII)
"""podman's prefix has three parts and suffixes, unlike Docker's (containers/podman pkg/api/server)."""


def _unknown(method: str, asked: Target, repo: RepoView) -> Refusal:
    segments = asked.segments
    if "libpod" in segments[:1] or ("libpod" in segments[1:2] and _PODMAN_VERSION.fullmatch(segments[0])):
        return refuse(404, "route.libpod", "this is a Docker daemon; it does not speak podman's API (/libpod)")
    for closed in CLOSED:
        if closed.has(method, segments):
            return refuse(403, closed.rule, closed.reason)
    path = quoted("/" + "/".join(segments))
    note = ""
    if segments[0] == "containers" and len(segments) > 3:
        note = '; a container\'s name holds no "/"'
    return refuse(403, "route.unknown", f"the gate of repo {repo.name} knows no endpoint {method} {path}{note}")


def _routed(row: Route, head: Head, asked: Target) -> Routed | Refusal:
    checks: tuple[Callable[[], Refusal | None], ...] = (
        lambda: _bad_name(row, asked.segments),
        lambda: _bad_query(row, asked.query),
        lambda: _bad_headers(row, head),
    )
    for check in checks:
        if (refusal := check()) is not None:
            return refusal
    known = [(row.keys[key], value) for key, value in asked.query if key in row.keys]
    query = tuple((key.name, _flag(value) if key.flag else value) for key, value in known)
    headers = tuple((name, value) for name, value in head.headers if _goes_on(name, row))
    return Routed(row.id, row.method, asked.version, asked.segments, query, headers, row.body, row.exchange)


def _bad_name(row: Route, segments: tuple[str, ...]) -> Refusal | None:
    if "{i}" in row.parts:
        return None
    for part, segment in zip(row.parts, segments, strict=True):
        pattern, what = _NAMES.get(part, (None, ""))
        if pattern is not None and not pattern.fullmatch(segment):
            return refuse(400, "http.name", f"{quoted(segment)} is no {what}'s name or id", row.id)
    return None


def _bad_query(row: Route, query: tuple[tuple[str, str], ...]) -> Refusal | None:
    seen: set[str] = set()
    for name, _ in query:
        key = row.keys.get(name)
        if row.id == "container.start" and name in ("checkpoint", "checkpoint-dir"):
            reason = "starting from a checkpoint is refused: what is restored from one was not judged"
            return refuse(403, "hw.checkpoints", reason, row.id)
        if key is None and _is_field(row, name):
            continue
        if key is None:
            return refuse(403, "http.query", _no_key(row, name), row.id)
        if name in seen and not key.repeats:
            return refuse(400, "http.query", f"the query key {quoted(name)} is there twice", row.id)
        seen.add(name)
    return None


def _no_key(row: Route, name: str) -> str:
    if row.id == "build" and name.startswith(("entitlement", "device", "privileged", "gpus")):
        instead = "a build gets no entitlements and no devices: leave it out, and give the device to docker run"
        return f"the query key {quoted(name)} of a build is refused: {instead}"
    near = names.nearest(name, row.keys, most=1) if len(name) < _NEAR_MOST else ()
    meant = f", or write {near[0]}" if near else ""
    return f"the gate knows no query key {quoted(name)} of {row.id}: leave it out{meant}"


_NEAR_MOST = 64
"""Characters of a name for which a near one is looked for; nothing real is longer."""


def _is_field(row: Route, name: str) -> bool:
    """A field of the body that a client says in the query as well (dockerode): no daemon reads it there, nor do we."""
    return name in shapes.ALSO_IN_QUERY.get(row.id, ())


def _bad_headers(row: Route, head: Head) -> Refusal | None:
    counted = [name for name, _ in head.headers if _goes_on(name, row) or name == "content-type"]
    twice = next((name for name in counted if counted.count(name) > 1 and name not in _REPEATED), None)
    if twice is not None:
        return refuse(400, "http.header", f"the header {quoted(twice)} is there twice", row.id)
    if not head.has_body:
        return None
    given = next((value for name, value in head.headers if name == "content-type"), "")
    media = given.partition(";")[0].strip().lower()
    if media in _FORMS:
        message = f"a body of type {media} is refused: the daemon would read parameters from it"
        return refuse(415, "http.content-type", message, row.id)
    if row.body is Body.JUDGED and media != "application/json":
        message = f"this request's body must have the content type application/json, got {quoted(media)}"
        return refuse(415, "http.content-type", message, row.id)
    if row.body is Body.STREAM and media and media not in _TAR_TYPES:
        message = f"this request's body must be a tar (application/x-tar), got {quoted(media)}"
        return refuse(415, "http.content-type", message, row.id)
    return None


def _goes_on(name: str, row: Route) -> bool:
    if row.id == _WEBSOCKET and (name == "upgrade" or name.startswith(_OF_WEBSOCKET)):
        return True
    if row.id in _TUNNELS and (name == "upgrade" or name.startswith(_OF_SESSION)):
        return True
    return name in _HEADERS or name.startswith("x-meta-")


def _flag(value: str) -> str:
    # An empty `rm=` or `pause=` means the daemon's default, which is true.
    return "" if value == "" else "0" if value.strip().lower() in _FALSE else "1"
