"""Containers that outlive their grant, as people meet them: listed, waited for, or stopped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

GPU = "nvidia.com/gpu=all"
TRAINER = ("--restart", "always", "--device", GPU, "ubuntu:24.04")
LOOP = "trap 'exit 0' TERM; while :; do sleep 0.2; done"


@pytest.fixture
def held(system: rig.System) -> Iterator[rig.System]:
    """A container of gpu-b runs with the device."""
    rig.succeeded(system.rdc("repo", "gpu", "grant", "gpu-b", "--device", GPU))
    rig.succeeded(system.docker("gpu-b", "run", "-d", "--name", "trainer", *TRAINER, "sh", "-c", LOOP))
    yield system
    system.docker("gpu-b", "rm", "-f", "trainer")
    for repo in ("gpu-a", "gpu-b"):
        system.rdc("repo", "gpu", "revoke", repo, "--device", GPU)
    revocation(system, "null")


def revocation(system: rig.System, value: str) -> None:
    machine = rig.succeeded(system.kubectl("get", "gm", "-o", "name"))
    wish = f'{{"spec": {{"revocation": {value}}}}}'
    rig.succeeded(system.kubectl("patch", machine, "--type", "merge", "-p", wish))


def trainer(system: rig.System) -> str:
    shown = "{{.State.Status}} {{.HostConfig.RestartPolicy.Name}}"
    return rig.succeeded(system.docker("gpu-b", "inspect", "-f", shown, "trainer"))


def events(system: rig.System) -> str:
    return rig.succeeded(system.kubectl("get", "events", "-A", "-o", "custom-columns=R:.reason,M:.message"))


@pytest.mark.req("R51", "R6")
def test_a_revocation_lists_what_still_runs(held: rig.System) -> None:
    said = rig.succeeded(held.rdc("repo", "gpu", "revoke", "gpu-b", "--device", GPU))

    assert "container trainer (" in said
    assert f"of repo gpu-b still runs with {GPU}" in said
    assert trainer(held) == "running no"
    rig.wait_for(lambda: "RestartPolicyRemoved" in events(held), seconds=40)


@pytest.mark.req("R49", "R25", "R29")
def test_an_exclusive_grant_waits_for_it_and_names_it(held: rig.System) -> None:
    rig.succeeded(held.rdc("repo", "gpu", "revoke", "gpu-b", "--device", GPU))
    granted = held.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU, "--exclusive", "--timeout", "2s")
    assert granted.returncode == 3
    assert "in use by container trainer (" in granted.stderr
    shown = rig.succeeded(held.kubectl("get", "rgg", "-A", "--no-headers"))
    assert "InUseByOthers" in shown
    assert held.docker("gpu-a", "run", "--rm", "--device", GPU, "ubuntu:24.04", "true").returncode == 125

    rig.succeeded(held.docker("gpu-b", "rm", "-f", "trainer"))
    rig.succeeded(held.kubectl("wait", "rgg", "--all", "-A", "--for=condition=Ready", "--timeout=60s"))
    rig.succeeded(held.docker("gpu-a", "run", "--rm", "--device", GPU, "ubuntu:24.04", "true"))


@pytest.mark.req("R49", "R6")
def test_where_it_stops_nobody_waits(held: rig.System) -> None:
    revocation(held, '"Stop"')
    said = rig.succeeded(held.rdc("repo", "gpu", "revoke", "gpu-b", "--device", GPU))
    assert "still runs" not in said
    assert trainer(held) == "exited no"

    rig.succeeded(held.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU, "--exclusive"))
    rig.wait_for(lambda: "ContainerStopped" in events(held), seconds=40)
