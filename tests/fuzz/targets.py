"""What is fuzzed: each reader of bytes that come from a tenant, a daemon or a file, with the law that it keeps.

A target takes any bytes. It raises only where the law is broken; a clean refusal is no fault. `SEEDS` are what the
fuzzer begins with, by target.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from corpus import bodies, endpoints, past, requests
from dockerclient import ID, NVIDIA, OTHER_ID, ask, cdi, inspected, knows, repo, run_body
from gpugrant_crds import repofile, snapshot
from gpugrant_crds.repofile import RepoFile
from gpugrant_gate.policy import routes, target
from gpugrant_gate.policy.model import Admission, ContainerFact, ExecFact, Head, Refusal
from gpugrant_gate.wire import framing, heads, messages
from gpugrant_gate.wire.faults import Malformed, Truncated
from gpugrant_gate.wire.tars import PlainTar

VIEW = repo(NVIDIA, binds=("/srv/a",))
FIND = knows(
    {
        ContainerFact("c"): inspected(),
        ContainerFact(ID): inspected(),
        ContainerFact("web"): inspected(id_=OTHER_ID),
        ExecFact(ID): {"ContainerID": ID, "ProcessConfig": {"privileged": False}},
    }
)
POSTED = (
    "/v1.45/containers/create?name=c",
    "/containers/c/update",
    "/containers/c/exec",
    f"/exec/{ID}/start",
    "/volumes/create",
    "/networks/create",
    "/networks/n/connect",
    "/commit?container=c",
    "/auth",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD")


def head(data: bytes) -> None:
    """A request's head is refused, or can be written anew and read as the same."""
    read = _head_of(data)
    if read is not None:
        written = messages.request(read.method, read.target, read.headers[:99], framing.NONE)
        again = heads.parse_request(written)
        assert (again.method, again.target) == (read.method, read.target)


def _head_of(data: bytes) -> heads.RequestHead | None:
    try:
        end = heads.find_end(data)
        return heads.parse_request(data[:end]) if end else None
    except Malformed:
        return None


def frames(data: bytes) -> None:
    """A chunked body gives the same bytes however it comes in pieces."""
    if data:
        at = 1 + data[0] * len(data) // 256
        assert _decoded([data[1:]]) == _decoded([data[1:at], data[at:]])


def _decoded(pieces: Iterable[bytes]) -> tuple[bytes, bool, bytes] | None:
    decoder = framing.ChunkedDecoder()
    try:
        body = b"".join([decoder.feed(piece) for piece in pieces])
    except Malformed:
        return None
    return body, decoder.done, decoder.rest


def body(data: bytes) -> None:
    """A JSON body is refused, or what goes on has no power and is read as the same again."""
    where = POSTED[data[0] % len(POSTED)] if data else POSTED[0]
    written = _admitted(where, data[1:])
    if written:
        assert _admitted(where, written) == written
        check_harmless(json.loads(written), (NVIDIA,))


def _admitted(where: str, data: bytes) -> bytes | None:
    decision = ask("POST", where, VIEW, data, find=FIND, headers=(("content-type", "application/json"),))
    return decision.outgoing.body if isinstance(decision, Admission) else None


def check_harmless(written: dict[str, Any], names: tuple[str, ...]) -> None:
    """Fields that give hardware, wherever a daemon reads them; `names` are granted."""
    for holder in (written, written.get("HostConfig") or {}):
        for field in ("Privileged", "Devices", "DeviceCgroupRules", "CgroupParent", "PidMode", "Annotations"):
            assert not holder.get(field), field
        assert holder.get("Runtime", "runc") == "runc"
        for asked in holder.get("DeviceRequests") or ():
            assert asked == cdi(*asked["DeviceIDs"])[0]
            assert set(asked["DeviceIDs"]) <= {*names}
    assert not written.get("DriverOpts")


def path(data: bytes) -> None:
    """A target is refused, or what goes on is read as the same route, names and query."""
    method = METHODS[data[0] % len(METHODS)] if data else "GET"
    routed = routes.route(Head(method, data[1:].decode("latin-1"), (), (1, 1), False), VIEW)
    if not isinstance(routed, Refusal):
        sent = target.build(routed.version, routed.segments, routed.query)
        again = routes.route(Head(method, sent, (), (1, 1), False), VIEW)
        assert again == routed, sent


def request(data: bytes) -> None:
    """Whole requests get a decision."""
    try:
        end = heads.find_end(data)
        if not end:
            return
        read = heads.parse_request(data[:end])
        decoder = framing.decoder(read.framing)
        content = decoder.feed(data[end:])
    except (Malformed, Truncated):
        return
    decision = ask(read.method, read.target, VIEW, content, find=FIND, headers=read.headers)
    if isinstance(decision, Admission):
        out = decision.outgoing
        messages.request(out.method, out.target, out.headers, framing.of_length(len(out.body or b"")))


def answer(data: bytes) -> None:
    """Whatever a daemon says is relayed in one reading, or is a bad gateway."""
    end = data.find(b"\r\n\r\n") + 4
    if end < 4:
        return
    for method in ("GET", "HEAD"):
        try:
            read = heads.parse_response(data[:end])
            frame = heads.response_framing(read, method)
        except Malformed:
            return
        written, _ = messages.answer(read, frame, method=method, version=(1, 1), keep_alive=True)
        assert written.count(b"\r\n\r\n") == 1
        assert heads.parse_response(written).status == read.status


def tar(data: bytes) -> None:
    """An archive passes whole and only when a daemon unpacks it without a helper."""
    at = data[0] * len(data) // 256 if data else 0
    decoder = PlainTar(framing.LengthDecoder(len(data)))
    try:
        passed = decoder.feed(data[:at]) + decoder.feed(data[at:])
    except Malformed:
        return
    assert passed == data
    assert not data.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"))
    assert not data.strip(b"\0") or len(data) < 512 or data[257:262] == b"ustar" or not data[:512].strip(b"\0")


def repo_file(data: bytes) -> None:
    """A file of repos.d is whole or refused, and what was read is written as it was read."""
    read = repofile.parse(data.decode("utf-8", "replace"), "x.yaml")
    if isinstance(read, RepoFile):
        assert repofile.parse(repofile.dump(read), "x.yaml") == read


def pushed(data: bytes) -> None:
    """A snapshot is whole or refused."""
    try:
        read = snapshot.Snapshot.model_validate_json(data)
    except ValidationError:
        return
    if snapshot.sound(read):
        # what is written has whole seconds
        assert snapshot.Snapshot.model_validate(read.to_json()).to_json() == read.to_json()
    read.granted("a", "id", datetime(2026, 3, 1, tzinfo=UTC))


STEPS = [
    step
    for table in (bodies.TABLE, endpoints.TABLE, past.TABLE, requests.TABLE)
    for attack in table
    for step in (*attack.past, *attack.steps)
]
CONTENTS = [step.partition(b"\r\n\r\n")[2] for step in STEPS]
JSONS = [*(text for text in CONTENTS if text[:1] == b"{"), json.dumps(run_body()).encode()]
LINES = [step.split(b" ")[1] for step in STEPS if step.count(b" ") > 1]
ANSWERS = (
    b"HTTP/1.1 200 OK\r\nApi-Version: 1.51\r\nContent-Length: 2\r\n\r\nOK",
    b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
    b"HTTP/1.0 404 \r\nX-Docker-A: \xe9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
)
REPO_FILE = b"""name: gpu-a
id: 0b3e
upstream: /var/run/docker.sock
listen: /run/x.sock
owner: root
mode: "0660"
sealed: true
binds: [/srv/a]
"""
SNAPSHOT = snapshot.build(
    api_id="a", machine="m", machine_uid="u", epoch=1, issued_at=datetime(2026, 3, 1, tzinfo=UTC),
    grants=(snapshot.SnapshotGrant(
        repo="a", repo_id="id", device=NVIDIA, expires_at=datetime(2027, 1, 1, tzinfo=UTC),
        grant=snapshot.GrantRef(namespace="n", name="g", uid="u"),
    ),),
)  # fmt: skip

Check = Callable[[bytes], None]
TARGETS: Mapping[str, tuple[Check, tuple[bytes, ...]]] = {
    "head": (head, tuple(step.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" for step in STEPS)),
    "frames": (frames, tuple(b"\x80" + text for text in CONTENTS if b"\r\n" in text)),
    "body": (body, tuple(bytes([place % len(POSTED)]) + text for place, text in enumerate(JSONS))),
    "path": (path, tuple(bytes([place % len(METHODS)]) + line for place, line in enumerate(LINES))),
    "request": (request, tuple(STEPS)),
    "answer": (answer, ANSWERS),
    "tar": (tar, tuple(text for text in CONTENTS if len(text) >= 512)),
    "repo-file": (repo_file, (REPO_FILE,)),
    "snapshot": (pushed, (json.dumps(SNAPSHOT.to_json()).encode(),)),
}
"""By name: the law, and what to begin with."""
