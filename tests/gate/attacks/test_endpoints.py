"""Attacks by other endpoints than create, and what the daemon's own names and nodes could lend."""

from __future__ import annotations

import gzip
import lzma
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

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
    "a connection": lambda id_: raw("POST", f"/networks/{id_}/connect", {"Container": "intruder"}),
    "a connection by a part of the id": lambda id_: raw(
        "POST", f"/networks/{id_[:12]}/connect", {"Container": "intruder"}
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
        if request_(id_).startswith(b"POST /networks"):
            intruder.talk(ground.gate, create(host()))
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


WORDS = """\
VOLUME ["/dev:/x", "/proc", "/etc/cdi:/y"]
ENV NVIDIA_VISIBLE_DEVICES=all AMD_VISIBLE_DEVICES=all
LABEL cdi.k8s.io/x=nvidia.com/gpu=all com.docker.compose.project=x
USER 0:44
HEALTHCHECK CMD cat /dev/nvidia0
ONBUILD VOLUME /dev
"""


def test_an_images_own_words_give_nothing(ground: intruder.Ground) -> None:
    """By commit, and by a build that takes up where another image's ONBUILD left."""
    judge, gate = ground.judge, ground.gate
    before = judge.look()
    changes = "&".join(f"changes={quote(line)}" for line in WORDS.splitlines())
    again = archive(("Dockerfile", tarfile.REGTYPE, b"FROM evil\n"))
    try:
        for request in (create(host(), "first"), raw("POST", f"/commit?container=first&repo=evil&{changes}")):
            assert set(intruder.statuses(intruder.talk(gate, request))) == {201}
        assert b"Successfully built" in intruder.talk(
            gate, raw("POST", "/v1.45/build?t=evil2&rm=1", again, TAR), quiet=30
        )
        for image in ("evil", "evil2"):
            for request in (create(host() | {"Image": image}, image), raw("POST", f"/containers/{image}/start")):
                intruder.talk(gate, request)
            judge_said = judge.powers(before, judge.look())
            assert judge_said == []
    finally:
        judge.clear(before)
        for image in ("evil2", "evil"):
            intruder.ask(judge.daemon, "DELETE", f"/images/{image}?force=1")


def test_a_name_that_looks_like_an_id_is_a_name(ground: intruder.Ground) -> None:
    """One's own container may be called like the beginning of another's id: only itself is started by it."""
    judge, gate = ground.judge, ground.gate
    before = judge.look()
    try:
        _, made = intruder.ask(judge.daemon, "POST", "/containers/create?name=stale", host(Privileged=True))
        stale = str(made["Id"])
        for number, name in enumerate((stale[:12], stale[:1], stale)):
            intruder.talk(gate, create(host(), f"own{number}"))
            intruder.talk(gate, raw("POST", f"/containers/own{number}/rename?name={name}"))
            for verb in ("start", "exec", "restart?t=0", "update"):
                body = {"exec": {"Cmd": ["id"]}, "update": {"RestartPolicy": {"Name": "always"}}}.get(verb)
                intruder.talk(gate, raw("POST", f"/containers/{name}/{verb}", body))
            now = judge.look().containers[stale]
            assert now["State"]["StartedAt"].startswith("0001"), name
            assert now["HostConfig"]["RestartPolicy"]["Name"] in ("", "no")
            assert not now["ExecIDs"]
    finally:
        judge.clear(before)


def test_an_exec_of_a_container_that_is_gone_is_gone(ground: intruder.Ground) -> None:
    judge, gate = ground.judge, ground.gate
    before = judge.look()
    try:
        for request in RUNNING:
            intruder.talk(gate, request)
        _, made = intruder.ask(gate, "POST", "/containers/cc/exec", {"Cmd": ["id"]})
        intruder.ask(gate, "DELETE", "/containers/cc?force=1")
        _, other = intruder.ask(judge.daemon, "POST", "/containers/create?name=cc", host(Privileged=True))
        intruder.ask(judge.daemon, "POST", "/containers/cc/start")
        said = intruder.talk(gate, raw("POST", f"/exec/{made['Id']}/start", {"Detach": False}, JSON))
        assert intruder.statuses(said) == (404,)
        assert not judge.look().containers[other["Id"]]["ExecIDs"]
    finally:
        judge.clear(before)


def test_files_by_way_of_a_link_stay_in_the_container(ground_a: intruder.Ground, folder: Path) -> None:
    """A bound folder holds links to the machine's root and its /dev: for a copy they are the container's."""
    judge, gate = ground_a.judge, ground_a.gate
    before = judge.look()
    body = archive(("went-out", tarfile.REGTYPE, b"x"))
    try:
        _, made = intruder.ask(gate, "POST", "/containers/create?name=cc", host(Binds=[f"{folder}:/w"]))
        assert "Id" in made
        for place in ("/w/link", "/w/link/tmp", "/w/dev", f"/w/link{folder}/sub/../.."):
            intruder.talk(gate, raw("PUT", f"/containers/cc/archive?path={quote(place)}", body, TAR))
        assert not any(Path(out).exists() for out in ("/went-out", "/tmp/went-out", "/dev/went-out"))
        status, said = intruder.ask(gate, "GET", "/containers/cc/archive?path=/w/link/etc")
        own = Path("/etc/passwd").read_bytes()
        assert status != 200 or own not in said
    finally:
        judge.clear(before)


EVIL = b"#!/bin/sh\nid >/ran\n"


def test_a_build_runs_no_program_of_its_image(ground_a: intruder.Ground) -> None:
    """ADD unpacks an archive with the machine's own helper, never with what the image calls xz or unpigz."""
    judge, gate = ground_a.judge, ground_a.gate
    before = judge.look()
    inner = archive(("inner", tarfile.REGTYPE, b"x"))
    programs = [f"{place}/{name}" for place in ("/bin", "/usr/bin", "/usr/local/sbin") for name in ("xz", "unpigz")]
    steps = ["FROM ubuntu:24.04", *(f"COPY evil {place}" for place in programs), "ADD a.xz /x/", "ADD a.gz /y/"]
    context = archive(
        ("Dockerfile", tarfile.REGTYPE, "\n".join([*steps, "RUN test ! -e /ran", ""]).encode()),
        ("evil", tarfile.REGTYPE, EVIL),
        ("a.xz", tarfile.REGTYPE, lzma.compress(inner)),
        ("a.gz", tarfile.REGTYPE, gzip.compress(inner)),
    )
    try:
        said = intruder.talk(gate, raw("POST", "/v1.45/build?t=evil&rm=1", context, TAR), quiet=60)
        assert b"Successfully built" in said, said
        assert not Path("/ran").exists()
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
