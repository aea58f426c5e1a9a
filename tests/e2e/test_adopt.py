"""A host whose repo used a device before there was a gate: adopted, nothing of it ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import rig
import standalone
import unsealed
from gpugrant_crds.layout import Layout

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

DEVICE = "rediacc.io/dri=renderD128"


@dataclass(frozen=True, slots=True)
class Host:
    root: Path
    daemon: unsealed.Unsealed

    def docker(self, *words: str) -> str:
        return rig.succeeded(rig.docker(self.daemon.engine, self.daemon.socket, *words))

    def gpugrant(self, *words: str) -> rig.Result:
        return standalone.program(*words, "--root", self.root)

    def rdc(self, *words: str) -> rig.Result:
        return standalone.command("rdc", *words, GPUGRANT_ROOT=str(self.root))

    def trainer(self) -> str:
        return self.docker("inspect", "-f", "{{.State.Status}} {{.HostConfig.RestartPolicy.Name}}", "trainer")


@pytest.fixture
def host() -> Iterator[Host]:
    """A daemon runs a container with a device; then comes the gate."""
    if os.geteuid() != 0:
        pytest.skip("a Docker daemon needs root")
    root = rig.short_folder()
    try:
        rig.succeeded(standalone.command("renet", "setup", "--root", root, "--hardware", standalone.WORKSTATION))
        with unsealed.daemon("28", root / "d", Layout(root).cdi) as daemon:
            made = Host(root, daemon)
            held = ("--device", DEVICE, unsealed.IMAGE, "sleep", "600")
            made.docker("run", "-d", "--network", "none", "--restart", "always", "--name", "trainer", *held)
            try:
                rig.succeeded(made.gpugrant("repo", "add", "old", "--upstream", str(daemon.socket)))
                rig.succeeded(made.gpugrant("up", "--detach", "--hardware", str(standalone.WORKSTATION)))
                yield made
            finally:
                made.gpugrant("down")
                made.docker("rm", "-f", "trainer")
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.req("R3", "R6", "R51")
def test_what_a_repo_used_already_is_granted_and_goes_on(host: Host) -> None:
    would = host.gpugrant("repo", "adopt", "old", "--dry-run")
    assert would.returncode == 0, would.stderr
    assert f"would grant {DEVICE}" in would.stdout
    assert "no grants" in host.rdc("repo", "gpu", "list").stderr

    bound = ("--network", "none", "-v", "/dev:/mnt", unsealed.IMAGE, "sleep", "600")
    host.docker("run", "-d", "--name", "binder", *bound)
    done = host.gpugrant("repo", "adopt", "old")
    host.docker("rm", "-f", "binder")
    assert done.returncode == 0, done.stderr
    assert 'note: container binder: the bind source "/dev" is refused' in done.stderr
    assert "trainer" in done.stdout
    assert f"repo old may use {DEVICE}" in done.stdout
    assert host.trainer() == "running always"

    # it is the repo's own now: what outlives a revocation goes on without a policy, and is not ended as a stranger
    rig.succeeded(host.rdc("repo", "gpu", "revoke", "old", "--device", DEVICE))
    rig.wait_for(lambda: host.trainer() == "running no")


def test_a_repo_that_is_not_there(host: Host) -> None:
    refused = host.gpugrant("repo", "adopt", "odl")
    assert (refused.returncode, "did you mean old" in refused.stderr) == (1, True), refused.stderr
