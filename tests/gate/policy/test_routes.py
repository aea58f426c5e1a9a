"""The table of endpoints: what it finds, with what, and what it never finds."""

from __future__ import annotations

import pytest

from dockerclient import ask, head, repo, said
from gpugrant_gate.policy import judge, routes
from gpugrant_gate.policy.model import Body, Exchange, Refusal, Routed

VIEW = repo()

FOUND = {
    "HEAD /_ping": "system.ping",
    "GET /_ping": "system.ping",
    "GET /v1.45/version": "system.version",
    "GET /info": "system.info",
    "GET /events?filters=%7B%7D&since=1": "system.events",
    "GET /v1.45/containers/json?all=1": "container.list",
    "POST /containers/create?name=x&platform=linux%2Famd64": "container.create",
    "POST /v1.45/containers/create/start": "container.start",
    "POST /containers/x/start?detachKeys=ctrl-p": "container.start",
    "POST /containers/x/wait?condition=removed": "container.wait",
    "POST /containers/x/attach?stream=1&stdin=1": "container.attach",
    "HEAD /containers/x/archive?path=%2Ftmp": "container.archive.head",
    "PUT /containers/x/archive?path=%2F&noOverwriteDirNonDir=true": "container.archive.put",
    "DELETE /containers/x?v=1&force=1": "container.remove",
    "POST /images/create?fromImage=x&tag=1": "image.pull",
    "POST /images/create?fromSrc=-&repo=x&changes=CMD+a&changes=ENV+b": "image.import",
    "POST /images/docker.io/library/x/push?tag=1": "image.push",
    "GET /images/a/b/c/json": "image.inspect",
    "GET /images/json": "image.list",
    "GET /images/json/json": "image.inspect",
    "GET /images/a/history/json": "image.inspect",
    "DELETE /images/a/b:1": "image.remove",
    "GET /images/get?names=a&names=b": "image.save",
    "GET /distribution/a/b/json": "image.distribution",
    "POST /commit?container=x&repo=y&pause=1": "image.commit",
    "POST /build?t=a&t=b&version=1&networkmode=default": "build",
    "POST /exec/0123456789abcdef/start": "exec.start",
    "DELETE /volumes/data?force=1": "volume.remove",
    "POST /networks/my%20net/connect": "network.connect",
    "GET /networks/n?verbose=false&scope=": "network.inspect",
}


@pytest.mark.parametrize(("line", "route"), FOUND.items(), ids=FOUND.keys())
def test_finds(line: str, route: str) -> None:
    method, _, target = line.partition(" ")
    found = routes.route(head(method, target), VIEW)
    assert isinstance(found, Routed)
    assert found.route == route


REFUSED = {
    "OPTIONS /containers/json": (403, "route.options"),
    "post /containers/create": (403, "route.unknown"),
    "GET /containers/create": (403, "route.unknown"),
    "HEAD /info": (403, "route.unknown"),
    "POST /containers/x/copy": (403, "route.unknown"),
    "POST /containers/foo/start/exec": (403, "route.unknown"),
    "POST /containers/a/b/start": (403, "route.unknown"),
    "GET /V1.45/info": (403, "route.unknown"),
    "GET /v1.45/v1.45/info": (403, "route.unknown"),
    "GET /v1.45": (400, "http.path"),
    "GET /nothing": (403, "route.unknown"),
    "GET /libpod/_ping": (404, "route.libpod"),
    "POST /v4.0.0/libpod/containers/create": (404, "route.libpod"),
    "GET /v5.0.0-dev/libpod/info": (404, "route.libpod"),
    "GET /vx/libpod/info": (403, "route.unknown"),
    "GET /grpc": (403, "route.unknown"),
    "POST /session?uuid=x": (403, "http.query"),
    "GET /v1.46/info": (400, "http.version"),
    "GET /v2.0/info": (400, "http.version"),
    "GET /v99.999/containers/json": (400, "http.version"),
    "GET /plugins/privileges?remote=x": (403, "hw.plugins"),
    "POST /plugins/pull?remote=x": (403, "hw.plugins"),
    "POST /swarm/init": (403, "hw.swarm"),
    "POST /services/create": (403, "hw.swarm"),
    "GET /swarm": (403, "hw.swarm"),
    "GET /tasks/x/logs": (403, "hw.swarm"),
    "POST /secrets/create": (403, "hw.swarm"),
    "POST /configs/create": (403, "hw.swarm"),
    "PUT /volumes/v": (403, "hw.volumes"),
    "GET /debug/pprof/heap": (403, "route.debug"),
    "POST /containers/x/checkpoints": (403, "hw.checkpoints"),
    "DELETE /containers/x/checkpoints/y": (403, "hw.checkpoints"),
    "POST /containers/x/start?checkpoint=y": (403, "hw.checkpoints"),
    "POST /containers/x/start?checkpoint-dir=/y": (403, "hw.checkpoints"),
    "GET /containers/json?Privileged=1": (403, "http.query"),
    "GET /containers/json?all=1&all=0": (400, "http.query"),
    "GET /containers/json?all=1;limit=2": (400, "http.query"),
    "POST /images/create?fromSrc=-&fromImage=x": (403, "http.query"),
    "GET /containers/x%20y/json": (400, "http.name"),
    "GET /containers/%C3%A4/json": (400, "http.name"),
    "GET /containers/-x/json": (400, "http.name"),
    "GET /volumes/.x": (400, "http.name"),
    "POST /exec/XYZ/start": (400, "http.name"),
    "GET /containers//json": (400, "http.path"),
}


@pytest.mark.parametrize(("line", "expected"), REFUSED.items(), ids=REFUSED.keys())
@pytest.mark.req("R4", "R45")
def test_refuses(line: str, expected: tuple[int, str]) -> None:
    method, _, target = line.partition(" ")
    found = routes.route(head(method, target), VIEW)
    assert isinstance(found, Refusal)
    assert (found.status, found.violations[0].rule) == expected


def test_tells_that_a_containers_name_holds_no_slash() -> None:
    assert "holds no" in said_by(routes.route(head("POST", "/containers/a/b/start"), VIEW))


def said_by(found: Routed | Refusal) -> str:
    assert isinstance(found, Refusal)
    return found.message


def test_a_newer_version_hears_what_a_daemon_says_to_one() -> None:
    said = said_by(routes.route(head("GET", "/v1.46/info"), VIEW))
    assert said == "client version 1.46 is too new. Maximum supported API version is 1.45 [http.version]"


@pytest.mark.parametrize("version", ["1.45", "1.24", "1.12", "0.1"])
def test_an_older_version_goes_to_the_daemon_for_its_own_answer(version: str) -> None:
    found = routes.route(head("GET", f"/v{version}/info"), VIEW)
    assert isinstance(found, Routed)
    assert found.version == version


SESSION = (
    ("upgrade", "h2c"),
    ("x-docker-expose-session-uuid", "u"),
    ("x-docker-expose-session-name", ""),
    ("x-docker-expose-session-sharedkey", "k"),
    ("x-docker-expose-session-grpc-method", "/moby.filesync.v1.FileSync/DiffCopy"),
    ("x-docker-expose-session-grpc-method", "/moby.buildkit.secrets.v1.Secrets/GetSecret"),
)


def test_a_session_says_what_it_offers_and_nothing_else() -> None:
    found = routes.route(head("POST", "/session", *SESSION, ("x-evil", "y")), VIEW)
    assert isinstance(found, Routed)
    assert found.headers == SESSION


@pytest.mark.parametrize("twice", ["x-docker-expose-session-uuid", "upgrade"])
def test_a_session_has_one_of_each_but_its_methods(twice: str) -> None:
    found = routes.route(head("POST", "/session", *SESSION, (twice, "z")), VIEW)
    assert isinstance(found, Refusal)
    assert (found.status, found.violations[0].rule) == (400, "http.header")


def test_no_other_request_brings_a_sessions_headers() -> None:
    found = routes.route(head("POST", "/containers/x/start", *SESSION), VIEW)
    assert isinstance(found, Routed)
    assert found.headers == ()


def test_builds_with_buildkit_are_told_of_the_classic_builder() -> None:
    assert "DOCKER_BUILDKIT=0" in said(ask("POST", "/grpc", VIEW, headers=(("upgrade", "h2c"),)))


def test_keeps_the_clients_version_and_its_flags_as_one_and_zero() -> None:
    found = routes.route(head("GET", "/v1.45/containers/json?all=True&size=False&limit=5&filters="), VIEW)
    assert isinstance(found, Routed)
    assert found.version == "1.45"
    assert found.query == (("all", "1"), ("size", "0"), ("limit", "5"), ("filters", ""))


def test_an_empty_flag_stays_empty_for_it_means_the_daemons_default() -> None:
    found = routes.route(head("POST", "/build?rm=&nocache=no"), VIEW)
    assert isinstance(found, Routed)
    assert found.query == (("rm", ""), ("nocache", "0"))


def test_fields_that_a_client_says_in_the_query_as_well_are_left_out() -> None:
    target = "/containers/create?Image=x&Cmd=a&Cmd=b&HostConfig=%7B%22Privileged%22%3Atrue%7D&name=c&authconfig=%7B%7D"
    found = routes.route(head("POST", target), VIEW)
    assert isinstance(found, Routed)
    assert found.query == (("name", "c"),)


@pytest.mark.parametrize(
    "target",
    [
        "/containers/x/start?Image=x",
        "/containers/create?Name=x",
        "/containers/create?image=x",
        "/images/create?Image=x",
    ],
)
def test_other_spellings_and_other_places_of_such_fields_are_unknown(target: str) -> None:
    assert isinstance(routes.route(head("POST", target), VIEW), Refusal)


def test_sends_on_the_headers_that_are_known() -> None:
    headers = (
        ("host", "docker"),
        ("user-agent", "x"),
        ("x-registry-auth", "e30="),
        ("x-meta-a", "b"),
        ("x-http-method-override", "DELETE"),
        ("connection", "upgrade"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAA"),
        ("x-forwarded-for", "1.2.3.4"),
        ("content-type", "text/plain"),
    )
    found = routes.route(head("POST", "/images/create?fromImage=x", *headers), VIEW)
    assert isinstance(found, Routed)
    assert [name for name, _ in found.headers] == ["user-agent", "x-registry-auth", "x-meta-a"]


HEADERS = {
    "a form on a judged body": ("POST /containers/create", "application/x-www-form-urlencoded", 415),
    "a multipart form on a build": ("POST /build", "multipart/form-data; boundary=x", 415),
    "a form on a start": ("POST /containers/x/start", "application/x-www-form-urlencoded", 415),
    "no type on a judged body": ("POST /containers/create", "", 415),
    "another type on a judged body": ("POST /containers/create", "text/json", 415),
    "another type on a build": ("POST /build", "text/html", 415),
}


@pytest.mark.parametrize(("line", "media", "status"), HEADERS.values(), ids=HEADERS.keys())
def test_refuses_content_types(line: str, media: str, status: int) -> None:
    method, _, target = line.partition(" ")
    headers = (("content-type", media),) if media else ()
    found = routes.route(head(method, target, *headers, body=True), VIEW)
    assert isinstance(found, Refusal)
    assert (found.status, found.violations[0].rule) == (status, "http.content-type")


@pytest.mark.parametrize("media", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_takes_json_with_any_parameter(media: str) -> None:
    found = routes.route(head("POST", "/containers/create", ("content-type", media), body=True), VIEW)
    assert isinstance(found, Routed)


def test_takes_the_type_that_docker_java_sends_for_cp() -> None:
    headers = ("content-type", "application_x_tar")
    found = routes.route(head("PUT", "/containers/x/archive?path=/tmp", headers, body=True), VIEW)
    assert isinstance(found, Routed)


def test_a_form_type_without_a_body_is_dropped() -> None:
    headers = ("content-type", "application/x-www-form-urlencoded")
    found = routes.route(head("POST", "/containers/x/start", headers), VIEW)
    assert isinstance(found, Routed)
    assert found.headers == ()


@pytest.mark.parametrize("name", ["content-type", "x-registry-auth", "user-agent"])
def test_refuses_a_header_that_is_there_twice(name: str) -> None:
    twice = ((name, "application/json"), (name, "text/plain"))
    found = routes.route(head("POST", "/containers/create", *twice, body=True), VIEW)
    assert isinstance(found, Refusal)
    assert found.status == 400


def test_only_the_known_routes_become_a_pipe() -> None:
    pipes = {row.id for row in routes.ROUTES if row.exchange is Exchange.HIJACK}
    assert pipes == {"container.attach", "container.attach.ws", "exec.start", "build.grpc", "build.session"}


def test_every_judged_row_has_its_judge_and_no_other() -> None:
    assert {row.id for row in routes.ROUTES if row.judged} == set(judge.JUDGES)


def test_every_row_with_a_judged_body_has_a_shape() -> None:
    judged = {row.id for row in routes.ROUTES if row.body is Body.JUDGED and not row.echoed}
    assert judged == {route for route, row in judge.JUDGES.items() if row.shape is not None}


def test_the_refusal_of_a_route_has_the_rules_id() -> None:
    found = routes.route(head("POST", "/plugins/pull"), VIEW)
    assert isinstance(found, Refusal)
    assert said(found).endswith("[hw.plugins]")


QUERIES = {
    "POST /build?entitlements=device": "a build gets no entitlements and no devices: leave it out, and give the device",
    "POST /build?device=x": "a build gets no entitlements and no devices",
    "GET /containers/json?filter=x": "leave it out, or write filters",
    "GET /containers/json?xyz=x": 'the gate knows no query key "xyz" of container.list: leave it out',
}


@pytest.mark.parametrize(("line", "words"), QUERIES.items(), ids=QUERIES.keys())
def test_an_unknown_query_key_is_told_what_to_do(line: str, words: str) -> None:
    method, _, target = line.partition(" ")
    assert words in said_by(routes.route(head(method, target), VIEW))
