"""The recorded workstation's own tools: they answer from the tree they lie in, as the real ones would."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpugrant_crds import cdi
from gpugrant_crds.cdi import Spec
from machines import Machine

Recorded = Callable[[str], Machine]
ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def call(machine: Machine, name: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    program = str(machine.tree / "usr/bin" / name)
    return subprocess.run([program, *args], env=ENV | env, capture_output=True, text=True, timeout=30, check=False)


def test_nvidia_smi_lists_the_cards_of_its_tree(recorded: Recorded) -> None:
    machine = recorded("workstation")
    line = "GPU 0: NVIDIA RTX 4000 Ada Generation (UUID: GPU-1d9c7a42-5e60-4b3f-a8d7-62c41f0b9e35)\n"
    assert call(machine, "nvidia-smi", "-L").stdout == line
    machine.add_nvidia_card()
    assert call(machine, "nvidia-smi", "-L").stdout == line + line.replace("GPU 0", "GPU 1").replace(
        "GPU-1d9c7a42", "GPU-2e0d8b53"
    )
    machine.remove_nvidia_card()
    assert "GPU-2e0d8b53" in call(machine, "nvidia-smi", "-L").stdout


def test_nvidia_smi_answers_for_another_tree_when_told(recorded: Recorded, tmp_path: Path) -> None:
    machine = recorded("workstation")
    ended = call(machine, "nvidia-smi", "-L", GPUGRANT_HARDWARE=str(tmp_path))
    assert (ended.returncode, ended.stderr) == (6, "No devices were found\n")


@pytest.mark.parametrize(
    ("fields", "fmt", "output"),
    [
        (
            "index,uuid,name,driver_version,memory.total,pci.bus_id,mig.mode.current,compute_cap",
            "csv,noheader,nounits",
            "0, GPU-1d9c7a42-5e60-4b3f-a8d7-62c41f0b9e35, NVIDIA RTX 4000 Ada Generation, 580.95.05, 20475, "
            "00000000:01:00.0, [N/A], 8.9\n",
        ),
        ("memory.total,count", "csv", "memory.total, count\n20475 MiB, 1\n"),
    ],
)
def test_nvidia_smi_answers_queries(recorded: Recorded, fields: str, fmt: str, output: str) -> None:
    ended = call(recorded("workstation"), "nvidia-smi", f"--query-gpu={fields}", f"--format={fmt}")
    assert (ended.returncode, ended.stdout) == (0, output)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--query-gpu=index,bogus", "--format=csv"), 2),
        (("--query-gpu=index",), 2),
        (("--bogus",), 2),
        (("--help-query-gpu",), 0),
        (("--version",), 0),
        ((), 0),
    ],
)
def test_nvidia_smi_exit_codes(recorded: Recorded, args: tuple[str, ...], code: int) -> None:
    assert call(recorded("workstation"), "nvidia-smi", *args).returncode == code


def test_nvidia_ctk_writes_a_whole_spec(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.add_nvidia_card()
    ended = call(machine, "nvidia-ctk", "cdi", "generate", GPUGRANT_ROOT="/r", GPUGRANT_HARDWARE=str(machine.tree))
    spec = cdi.read_spec(ended.stdout, "nvidia.yaml")
    assert isinstance(spec, Spec)
    assert (ended.returncode, spec.doubts) == (0, ())
    assert [device.name.split("-")[0] for device in spec.devices] == ["0", "1", "GPU", "GPU", "all"]
    everything = {node.source for device in spec.devices for node in device.edits.device_nodes}
    assert {"/r/dev/nvidia0", "/r/dev/nvidia1", "/r/dev/dri/renderD129"} <= everything
    assert {node.source for node in spec.edits.device_nodes} == {
        f"/r/dev/{name}" for name in ("nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl")
    }
    assert [mount.host_path for mount in spec.edits.mounts] == [
        f"{machine.tree}/{path}"
        for path in ("usr/bin/nvidia-smi", "proc/driver/nvidia/gpus", "sys/module/nvidia/version")
    ]


def test_nvidia_ctk_leaves_an_absent_node_out_and_succeeds(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.remove("dev/nvidia0")
    ended = call(machine, "nvidia-ctk", "cdi", "generate")
    assert ended.returncode == 0
    assert "/dev/nvidia0" not in ended.stdout


def test_nvidia_ctk_without_a_card_fails_and_keeps_the_old_file(recorded: Recorded, tmp_path: Path) -> None:
    machine = recorded("workstation")
    out = tmp_path / "out.yaml"
    assert call(machine, "nvidia-ctk", "cdi", "generate", f"--output={out}").returncode == 0
    whole = out.read_text()
    machine.remove_nvidia_card()
    ended = call(machine, "nvidia-ctk", "cdi", "generate", "--output", str(out))
    assert ended.returncode == 1
    assert "failed to generate CDI spec" in ended.stderr
    assert out.read_text() == whole
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == ["out.yaml"]


@pytest.mark.parametrize("args", [(), ("cdi",), ("cdi", "list"), ("cdi", "generate", "--bogus"), ("runtime",)])
def test_nvidia_ctk_refuses_what_it_does_not_know(recorded: Recorded, args: tuple[str, ...]) -> None:
    assert call(recorded("workstation"), "nvidia-ctk", *args).returncode == 1
