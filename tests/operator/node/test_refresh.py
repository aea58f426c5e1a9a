"""The units that keep the specs current: the toolkit's refresh service, its equal, and our own (R42, R43)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpugrant_crds import inventory
from gpugrant_operator.node import units
from machines import Machine
from nvidia_machines import calls, content, systemd, wsl

Recorded = Callable[[str], Machine]
ENV = "etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"


def of_systemctl(machine: Machine) -> list[str]:
    return [line.removeprefix("systemctl ") for line in calls(machine) if line.startswith("systemctl ")]


@pytest.mark.req("R42")
def test_the_toolkits_service_is_pointed_at_the_folder_and_runs_once(recorded: Recorded) -> None:
    """By its own .env; what stood there stays. A second setup changes nothing and calls nothing."""
    machine = recorded("workstation")
    systemd(machine)
    outcome = machine.setup()
    assert (outcome.failures, outcome.inventory.problems) == ((), ())
    assert content(machine.root / ENV) == (
        "# by the package\n# NVIDIA_DEV_ROOT=/\n"
        f"NVIDIA_CTK_CDI_OUTPUT_FILE_PATH={machine.root}/etc/cdi/nvidia.yaml\n"
        "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS=no-additional-gids-for-device-nodes\n"
    )
    assert of_systemctl(machine) == [
        "daemon-reload",
        "enable nvidia-cdi-refresh.service nvidia-cdi-refresh.path",
        "restart nvidia-cdi-refresh.service",
        "start nvidia-cdi-refresh.path",
        "daemon-reload",
        "enable gpugrant-refresh.service gpugrant-refresh.path",
        "start gpugrant-refresh.path",
    ]
    assert not (machine.root / "var/run/cdi/nvidia.yaml").exists()
    assert outcome.inventory.nvidia.refresh_unit == inventory.RefreshUnit(
        name="nvidia-cdi-refresh.service", output=str(machine.cdi("nvidia.yaml"))
    )
    again = machine.setup()
    assert again.written == ()
    assert of_systemctl(machine) == []


@pytest.mark.req("R42")
def test_an_older_toolkit_gets_an_equal_unit_until_it_has_its_own(recorded: Recorded) -> None:
    """Under another name, so that the package's file never meets ours."""
    machine = recorded("workstation")
    systemd(machine, refresh_unit=False)
    tool = machine.tree / "usr/bin/nvidia-ctk"
    tool.write_text(tool.read_text().replace("1.19.1", "1.17.8"))
    outcome = machine.setup()
    equal = [machine.root / units.path_of(f"{units.EQUAL}.{kind}") for kind in ("service", "path")]
    assert (outcome.failures, outcome.inventory.problems) == ((), ())
    assert f"--output={machine.root}/etc/cdi/nvidia.yaml\n" in content(equal[0])
    assert "restart gpugrant-nvidia-cdi-refresh.service" in of_systemctl(machine)
    assert not (machine.root / ENV).exists()

    systemd(machine)
    assert machine.setup().failures == ()
    assert not any(path.exists() for path in equal)
    assert "disable --now gpugrant-nvidia-cdi-refresh.service gpugrant-nvidia-cdi-refresh.path" in of_systemctl(machine)


@pytest.mark.req("R42")
@pytest.mark.parametrize(
    ("version", "known", "pointed"),
    [("1.18.0", True, True), ("1.20.2", True, True), ("1.20.2", False, False), ("1.17.8", True, False)],
)
def test_a_unit_that_lies_elsewhere_is_what_systemd_says(
    recorded: Recorded, version: str, known: bool, pointed: bool
) -> None:
    """A distribution may put it where we do not look; one that leaves it out gets the equal unit."""
    machine = recorded("workstation")
    systemd(machine, refresh_unit=False)
    script = content(machine.tree / "usr/bin/systemctl").removeprefix("#!/bin/sh\n")
    machine.script("usr/bin/systemctl", f'[ "$1" != cat ] || exit {0 if known else 1}\n{script}')
    tool = machine.tree / "usr/bin/nvidia-ctk"
    tool.write_text(tool.read_text().replace("1.19.1", version))
    assert machine.setup().failures == ()
    assert (machine.root / ENV).exists() is pointed
    assert (machine.root / units.path_of(f"{units.EQUAL}.service")).exists() is not pointed


@pytest.mark.req("R42")
def test_what_the_service_wrote_is_read_back_and_a_bad_one_gives_way(recorded: Recorded) -> None:
    """A spec without the card's node: a problem entry, and a whole spec is there again."""
    machine = recorded("workstation")
    systemd(machine)
    machine.setup()
    whole = machine.cdi("nvidia.yaml").read_bytes()
    machine.cdi("nvidia.yaml").write_text(whole.decode().replace("/dev/nvidia0", "/dev/nvidia7"))
    outcome = machine.setup()
    assert outcome.exit_code == 0
    assert [problem.reason for problem in outcome.inventory.problems] == ["SpecInvalid"]
    assert "what the refresh service wrote" in outcome.inventory.problems[0].message
    assert machine.cdi("nvidia.yaml").read_bytes() == whole
    assert machine.setup().inventory.problems == ()


@pytest.mark.req("R42", "R14")
def test_a_bad_one_gives_way_to_the_last_whole_one_when_none_can_be_made(recorded: Recorded) -> None:
    """The kept spec comes back: what stands in the folder always names nodes that are there."""
    machine = recorded("workstation")
    systemd(machine)
    machine.setup()
    whole = machine.cdi("nvidia.yaml").read_bytes()
    machine.cdi("nvidia.yaml").write_text("]")
    machine.script("usr/bin/nvidia-ctk", "exit 1")
    outcome = machine.setup()
    assert outcome.exit_code == 1
    assert machine.cdi("nvidia.yaml").read_bytes() == whole
    assert "nvidia.com/gpu=all" in outcome.inventory.device_names


@pytest.mark.req("R13")
def test_true_without_a_card_points_the_service_and_does_not_run_it(recorded: Recorded) -> None:
    """It would fail, and that is no failure of this machine: exit 0 and no spec."""
    machine = recorded("workstation")
    systemd(machine)
    machine.remove_nvidia_card()
    outcome = machine.setup("true")
    assert (outcome.exit_code, outcome.inventory.problems) == (0, ())
    assert not machine.cdi("nvidia.yaml").exists()
    assert (machine.root / ENV).exists()
    assert [line for line in of_systemctl(machine) if line.startswith("restart")] == []


@pytest.mark.req("R42")
def test_repo_daemons_start_after_the_specs_are_made(recorded: Recorded) -> None:
    """A drop-in for each pattern of their units."""
    machine = recorded("workstation")
    systemd(machine)
    machine.setup(daemon_units=("repo@*.service",))
    text = content(machine.root / units.path_of("repo@.service.d/50-gpugrant.conf"))
    assert "After=gpugrant-refresh.service nvidia-cdi-refresh.service" in text


@pytest.mark.req("R42")
def test_a_service_that_fails_is_one_sentence(recorded: Recorded) -> None:
    """The spec is made by setup all the same."""
    machine = recorded("workstation")
    systemd(machine)
    machine.script("usr/bin/systemctl", '[ "$1" != restart ] || { echo "Job failed." >&2; exit 1; }')
    outcome = machine.setup()
    assert outcome.failures == ("systemctl restart nvidia-cdi-refresh.service failed: Job failed",)
    assert "nvidia.com/gpu=all" in outcome.inventory.device_names


def test_what_systemd_did_not_take_up_is_tried_again(recorded: Recorded) -> None:
    """The files are right and nothing changed, but the service was never enabled."""
    machine = recorded("workstation")
    systemd(machine)
    works = content(machine.tree / "usr/bin/systemctl").removeprefix("#!/bin/sh\n")
    machine.script("usr/bin/systemctl", "echo 'Connection timed out' >&2; exit 1")
    assert machine.setup().exit_code == 1
    machine.script("usr/bin/systemctl", works)
    assert machine.setup().failures == ()
    called = of_systemctl(machine)
    assert "enable nvidia-cdi-refresh.service nvidia-cdi-refresh.path" in called
    assert "enable gpugrant-refresh.service gpugrant-refresh.path" in called
    machine.setup()
    assert of_systemctl(machine) == []


@pytest.mark.req("R43")
@pytest.mark.parametrize("place", ["run/cdi", "var/run/cdi"])
def test_what_the_service_wrote_elsewhere_before_goes(recorded: Recorded, place: str) -> None:
    """Only the toolkit's own spec: what others keep there is theirs."""
    machine = recorded("workstation")
    systemd(machine)
    folder = machine.root / place
    folder.mkdir(parents=True)
    (folder / "nvidia.yaml").write_text(
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n"
        "devices: [{name: all, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}]\n"
    )
    (folder / "other.json").write_text("{}")
    machine.setup()
    assert [path.name for path in folder.iterdir()] == ["other.json"]


def test_another_kind_of_that_file_name_stays(recorded: Recorded) -> None:
    """Somebody's own file is not ours to judge."""
    machine = recorded("workstation")
    systemd(machine)
    other = machine.root / "run/cdi/nvidia.yaml"
    other.parent.mkdir(parents=True)
    other.write_text("cdiVersion: 0.5.0\nkind: example.com/x\ndevices: [{name: a, containerEdits: {env: [A=b]}}]\n")
    machine.setup()
    assert other.exists()


@pytest.mark.req("R13")
def test_false_leaves_the_refresh_service_alone(recorded: Recorded) -> None:
    """No .env, no drop-in, no call that names it; our own units are ours."""
    machine = recorded("workstation")
    systemd(machine)
    machine.setup("false")
    assert not (machine.root / "etc/nvidia-container-toolkit").exists()
    assert not [line for line in of_systemctl(machine) if "nvidia" in line]
    assert (machine.root / units.path_of("gpugrant-refresh.service")).exists()


@pytest.mark.req("R14")
def test_what_the_service_wrote_is_ours_when_the_last_card_is_gone(recorded: Recorded) -> None:
    """Its hash stands nowhere: that setup pointed the service there makes it ours (design 7)."""
    machine = recorded("workstation")
    systemd(machine)
    machine.setup()
    spec = machine.cdi("nvidia.yaml")
    spec.write_text("# by the service\n" + spec.read_text())
    machine.remove_nvidia_card()
    assert machine.setup().exit_code == 0
    assert not spec.exists()


def test_wsl_without_systemd_skips_the_units_with_a_line(recorded: Recorded) -> None:
    """The line says why; the spec is there."""
    machine = recorded("no-gpu")
    wsl(machine)
    said: list[str] = []
    outcome = machine.setup(progress=said.append)
    assert outcome.failures == ()
    assert "no units are set up: systemd does not run here" in said
    assert not (machine.root / "etc/systemd").exists()


@pytest.mark.req("R42")
def test_wsl_with_systemd_watches_the_driver_store_and_not_the_spec(recorded: Recorded) -> None:
    """nvidia-ctk writes the spec anew in each run there: watched, it would start the next one."""
    machine = recorded("no-gpu")
    wsl(machine)
    systemd(machine)
    assert machine.setup().failures == ()
    text = content(machine.root / units.path_of("gpugrant-refresh.path"))
    assert "PathChanged=/usr/lib/wsl/drivers\n" in text
    assert "nvidia.yaml" not in text


def test_a_dry_run_names_every_call_and_makes_none(recorded: Recorded) -> None:
    """systemctl is not even asked."""
    machine = recorded("workstation")
    systemd(machine)
    outcome = machine.setup(dry_run=True)
    assert of_systemctl(machine) == []
    assert "systemctl restart nvidia-cdi-refresh.service" in outcome.actions
    assert not machine.root.exists()


ENVIRONMENTS = {
    "an empty file": ("", "A=/x\nFLAGS=f\n"),
    "a comment stays": ("# A=/y\n", "# A=/y\nA=/x\nFLAGS=f\n"),
    "our own lines are replaced": ("A=/y\nB=1\n", "B=1\nA=/x\nFLAGS=f\n"),
    "flags that are there are kept beside": ('FLAGS="g,f"\n', "A=/x\nFLAGS=g,f\n"),
    "blanks around the name": ("  A = /y\n", "A=/x\nFLAGS=f\n"),
    "no newline at the end": ("B=1", "B=1\nA=/x\nFLAGS=f\n"),
}


@pytest.mark.parametrize(("before", "after"), ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_environment_files(before: str, after: str) -> None:
    """Set twice is set once."""
    values = {"A": "/x", units.FLAGS: "f"}
    made = units.environment(before.replace("FLAGS", units.FLAGS), values)
    assert made == after.replace("FLAGS", units.FLAGS)
    assert units.environment(made, values) == made


FOLDERS = {
    "docker@*.service": "docker@.service.d",
    "docker-*.service": "docker-.service.d",
    "a-b-*.service": "a-b-.service.d",
    "docker.service": "docker.service.d",
    "docker@gpu-a.service": "docker@gpu-a.service.d",
    "docker*.service": None,
    "*.service": None,
    "docker-*-x.service": None,
    "docker.socket": None,
    "../x.service": None,
    "docker": None,
}


@pytest.mark.parametrize(("pattern", "folder"), FOLDERS.items(), ids=FOLDERS)
def test_the_folder_of_a_pattern(pattern: str, folder: str | None) -> None:
    """What systemd reads for all of them; what it would not read is refused."""
    assert units.drop_in_folder(pattern) == folder


@pytest.mark.real
@pytest.mark.req("R42", "R44")
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
def test_systemd_reads_every_unit(recorded: Recorded) -> None:
    """`systemd-analyze verify` over all that setup writes, with a path that needs quoting."""
    machine = recorded("workstation")
    machine.root = machine.root.parent / 'a 100% "root"'
    systemd(machine, refresh_unit=False)
    tool = machine.tree / "usr/bin/nvidia-ctk"
    tool.write_text(tool.read_text().replace("1.19.1", "1.17.8"))
    machine.write("run/nvidia-persistenced/socket")
    machine.setup()
    folder = machine.root / "etc/systemd/system"
    (folder / "docker@.service").write_text("[Service]\nExecStart=/bin/true %i\n")
    (folder / "docker-x.service").write_text("[Service]\nExecStart=/bin/true\n")
    found = sorted(path.name for path in folder.iterdir() if path.is_file())
    assert found == [
        "docker-x.service",
        "docker@.service",
        "gpugrant-nvidia-cdi-refresh.path",
        "gpugrant-nvidia-cdi-refresh.service",
        "gpugrant-refresh.path",
        "gpugrant-refresh.service",
    ]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(name.replace("@.", "@x.") for name in found)],
        env={"SYSTEMD_UNIT_PATH": f"{folder}:", "PATH": "/usr/bin:/bin"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "gpugrant" in line or "docker" in line]
    # that the programs are not on this machine is known
    assert [line for line in ours if "is not executable" not in line and "No such file" not in line] == []


def rules(machine: Machine) -> Path:
    systemd(machine)
    machine.setup()
    return machine.root / units.UDEV_RULES


def test_cards_and_drivers_that_come_and_go_start_our_service(recorded: Recorded) -> None:
    """Each rule: matches, and one RUN that waits for nothing."""
    lines = [line for line in content(rules(recorded("workstation"))).splitlines() if not line.startswith("#")]
    assert len(lines) == 3
    for line in lines:
        *matches, action = line.split(", ")
        assert action == 'RUN+="/usr/bin/systemctl --no-block start gpugrant-refresh.service"'
        assert all("==" in match for match in matches)


@pytest.mark.real
@pytest.mark.skipif(shutil.which("udevadm") is None, reason="this machine has no udev")
def test_udev_reads_the_rules(recorded: Recorded) -> None:
    """`udevadm verify` (since systemd 254)."""
    if subprocess.run(["udevadm", "verify", "--help"], capture_output=True, check=False).returncode:
        pytest.skip("this udevadm verifies no rules")
    command = ["udevadm", "verify", str(rules(recorded("workstation")))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
