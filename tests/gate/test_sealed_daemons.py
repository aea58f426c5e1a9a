"""The second lock on real, sealed daemons of each generation: what they see follows grants and specs while they run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rig
from gateprocess import DEVICE, RUN, GateProcess, made

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

IMAGE = "ubuntu:24.04"
SHOW = ("sh", "-c", "ls /dev | grep -c nvidia; ls /dev | grep nvidia; sleep 600")


@pytest.fixture
def gate(daemons: rig.Daemons, daemon: rig.Daemon) -> Iterator[GateProcess]:
    """A gate for the root of all daemons, the daemon's repo behind it."""
    process = GateProcess(daemons.root)
    shutil.rmtree(process.layout.repos, ignore_errors=True)
    process.layout.repos.mkdir(parents=True)
    process.layout.snapshot.unlink(missing_ok=True)
    # not the folder itself: a mount over it would go with it
    for path in process.layout.cdi.iterdir():
        path.unlink()
    process.write_repo(daemon.name, id=daemon.repo_id, upstream=str(daemon.socket), sealed="true")
    with (daemons.root / "gate.log").open("wb") as log:
        running = subprocess.Popen([sys.executable, "-P", "-c", RUN, str(daemons.root)], stderr=log)
    yield process
    running.send_signal(signal.SIGTERM)
    assert running.wait(10) == 0


def lay_spec(gate: GateProcess, *nodes: str) -> None:
    """The machine's spec, as a driver's installer replaces it: the device has these nodes from now on."""
    lines = []
    for name in nodes:
        node = gate.root / name
        if not node.exists():
            os.mknod(node, 0o666 | 0o020000, os.makedev(195, 7))
        lines.append(f"{{path: /dev/{name}, hostPath: {node}}}")
    text = (
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits:\n"
        f"    deviceNodes: [{', '.join(lines)}]\n"
    )
    fresh = gate.layout.cdi / ".fresh"
    fresh.write_text(text)
    fresh.rename(gate.layout.cdi / "nvidia.yaml")


def put(gate: GateProcess, daemon: rig.Daemon, *devices: str) -> None:
    async def sent() -> tuple[int, object]:
        return await gate.put(made(time.time_ns(), *devices, repo=daemon.name, repo_id=daemon.repo_id))

    def taken() -> bool:
        try:
            return asyncio.run(sent())[0] == 200
        except OSError:
            return False

    rig.wait_for(taken, seconds=60)


def sees(daemon: rig.Daemon) -> str:
    """The specs in the daemon's own mount namespace."""
    folder = Path(f"/proc/{daemon.pid}/root{daemon.root}/etc/cdi")
    return "".join(path.read_text() for path in sorted(folder.iterdir()))


@pytest.mark.req("R2", "R43")
def test_a_driver_update_reaches_a_sealed_daemon_that_runs(gate: GateProcess, daemon: rig.Daemon) -> None:
    """The next start has the new nodes; the daemon is the same process, and an unknown id's folder is empty."""
    stranger = gate.layout.sealed_repo("nobody")
    stranger.mkdir(parents=True, exist_ok=True)
    (stranger / "nvidia.yaml").write_text("left behind")
    lay_spec(gate, "nvidia0")
    put(gate, daemon, DEVICE)
    before, folder = daemon.pid, daemon.sealed.stat().st_ino
    assert list(stranger.iterdir()) == []
    through = gate.layout.repo_socket(daemon.name)
    rig.wait_for(lambda: daemon.docker("version", socket=through).returncode == 0, seconds=60)
    rig.wait_for(lambda: not admitted(daemon, through), seconds=60)
    try:
        rig.succeeded(daemon.docker("run", "-d", "--name", "user", "--device", DEVICE, IMAGE, *SHOW, socket=through))
        rig.wait_for(lambda: lines(daemon, "user") == ["1", "nvidia0"])

        lay_spec(gate, "nvidia0", "nvidia-uvm")
        rig.wait_for(lambda: "nvidia-uvm" in sees(daemon))
        rig.succeeded(daemon.docker("stop", "-t", "0", "user", socket=through))
        rig.succeeded(daemon.docker("start", "user", socket=through))
        rig.wait_for(lambda: lines(daemon, "user")[2:] == ["2", "nvidia-uvm", "nvidia0"])

        # taken away: the daemon itself has nothing to give any more
        put(gate, daemon)
        assert sees(daemon) == ""
        rig.succeeded(daemon.docker("stop", "-t", "0", "user"))
        raw = daemon.docker("start", "user")
        assert raw.returncode != 0
        assert "unresolvable CDI devices" in raw.stderr
    finally:
        daemon.docker("rm", "-f", "user")
    assert daemon.pid == before
    assert daemon.sealed.stat().st_ino == folder


def admitted(daemon: rig.Daemon, through: Path) -> str:
    """Why a container with the device can't be made; empty: it can."""
    done = daemon.docker("create", "--device", DEVICE, IMAGE, "true", socket=through)
    if done.returncode == 0:
        daemon.docker("rm", done.stdout.strip())
    return done.stderr if done.returncode else ""


def lines(daemon: rig.Daemon, name: str) -> list[str]:
    return daemon.docker("logs", name).stdout.split()


@pytest.mark.req("R43")
def test_the_other_cdi_folder_is_empty_in_a_sealed_daemon(daemons: rig.Daemons, daemon: rig.Daemon) -> None:
    """What somebody writes to run/cdi, below the root, no sealed daemon sees."""
    other = daemons.root / "run/cdi"
    (other / "x.yaml").write_text("cdiVersion: 0.5.0\n")
    assert list(Path(f"/proc/{daemon.pid}/root{other}").iterdir()) == []
    (other / "x.yaml").unlink()


@pytest.mark.req("R49")
def test_a_sealed_daemon_that_is_gone_holds_nothing(
    daemons: rig.Daemons, daemon: rig.Daemon, gate: GateProcess
) -> None:
    """Its report says since when, and that it is released; hung, it is not; back, it is as before."""
    other = daemons.start(f"down-{daemon.engine}", engine=daemon.engine)
    gate.write_repo(other.name, id=other.repo_id, upstream=str(other.socket), sealed="true")
    put(gate, daemon)

    def said() -> tuple[bool, bool]:
        _, status = asyncio.run(gate.control("GET", "/v1/status"))
        repo = next((repo for repo in status["repos"] if repo["name"] == other.name), {})
        return "downSince" in repo, bool(repo.get("released"))

    rig.wait_for(lambda: said() == (False, False), seconds=30)
    rig.wait_for(lambda: other.docker("version", socket=gate.layout.repo_socket(other.name)).returncode == 0)
    daemons.stop(other)
    rig.wait_for(lambda: said() == (True, True), seconds=30)
    other = daemons.start(other.name, engine=daemon.engine)
    rig.wait_for(lambda: said() == (False, False), seconds=30)
    if daemon.engine == "28":  # a hung one is found by the list of every minute
        os.kill(other.pid, signal.SIGSTOP)
        try:
            rig.wait_for(lambda: said() == (True, False), seconds=100)
        finally:
            os.kill(other.pid, signal.SIGCONT)
        rig.wait_for(lambda: said() == (False, False), seconds=30)
    daemons.stop(other)
    (gate.layout.repos / f"{other.name}.yaml").unlink()


@pytest.mark.req("R49")
def test_a_killed_daemon_holds_what_its_containers_hold(
    daemons: rig.Daemons, daemon: rig.Daemon, gate: GateProcess
) -> None:
    """They run on without it: it is not released before their processes have ended."""
    other = daemons.start(f"killed-{daemon.engine}", engine=daemon.engine)
    gate.write_repo(other.name, id=other.repo_id, upstream=str(other.socket), sealed="true")
    lay_spec(gate, "nvidia0")
    put(gate, other, DEVICE)
    through = gate.layout.repo_socket(other.name)
    rig.wait_for(lambda: other.docker("version", socket=through).returncode == 0, seconds=30)
    rig.wait_for(lambda: not admitted(other, through), seconds=30)
    rig.wait_for(lambda: "nvidia0" in sees(other))
    time.sleep(0.5)  # until its own watcher has read the folder
    command = ("run", "-d", "--name", "user", "--device", DEVICE, IMAGE, *SHOW)
    container = rig.succeeded(other.docker(*command, socket=through))

    def said() -> tuple[bool, bool, list[str]]:
        _, status = asyncio.run(gate.control("GET", "/v1/status"))
        repo = next((repo for repo in status["repos"] if repo["name"] == other.name), {})
        return "downSince" in repo, bool(repo.get("released")), [use["container"] for use in status["running"]]

    rig.wait_for(lambda: said() == (False, False, [container]), seconds=30)
    os.kill(other.pid, signal.SIGKILL)
    rig.wait_for(lambda: said()[0], seconds=30)
    time.sleep(5)
    assert said() == (True, False, [container])
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):
            if container in path.read_text():
                os.kill(int(path.parent.name), signal.SIGKILL)
    rig.wait_for(lambda: said()[:2] == (True, True), seconds=30)
    daemons.stop(other)
    (gate.layout.repos / f"{other.name}.yaml").unlink()


@pytest.mark.req("R2", "R43")
def test_a_daemon_that_is_unsealed_while_it_runs_gets_no_hardware() -> None:
    """The machine's CDI folder is removed and made anew: the mount over it is gone in every daemon."""
    daemons = rig.Daemons()
    try:
        daemon = daemons.start("gpu-a")
        process = GateProcess(daemons.root)
        process.layout.repos.mkdir(parents=True)
        process.write_repo("gpu-a", id=daemon.repo_id, upstream=str(daemon.socket), sealed="true")
        lay_spec(process, "nvidia0")
        with (daemons.root / "gate.log").open("wb") as log:
            running = subprocess.Popen([sys.executable, "-P", "-c", RUN, str(daemons.root)], stderr=log)
        try:
            put(process, daemon, DEVICE)

            def said() -> tuple[bool, bool]:
                _, status = asyncio.run(process.control("GET", "/v1/status"))
                return next((repo["fit"], repo["sealed"]) for repo in status["repos"] if repo["name"] == daemon.name)

            rig.wait_for(lambda: said() == (True, True), seconds=60)
            shutil.rmtree(process.layout.cdi)
            process.layout.cdi.mkdir()
            lay_spec(process, "nvidia0")
            assert "nvidia0" in sees(daemon)
            rig.wait_for(lambda: said() == (False, False), seconds=30)
            refused = admitted(daemon, process.layout.repo_socket("gpu-a"))
            assert "does not have the repo's sealed folder" in refused
        finally:
            running.send_signal(signal.SIGTERM)
            assert running.wait(10) == 0
    finally:
        daemons.close()
