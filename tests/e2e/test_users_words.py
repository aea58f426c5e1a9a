"""The commands and Compose files of the user's documents, as they stand there, on each kind of machine: WSL2, native
NVIDIA, AMD, none. Typed into a shell of repo gpu-a (or gpu-b), with a small local image called ubuntu:24.04.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import nvidia_machines
import rig
from machines import EXAMPLES, Machine

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.timeout(400)]


@dataclass(frozen=True)
class Shell:
    """A shell on the machine; `docker` there is the one repo's."""

    system: rig.System
    machine: Machine
    folder: Path

    def type(self, line: str, *, repo: str = "gpu-a") -> rig.Result:
        environ = {**self.system.environ, "DOCKER_CONTEXT": repo}
        return rig.run(["sh", "-c", f"cd '{self.folder}' && {line}"], environ=environ)

    def compose(self, service: str, *, repo: str = "gpu-a") -> rig.Result:
        """`docker compose up` of a file whose service has these lines besides its image."""
        lines = "".join(f"    {line}\n" for line in service.splitlines())
        text = f"services:\n  inference:\n    image: ubuntu:24.04\n    network_mode: none\n{lines}"
        (self.folder / "compose.yaml").write_text(text)
        done = self.type("docker compose up --no-log-prefix", repo=repo)
        self.type("docker compose down", repo=repo)
        return done

    @property
    def name(self) -> str:
        return (self.machine.tree / "etc/hostname").read_text().strip()


@contextmanager
def shell(name: str, tmp_path: Path) -> Iterator[Shell]:
    root = rig.short_folder()
    machine = Machine(tmp_path / "tree", root)
    shutil.copytree(EXAMPLES / name, machine.tree, symlinks=True)
    folder = tmp_path / "inference"
    folder.mkdir()
    try:
        made = Shell(rig.bring_up(root, machine.tree), machine, folder)
        made.system.kubectl("delete", "rgg", "--all", "-A", "--timeout=30s")
        yield made
    finally:
        rig.script("down", "--root", root)
        shutil.rmtree(root, ignore_errors=True)


def refused(done: rig.Result) -> str:
    """What it said; fails when it was not refused."""
    assert done.returncode != 0, f"{done.args} was not refused:\n{done.stdout}"
    return done.stdout + done.stderr


RUNS = (
    "docker run --rm --gpus all ubuntu:24.04 nvidia-smi -L",
    "docker run --rm --gpus 1 ubuntu:24.04 nvidia-smi -L",
    "docker run --rm --gpus '\"device=0\"' ubuntu:24.04 nvidia-smi -L",
    "docker run --rm --gpus driver=cdi,count=all ubuntu:24.04 nvidia-smi -L",
    "docker run --rm --runtime nvidia ubuntu:24.04 nvidia-smi -L",
    "docker run --rm --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all ubuntu:24.04 nvidia-smi -L",
    "docker run --rm --device /dev/dri ubuntu:24.04 ls /dev/dri",
    "docker run --rm --device /dev/dri/renderD128 ubuntu:24.04 ls /dev/dri",
    "docker run --rm --device /dev/kfd ubuntu:24.04 ls /dev/kfd",
    "docker run --rm --device /dev/nvidia0 ubuntu:24.04 nvidia-smi -L",
    "docker run --rm --device /dev/dxg ubuntu:24.04 nvidia-smi -L",
    "docker run --rm --device /dev/fuse ubuntu:24.04 true",
    "docker run --rm -v /dev/dri:/dev/dri ubuntu:24.04 ls /dev/dri",
    "docker run --rm -v /dev:/dev ubuntu:24.04 ls /dev",
    "docker run --rm --device-cgroup-rule 'c 195:* rmw' ubuntu:24.04 true",
    "docker run --rm --privileged ubuntu:24.04 true",
)
"""Every spelling of R30, R31, R34, R35, and R45's plainest."""

SERVICES = (
    "runtime: nvidia",
    "gpus: all",
    "gpus:\n  - driver: nvidia\n    count: 1",
    "deploy:\n  resources:\n    reservations:\n      devices:\n        - driver: nvidia\n          count: all\n"
    "          capabilities: [gpu]",
    "deploy:\n  resources:\n    reservations:\n      devices:\n        - driver: cdi\n          device_ids: [DEVICE]\n"
    "          capabilities: [gpu]",
    "devices: [/dev/dri:/dev/dri]",
    "devices: [/dev/kfd, /dev/dri]",
    "device_cgroup_rules: ['c 226:* rmw']",
)
"""Every Compose block of R31 to R35."""

GROUPS = ("docker run --rm --group-add video ubuntu:24.04 id", "docker run --rm --group-add render ubuntu:24.04 id")


def the_users_words(at: Shell, device: str, command: str, shown: str) -> None:
    """From setup to a revocation, with one device of the machine and what a container shows of it."""
    machine, full = at.name, f"gpu-a@{at.name}"
    run = f"docker run --rm --device {device} ubuntu:24.04 {command}"

    rig.succeeded(at.type(f"rdc machine setup {machine}"))
    table = rig.succeeded(at.type(f"rdc machine gpu list {machine}"))
    for line in (f"machine: {machine}", "platform: ", "inventory: ", device):
        assert line in table
    recorded = at.type(f"rdc machine gpu list {machine} -o json").stdout
    assert recorded == at.machine.inventory.read_text()

    without = refused(at.type(run, repo="gpu-b"))
    assert (
        f"repo gpu-b has no grant for {device} on {machine}; an operator can run: rdc repo gpu grant "
        f"gpu-b@{machine} --device {device}"
    ) in without

    rig.succeeded(at.type(f"rdc repo gpu grant {full} --device {device}"))
    assert shown in rig.succeeded(at.type(run))
    assert shown in rig.succeeded(at.compose(f"command: {command}\ndevices: [{device}]"))
    again = at.type(f"rdc repo gpu grant {full} --device {device}")
    assert (again.returncode, "already" in again.stdout + again.stderr) == (0, True)

    # with a grant as without one
    for line in RUNS:
        for repo in ("gpu-a", "gpu-b"):
            said = refused(at.type(line, repo=repo))
            assert "Error response from daemon" in said, line
            assert "--device " in said or "is refused" in said, said
    for service in SERVICES:
        said = refused(at.compose(service.replace("DEVICE", device)))
        assert "devices: [" in said or "grant" in said, said
    for line in GROUPS:
        groups = rig.succeeded(at.type(line))
        assert "groups=" in groups
    assert command.split()[0] in refused(at.type(f"docker run --rm --group-add video ubuntu:24.04 {command}"))

    assert "gpu-a" in refused(at.type(f"rdc repo gpu grant gpu-b@{machine} --device {device} --exclusive"))
    rig.succeeded(at.type(f"rdc repo gpu grant gpu-a --device {device} --exclusive"))
    assert "gpu-a" in refused(at.type(f"rdc repo gpu grant gpu-b@{machine} --device {device}"))
    assert device in refused(at.type(f"rdc repo gpu grant gpu-a --device {device[:-1]}"))

    rig.succeeded(at.type(f"rdc repo gpu revoke {full} --device {device}"))
    assert f"repo gpu-a has no grant for {device} on {machine}" in refused(at.type(run))
    rig.succeeded(at.type(f"rdc repo gpu revoke gpu-a --device {device}"))


WORDS = ("R10", "R19", "R20", "R22", "R23", "R24", "R25", "R26", "R27", "R30", "R31", "R32", "R33", "R34", "R35", "R36")


@pytest.mark.req("R37", "R38", "R39", "R40", "R41", *WORDS)
def test_on_wsl(tmp_path: Path) -> None:
    """Grant, list and revoke as on a native machine; a driver update of Windows is in the next setup."""
    with shell("wsl-gpu", tmp_path) as at:
        the_users_words(at, "nvidia.com/gpu=all", "nvidia-smi -L", "GPU 0: NVIDIA GeForce RTX 4070 (UUID: GPU-5b1f0c3e")
        table = rig.succeeded(at.type("rdc machine gpu list wsl-gpu"))
        assert "platform: wsl" in table
        assert "581.57" in table

        nvidia_machines.wsl(at.machine, driver="590.44", store="nvlti.inf_amd64_00aa11bb22cc33dd")
        rig.succeeded(at.type("rdc repo gpu grant gpu-a@wsl-gpu --device nvidia.com/gpu=all"))
        rig.succeeded(at.type("rdc machine setup wsl-gpu"))
        assert "590.44" in rig.succeeded(at.type("rdc machine gpu list wsl-gpu"))
        assert "inf_amd64_00aa11bb22cc33dd" in at.machine.cdi("nvidia.yaml").read_text()
        line = "docker run --rm --device nvidia.com/gpu=all ubuntu:24.04 ls /usr/lib/wsl/drivers"
        assert rig.succeeded(at.type(line)) == "nvlti.inf_amd64_00aa11bb22cc33dd"


@pytest.mark.req("R37", "R11", "R13", "R14", *WORDS)
def test_on_a_native_nvidia_machine(tmp_path: Path) -> None:
    """The same, and the option's three values by hand."""
    with shell("workstation", tmp_path) as at:
        the_users_words(at, "nvidia.com/gpu=all", "nvidia-smi -L", "GPU 0: NVIDIA RTX 4000 Ada Generation (UUID: GPU-")
        setup = f"renet setup --hardware '{at.machine.tree}' --install-nvidia-toolkit"
        whole = at.machine.cdi("nvidia.yaml").read_bytes()
        for value in ("auto", "true", "false"):
            rig.succeeded(at.type(f"{setup} {value}"))
            assert at.machine.cdi("nvidia.yaml").read_bytes() == whole
        # kept by the operator's later runs: nvidia-ctk is not run any more
        at.machine.script("usr/bin/nvidia-ctk", "exit 1")
        rig.succeeded(at.type("rdc machine setup workstation"))
        assert at.machine.cdi("nvidia.yaml").read_bytes() == whole


@pytest.mark.req("R37", "R15", "R16", "R18", *WORDS)
def test_on_an_amd_machine(tmp_path: Path) -> None:
    """Both kinds: device files alone, with no vendor software on the machine or in the image."""
    with shell("amd-1gpu", tmp_path) as at:
        the_users_words(at, "rediacc.io/amd=gpu0", "ls /dev/kfd /dev/dri", "renderD128")
        rig.succeeded(at.type("rdc repo gpu grant gpu-a --device rediacc.io/dri=renderD128"))
        line = "docker run --rm --device rediacc.io/dri=renderD128 ubuntu:24.04 ls /dev/dri"
        assert rig.succeeded(at.type(line)) == "renderD128"


@pytest.mark.req("R10", "R12", "R19", "R20", "R8", "R30", "R31", "R34", "R35")
def test_on_a_machine_without_a_gpu(tmp_path: Path) -> None:
    """An inventory with empty lists, said with exit 0; nothing can be granted, nothing gets through."""
    with shell("no-gpu", tmp_path) as at:
        rig.succeeded(at.type("rdc machine setup no-gpu"))
        assert "no GPU" in rig.succeeded(at.type("rdc machine gpu list no-gpu"))
        recorded = rig.succeeded(at.type("rdc machine gpu list no-gpu -o json"))
        assert json.loads(recorded)["gpus"] == []
        refused(at.type("rdc repo gpu grant gpu-a@no-gpu --device nvidia.com/gpu=all"))
        for line in RUNS:
            assert "Error response from daemon" in refused(at.type(line)), line
        unknown = refused(at.type("rdc machine setup nogpu"))
        assert "no-gpu" in unknown
