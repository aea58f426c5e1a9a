"""Attacks by other endpoints than create, and what the daemon's own names and nodes could lend."""

from __future__ import annotations

import tarfile
from typing import Any

import pytest

import intruder
from corpus.endpoints import RUNNING, STARTED, TABLE, TAR, archive
from intruder import JSON, Attack, create, host, raw, text

pytestmark = [pytest.mark.real, pytest.mark.req("R4", "R45")]


@pytest.mark.parametrize("attack", TABLE, ids=lambda attack: attack.id)
def test_no_other_endpoint_brings_hardware(ground: intruder.Ground, attack: Attack) -> None:
    intruder.run(attack, ground)


BACK_DOORS = {
    "the id of the host's network": lambda id_: create(host(NetworkMode=id_)),
    "a part of the id": lambda id_: create(host(NetworkMode=id_[:12])),
    "an endpoint of the id": lambda id_: create(host() | {"NetworkingConfig": {"EndpointsConfig": {id_: {}}}}),
    "an endpoint that names the id": lambda id_: create(
        host() | {"NetworkingConfig": {"EndpointsConfig": {"x": {"NetworkID": id_}}}}
    ),
    "a mode and an endpoint": lambda id_: create(
        host(NetworkMode="x") | {"NetworkingConfig": {"EndpointsConfig": {"x": {"NetworkID": id_}}}}
    ),
}


@pytest.mark.parametrize("request_", BACK_DOORS.values(), ids=BACK_DOORS.keys())
def test_the_hosts_network_has_no_other_name(ground: intruder.Ground, request_: Any) -> None:
    """What the daemon takes under such a name, and starts, does not run in its own network namespace."""
    judge = ground.judge
    before = judge.look()
    id_ = next(network["Id"] for network in before.networks.values() if network["Driver"] == "host")
    try:
        intruder.talk(ground.gate, request_(id_))
        intruder.talk(ground.gate, raw("POST", "/containers/intruder/start"))
        assert judge.powers(before, judge.look()) == []
    finally:
        judge.clear(before)


def test_a_device_node_in_an_archive_can_not_be_opened(ground: intruder.Ground) -> None:
    """The tar's node is made where the daemon makes it; the container's device cgroup keeps it shut (EPERM)."""
    judge, gate = ground.judge, ground.gate
    before = judge.look()
    body = archive(("node", tarfile.CHRTYPE, b""))
    try:
        for request in (*RUNNING, raw("PUT", "/containers/cc/archive?path=/tmp", body, TAR)):
            assert set(intruder.statuses(intruder.talk(gate, request))) <= {200, 201, 204}
        assert "Operation not permitted" in _in_container(gate, "cat /tmp/node")
        assert "Operation not permitted" in _in_container(gate, "mknod /tmp/own c 195 0; cat /tmp/own")
    finally:
        judge.clear(before)


def test_a_device_node_of_a_build_can_not_be_opened(ground: intruder.Ground) -> None:
    judge, gate = ground.judge, ground.gate
    before = judge.look()
    steps = b"FROM ubuntu:24.04\nRUN mknod /node c 195 0 && ! cat /node && ls -l /node\n"
    context = archive(("Dockerfile", tarfile.REGTYPE, steps))
    try:
        said = intruder.talk(gate, raw("POST", "/v1.45/build?t=evil&rm=1", context, TAR), quiet=30)
        assert b"Operation not permitted" in said
        assert b"Successfully built" in said
        image = create(host() | {"Image": "evil"}, "cc")
        for request in (image, STARTED):
            assert set(intruder.statuses(intruder.talk(gate, request))) <= {201, 204}
        assert "Operation not permitted" in _in_container(gate, "cat /node")
    finally:
        judge.clear(before)
        intruder.ask(judge.daemon, "DELETE", "/images/evil?force=1")


def _in_container(gate: Any, command: str) -> str:
    """What a shell in the container `cc` says, by an exec through the gate."""
    wanted = {"Cmd": ["sh", "-c", command], "AttachStdout": True, "AttachStderr": True}
    status, made = intruder.ask(gate, "POST", "/containers/cc/exec", wanted)
    assert status == 201, made
    said = intruder.talk(gate, raw("POST", f"/exec/{made['Id']}/start", text({"Detach": False}), JSON))
    return said.decode(errors="replace")
