"""Which daemons may be trusted with CDI devices (R52), and what mends the others."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import pytest

from gpugrant_crds.reasons import Reason
from gpugrant_gate.life import fitness
from gpugrant_gate.life.buildkit import Builder
from gpugrant_gate.life.fitness import Expected, Said

VERSION = {"Version": "26.1.5+dfsg1", "ApiVersion": "1.45"}
INFO = {
    "CDISpecDirs": ["/etc/cdi"],
    "DefaultRuntime": "runc",
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
    "DockerRootDir": "/var/lib/docker",
}
EXPECTED = Expected(PurePath("/etc/cdi"), sealed=False)


def judge(version: dict[str, Any], info: dict[str, Any], *, sealed: bool = False) -> fitness.Fitness:
    return fitness.judge(Said(version, info, sealed), EXPECTED)


def test_a_daemon_as_it_should_be_is_fit() -> None:
    found = judge(VERSION, INFO, sealed=True)
    builder = Builder(engine=(26, 1, 5))
    assert found == fitness.Fitness(True, sealed=True, api_version="1.45", data_root="/var/lib/docker", builder=builder)


FIT = {
    "more runtimes, for none but runc is used": INFO | {"Runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}},
    "experimental, for its endpoints are refused": INFO | {"ExperimentalBuild": True},
    "live-restore where the repo is not sealed": INFO | {"LiveRestoreEnabled": True},
    "no swarm": INFO | {"Swarm": {"LocalNodeState": "inactive"}},
    "NRI off": INFO | {"NRI": None},
    "warnings of another kind": INFO | {"Warnings": ["WARNING: bridge-nf-call-iptables is disabled"]},
}


@pytest.mark.parametrize("case", FIT)
def test_is_fit_with(case: str) -> None:
    assert judge(VERSION, FIT[case]).fit


def test_what_was_found_out_about_its_builder_is_kept_in_any_case() -> None:
    said = Said(VERSION, INFO | {"DefaultRuntime": "x"}, sealed=False, config="/d.json", runc=True, own_specs=True)
    found = fitness.judge(said, EXPECTED).builder
    assert (found.engine, found.config, found.runc, found.own_specs) == ((26, 1, 5), "/d.json", True, True)


def test_a_newer_api_than_the_gate_knows_is_not_used() -> None:
    assert judge(VERSION | {"ApiVersion": "1.99"}, INFO).api_version == "1.51"


UNFIT = {
    "older than 25": (VERSION | {"Version": "24.0.9"}, INFO, "install Docker 25 or newer"),
    "no engine version": (VERSION | {"Version": "dev"}, INFO, "says no Docker Engine version"),
    "no version at all": ({}, INFO, "says no Docker Engine version"),
    "CDI off": (VERSION, INFO | {"CDISpecDirs": []}, '"features": {"cdi": true}, "cdi-spec-dirs": ["/etc/cdi"]'),
    "CDI unheard of": (VERSION, {**INFO, "CDISpecDirs": None}, '"cdi-spec-dirs": ["/etc/cdi"]'),
    "Docker's own two folders": (
        VERSION,
        INFO | {"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]},
        "reads CDI specs from /etc/cdi, /var/run/cdi and must read /etc/cdi only",
    ),
    "another folder": (VERSION, INFO | {"CDISpecDirs": ["/opt/cdi"]}, '"cdi-spec-dirs": ["/etc/cdi"]'),
    "the folder in another spelling": (VERSION, INFO | {"CDISpecDirs": ["/etc/cdi/"]}, "must read /etc/cdi only"),
    "nvidia as the default runtime": (VERSION, INFO | {"DefaultRuntime": "nvidia"}, '"default-runtime": "runc"'),
    "part of a swarm": (VERSION, INFO | {"Swarm": {"LocalNodeState": "active"}}, "docker swarm leave --force"),
    "a swarm that is locked": (VERSION, INFO | {"Swarm": {"LocalNodeState": "locked"}}, "docker swarm leave --force"),
    "NRI on": (VERSION, INFO | {"NRI": {"Info": [["plugin-path", "/opt/nri"]]}}, '"nri-opts": {"enable": false}'),
    "an API without TLS": (
        VERSION,
        INFO | {"Warnings": ["x", "WARNING: API is accessible on http://0.0.0.0:2375 without encryption.\n Access"]},
        'open to everybody at http://0.0.0.0:2375, past the gate: leave only its Unix socket in "hosts"',
    ),
    "an API that knows no clients": (
        VERSION,
        INFO
        | {"Warnings": ["[DEPRECATION NOTICE]: API is accessible on https://[::]:1 without TLS client verification."]},
        "https://[::]:1",
    ),
    "no default runtime": (VERSION, {**INFO, "DefaultRuntime": None}, '"default-runtime": "runc"'),
    "no security options": (VERSION, {**INFO, "SecurityOptions": None}, "security options"),
}


@pytest.mark.req("R52", "R43")
@pytest.mark.parametrize("case", UNFIT)
def test_is_unfit(case: str) -> None:
    version, info, mend = UNFIT[case]
    found = judge(version, info)
    assert (found.fit, found.reason) == (False, Reason.DAEMON_UNFIT)
    assert mend in found.message


@pytest.mark.req("R52")
def test_a_rootless_daemon_is_unfit_by_its_own_reason() -> None:
    found = judge(VERSION, INFO | {"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]})
    assert (found.fit, found.reason) == (False, Reason.ROOTLESS_DAEMON)


@pytest.mark.req("R43")
def test_a_daemon_that_should_be_sealed_and_is_not_is_unfit() -> None:
    said = Said(VERSION, INFO, sealed=False)
    found = fitness.judge(said, Expected(PurePath("/etc/cdi"), sealed=True))
    assert not found.fit
    assert "sealed: true" in found.message


@pytest.mark.req("R52")
def test_a_sealed_daemon_whose_containers_outlive_it_is_unfit() -> None:
    said = Said(VERSION, INFO | {"LiveRestoreEnabled": True}, sealed=True)
    found = fitness.judge(said, Expected(PurePath("/etc/cdi"), sealed=True))
    assert (found.fit, found.reason) == (False, Reason.DAEMON_UNFIT)
    assert '"live-restore": false' in found.message


@pytest.mark.req("R43")
def test_below_another_root_the_folder_is_that_roots() -> None:
    expected = Expected(PurePath("/tmp/x/etc/cdi"), sealed=False)
    assert not fitness.judge(Said(VERSION, INFO, sealed=False), expected).fit
    there = INFO | {"CDISpecDirs": ["/tmp/x/etc/cdi"]}
    assert fitness.judge(Said(VERSION, there, sealed=False), expected).fit
