"""What the gate writes: never a client's bytes, never a head that reads in two ways."""

from __future__ import annotations

import json

import pytest

from gpugrant_gate.wire import framing, heads, messages, versions
from gpugrant_gate.wire.framing import CHUNKED, NONE, Framing, Kind

JSON = (("content-type", "application/json"),)


def test_writes_a_request_with_its_own_host_and_framing() -> None:
    assert messages.request("POST", "/v1.45/containers/create?name=a", JSON, Framing(Kind.LENGTH, 2)) == (
        b"POST /v1.45/containers/create?name=a HTTP/1.1\r\n"
        b"Host: docker\r\n"
        b"Content-Type: application/json\r\n"
        b"Connection: close\r\n"
        b"Content-Length: 2\r\n\r\n"
    )


def test_an_empty_post_has_a_length() -> None:
    assert b"Content-Length: 0\r\n" in messages.request("POST", "/v1.45/containers/x/start", (), NONE)
    assert b"Content-Length" not in messages.request("GET", "/v1.45/info", (), NONE)


def test_asks_for_an_upgrade() -> None:
    head = messages.request("POST", "/x", (), NONE, upgrade="tcp")
    assert b"Connection: Upgrade\r\nUpgrade: tcp\r\n" in head
    assert b"close" not in head


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "name", ["host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "expect"]
)
def test_takes_no_framing_from_anybody(name: str) -> None:
    assert b"smuggled" not in messages.request("GET", "/x", ((name, "smuggled"),), NONE)


BROKEN = {
    "a line end in a value": ("/x", (("user-agent", "a\r\nX: y"),)),
    "a line end in a name": ("/x", (("a\r\nx", "y"),)),
    "a line end in the target": ("/x HTTP/1.1\r\nX: y", ()),
    "a target that is no path": ("http://x/", ()),
}


@pytest.mark.req("R4")
@pytest.mark.parametrize("case", BROKEN)
def test_writes_nothing_that_breaks_the_head(case: str) -> None:
    target, headers = BROKEN[case]
    with pytest.raises(messages.Unwritable):
        messages.request("GET", target, headers, NONE)


def answer(text: bytes, method: str = "GET", version: tuple[int, int] = (1, 1), keep: bool = True) -> bytes:
    head = heads.parse_response(text)
    body = heads.response_framing(head, method)
    return messages.answer(head, body, method=method, version=version, keep_alive=keep)[0]


def test_passes_only_known_headers_of_an_answer() -> None:
    said = answer(
        b"HTTP/1.1 200 OK\r\nApi-Version: 1.45\r\nServer: Docker\r\nX-Docker-Container-Path-Stat: e30=\r\n"
        b"Set-Cookie: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
    assert said == (
        b"HTTP/1.1 200 OK\r\nApi-Version: 1.45\r\nServer: Docker\r\nX-Docker-Container-Path-Stat: e30=\r\n"
        b"Content-Length: 0\r\n\r\n"
    )


def test_promises_no_newer_api_than_the_gate_knows() -> None:
    assert b"Api-Version: 1.51\r\n" in answer(b"HTTP/1.1 200 OK\r\nApi-Version: 1.99\r\nContent-Length: 0\r\n\r\n")


def test_an_answer_to_head_keeps_its_length_and_has_no_other_framing() -> None:
    said = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", method="HEAD")
    assert said == b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"


def test_204_has_no_framing() -> None:
    assert answer(b"HTTP/1.1 204 No Content\r\n\r\n", method="POST") == b"HTTP/1.1 204 No Content\r\n\r\n"


def test_an_answer_until_the_end_becomes_chunked_where_the_client_can_read_that() -> None:
    text = b"HTTP/1.1 200 OK\r\n\r\n"
    assert b"Transfer-Encoding: chunked" in answer(text)
    assert answer(text, version=(1, 0), keep=False) == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


UPGRADED = (
    b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
    b"Connection: Upgrade\r\nUpgrade: tcp\r\nApi-Version: 1.45\r\n\r\n"
)


def test_a_client_that_asked_gets_the_101() -> None:
    assert messages.upgraded(heads.parse_response(UPGRADED), asked=True) == (
        b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nApi-Version: 1.45\r\n"
        b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    )


def test_a_client_that_did_not_ask_gets_the_200_form() -> None:
    assert messages.upgraded(heads.parse_response(UPGRADED), asked=False) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\nApi-Version: 1.45\r\n\r\n"
    )


def test_refuses_in_the_form_that_the_docker_cli_prints() -> None:
    said = messages.error(403, 'no grant for "nvidia.com/gpu=all"', keep_alive=True)
    head, _, body = said.partition(b"\r\n\r\n")
    assert json.loads(body) == {"message": 'no grant for "nvidia.com/gpu=all"'}
    assert body.endswith(b"\n")
    assert head.split(b"\r\n")[0] == b"HTTP/1.1 403 Forbidden"
    assert b"Content-Length: %d" % len(body) in head
    assert b"close" not in head


def test_a_refused_head_request_has_no_body() -> None:
    assert messages.error(403, "no", method="HEAD").endswith(b"\r\n\r\n")


CLAMPED = {
    "an older daemon": ({"ApiVersion": "1.45"}, {"ApiVersion": "1.45"}),
    "a newer daemon": ({"ApiVersion": "1.99"}, {"ApiVersion": versions.NEWEST}),
    "its engine component": (
        {"Components": [{"Name": "Engine", "Details": {"ApiVersion": "1.99"}}, {"Name": "runc"}]},
        {"Components": [{"Name": "Engine", "Details": {"ApiVersion": versions.NEWEST}}, {"Name": "runc"}]},
    ),
}


@pytest.mark.parametrize("case", CLAMPED)
def test_clamps_the_version_answer(case: str) -> None:
    said, clamped = CLAMPED[case]
    assert json.loads(versions.clamp_version_body(json.dumps(said).encode())) == clamped


def test_leaves_what_is_no_version_answer() -> None:
    assert versions.clamp_version_body(b"[1]") == b"[1]"
    assert versions.clamp_version_body(b"\xff") == b"\xff"


def test_chunked_framing_is_written_for_a_stream() -> None:
    assert b"Transfer-Encoding: chunked\r\n" in messages.request("POST", "/build", (), CHUNKED)
    assert framing.chunk(b"abc") == b"3\r\nabc\r\n"
