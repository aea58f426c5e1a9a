"""The toolkit's installation on recorded machines with stand-in package managers (R11, R13)."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from gpugrant_operator.node import packages
from machines import Machine
from nvidia_machines import OFFLINE, OS_RELEASES, calls, content, package_manager, wsl

Recorded = Callable[[str], Machine]
BASE = packages.PACKAGE
GPU = "nvidia.com/gpu=all"


def commands(machine: Machine) -> dict[str, list[str]]:
    """What is called on which machine, without the options that only another root needs."""
    only = [
        f"-o Dir::Etc::SourceList={machine.root}/etc/apt/sources.list.d/nvidia-container-toolkit.list",
        "-o Dir::Etc::SourceParts=-",
        "-o APT::Get::List-Cleanup=0",
    ]
    lock = "-o DPkg::Lock::Timeout=120"
    apt = " ".join([lock, *only])
    return {
        "apt-get": [
            f"apt-get update -q -o APT::Update::Error-Mode=any {apt}",
            f"apt-get install -y -q --no-install-recommends {apt} {BASE}",
        ],
        "dnf": [f"dnf install -y --setopt=reposdir={machine.root}/etc/yum.repos.d {BASE}"],
        "yum": [f"yum install -y --setopt=reposdir={machine.root}/etc/yum.repos.d {BASE}"],
        "zypper": [
            f"rpm --import {machine.root}/etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit",
            f"zypper --non-interactive --reposd-dir {machine.root}/etc/zypp/repos.d install --no-recommends {BASE}",
        ],
        "pacman": ["pacman -S --noconfirm --needed nvidia-container-toolkit"],
    }


SOURCES = {
    "apt-get": "etc/apt/sources.list.d/nvidia-container-toolkit.list",
    "dnf": "etc/yum.repos.d/nvidia-container-toolkit.repo",
    "yum": "etc/yum.repos.d/nvidia-container-toolkit.repo",
    "zypper": "etc/zypp/repos.d/nvidia-container-toolkit.repo",
}


@pytest.mark.req("R11", "R13", "R14")
@pytest.mark.parametrize("name", OS_RELEASES)
def test_auto_installs_the_base_package_and_makes_the_spec(recorded: Recorded, name: str) -> None:
    """Repository, package, spec: and nothing else is called, least of all for a runtime."""
    machine = recorded("workstation")
    package_manager(machine, name)
    outcome = machine.setup()
    assert outcome.failures == ()
    assert calls(machine) == commands(machine)[name]
    assert GPU in outcome.inventory.device_names
    assert outcome.inventory.nvidia.toolkit_version == "1.19.1"
    if name in SOURCES:
        assert packages.ADDRESS in content(machine.root / SOURCES[name])
    again = machine.setup()
    assert (again.failures, calls(machine)) == ((), [])


@pytest.mark.req("R11")
def test_the_same_on_wsl(recorded: Recorded) -> None:
    """WSL with an Ubuntu in it."""
    machine = recorded("no-gpu")
    wsl(machine)
    tool = (machine.tree / "usr/bin/nvidia-ctk").read_text()
    package_manager(machine, "apt-get")
    machine.write("usr/share/toolkit/nvidia-ctk", tool).chmod(0o755)
    outcome = machine.setup()
    assert outcome.failures == ()
    assert [line.split()[:2] for line in calls(machine)] == [["apt-get", "update"], ["apt-get", "install"]]
    assert outcome.inventory.device_names == (GPU,)


@pytest.mark.req("R13")
@pytest.mark.parametrize("install", ["auto", "true", "false"])
@pytest.mark.parametrize("card", [True, False], ids=["card", "no card"])
@pytest.mark.parametrize("toolkit", [True, False], ids=["toolkit", "no toolkit"])
@pytest.mark.parametrize("older", [True, False], ids=["older spec", "no spec"])
def test_every_combination(recorded: Recorded, install: str, card: bool, toolkit: bool, older: bool) -> None:
    """auto | true | false with and without a card, a toolkit and somebody's older nvidia.yaml."""
    machine = recorded("workstation" if card else "amd-1gpu")
    package_manager(machine, "apt-get")
    machine.script("usr/bin/apt-get", machine_manager(machine))
    if toolkit:
        os.link(machine.tree / "usr/share/toolkit/nvidia-ctk", machine.tree / "usr/bin/nvidia-ctk")
    spec = machine.cdi("nvidia.yaml")
    if older:
        spec.parent.mkdir(parents=True)
        spec.write_text("by hand")
    outcome = machine.setup(install)  # type: ignore[arg-type]  # of the table
    installs = not toolkit and (install == "true" or (install == "auto" and card))
    generates = install != "false" and card
    assert (outcome.exit_code, outcome.failures) == (0, ())
    assert [line.split()[1] for line in calls(machine)] == (["update", "install"] if installs else [])
    assert (machine.tree / "usr/bin/nvidia-ctk").exists() is (toolkit or installs)
    assert (GPU in outcome.inventory.device_names) is generates
    assert content(spec) == ("by hand" if older and not generates else content(spec))
    assert spec.exists() is (generates or older)
    reported = {file.path: file.error for file in outcome.inventory.cdi.files}
    if older and not generates:
        assert reported[str(spec)]


def machine_manager(machine: Machine) -> str:
    """The stand-in that package_manager has put there."""
    return (machine.tree / "usr/bin/apt-get").read_text().split("\n", 1)[1]


@pytest.mark.req("R11", "R10")
def test_offline_is_one_sentence_and_the_rest_is_done(recorded: Recorded) -> None:
    """What apt says first, and what to do; no repository that can't be reached is left behind."""
    machine = recorded("workstation")
    package_manager(machine, "apt-get", OFFLINE)
    outcome = machine.setup()
    assert outcome.exit_code == 1
    assert outcome.failures == (
        "the NVIDIA Container Toolkit is not installed: apt-get says: E: Failed to fetch "
        "https://example.invalid/InRelease Could not resolve 'example.invalid': install the package "
        "nvidia-container-toolkit-base, then run renet setup again",
    )
    assert [problem.reason for problem in outcome.inventory.problems] == ["ToolkitMissing"]
    assert "rediacc.io/amd=gpu0" in outcome.inventory.device_names
    assert not [path for path in machine.root.rglob("*nvidia-container-toolkit*") if path.is_file()]


def test_a_package_that_can_be_had_is_installed_though_the_list_can_not_be_read(recorded: Recorded) -> None:
    """It may lie in apt's cache, or in a mirror of the machine's own."""
    machine = recorded("workstation")
    package_manager(machine, "apt-get")
    machine.script("usr/bin/apt-get", machine_manager(machine) + '[ "$1" != update ]\n')
    assert machine.setup().failures == ()


def test_a_package_manager_that_installs_nothing_is_said(recorded: Recorded) -> None:
    """Exit 0 is no proof: the program must be there."""
    machine = recorded("workstation")
    package_manager(machine, "dnf", "exit 0")
    outcome = machine.setup()
    assert outcome.exit_code == 1
    assert "nvidia-ctk is not there" in outcome.failures[0]


def test_a_repository_that_somebody_set_up_is_used_as_it_is(recorded: Recorded) -> None:
    """Two entries with two keys would break apt as a whole."""
    machine = recorded("workstation")
    package_manager(machine, "apt-get")
    machine.write(
        "etc/apt/sources.list.d/libnvidia-container.list",
        "deb [signed-by=/etc/apt/nvidia.asc] https://nvidia.github.io/libnvidia-container/stable/deb/amd64 /\n",
    )
    assert machine.setup().failures == ()
    assert not (machine.root / SOURCES["apt-get"]).exists()


def test_an_installed_toolkit_is_kept(recorded: Recorded) -> None:
    """No package manager is asked; the full toolkit has nvidia-ctk too."""
    machine = recorded("workstation")
    tool = (machine.tree / "usr/bin/nvidia-ctk").read_text()
    package_manager(machine, "apt-get")
    machine.write("usr/bin/nvidia-ctk", tool).chmod(0o755)
    assert machine.setup("true").failures == ()
    assert calls(machine) == []


def test_a_dry_run_says_what_it_would_install_and_installs_nothing(recorded: Recorded) -> None:
    """The commands and files, in their order."""
    machine = recorded("workstation")
    package_manager(machine, "apt-get")
    outcome = machine.setup(dry_run=True)
    assert not machine.root.exists()
    assert calls(machine) == []
    assert [action.split()[:2] for action in outcome.actions] == [["apt-get", "update"], ["apt-get", "install"]]
    assert str(machine.root / SOURCES["apt-get"]) in outcome.written
    assert str(machine.cdi("nvidia.yaml")) in outcome.written
    assert outcome.failures == ()


def test_what_setup_wrote_is_recorded_with_its_hash(recorded: Recorded) -> None:
    """setup.json: every file below the root that is ours."""
    machine = recorded("workstation")
    package_manager(machine, "apt-get")
    machine.setup()
    recorded_files = content(machine.root / "var/lib/rediacc/gpu/setup.json")
    for path in (SOURCES["apt-get"], "usr/share/keyrings/nvidia-container-toolkit-keyring.gpg", "etc/cdi/nvidia.yaml"):
        assert f'"{path}"' in recorded_files
