"""The verdict on a request that was read from a file."""

from __future__ import annotations

import json

import pytest

from dockerclient import FOLDER, ID, NVIDIA, cdi, gpus, inspected, repo, run_body
from gpugrant_gate import explain
from gpugrant_gate.policy.model import PathInfo

HELD = repo(NVIDIA, binds=("/srv",))


def create(body: object, *, line_end: str = "\r\n", more: str = "") -> bytes:
    data = json.dumps(body)
    head = ["POST /v1.45/containers/create?name=x HTTP/1.1", "Host: docker", "Content-Type: application/json"]
    return (line_end.join([*head, f"Content-Length: {len(data)}", "", ""]) + data + more).encode()


def look(path: str) -> PathInfo:
    return FOLDER


@pytest.mark.parametrize("line_end", ["\r\n", "\n"], ids=["CRLF", "LF"])
@pytest.mark.parametrize("more", ["", "\n", "\r\n"], ids=["as sent", "with a line end", "with CRLF"])
def test_an_admitted_request_is_shown_as_it_goes_on(line_end: str, more: str) -> None:
    raw = create(run_body(DeviceRequests=cdi(NVIDIA)), line_end=line_end, more=more)
    verdict = explain.explain(raw, HELD, look)
    assert verdict.admitted
    assert len(verdict.notes) == int(line_end == "\n"), "the wire takes no LF alone, and that is said"
    lines = verdict.text.splitlines()
    lines = lines[len(verdict.notes) :]
    assert lines[:3] == ["verdict: admitted", "route:   container.create", f"devices: {NVIDIA}"]
    assert "  POST /v1.45/containers/create?name=x HTTP/1.1" in lines
    assert "--- body as it came" in lines
    assert '+    "Runtime": "runc",' in lines
    after = [line[1:] for line in lines[lines.index("+++ body as it goes on") + 2 :] if not line.startswith("-")]
    assert json.loads("\n".join(after))["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == [NVIDIA]


def test_a_refused_request_is_shown_with_every_rule() -> None:
    verdict = explain.explain(create(run_body(DeviceRequests=gpus(), Privileged=True)), repo(), look)
    assert not verdict.admitted
    lines = verdict.text.splitlines()
    assert lines[:2] == ["verdict: refused with status 403", "route:   container.create"]
    assert [line.split()[1] for line in lines[2:]] == ["hw.gpus:", "hw.privileged:"]


def test_paths_are_looked_at_by_the_function_that_is_given() -> None:
    raw = create(run_body(Binds=["/srv/src:/src", "data:/data"]))
    verdict = explain.explain(raw, HELD, lambda path: PathInfo("missing", symlink=False, swappable=True))
    assert not verdict.admitted
    assert verdict.notes == (
        "/srv/src on this machine: missing",
        "the gate would ask the daemon GET /volumes/data: it is taken to have no volume data",
        "the verdict depends on the daemon's answers: give them with --facts FILE",
    )
    assert verdict.text.startswith("note:    /srv/src on this machine: missing\n")


def test_what_needs_a_daemon_is_said_to_be_absent() -> None:
    verdict = explain.explain(b"POST /containers/web/start HTTP/1.1\nHost: x\n\n", HELD, look)
    assert not verdict.admitted
    assert verdict.notes == (
        "lines of the file's head end with LF, which the gate refuses (wire.line-end): judged as CRLF",
        "the gate would ask the daemon GET /containers/web/json: it is taken to have no container web",
        "the verdict depends on the daemon's answers: give them with --facts FILE",
    )
    assert "status 404" in verdict.text


def test_a_stream_is_said_to_come_as_it_is() -> None:
    raw = b"POST /build?t=x HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-tar\r\nContent-Length: 3\r\n\r\nabc"
    verdict = explain.explain(raw, HELD, look)
    assert verdict.admitted
    assert verdict.text.endswith("(the body as it comes)\n")


def test_a_chunked_body_is_taken_out_of_its_chunks() -> None:
    data = json.dumps(run_body(DeviceRequests=cdi(NVIDIA))).encode()
    head = b"POST /containers/create HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    raw = head + b"Transfer-Encoding: chunked\r\n\r\n" + f"{len(data):x}\r\n".encode() + data + b"\r\n0\r\n\r\n"
    assert explain.explain(raw, HELD, look).admitted


def test_a_length_that_is_wrong_is_said_and_the_file_judged() -> None:
    raw = create(run_body()).replace(b"Content-Length: ", b"Content-Length: 1")
    verdict = explain.explain(raw, HELD, look)
    assert verdict.admitted
    assert "are judged" in verdict.notes[0]


MALFORMED = {
    "nothing": b"",
    "no request": b"hello\n\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "half a chunk": b"POST /auth HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    "two lengths": b"POST /auth HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_request_is_a_refusal_and_no_fault(raw: bytes) -> None:
    verdict = explain.explain(raw, HELD, look)
    assert not verdict.admitted
    assert "rule:    wire." in verdict.text


def test_an_unknown_endpoint_is_a_refusal() -> None:
    verdict = explain.explain(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", HELD, look)
    assert not verdict.admitted
    assert "route.unknown" in verdict.text


def test_a_restart_says_what_comes_after_it() -> None:
    from gpugrant_gate.policy.model import Admission, Body, Exchange, Outgoing, Routed

    then = Routed("container.start", "POST", "1.45", ("containers", "x", "start"), (), (), Body.NONE, Exchange.PLAIN)
    admission = Admission("container.restart", Outgoing("POST", "/containers/x/stop", (), b""), then=then)
    shown = explain.Explanation(admission, "container.restart", ()).text
    assert "then:    container.start, judged afresh" in shown


def test_credentials_are_not_shown() -> None:
    raw = b"POST /images/x/push HTTP/1.1\r\nHost: x\r\nX-Registry-Auth: s3cret\r\n\r\n"
    verdict = explain.explain(raw, HELD, look)
    assert verdict.admitted
    assert "s3cret" not in verdict.text


START = b"POST /containers/web/start HTTP/1.1\nHost: x\n\n"
WEB = {**inspected(NetworkMode="host", Binds=["data:/data"]), "Name": "/web"}
DATA = {"Name": "data", "Driver": "local", "Mountpoint": "/m", "Options": None, "Scope": "local"}
EXEC = {"ID": "ab" * 32, "ContainerID": ID, "ProcessConfig": {"privileged": True}}


def test_the_daemons_answers_decide_where_they_are_given() -> None:
    known = explain.answers([[WEB, DATA]])
    closed = explain.explain(START, repo(), look, known)
    assert not closed.admitted
    assert "rule:    host.network: the host's network is refused" in closed.text
    assert "note:    the daemon's answer to GET /containers/web/json is given" in closed.text
    opened = explain.explain(START, repo(open=frozenset({"host.network"})), look, known)
    assert opened.admitted
    assert f"/containers/{ID}/start" in opened.text
    missing = explain.explain(START, repo(), look, explain.answers([[DATA]]))
    assert "status 404" in missing.text
    assert "is taken to be: no container web" in missing.text


def test_every_kind_of_answer_is_found_by_its_names() -> None:
    exec_start = f"POST /exec/{EXEC['ID']}/start HTTP/1.1\nHost: x\n\n".encode()
    known = explain.answers([EXEC, [{**WEB, "Name": "/other"}]])
    assert "hw.privileged" in explain.explain(exec_start, repo(), look, known).text
    short = START.replace(b"/web/", f"/{ID[:12]}/".encode())
    assert "host.network" in explain.explain(short, repo(), look, known).text
    network = {"Id": ID, "Name": "lan", "IPAM": {}, "Driver": "macvlan"}
    body = create(run_body(NetworkMode="lan"))
    assert "host.network-driver" in explain.explain(body, repo(), look, explain.answers([network])).text


@pytest.mark.parametrize("value", [1, "x", [1], [[WEB]], None, {"a": 1}])
def test_answers_are_objects(value: object) -> None:
    with pytest.raises(ValueError, match="as docker inspect prints them"):
        explain.answers([value])


def test_a_head_without_its_end_is_said_to_have_none() -> None:
    verdict = explain.explain(b"GET /_ping HTTP/1.1\r\nHost: x\r\n", HELD, look)
    assert verdict.notes == ("the file ends before the empty line that ends a head: the gate would wait for it",)


def test_passwords_are_not_shown() -> None:
    login = json.dumps({"username": "u", "password": "s3cret", "serveraddress": "r", "identitytoken": "t0ken"})
    raw = f"POST /auth HTTP/1.1\nHost: x\nContent-Type: application/json\nContent-Length: {len(login)}\n\n{login}"
    shown = explain.explain(raw.encode(), HELD, look)
    assert shown.admitted
    assert "s3cret" not in shown.text
    assert "t0ken" not in shown.text
    dockerode = explain.explain(create({**run_body(), "authconfig": {"password": "s3cret"}}), HELD, look)
    assert dockerode.admitted
    assert "s3cret" not in dockerode.text


def test_a_body_that_is_not_changed_is_shown_once() -> None:
    command = {"Cmd": ["sh"], "Tty": True}
    raw = json.dumps(command)
    text = (
        f"POST /containers/web/exec HTTP/1.1\nHost: x\nContent-Type: application/json\nContent-Length: {len(raw)}\n\n"
    )
    plain = {**inspected(), "Name": "/web"}
    shown = explain.explain((text + raw).encode(), repo(), look, explain.answers([plain])).text
    assert json.loads(shown.partition("body, as it came:\n")[2]) == command
