"""`gpugrant doctor` on a whole instance: each set-up is broken, found, and mended again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import rig
import stand_in_daemon
import standalone
from gpugrant_operator.cli.api import Api
from gpugrant_operator.supervisor import processes
from standalone import Instance

pytestmark = [pytest.mark.real, pytest.mark.req("R52", "R43"), pytest.mark.timeout(180)]

DRI = "rediacc.io/dri=renderD128"


@pytest.fixture(scope="module")
def instance() -> Iterator[Instance]:
    with standalone.up() as made:
        yield made


def problems(instance: Instance, *words: str) -> list[str]:
    """What is wrong, each with its check in front; what is only advice is left out."""
    done = standalone.program("doctor", "--root", instance.root, "-o", "json", *words)
    document = json.loads(done.stdout)
    found = [
        f"{check['name']}: {finding['message']}"
        for check in document["checks"]
        for finding in check["findings"]
        if finding["level"] == "problem"
    ]
    assert done.returncode == bool(found), done
    assert all(finding["fix"] for check in document["checks"] for finding in check["findings"])
    return found


@contextlib.contextmanager
def kept(*paths: Path) -> Iterator[None]:
    """The files are put back afterwards."""
    before = {path: (path.read_bytes(), path.stat().st_mode) for path in paths}
    try:
        yield
    finally:
        for path, (data, mode) in before.items():
            path.write_bytes(data)
            path.chmod(mode)


def says(instance: Instance, expected: str, *words: str) -> None:
    """Soon one problem of that text is found; what runs needs a moment to notice."""
    until(instance, lambda found: any(expected in said for said in found), *words)


def well(instance: Instance) -> None:
    until(instance, lambda found: not found)


def until(instance: Instance, holds: Callable[[list[str]], bool], *words: str) -> None:
    end = time.monotonic() + 60
    while not holds(found := problems(instance, *words)):
        assert time.monotonic() < end, found


def test_a_machine_that_is_well(instance: Instance) -> None:
    well(instance)
    done = standalone.program("doctor", "--root", instance.root)
    assert "ok       all parts run and are well" in done.stdout
    assert "advice   repo gpu-a is not sealed" in done.stdout
    assert "         -> gpugrant repo seal gpu-a" in done.stdout


def test_broken_files(instance: Instance) -> None:
    layout = instance.layout
    with kept(layout.repos / "gpu-a.yaml"):
        (layout.repos / "gpu-a.yaml").write_text("name: [\n")
        says(instance, "files: ")
    settings = layout.gate_settings
    settings.write_text("sweep: Sometimes\n")
    says(instance, "files: ")
    settings.unlink()
    stray = layout.cdi / "stray.yaml"
    stray.write_text("kind: x\n")
    says(instance, f"specs: {layout.cdi}/stray.yaml")
    shutil.copy(layout.cdi / "rediacc-dri.yaml", stray)
    says(instance, "specs: ")
    stray.unlink()
    other = layout.root / "run/cdi"
    other.mkdir()
    shutil.copy(layout.cdi / "rediacc-dri.yaml", other)
    says(instance, f"specs: {other.resolve()}/rediacc-dri.yaml has {DRI}")
    shutil.rmtree(other)
    well(instance)


def test_daemons_and_their_sockets(instance: Instance) -> None:
    daemon = instance.daemons["gpu-a"]
    for says_of_itself, expected in (
        ({"CDISpecDirs": []}, "daemons: CDI is off in the daemon of repo gpu-a"),
        ({"CDISpecDirs": ["/elsewhere"]}, "daemons: the daemon of repo gpu-a reads CDI specs from /elsewhere"),
        ({"ServerVersion": "24.0.7"}, "daemons: the daemon of repo gpu-a is Docker 24.0"),
    ):
        daemon.says = dict(says_of_itself)
        says(instance, expected)
        daemon.says = {}
    with kept_mode(instance.root, 0o755), kept_mode(daemon.socket, 0o666):
        says(instance, f"sockets: the raw socket {daemon.socket} of repo gpu-a is open to everybody on this machine")
    twin = instance.root / "etc/rediacc/gpu/repos.d/twin.yaml"
    twin.write_text(f"name: twin\nid: twin1\nupstream: {daemon.socket}\n")
    says(instance, "repos: the repos gpu-a and twin are behind one daemon")
    twin.unlink()
    gone = instance.root / "gone.docker"
    with stand_in_daemon.serving(gone, instance.layout.cdi):
        rig.succeeded(standalone.program("repo", "add", "gone", "--root", instance.root, "--upstream", gone))
    says(instance, "gone")
    rig.succeeded(standalone.program("repo", "remove", "gone", "--root", instance.root))
    well(instance)


@contextlib.contextmanager
def kept_mode(path: Path, mode: int) -> Iterator[None]:
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        yield
    finally:
        path.chmod(before)


def says_of(instance: Instance, damage: Callable[[], object], expected: str) -> None:
    """Soon it is found; the damage is done before each look, for a detection that had begun before mends it."""

    def found(_: list[str]) -> bool:
        damage()
        return any(expected in said for said in problems(instance))

    until(instance, found)


def test_the_inventory(instance: Instance) -> None:
    """The operator would mend it by itself: it sleeps meanwhile."""
    layout = instance.layout

    def mended() -> None:
        until(instance, lambda found: not any(said.startswith("inventory: ") for said in found), "--fix")

    with stopped(instance, "operator"), kept(layout.inventory):
        says_of(instance, lambda: layout.inventory.write_text("{"), f"inventory: {layout.inventory} can't be read")
        gone = f"inventory: there is no {layout.inventory}"
        says_of(instance, lambda: layout.inventory.unlink(missing_ok=True), gone)
        mended()
    with stopped(instance, "operator"), kept(layout.cdi / "rediacc-dri.yaml"):
        spec, lost = layout.cdi / "rediacc-dri.yaml", f"inventory: {DRI} is recorded and stands in no spec"
        says_of(instance, lambda: spec.unlink(missing_ok=True), lost)
        mended()
    well(instance)


@contextlib.contextmanager
def stopped(instance: Instance, part: str) -> Iterator[int]:
    """A part that hangs for as long; its pid."""
    held = processes.holder(instance.layout.lock(part))
    assert held is not None
    os.kill(held.pid, signal.SIGSTOP)
    try:
        yield held.pid
    finally:
        os.kill(held.pid, signal.SIGCONT)


def test_access_certificate_and_clock(instance: Instance) -> None:
    layout = instance.layout
    with kept(layout.kubeconfig):
        layout.kubeconfig.chmod(0o644)
        says(instance, "kubeconfig: ")
        assert not problems(instance, "--fix")
        assert layout.kubeconfig.stat().st_mode & 0o777 == 0o600
        layout.kubeconfig.write_text("{")
        says(instance, "kubeconfig: the API can't be used")
    with kept(layout.snapshot):
        stored: dict[str, Any] = json.loads(layout.snapshot.read_text())
        stored["clock"]["wall"] = (datetime.now(UTC) + timedelta(hours=2)).timestamp()
        says_of(instance, lambda: layout.snapshot.write_text(json.dumps(stored)), "clock: the clock went back")
    well(instance)


@pytest.mark.req("D12")
def test_a_part_that_hangs(instance: Instance) -> None:
    with stopped(instance, "operator") as pid:
        says(instance, f"parts: the operator (process {pid}) does not answer")
    well(instance)


@pytest.mark.req("R8")
def test_a_grant_that_is_not_in_force(instance: Instance) -> None:
    api = Api(str(instance.layout.kubeconfig))
    made = api.create_grant("default", "missing", {"machine": instance.machine, "repo": "nobody", "device": DRI})
    try:
        says(instance, f"grants: grant default/missing ({DRI} for repo nobody) is not in force")
    finally:
        api.delete_grant("default", "missing", made.metadata.uid)
        api.close()
    well(instance)


def test_nothing_runs(tmp_path: Path) -> None:
    done = standalone.program("doctor", "--root", tmp_path)
    assert done.returncode == 1
    assert f"problem  nothing runs below {tmp_path}" in done.stdout
    assert f"problem  there is no {tmp_path}/etc/rediacc/gpu/inventory.json" in done.stdout
    assert not list(tmp_path.iterdir()), "a doctor only looks"
    fixed = standalone.program("doctor", "--root", tmp_path, "--fix")
    assert fixed.returncode == 1
    assert "give renet setup the --hardware that is meant" in fixed.stderr
