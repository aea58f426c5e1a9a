"""Builds with BuildKit: a tunnel in which nothing is seen, so it opens only where the daemon itself is closed."""

from __future__ import annotations

import pytest

from dockerclient import ask, repo, rules_of, said
from gpugrant_gate.policy.model import Admission, Exchange, Refusal, RepoView

OPEN = repo(buildkit="")
SHUT = repo(buildkit="its daemon lets builds use devices (device): put … into /etc/docker/daemon.json and restart it")
UNFIT = repo(buildkit="", unfit="the daemon is rootless")
H2C = (("upgrade", "h2c"),)
OLD_CLIENT = "/build?version=2&remote=client-session&session=abc&buildid=d&outputs=%5B%7B%22Type%22%3A%22local%22%7D%5D"
"""What a docker CLI without buildx sends (20.10 with DOCKER_BUILDKIT=1)."""


@pytest.mark.parametrize("target", ["/grpc", "/session", "/v1.44/grpc"])
def test_a_tunnel_passes_where_builds_reach_nothing(target: str) -> None:
    decision = ask("POST", target, OPEN, headers=H2C)
    assert isinstance(decision, Admission)
    assert decision.build
    sent = decision.outgoing
    assert (sent.exchange, sent.headers, sent.body) == (Exchange.HIJACK, H2C, b"")
    assert sent.target == (target if target.startswith("/v") else f"/v1.45{target}")


@pytest.mark.req("R45")
@pytest.mark.parametrize("target", ["/grpc", "/session", OLD_CLIENT])
def test_is_refused_with_what_mends_it_and_the_classic_builder(target: str) -> None:
    decision = ask("POST", target, SHUT, headers=H2C)
    assert rules_of(decision) == ["build.buildkit"]
    for words in ("repo gpu-a", SHUT.buildkit, "DOCKER_BUILDKIT=0"):
        assert words in said(decision)


@pytest.mark.req("R45", "R52")
@pytest.mark.parametrize("target", ["/grpc", "/session", OLD_CLIENT])
def test_is_refused_before_an_unfit_daemon(target: str) -> None:
    assert "hw.unfit" in rules_of(ask("POST", target, UNFIT, headers=H2C))


@pytest.mark.req("R45")
def test_is_refused_while_nothing_is_known() -> None:
    assert rules_of(ask("POST", "/grpc", repo(), headers=H2C)) == ["build.buildkit"]


@pytest.mark.parametrize("headers", [(), (("upgrade", "tcp"),), (("upgrade", "h2c,tcp"),)])
def test_a_tunnel_of_another_protocol_is_none(headers: tuple[tuple[str, str], ...]) -> None:
    decision = ask("POST", "/grpc", OPEN, headers=headers or (("accept", "x"),))
    assert isinstance(decision, Refusal)
    assert (decision.status, rules_of(decision)) == (400, ["http.upgrade"])


def test_a_client_without_buildx_builds_too() -> None:
    decision = ask("POST", OLD_CLIENT, OPEN)
    assert isinstance(decision, Admission)
    assert decision.build


def test_a_classic_build_depends_on_nothing_that_the_daemon_lets_builds_reach() -> None:
    decision = ask("POST", "/build?version=1", SHUT)
    assert isinstance(decision, Admission)
    assert not decision.build


@pytest.mark.parametrize("view", [OPEN, SHUT])
@pytest.mark.parametrize(
    "query",
    [
        "fromImage=moby%2Fbuildkit&tag=buildx-stable-1",
        "fromImage=docker.io%2Fmoby%2Fbuildkit&tag=buildx-stable-1-rootless",
        "fromImage=moby%2Fbuildkit%3Abuildx-stable-1",
    ],
)
def test_a_builder_in_a_container_is_refused_before_its_image_is_fetched(view: RepoView, query: str) -> None:
    decision = ask("POST", f"/images/create?{query}", view)
    assert rules_of(decision) == ["build.container"]
    assert ("DOCKER_BUILDKIT=0" if view is SHUT else "docker buildx use NAME") in said(decision)


@pytest.mark.parametrize(
    "query", ["fromImage=moby%2Fbuildkit&tag=v0.20.0", "fromImage=x%2Fbuildkit&tag=buildx-stable-1"]
)
def test_other_images_are_fetched(query: str) -> None:
    assert isinstance(ask("POST", f"/images/create?{query}", OPEN), Admission)


REFUSED = {
    "the host's network": ("version=2&networkmode=host", "host.network"),
    "a cgroup parent": ("version=2&cgroupparent=x", "hw.cgroup"),
    "an address": ("version=2&remote=https%3A%2F%2Fx%2Fy.git", "build.remote"),
    "a session of the classic builder": ("session=x", "build.buildkit"),
    "a builder that nobody knows": ("version=3", "build.buildkit"),
    "the classic builder from a session": ("remote=client-session", "build.remote"),
}


@pytest.mark.req("R45")
@pytest.mark.parametrize("case", REFUSED)
def test_an_open_builder_takes_no(case: str) -> None:
    query, rule = REFUSED[case]
    assert rules_of(ask("POST", f"/build?{query}", OPEN)) == [rule]
