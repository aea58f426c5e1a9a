"""The gate of a whole instance is killed, restarted and upgraded, and no client notices."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import rig
import standalone
from gpugrant_crds.layout import Layout
from gpugrant_operator.supervisor import processes
from knocking import Knocking

WITHIN = 60.0
"""Seconds for a part to be there on a machine under load."""
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def instance() -> Iterator[standalone.Instance]:
    with standalone.up() as made:
        yield made


def gate_of(layout: Layout) -> int:
    """The process that is the gate now; 0: none."""
    held = processes.holder(layout.lock("gate"))
    return 0 if held is None else held.pid


def next_gate(layout: Layout, before: int) -> int:
    return rig.wait_for(lambda: gate_of(layout) not in (0, before) and gate_of(layout), seconds=WITHIN)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_gate_that_ends_is_back_before_anybody_is_refused(instance: standalone.Instance, number: int) -> None:
    sockets = [instance.layout.repo_socket(name) for name in ("gpu-a", "gpu-b")]
    with Knocking(sockets[0]) as one, Knocking(sockets[1]) as other:
        for _ in range(2):
            before = gate_of(instance.layout)
            os.kill(before, number)
            next_gate(instance.layout, before)
            rig.wait_for(one.more, seconds=WITHIN)
            rig.wait_for(other.more, seconds=WITHIN)
    assert (one.refused, other.refused) == ([], [])


def test_sockets_are_kept_by_a_supervisor_that_found_the_gate_running(instance: standalone.Instance) -> None:
    supervisor = processes.holder(instance.layout.lock("supervisor"))
    assert supervisor is not None
    before = gate_of(instance.layout)
    os.kill(supervisor.pid, signal.SIGKILL)
    rig.succeeded(standalone.program("up", "--detach", "--root", instance.root, "--hardware", standalone.WORKSTATION))
    assert gate_of(instance.layout) == before
    with Knocking(instance.layout.repo_socket("gpu-a")) as knocking:
        os.kill(before, signal.SIGKILL)
        next_gate(instance.layout, before)
        rig.wait_for(knocking.more, seconds=WITHIN)
    assert knocking.refused == []


def test_a_gate_that_was_started_by_hand_is_kept_until_it_ends(instance: standalone.Instance) -> None:
    words = ["-m", "gpugrant_operator.cli.gpugrant", "gate", "--root", str(instance.root)]
    with Knocking(instance.layout.repo_socket("gpu-a")) as knocking:
        before = gate_of(instance.layout)
        with subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL) as by_hand:
            rig.wait_for(lambda: gate_of(instance.layout) == by_hand.pid, seconds=WITHIN)
            rig.wait_for(knocking.more, seconds=WITHIN)
            rig.wait_for(lambda: "part_adopted" in log(instance.layout), seconds=WITHIN)
            assert gate_of(instance.layout) == by_hand.pid
            by_hand.kill()
        third = next_gate(instance.layout, by_hand.pid)
        rig.wait_for(knocking.more, seconds=WITHIN)
    assert (knocking.refused, third != before) == ([], True)


def log(layout: Layout) -> str:
    return (layout.logs / "supervisor.log").read_text()


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A folder that, in PYTHONPATH, is another version of the program."""
    for package in ("crds/gpugrant_crds", "gate/gpugrant_gate", "operator/gpugrant_operator"):
        shutil.copytree(rig.CHECKOUT / package, tmp_path / Path(package).name)
    info = tmp_path / "gpugrant-9.9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpugrant\nVersion: 9.9.9\n")
    return tmp_path


@pytest.mark.req("R6")
def test_up_after_an_upgrade_replaces_all_parts_and_cuts_nothing(instance: standalone.Instance, newer: Path) -> None:
    layout = instance.layout
    before = gate_of(layout)
    up = [sys.executable, "-P", "-m", "gpugrant_operator.cli.gpugrant", "up", "--detach", "--root", str(instance.root)]
    environ = {key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "GPUGRANT_ROOT")}
    with Knocking(layout.repo_socket("gpu-a")) as knocking:
        rig.wait_for(knocking.more, seconds=WITHIN)
        done = rig.run([*up, "--hardware", str(standalone.WORKSTATION)], environ={**environ, "PYTHONPATH": str(newer)})
        rig.succeeded(done)
        rig.wait_for(knocking.more, seconds=WITHIN)
    assert f"version {metadata.version('gpugrant')} runs below {instance.root}: version 9.9.9 takes over" in done.stderr
    assert (knocking.refused, knocking.cut) == ([], 0)
    assert gate_of(layout) not in (0, before)
    for part in ("supervisor", "gate", "apiserver", "operator"):
        held = processes.holder(layout.lock(part))
        assert held is not None
        assert processes.variable(held.pid, "PYTHONPATH") == str(newer)


def test_down_ends_an_older_gate_too_and_leaves_no_socket(instance: standalone.Instance) -> None:
    layout = instance.layout
    older = gate_of(layout)
    command = [sys.executable, "-c", FOLLOW, str(layout.repo_socket("gpu-a"))]
    words = ["-m", "gpugrant_operator.cli.gpugrant", "gate", "--root", str(instance.root)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as events,
        subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL) as by_hand,
    ):
        assert events.stdout is not None
        assert events.stdout.readline() == "follows\n"
        rig.wait_for(lambda: gate_of(layout) == by_hand.pid, seconds=WITHIN)
        said = json.loads(instance.gpugrant("status", "-o", "json").stdout)
        gate = next(part for part in said["parts"] if part["name"] == "gate")
        assert f"process {older}, the gate before this one" in gate["message"]
        assert events.poll() is None
        assert instance.gpugrant("down").exit_code == 0
        assert events.wait(WITHIN) == 0
        by_hand.wait(WITHIN)
    assert list(layout.run.glob("**/*.sock")) == []


FOLLOW = """
import socket, sys
with socket.socket(socket.AF_UNIX) as client:
    client.connect(sys.argv[1])
    client.sendall(b"GET /v1.45/events HTTP/1.1\\r\\nHost: d\\r\\n\\r\\n")
    client.recv(4096)
    print("follows", flush=True)
    try:
        while client.recv(4096):
            pass
    except ConnectionError:
        pass
"""
