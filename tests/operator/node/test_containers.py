"""Our specs and the recorded workstation's tools in containers of real daemons: what a grant is worth ends up here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rig
from gpugrant_crds import cdi
from gpugrant_crds.cdi import Spec
from gpugrant_operator.node import files
from machines import Machine

pytestmark = pytest.mark.real


@pytest.fixture
def offered(recorded: Callable[[str], Machine], daemon: rig.Daemon) -> Iterator[rig.Daemon]:
    """A daemon that sees all specs of the workstation with one NVIDIA card more."""
    machine = recorded("workstation")
    machine.add_nvidia_card()
    machine.setup()
    # written again as the sealed folders are: what a daemon reads there is our own text
    placed: list[Path] = []
    for path in sorted((machine.root / "etc/cdi").iterdir()):
        spec = cdi.read_spec(path.read_bytes(), path.name)
        assert isinstance(spec, Spec)
        kept = cdi.restrict(spec, spec.names)
        assert kept is not None
        placed.append(daemon.sealed / path.name)
        files.write(placed[-1], cdi.dump(kept).encode())
    yield daemon
    for path in placed:
        files.remove(path)


def run(daemon: rig.Daemon, device: str | None, *command: str) -> rig.Result:
    devices = [] if device is None else ["--device", device]
    return daemon.docker("run", "--rm", "--network", "none", *devices, "ubuntu:24.04", *command)


@pytest.mark.req("R7", "R17")
def test_nvidia_smi_lists_exactly_the_cards_that_the_container_was_given(offered: rig.Daemon) -> None:
    first = "GPU 0: NVIDIA RTX 4000 Ada Generation (UUID: GPU-1d9c7a42-5e60-4b3f-a8d7-62c41f0b9e35)"
    second = "GPU %d: NVIDIA RTX 4000 Ada Generation (UUID: GPU-2e0d8b53-5e60-4b3f-a8d7-62c41f0b9e35)"
    for device, lines in (
        ("nvidia.com/gpu=all", [first, second % 1]),
        ("nvidia.com/gpu=0", [first]),
        ("nvidia.com/gpu=GPU-2e0d8b53-5e60-4b3f-a8d7-62c41f0b9e35", [second % 0]),
    ):
        done = run(offered, device, "nvidia-smi", "-L")
        assert (done.returncode, done.stdout.splitlines()) == (0, lines)


def test_without_the_device_there_is_no_nvidia_smi(offered: rig.Daemon) -> None:
    done = run(offered, None, "nvidia-smi", "-L")
    assert done.returncode == 127


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        pytest.param("mknod /dev/nvidia0 c 195 7", 4, "Operation not permitted", id="a node that was not given"),
        pytest.param(":", 6, "No devices were found", id="no node"),
        pytest.param("echo >/dev/nvidia0", 4, "", id="a file in its place"),
    ],
)
def test_nvidia_smi_prints_nothing_for_a_card_that_is_not_there(
    offered: rig.Daemon, change: str, code: int, said: str
) -> None:
    done = run(offered, "nvidia.com/gpu=0", "sh", "-c", f"rm /dev/nvidia0; {change}; nvidia-smi -L")
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


@pytest.mark.req("R15", "R16")
def test_amd_and_dri_names_give_their_device_files(offered: rig.Daemon) -> None:
    for device, nodes in (
        ("rediacc.io/amd=gpu0", ("/dev/kfd", "/dev/dri/renderD130")),
        ("rediacc.io/amd=all", ("/dev/kfd", "/dev/dri/renderD130")),
        ("rediacc.io/dri=renderD128", ("/dev/dri/renderD128",)),
    ):
        opened = "; ".join(f"(: <{node})" for node in nodes)
        done = run(offered, device, "sh", "-c", f"{opened}; ls /dev/dri /dev/kfd")
        assert done.stderr.count("No such device or address") == len(nodes)
        assert f"renderD{nodes[-1][-3:]}" in done.stdout
        assert ("/dev/kfd" in done.stdout.split()) is ("/dev/kfd" in nodes)
