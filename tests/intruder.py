"""A tenant who has only a repo's gate socket, and a judge who sees the daemon behind it.

An `Attack` is data: raw bytes, one connection a step. The judge asks the daemon on its own socket what came of it.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

IMAGE = "ubuntu:24.04"
FOLDER = "/tmp/gg-%FOLDER%"
"""Stands for the folder that a repo may bind; as long as its path, so that lengths stay true."""
QUIET = 0.4
"""Seconds without a byte after which an answer is taken as whole."""
HANG = 13.0
"""Seconds after which a request without an answer hangs: more than the gate's ten for a head."""
STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ?[^\r]*\r\n")
JSON = "Content-Type: application/json"
Body = Mapping[str, Any] | Sequence[Any] | bytes | str | None


# Requests as bytes.


def raw(method: str, target: str, body: Body = None, *lines: str, close: bool = True, version: str = "1.1") -> bytes:
    """One request, with a Content-Length where there is a body; `lines` replace its Content-Type."""
    data = body if isinstance(body, bytes) else b"" if body is None else text(body).encode()
    head = [f"{method} {target} HTTP/{version}", "Host: docker", *(lines or ([JSON] if data else []))]
    head += [f"Content-Length: {len(data)}"] if data or method in ("POST", "PUT") else []
    head += ["Connection: close"] if close else []
    return "\r\n".join(head).encode() + b"\r\n\r\n" + data


def text(body: Body) -> str:
    return body if isinstance(body, str) else json.dumps(body)


def lines(*head: str, body: bytes = b"") -> bytes:
    """A head line by line, then bytes: nothing is added."""
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def create(body: Body, name: str = "intruder", prefix: str = "/v1.45") -> bytes:
    return raw("POST", f"{prefix}/containers/create?name={name}", body)


def host(**fields: Any) -> dict[str, Any]:
    """A create body with these fields in its HostConfig."""
    return {"Image": IMAGE, "Cmd": ["sleep", "600"], "HostConfig": fields}


def cdi(*names: str, **more: Any) -> dict[str, Any]:
    """A create body that asks for devices through the door."""
    return host(DeviceRequests=[{"Driver": "cdi", "DeviceIDs": list(names)} | more])


PRIVILEGED = host(Privileged=True)
SMUGGLED = raw("POST", "/v1.45/containers/create?name=smuggled", PRIVILEGED)
"""What a second request behind a first one would make."""


@dataclass(frozen=True, slots=True)
class Attack:
    """`steps` go through the gate, each on its own connection; `past` was sent to the daemon itself before.

    A step's `%ID%` is the last Id that was answered. By default the last step must be refused; `answers` are its
    exact statuses where something else is right; with `free` any answer is. `rule`: the id in the refusal.
    """

    id: str
    steps: tuple[bytes, ...]
    rule: str = ""
    past: tuple[bytes, ...] = ()
    answers: tuple[int, ...] = ()
    silent: bool = False
    """The gate may close the connection without an answer."""
    free: bool = False
    """The daemon may have its own word on it: only what came of it counts."""
    never: bytes = b""
    """What the answer may not say."""


def one(id_: str, request: bytes, rule: str = "", **more: Any) -> Attack:
    return Attack(id_, (request,), rule, **more)


# Talking.


def talk(path: Path, request: bytes, *, quiet: float = QUIET, half_close: bool = False) -> bytes:
    """What comes back until the other side closes or says nothing for `quiet` after a first byte."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(HANG)
        sock.connect(str(path))
        with suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(request)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
        return _answer(sock, quiet)


def _answer(sock: socket.socket, quiet: float) -> bytes:
    got = bytearray()
    while True:
        try:
            piece = sock.recv(65536)
        except TimeoutError:
            assert got, f"no answer within {HANG} s"
            return bytes(got)
        except ConnectionResetError:
            return bytes(got)
        if not piece:
            return bytes(got)
        got += piece
        sock.settimeout(quiet)


def statuses(answer: bytes) -> tuple[int, ...]:
    return tuple(int(status) for status in STATUS.findall(answer) if status != b"100")


class Unix(HTTPConnection):
    """HTTP to a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=60)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(path: Path, method: str, target: str, body: Body = None, **headers: str) -> tuple[int, Any]:
    """Status and decoded body (bytes where it is no JSON) of one ordinary request."""
    connection = Unix(path)
    data = body if isinstance(body, bytes) or body is None else text(body)
    given = {"Content-Type": "application/json"} if data is not None else {}
    connection.request(method, target, data, given | {key.replace("_", "-"): value for key, value in headers.items()})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    with suppress(ValueError):
        return answer.status, json.loads(content)
    return answer.status, content


# The judge.


@dataclass(frozen=True, slots=True)
class Seen:
    """All that a daemon holds: by id or name."""

    containers: Mapping[str, Mapping[str, Any]]
    volumes: Mapping[str, Mapping[str, Any]]
    networks: Mapping[str, Mapping[str, Any]]
    plugins: int


HARMLESS = {
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
    "IPC_LOCK",
    "SYS_NICE",
    "SYS_RESOURCE",
}
EMPTY = (
    "Privileged",
    "Devices",
    "DeviceCgroupRules",
    "CgroupParent",
    "Cgroup",
    "PidMode",
    "UsernsMode",
    "Annotations",
    "BlkioWeightDevice",
    "BlkioDeviceReadBps",
    "BlkioDeviceWriteBps",
    "BlkioDeviceReadIOps",
    "BlkioDeviceWriteIOps",
)
MASKS = {"/proc/kcore", "/proc/keys", "/sys/firmware"}
SECURITY = re.compile(r"no-new-privileges(?:[=:]true)?|label[=:]level:.*")


@dataclass(slots=True)
class Judge:
    """Looks at one daemon on its own socket. `granted`: the names that its repo holds; `binds`: its folders."""

    daemon: Path
    granted: frozenset[str]
    binds: tuple[str, ...] = ()

    def look(self) -> Seen:
        listed = self._get("/containers/json?all=1")
        asked = ((entry["Id"], *ask(self.daemon, "GET", f"/containers/{entry['Id']}/json")) for entry in listed)
        # a build's own containers go by themselves
        containers = {id_: value for id_, status, value in asked if status != 404}
        volumes = {entry["Name"]: entry for entry in self._get("/volumes")["Volumes"] or []}
        networks = {entry["Id"]: entry for entry in self._get("/networks")}
        return Seen(containers, volumes, networks, len(self._get("/plugins")))

    def _get(self, target: str) -> Any:
        status, value = ask(self.daemon, "GET", target)
        assert status == 200, (target, value)
        return value

    def powers(self, before: Seen, after: Seen) -> list[str]:
        """Everything that was made or started between the two looks and has hardware or host power."""
        found: list[str] = []
        for id_, container in after.containers.items():
            known = before.containers.get(id_)
            if known is None:
                found += [f"{container['Name']}: {power}" for power in self.of_container(container)]
            else:
                found += [f"{container['Name']}: {change}" for change in _changes(known, container)]
        fresh = [volume for name, volume in after.volumes.items() if name not in before.volumes]
        found += [f"volume {v['Name']}: {v}" for v in fresh if v["Driver"] != "local" or v.get("Options")]
        nets = [network for id_, network in after.networks.items() if id_ not in before.networks]
        found += [
            f"network {n['Name']}: {n['Driver']}"
            for n in nets
            if n["Driver"] != "bridge" or n.get("ConfigFrom", {}).get("Network")
        ]
        found += ["a plugin"] if after.plugins != before.plugins else []
        return found

    def of_container(self, container: Mapping[str, Any]) -> list[str]:
        """The powers of one container; none for one that a tenant may have."""
        given = container["HostConfig"]
        found = [f"{field}={given[field]!r}" for field in EMPTY if given.get(field)]
        for request in given.get("DeviceRequests") or []:
            ids = set(request.get("DeviceIDs") or ())
            shape = (
                request["Driver"],
                request["Count"],
                request.get("Capabilities") or [],
                request.get("Options") or {},
            )
            if shape != ("cdi", 0, [], {}) or not ids <= self.granted:
                found.append(f"DeviceRequests {request}")
        capabilities = {name.upper().removeprefix("CAP_") for name in given.get("CapAdd") or ()}
        found += [f"CapAdd {name}" for name in sorted(capabilities - HARMLESS)]
        found += [f"SecurityOpt {name}" for name in given.get("SecurityOpt") or () if not SECURITY.fullmatch(name)]
        if given.get("Runtime") != "runc":
            found.append(f"Runtime {given.get('Runtime')!r}")
        if not set(given.get("MaskedPaths") or ()) >= MASKS:
            found.append(f"MaskedPaths {given.get('MaskedPaths')}")
        for mode in ("NetworkMode", "IpcMode", "CgroupnsMode"):
            if given.get(mode) == "host" and not (mode == "CgroupnsMode" and self._v1()):
                found.append(f"{mode} host")
        found += self._shared(container["State"]["Pid"])
        found += [f"bind {source}" for source in _sources(container) if source not in self.binds]
        found += [f"log driver {given['LogConfig']}"] if given["LogConfig"]["Type"] != "json-file" else []
        found += [f"execs {container['ExecIDs']}"] if container.get("ExecIDs") else []
        return found

    def _shared(self, pid: int) -> list[str]:
        """The namespaces that a running container has in common with its daemon."""
        own = int((self.daemon.parent / "pid").read_text())
        kinds = ("net", "ipc", "pid", "mnt") if pid else ()
        with suppress(FileNotFoundError):  # it has ended
            return [
                f"the daemon's {kind} namespace" for kind in kinds if _namespace(pid, kind) == _namespace(own, kind)
            ]
        return []

    def _v1(self) -> bool:
        return str(self._get("/info")["CgroupVersion"]) == "1"

    def clear(self, before: Seen) -> None:
        """Takes away what was made since."""
        after = self.look()
        for id_ in after.containers.keys() - before.containers.keys():
            ask(self.daemon, "DELETE", f"/containers/{id_}?force=1&v=1")
        for name in after.volumes.keys() - before.volumes.keys():
            ask(self.daemon, "DELETE", f"/volumes/{quote(name, safe='')}?force=1")
        for id_ in after.networks.keys() - before.networks.keys():
            ask(self.daemon, "DELETE", f"/networks/{id_}")


@dataclass(frozen=True, slots=True)
class Ground:
    """What an attack is run on: a repo's gate, and the judge behind it."""

    root: Path
    repo: str
    gate: Path
    judge: Judge
    folder: Path

    def here(self, request: bytes, id_: str) -> bytes:
        """The request with this ground's folder and the last Id."""
        assert len(str(self.folder)) == len(FOLDER)
        return request.replace(FOLDER.encode(), str(self.folder).encode()).replace(b"%ID%", id_.encode())


def _sources(container: Mapping[str, Any]) -> list[str]:
    given = container["HostConfig"]
    sources = [text.partition(":")[0] for text in given.get("Binds") or () if text.startswith("/")]
    sources += [mount["Source"] for mount in given.get("Mounts") or () if mount["Type"] == "bind"]
    return sources + [mount["Source"] for mount in container["Mounts"] if mount["Type"] == "bind"]


def _namespace(pid: int, kind: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What an attack did to a container that was made past the gate: it may do nothing that starts or extends it."""
    found = []
    if after["State"]["StartedAt"] != before["State"]["StartedAt"]:
        found.append("was started")
    if before["State"]["Paused"] and not after["State"]["Paused"]:
        found.append("goes on")
    if set(after.get("ExecIDs") or ()) - set(before.get("ExecIDs") or ()):
        found.append("runs an exec")
    if after["HostConfig"] != before["HostConfig"]:
        found.append("has other settings")
    return found


def run(attack: Attack, ground: Ground) -> None:
    """Does it, and fails where it was not refused as it should be or left any power behind."""
    judge = ground.judge
    clean = judge.look()
    try:
        id_ = _all(attack.past, judge.daemon, ground, "")
        before = judge.look()
        id_ = _all(attack.steps[:-1], ground.gate, ground, id_)
        quiet = HANG if attack.never else QUIET
        answer = talk(ground.gate, ground.here(attack.steps[-1], id_), quiet=quiet)
        _settle(judge)
        powers = judge.powers(before, judge.look())
    finally:
        judge.clear(clean)
    assert not powers, f"{attack.id}: {powers}; the gate said {answer!r}"
    _check_answer(attack, answer)


def _all(requests: Sequence[bytes], path: Path, ground: Ground, id_: str) -> str:
    """Sends requests that must be taken; the last Id that came back."""
    for request in requests:
        said = talk(path, ground.here(request, id_))
        assert all(status < 400 for status in statuses(said)), f"the ground could not be laid: {request!r} {said!r}"
        found = re.search(rb'"Id":"([0-9a-f]{64})"', said)
        id_ = found[1].decode() if found else id_
    return id_


def _settle(judge: Judge) -> None:
    """One round trip behind whatever a smuggled request would have started."""
    ask(judge.daemon, "GET", "/_ping")


def _check_answer(attack: Attack, answer: bytes) -> None:
    got = statuses(answer)
    if attack.answers:
        assert got == attack.answers, f"{attack.id}: {answer!r}"
    elif not attack.free and not (attack.silent and not got):
        assert got, f"{attack.id}: closed without an answer"
        assert all(400 <= status < 500 or status == 505 for status in got), f"{attack.id}: {answer!r}"
    assert not attack.never or attack.never not in answer, f"{attack.id}: {answer!r}"
    if attack.rule:
        assert f"[{attack.rule}]".encode() in answer, f"{attack.id}: {answer!r}"


def workers(root: Path) -> frozenset[int]:
    """The process ids of the gate and its workers."""
    pid = int(json.loads((root / "run/rediacc/gpu/gate.lock").read_text())["pid"])
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return frozenset({pid, *map(int, children)})


def faults(root: Path) -> list[str]:
    """What the gate's log tells of faults of its own."""
    log = (root / "var/log/rediacc/gpu/gate.log").read_text(errors="replace").splitlines()
    return [line for line in log if "session failed" in line or "Traceback" in line]


def until(path: Path, target: str, wanted: int, body: Body, *, seconds: float = 15.0) -> None:
    """Asks until the answer has this status."""
    end = time.monotonic() + seconds
    while (got := ask(path, "POST", target, body))[0] != wanted:
        assert time.monotonic() < end, got
        time.sleep(0.1)
