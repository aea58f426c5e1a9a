"""Opened host rules on real daemons: no device comes of one, of a profile, or of all at once (R45)."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import intruder
import rig
import workshop
from gateprocess import RUN, GateProcess, made
from gpugrant_crds import openings

from . import opened
from .opened import CASES, EVERYTHING, Opened

pytestmark = [pytest.mark.real, pytest.mark.req("R45")]

INSIDE = (Path(__file__).parent / "inside.py").read_text()
TAR = "application/x-tar"


def test_every_opening_has_its_attack() -> None:
    meant = {next(row.name for row in openings.OPENINGS if row.is_meant(case.opening)) for case in CASES}
    assert meant == {row.name for row in openings.OPENINGS}
    assert len(CASES) == len(meant)


@dataclass(slots=True)
class Tenant:
    """A repo behind its gate, whose file opens something."""

    daemon: rig.Daemon
    gate: GateProcess

    @property
    def socket(self) -> Path:
        return self.gate.layout.repo_socket(self.daemon.name)

    def open(self, names: frozenset[str]) -> None:
        """The repo's file opens exactly these; returns once it counts, which takes no restart."""
        self._write(names ^ {MARK})
        marked = 403 if MARK in names else 201
        rig.wait_for(lambda: self.makes("mark", MARKED)[0] in (marked, 409))
        self._write(names)
        self.forget("mark")
        rig.wait_for(lambda: self.makes("mark", MARKED)[0] != marked)
        self.forget("mark")

    def _write(self, names: frozenset[str]) -> None:
        values = {"name": self.daemon.name, "id": self.daemon.repo_id, "upstream": self.daemon.socket, "sealed": "true"}
        text = "".join(f"{key}: {value}\n" for key, value in values.items())
        new = self.gate.layout.repos / "new"
        new.write_text(f"{text}open: [{', '.join(sorted(names))}]\n")
        new.rename(self.gate.layout.repos / f"{self.daemon.name}.yaml")
        rig.wait_for(self.socket.exists)

    def makes(self, name: str, host: opened.Host, *words: str, image: str = workshop.IMAGE) -> tuple[int, Any]:
        """Status and answer of a create."""
        body = {
            "Image": image,
            "Cmd": workshop.command(INSIDE, *words),
            "Env": workshop.environment(),
            "HostConfig": dict(host),
        }
        return intruder.ask(self.socket, "POST", f"/containers/create?name={name}", body)

    def forget(self, *names: str) -> None:
        for name in names:
            intruder.ask(self.daemon.socket, "DELETE", f"/containers/{name}?force=1&v=1")

    def starts(self, name: str) -> tuple[int, Any]:
        return intruder.ask(self.socket, "POST", f"/containers/{name}/start")

    def said(self, name: str) -> list[str]:
        """All that the container printed until it ended, or until now where it goes on."""
        done = self.daemon.docker("logs", name)
        return rig.succeeded(done).splitlines()

    def ended(self, name: str) -> tuple[int, list[str]]:
        """Its exit code and all that it printed."""
        status, answer = intruder.ask(self.daemon.socket, "POST", f"/containers/{name}/wait")
        assert status == 200, answer
        return answer["StatusCode"], self.said(name)


MARK = "host.capabilities=WAKE_ALARM"
MARKED = {"CapAdd": ["WAKE_ALARM"]}
"""By which a change of the file is noticed."""


@pytest.fixture(scope="module")
def tenant(daemon: rig.Daemon, daemons: rig.Daemons) -> Iterator[Tenant]:
    gate = GateProcess(daemons.root)
    for folder in (gate.layout.repos, gate.layout.cdi):
        folder.mkdir(parents=True, exist_ok=True)
    status, answer = intruder.ask(
        daemon.socket, "POST", "/images/create?fromSrc=-&repo=workshop&tag=1", workshop.image(), Content_Type=TAR
    )
    assert status == 200, answer
    with (daemons.root / "opened.log").open("wb") as log:
        running = subprocess.Popen([sys.executable, "-P", "-c", RUN, str(daemons.root)], stderr=log)
    try:
        made = Tenant(daemon, gate)
        made.open(frozenset())
        yield made
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0
        (gate.layout.repos / f"{daemon.name}.yaml").unlink(missing_ok=True)


def reaches(tenant: Tenant, host: opened.Host) -> tuple[int, list[str]]:
    """What `inside.py` says in such a container, and how many devices it found; fails where the gate refuses it."""
    try:
        status, answer = tenant.makes("opened", host, "reach")
        assert status == 201, answer
        status, answer = tenant.starts("opened")
        if status == 500:  # the daemon can't set it up here, for example an address that can't be had
            return 0, [f"the daemon: {answer}"]
        assert status == 204, answer
        return tenant.ended("opened")
    finally:
        tenant.forget("opened")


def nothing_came(found: int, said: list[str]) -> None:
    """Not every log driver can be read."""
    assert [line for line in said if "GOT" in line] == []
    assert found == 0, said


@pytest.mark.parametrize("engine", ["28"], indirect=True)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.opening)
def test_no_device_comes_of_one_opening(tenant: Tenant, case: Opened) -> None:
    status, answer = tenant.makes("early", case.host, "reach") if case.network is None else (403, "")
    assert status == 403, answer
    tenant.open(frozenset({case.opening}))
    try:
        for host, rule in case.stays:
            status, answer = tenant.makes("stays", host)
            assert (status, f"[{rule}]" in str(answer)) == (403, True), answer
        if case.network is not None and not _network(tenant, case.network):
            pytest.skip(f"the gate lets it pass, but this machine's kernel can't make a network of {case.network}")
        nothing_came(*reaches(tenant, case.host))
    finally:
        tenant.forget("stays")
        intruder.ask(tenant.daemon.socket, "DELETE", "/networks/opened")
        tenant.open(frozenset())


def _network(tenant: Tenant, body: opened.Host) -> bool:
    """Whether the machine can have such a network; the gate lets it be made in any case."""
    status, answer = intruder.ask(tenant.socket, "POST", "/networks/create", {"Name": "opened", **body})
    assert status != 403, answer
    return status == 201


SETS = {"everything": EVERYTHING, **opened.PROFILES}


@pytest.mark.parametrize("names", SETS.values(), ids=SETS.keys())
def test_no_device_comes_of_many_at_once(tenant: Tenant, names: frozenset[str]) -> None:
    tenant.open(names)
    try:
        found, said = reaches(tenant, opened.together(names))
        assert len(said) > 10, said
        nothing_came(found, said)
        status, answer = tenant.makes("stays", {**opened.together(names), "Privileged": True})
        assert status == 403, answer
    finally:
        tenant.forget("stays")
        tenant.open(frozenset())


def test_the_attack_would_find_a_device(tenant: Tenant) -> None:
    """The same past the gate, with the capability that no setting opens."""
    host = {"CapAdd": ["SYS_ADMIN"], "SecurityOpt": ["seccomp=unconfined", "apparmor=unconfined"]}
    body = {"Image": workshop.IMAGE, "Cmd": workshop.command(INSIDE, "reach"), "Env": workshop.environment()}
    try:
        status, answer = intruder.ask(
            tenant.daemon.socket, "POST", "/containers/create?name=past", body | {"HostConfig": host}
        )
        assert status == 201, answer
        assert intruder.ask(tenant.daemon.socket, "POST", "/containers/past/start")[0] == 204
        found, said = tenant.ended("past")
        assert found > 0, said
    finally:
        tenant.forget("past")


def test_what_was_made_while_it_was_open_is_judged_when_it_starts(tenant: Tenant) -> None:
    tenant.open(EVERYTHING)
    made = {"network": {"NetworkMode": "host"}, "tracer": {"CapAdd": ["SYS_PTRACE"]}, "ipc": {"IpcMode": "host"}}
    try:
        for name, host in made.items():
            status, answer = tenant.makes(name, host)
            assert status == 201, answer
        tenant.open(frozenset())
        for name in made:
            status, answer = tenant.starts(name)
            assert status == 403, answer
            assert "an operator can open it" in answer["message"]
    finally:
        tenant.forget(*made)


# SYS_PTRACE: what a daemon starts in a container has all capabilities for a moment, and could be caught.

TRACER = frozenset({"host.capabilities=SYS_PTRACE"})
EXEC = {"Cmd": ["/nothing"]}


@pytest.fixture
def trap(tenant: Tenant) -> Iterator[str]:
    """A container through the gate that lies in wait, of an image with a healthcheck."""
    tenant.open(TRACER)
    query = "/commit?container=base&repo=checked&changes=HEALTHCHECK%20--interval%3D1s%20CMD%20%2Fnothing"
    assert intruder.ask(
        tenant.daemon.socket, "POST", "/containers/create?name=base", {"Image": workshop.IMAGE, "Cmd": ["x"]}
    )
    assert intruder.ask(tenant.daemon.socket, "POST", query)[0] == 201
    status, answer = tenant.makes("trap", {"CapAdd": ["SYS_PTRACE"]}, "catch", "6", image="checked")
    assert status == 201, answer
    assert tenant.starts("trap")[0] == 204
    rig.wait_for(lambda: tenant.said("trap") == ["waiting"])
    yield "trap"
    tenant.forget("trap", "base")
    tenant.open(frozenset())


def test_nothing_is_caught_of_what_goes_through_the_gate(tenant: Tenant, trap: str) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w"):
        pass
    calls = (
        ("POST", f"/containers/{trap}/exec", EXEC, 403),
        ("GET", f"/containers/{trap}/top", None, 200),
        ("GET", f"/containers/{trap}/stats?stream=0&one-shot=1", None, 200),
        ("GET", f"/containers/{trap}/archive?path=/etc", None, 200),
        ("PUT", f"/containers/{trap}/archive?path=/tmp", made.getvalue(), 200),
        ("GET", f"/containers/{trap}/changes", None, 200),
        ("POST", f"/containers/{trap}/update", {"Memory": 0}, 200),
        ("POST", f"/containers/{trap}/pause", None, 204),
        ("POST", f"/containers/{trap}/unpause", None, 204),
        ("POST", f"/containers/{trap}/kill?signal=CONT", None, 204),
    )
    for _ in range(3):
        for method, target, body, expected in calls:
            kind = {"Content_Type": TAR} if isinstance(body, bytes) else {}
            status, answer = intruder.ask(tenant.socket, method, target, body, **kind)
            assert status == expected, (target, answer)
        time.sleep(0.5)
    assert tenant.ended(trap) == (0, ["waiting", "done"])


def test_a_healthcheck_of_its_own_is_refused(tenant: Tenant, trap: str) -> None:
    body = {"Image": workshop.IMAGE, "HostConfig": {"CapAdd": ["SYS_PTRACE"]}, "Healthcheck": {"Test": ["CMD", "true"]}}
    status, answer = intruder.ask(tenant.socket, "POST", "/containers/create?name=checked", body)
    assert (status, "[hw.tracer]" in str(answer)) == (403, True), answer


def test_an_exec_past_the_gate_would_be_caught(tenant: Tenant, trap: str) -> None:
    for _ in range(6):
        status, made = intruder.ask(tenant.daemon.socket, "POST", f"/containers/{trap}/exec", EXEC)
        if status != 201:
            break  # it has one, and is gone
        intruder.ask(tenant.daemon.socket, "POST", f"/exec/{made['Id']}/start", {"Detach": True})
        time.sleep(0.2)
    found, said = tenant.ended(trap)
    assert found == 1, said
    assert "GOT all capabilities" in said[-1]


def test_an_exec_is_not_caught_by_who_may_not_trace_whatever_else_is_open(tenant: Tenant) -> None:
    names = EVERYTHING - TRACER
    tenant.open(names)
    try:
        status, answer = tenant.makes("trap", opened.together(names), "catch", "5")
        assert status == 201, answer
        assert tenant.starts("trap")[0] == 204
        rig.wait_for(lambda: tenant.said("trap") == ["waiting"])
        for _ in range(5):
            status, made = intruder.ask(tenant.socket, "POST", "/containers/trap/exec", EXEC)
            assert status == 201, made
            intruder.ask(tenant.socket, "POST", f"/exec/{made['Id']}/start", {"Detach": True})
            time.sleep(0.2)
        found, said = tenant.ended("trap")
        assert any("nothing (Operation not permitted)" in line for line in said), "it saw none"
        assert found == 0, said
    finally:
        tenant.forget("trap")
        tenant.open(frozenset())


GRANTED = "nvidia.com/gpu=7"


@pytest.mark.req("R1", "R23")
def test_beside_a_grant_only_that_device_comes(tenant: Tenant) -> None:
    """A stand-in node: granted it says ENXIO, for nothing is behind it."""
    node = tenant.gate.root / "nvidia7"
    if not node.exists():
        os.mknod(node, 0o20666, os.makedev(195, 7))
    spec = tenant.gate.layout.cdi / "opened.yaml"
    spec.write_text(
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: '7'\n  containerEdits:\n"
        f"    deviceNodes: [{{path: /dev/nvidia7, hostPath: {node}}}]\n"
    )
    sent = made(time.time_ns(), GRANTED, repo=tenant.daemon.name, repo_id=tenant.daemon.repo_id)
    tenant.open(EVERYTHING)
    try:
        status, answer = asyncio.run(tenant.gate.put(sent))
        assert status == 200, answer
        asked = {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [GRANTED]}], "NetworkMode": "host"}
        nothing_came(*reaches(tenant, {**opened.together(EVERYTHING), **asked}))
        look = "cat /dev/nvidia7; mknod /tmp/other c 195 0; cat /tmp/other"
        words = ("run", "--rm", "--network", "host", "--device", GRANTED, "ubuntu:24.04", "sh", "-c", look)
        said = tenant.daemon.docker(*words, socket=tenant.socket).stderr
        assert "nvidia7': No such device or address" in said
        assert "other': Operation not permitted" in said
    finally:
        spec.unlink()
        tenant.open(frozenset())
