from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpugrant_crds import inventory
from machines import Machine

Recorded = Callable[[str], Machine]


def renet(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpugrant_operator.cli.renet", *args],
        env={key: value for key, value in os.environ.items() if key != "GPUGRANT_ROOT"} | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.req("R10", "R20")
def test_json_is_the_file_byte_for_byte(recorded: Recorded) -> None:
    machine = recorded("workstation")
    ended = renet("setup", "--root", str(machine.root), "--hardware", str(machine.tree), "-o", "json")
    assert ended.returncode == 0
    assert ended.stdout == machine.inventory.read_text()
    assert ended.stderr.splitlines()[0] == "looking at PCI, DRM and KFD"


def test_text_says_what_was_found_and_written(recorded: Recorded) -> None:
    machine = recorded("amd-1gpu")
    ended = renet("setup", "--hardware", str(machine.tree), GPUGRANT_ROOT=str(machine.root))
    assert ended.stdout.splitlines()[:2] == [
        "amd-1 (native): 1 GPU: AMD Radeon RX 7800 XT",
        "devices: rediacc.io/amd=all, rediacc.io/amd=gpu0, rediacc.io/dri=renderD128",
    ]
    assert f"written: {machine.inventory}" in ended.stdout


def test_a_failed_step_is_one_sentence_and_exit_1(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.remove("usr/bin/nvidia-ctk")
    ended = renet("setup", "--root", str(machine.root), "--hardware", str(machine.tree))
    assert ended.returncode == 1
    assert [line for line in ended.stderr.splitlines() if line.startswith("renet: ")] == [
        "renet: the NVIDIA Container Toolkit is not installed: this machine has none of the package managers apt-get, "
        "dnf, yum, zypper, pacman: install the package nvidia-container-toolkit-base, then run renet setup again"
    ]
    assert inventory.parse(machine.inventory.read_bytes()).device_names


def test_a_dry_run_writes_nothing(bare: Machine) -> None:
    ended = renet("setup", "--root", str(bare.root), "--hardware", str(bare.tree), "--dry-run")
    assert ended.returncode == 0
    assert f"would write: {bare.inventory}" in ended.stdout
    assert not bare.root.exists()


@pytest.mark.parametrize(
    "args",
    [
        ("setup", "--install-nvidia-toolkit", "maybe"),
        ("setup", "--hardware", "/nothing/there"),
        ("setup", "extra"),
        ("bogus",),
    ],
)
def test_wrong_usage_is_exit_2(args: tuple[str, ...]) -> None:
    assert renet(*args).returncode == 2


def test_an_inventory_that_can_not_be_written_is_one_sentence(bare: Machine, tmp_path: Path) -> None:
    root = tmp_path / "file"
    root.write_text("no folder")
    ended = renet("setup", "--root", str(root), "--hardware", str(bare.tree))
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("Error: the inventory was not written: ")
