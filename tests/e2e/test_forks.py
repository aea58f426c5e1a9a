"""A fork is another repo: a copy of the data root, under a daemon of its own, has no device, at its boot included."""

from __future__ import annotations

import shutil

import pytest

import rig

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.timeout(300)]

GPU = "nvidia.com/gpu=all"
PROBE = "nvidia-smi -L && touch /had-it; sleep 600"


@pytest.mark.req("R2", "R9")
def test_a_copied_data_root_has_no_device(system: rig.System) -> None:
    """gpu-a's container with `restart: always` and the device is copied, stopped dead, and started as a fork."""
    rig.succeeded(system.rdc("repo", "gpu", "grant", "gpu-a", "--device", GPU))
    name, fork = "forked", system.root / "daemons/fork-data"
    try:
        rig.succeeded(
            system.docker(
                "gpu-a",
                "run",
                "-d",
                "--name",
                name,
                "--restart",
                "always",
                "--device",
                GPU,
                "ubuntu:24.04",
                "sh",
                "-c",
                PROBE,
            )
        )
        rig.wait_for(lambda: GPU_LINE in system.docker("gpu-a", "logs", name).stdout)
        copy_running(system, fork)
        socket = rig.succeeded(rig.script("daemon", "fork", "--root", system.root, "--data-root", fork))

        raw = rig.docker("28", rig.Path(socket), "ps", "-a", "--format", "{{.Names}} {{.Status}}")
        assert name in rig.succeeded(raw)
        assert not running(socket, name)
        for verb in ("start", "restart"):
            assert rig.docker("28", rig.Path(socket), verb, name).returncode != 0
        assert not running(socket, name)

        rig.succeeded(system.gpugrant("repo", "add", "fork", "--upstream", socket))
        through = system.command(
            "docker", "--host", f"unix://{system.root}/run/rediacc/gpu/repos/fork.sock", "start", name
        )
        assert through.returncode != 0
        assert f"repo fork has no grant for {GPU}" in through.stderr
        assert running_in_a(system, name)
    finally:
        system.gpugrant("repo", "remove", "fork")
        rig.script("daemon", "fork", "--root", system.root, "--stop")
        system.docker("gpu-a", "rm", "-f", name)
        system.rdc("repo", "gpu", "revoke", "gpu-a", "--device", GPU)
        shutil.rmtree(fork, ignore_errors=True)


GPU_LINE = "GPU 0: "


def copy_running(system: rig.System, target: rig.Path) -> None:
    """The data root as a snapshot of a running daemon: what a fork of a repo is made of."""
    source = system.root / "daemons/gpu-a/data"
    rig.succeeded(
        rig.run(["cp", "-a", "--one-file-system", str(source), str(target)], environ={"PATH": "/usr/bin:/bin"})
    )


def running(socket: str, name: str) -> bool:
    return name in rig.succeeded(rig.docker("28", rig.Path(socket), "ps", "--format", "{{.Names}}")).split()


def running_in_a(system: rig.System, name: str) -> bool:
    return name in rig.succeeded(system.docker("gpu-a", "ps", "--format", "{{.Names}}")).split()
