from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from gpugrant_crds import inventory
from gpugrant_operator.node import setup
from machines import EXAMPLES, NOW, Machine

Recorded = Callable[[str], Machine]

WORKSTATION = (
    "nvidia.com/gpu=0",
    "nvidia.com/gpu=GPU-1d9c7a42-5e60-4b3f-a8d7-62c41f0b9e35",
    "nvidia.com/gpu=all",
    "rediacc.io/amd=all",
    "rediacc.io/amd=gpu0",
    "rediacc.io/dri=renderD128",
    "rediacc.io/dri=renderD129",
    "rediacc.io/dri=renderD130",
)


@pytest.mark.req("R10", "R15", "R16", "R17", "D6")
def test_the_workstation_has_three_cards_and_their_names(recorded: Recorded) -> None:
    machine = recorded("workstation")
    outcome = machine.setup()
    found = inventory.parse(machine.inventory.read_bytes())
    assert outcome.exit_code == 0
    assert found == outcome.inventory
    assert [(gpu.vendor, gpu.name, gpu.memory_bytes) for gpu in found.gpus] == [
        ("intel", "Intel Raptor Lake-S GT1 [UHD Graphics 770]", None),
        ("nvidia", "NVIDIA RTX 4000 Ada Generation", 20475 * 1024 * 1024),
        ("amd", "AMD Radeon PRO W7900", 48301604864),
    ]
    assert {gpu.health.reason for gpu in found.gpus} == {"Ok"}
    assert (found.hostname, found.platform, found.problems) == ("workstation", "native", ())
    assert found.device_names == WORKSTATION
    assert [(Path(spec.path).name, spec.generator) for spec in found.cdi.files] == [
        ("nvidia.yaml", "nvidia-ctk"),
        ("rediacc-amd.yaml", "renet"),
        ("rediacc-dri.yaml", "renet"),
    ]


def test_stand_in_nodes_have_the_recorded_numbers(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.setup()
    for path, numbers in {
        "dri/renderD129": (226, 129),
        "kfd": (510, 0),
        "nvidia0": (195, 0),
        "nvidiactl": (195, 255),
        "nvidia-uvm": (508, 0),
        "nvidia-uvm-tools": (508, 1),
    }.items():
        info = (machine.root / "dev" / path).lstat()
        assert stat.S_ISCHR(info.st_mode)
        assert (os.major(info.st_rdev), os.minor(info.st_rdev)) == numbers


@pytest.mark.parametrize(
    ("name", "gpus", "devices"),
    [
        (
            "amd-1gpu",
            ["AMD Radeon RX 7800 XT"],
            ("rediacc.io/amd=all", "rediacc.io/amd=gpu0", "rediacc.io/dri=renderD128"),
        ),
        ("no-gpu", [], ()),
    ],
)
@pytest.mark.req("R12")
def test_the_other_recorded_machines(recorded: Recorded, name: str, gpus: list[str], devices: tuple[str, ...]) -> None:
    machine = recorded(name)
    outcome = machine.setup()
    assert (outcome.exit_code, outcome.inventory.problems) == (0, ())
    assert [gpu.name for gpu in outcome.inventory.gpus] == gpus
    assert outcome.inventory.device_names == devices
    assert machine.inventory.exists()
    assert machine.cdi("rediacc-dri.yaml").exists() is bool(devices)


def test_a_second_run_changes_only_the_time(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.setup()
    before = json.loads(machine.inventory.read_text())
    specs = {path.name: path.stat().st_ino for path in (machine.root / "etc/cdi").iterdir()}
    outcome = machine.setup(now=NOW + timedelta(hours=1))
    after = json.loads(machine.inventory.read_text())
    assert after.pop("generatedAt") == "2026-03-01T13:00:00Z"
    assert before.pop("generatedAt") == "2026-03-01T12:00:00Z"
    assert after == before
    assert {path.name: path.stat().st_ino for path in (machine.root / "etc/cdi").iterdir()} == specs
    assert outcome.written == (str(machine.inventory),)


@pytest.mark.req("R10")
def test_a_file_in_the_place_of_the_cdi_folder_leaves_the_rest_done(recorded: Recorded) -> None:
    machine = recorded("workstation")
    (machine.root / "etc").mkdir(parents=True)
    (machine.root / "etc/cdi").write_text("no folder")
    outcome = machine.setup()
    assert (outcome.exit_code, len(outcome.failures), len(outcome.inventory.gpus)) == (1, 1, 3)
    assert outcome.failures[0].startswith(f"{machine.root}/etc/cdi can't be used: ")
    assert machine.inventory.exists()


def test_a_host_name_that_is_no_file_is_one_problem(recorded: Recorded) -> None:
    machine = recorded("no-gpu")
    machine.remove("etc/hostname")
    os.mkfifo(machine.tree / "etc/hostname")
    (problem,) = machine.setup().inventory.problems
    assert problem.message == "/etc/hostname is a FIFO, not a file"


def test_another_host_name_is_another_machine(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.write("etc/hostname", "# by hand\nlab-7\n")
    assert machine.setup().inventory.hostname == "lab-7"


def test_one_nvidia_card_more(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.add_nvidia_card()
    outcome = machine.setup()
    assert outcome.failures == ()
    assert [gpu.index for gpu in outcome.inventory.gpus if gpu.vendor == "nvidia"] == [0, 1]
    assert [name for name in outcome.inventory.device_names if name.startswith("nvidia")] == [
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=1",
        "nvidia.com/gpu=GPU-1d9c7a42-5e60-4b3f-a8d7-62c41f0b9e35",
        "nvidia.com/gpu=GPU-2e0d8b53-5e60-4b3f-a8d7-62c41f0b9e35",
        "nvidia.com/gpu=all",
    ]


@pytest.mark.req("R14")
def test_when_the_last_nvidia_card_is_gone_our_spec_goes_too(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.setup()
    machine.remove_nvidia_card()
    outcome = machine.setup()
    assert outcome.exit_code == 0
    assert outcome.removed == (str(machine.cdi("nvidia.yaml")),)
    assert not machine.cdi("nvidia.yaml").exists()
    assert not (machine.root / "dev/nvidia0").exists()
    assert outcome.inventory.device_names == (
        "rediacc.io/amd=all",
        "rediacc.io/amd=gpu0",
        "rediacc.io/dri=renderD128",
        "rediacc.io/dri=renderD130",
    )


@pytest.mark.req("R14")
def test_somebody_elses_nvidia_spec_is_never_removed(recorded: Recorded) -> None:
    machine = recorded("no-gpu")
    machine.cdi("nvidia.yaml").parent.mkdir(parents=True)
    machine.cdi("nvidia.yaml").write_text("by hand")
    assert machine.setup().exit_code == 0
    assert machine.cdi("nvidia.yaml").read_text() == "by hand"


@pytest.mark.req("R16")
def test_when_the_amd_card_is_gone_its_spec_goes_too(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.setup()
    machine.remove("dev/kfd")
    outcome = machine.setup()
    assert not machine.cdi("rediacc-amd.yaml").exists()
    assert "rediacc.io/dri=renderD130" in outcome.inventory.device_names


@pytest.mark.req("R13")
def test_false_leaves_all_of_nvidias_alone(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.script("usr/bin/nvidia-ctk", f"touch {machine.root}/was-run")
    machine.cdi("nvidia.yaml").parent.mkdir(parents=True)
    machine.cdi("nvidia.yaml").write_text("older")
    outcome = machine.setup("false")
    assert outcome.exit_code == 0
    assert not (machine.root / "was-run").exists()
    assert machine.cdi("nvidia.yaml").read_text() == "older"
    assert "rediacc.io/amd=gpu0" in outcome.inventory.device_names


@pytest.mark.req("R13")
def test_a_value_given_by_hand_is_kept_by_later_runs(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.setup("false")
    machine.setup()
    assert not machine.cdi("nvidia.yaml").exists()
    machine.setup("auto")
    assert machine.cdi("nvidia.yaml").exists()


@pytest.mark.req("R13")
def test_the_machines_object_counts_until_a_value_is_given_by_hand(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.setup(default="false")
    assert not machine.cdi("nvidia.yaml").exists()
    machine.setup(default="auto")
    assert machine.cdi("nvidia.yaml").exists()
    machine.setup("true")
    machine.remove_nvidia_card()
    machine.setup(default="false")
    assert not machine.cdi("nvidia.yaml").exists()


@pytest.mark.req("R11", "R13")
def test_a_missing_toolkit_fails_the_run_and_the_rest_is_done(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.remove("usr/bin/nvidia-ctk")
    outcome = machine.setup()
    assert outcome.exit_code == 1
    assert len(outcome.failures) == 1
    assert "nvidia-container-toolkit-base" in outcome.failures[0]
    assert [problem.reason for problem in outcome.inventory.problems] == ["ToolkitMissing"]
    assert outcome.inventory.device_names == WORKSTATION[3:]


@pytest.mark.req("R13")
def test_true_without_a_card_makes_no_spec_and_succeeds(recorded: Recorded) -> None:
    machine = recorded("no-gpu")
    shutil.copytree(EXAMPLES / "workstation/usr/bin", machine.tree / "usr/bin")
    outcome = machine.setup("true")
    assert (outcome.exit_code, machine.cdi("nvidia.yaml").exists()) == (0, False)


@pytest.mark.parametrize(
    ("body", "clause"),
    [
        pytest.param("echo broken >&2; exit 1", "nvidia-ctk ended with 1: broken", id="it fails"),
        pytest.param("sleep 600", "did not answer in 5 s", id="it hangs"),
        pytest.param("echo ']'", "not whole", id="it writes garbage"),
        pytest.param(":", "no spec data", id="it writes nothing"),
        pytest.param(
            'printf \'cdiVersion: 0.5.0\\nkind: nvidia.com/gpu\\ndevices:\\n- name: "0"\\n  containerEdits:\\n'
            "    deviceNodes: [{path: /dev/dri/card1}]\\n'",
            'device "0" holds no card of its own',
            id="it leaves the card's node out",
        ),
    ],
)
def test_a_spec_that_is_not_whole_never_replaces_the_old_one(recorded: Recorded, body: str, clause: str) -> None:
    machine = recorded("workstation")
    machine.setup()
    old = machine.cdi("nvidia.yaml").read_bytes()
    machine.script("usr/bin/nvidia-ctk", f'[ "$1" = --version ] || {{ {body}; }}')
    outcome = machine.setup()
    assert outcome.exit_code == 1
    assert clause in outcome.failures[0]
    assert machine.cdi("nvidia.yaml").read_bytes() == old
    assert "GenerationFailed" in {problem.reason for problem in outcome.inventory.problems}
    assert sorted(path.name for path in (machine.root / "etc/cdi").iterdir()) == [
        "nvidia.yaml",
        "rediacc-amd.yaml",
        "rediacc-dri.yaml",
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param("sleep 600", "DetectionTimeout", id="it hangs"),
        pytest.param("echo 'Failed to initialize NVML: Unknown Error'; exit 255", "ProbeFailed", id="it fails"),
        pytest.param(
            "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
            "RebootRequired",
            id="mismatch",
        ),
    ],
)
def test_a_probe_that_fails_is_a_problem_and_the_run_succeeds(recorded: Recorded, body: str, reason: str) -> None:
    machine = recorded("workstation")
    machine.script("usr/bin/nvidia-smi", body)
    outcome = machine.setup()
    assert outcome.exit_code == 0
    assert [problem.reason for problem in outcome.inventory.problems] == [reason]
    assert [gpu.name for gpu in outcome.inventory.gpus if gpu.vendor == "nvidia"] == ["NVIDIA RTX 4000 Ada Generation"]


def test_an_older_nvidia_smi_is_asked_the_small_set(recorded: Recorded) -> None:
    machine = recorded("workstation")
    (machine.tree / "usr/bin/nvidia-smi").rename(machine.tree / "usr/bin/real-smi")
    machine.script(
        "usr/bin/nvidia-smi",
        'case $1 in *gpu_recovery_action*) echo "not a valid field"; exit 2;; esac; exec "${0%/*}/real-smi" "$@"',
    )
    outcome = machine.setup()
    assert outcome.inventory.problems == ()
    assert next(gpu.index for gpu in outcome.inventory.gpus if gpu.vendor == "nvidia") == 0


def test_a_problem_keeps_its_time_and_the_hash_does_not_tick(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.script("usr/bin/nvidia-smi", "exit 9")
    first = machine.setup().inventory
    second = machine.setup(now=NOW + timedelta(days=1)).inventory
    assert second.problems == first.problems
    assert second.content_hash == first.content_hash


def test_a_dry_run_says_what_it_would_write_and_writes_nothing(recorded: Recorded) -> None:
    machine = recorded("workstation")
    outcome = machine.setup(dry_run=True)
    assert not machine.root.exists()
    assert outcome.inventory.device_names == WORKSTATION
    assert [Path(path).name for path in outcome.written] == [
        "rediacc-dri.yaml",
        "rediacc-amd.yaml",
        "nvidia.yaml",
        "inventory.json",
    ]
    machine.setup()
    machine.remove_nvidia_card()
    outcome = machine.setup(dry_run=True)
    assert outcome.removed == (str(machine.cdi("nvidia.yaml")),)
    assert outcome.inventory.device_names == (
        "rediacc.io/amd=all",
        "rediacc.io/amd=gpu0",
        "rediacc.io/dri=renderD128",
        "rediacc.io/dri=renderD130",
    )
    assert machine.cdi("nvidia.yaml").exists()


def test_a_file_that_doubles_a_name_is_named(recorded: Recorded) -> None:
    machine = recorded("workstation")
    machine.setup()
    shutil.copy(machine.cdi("nvidia.yaml"), machine.cdi("leftover.json"))
    outcome = machine.setup()
    assert outcome.exit_code == 0
    assert outcome.inventory.device_names == WORKSTATION[3:]
    assert [problem.reason for problem in outcome.inventory.problems] == ["SpecConflict"]
    assert "leftover.json and nvidia.yaml" in outcome.inventory.problems[0].message


def test_a_cdi_folder_that_is_a_link_is_refused(bare: Machine) -> None:
    bare.write("dev/dri/renderD128")
    (bare.root / "etc").mkdir(parents=True)
    (bare.root / "etc/cdi").symlink_to(bare.tree)
    outcome = bare.setup()
    assert outcome.exit_code == 1
    assert "is a link" in outcome.failures[0]
    assert bare.inventory.exists()


def test_a_damaged_record_is_said_and_the_run_goes_on(recorded: Recorded) -> None:
    machine = recorded("amd-1gpu")
    path = machine.root / "var/lib/rediacc/gpu/setup.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    outcome = machine.setup()
    assert outcome.exit_code == 0
    assert [problem.reason for problem in outcome.inventory.problems] == ["ProbeFailed"]
    assert json.loads(path.read_text())["nodes"] == ["dri/card1", "dri/renderD128", "kfd"]


def wsl(machine: Machine) -> None:
    machine.write("dev/dxg")
    machine.write("proc/misc", "125 dxg\n")
    machine.write("usr/lib/wsl/drivers/nvx.inf_amd64_12ab/libcuda.so.1.1")
    machine.script(
        "usr/lib/wsl/lib/nvidia-smi",
        'echo "0, GPU-5, NVIDIA GeForce, 581.57, 8192, 00000000:01:00.0, [N/A], [N/A], None"',
    )
    machine.script(
        "usr/bin/nvidia-ctk",
        '[ "$1" = --version ] && exit\necho "$@" >>"$GPUGRANT_ROOT/calls"\nout=${4#--output=}\n'
        'printf "%s\\n" "cdiVersion: 0.3.0" "kind: nvidia.com/gpu" "devices:" '
        '"- {name: all, containerEdits: {deviceNodes: [{path: ${NODE:-/dev/dxg}}]}}" >"$out"',
    )


@pytest.mark.req("R38", "R39")
def test_on_wsl_the_toolkit_is_called_to_the_letter(recorded: Recorded) -> None:
    machine = recorded("no-gpu")
    wsl(machine)
    outcome = machine.setup()
    assert outcome.failures == ()
    assert outcome.inventory.platform == "wsl"
    assert outcome.inventory.device_names == ("nvidia.com/gpu=all",)
    assert [gpu.name for gpu in outcome.inventory.gpus] == ["NVIDIA GeForce"]
    assert (machine.root / "calls").read_text() == (
        f"cdi generate --mode=wsl --output={machine.root}/etc/cdi/nvidia.yaml\n"
    )


@pytest.mark.req("R38")
@pytest.mark.parametrize(
    ("kernel", "said"), [("6.6.87.2-microsoft-standard-WSL2", ["NoDeviceNode"]), ("6.12.9-amd64", [])]
)
def test_wsl_without_dxg_says_that_no_gpu_is_reached(recorded: Recorded, kernel: str, said: list[str]) -> None:
    machine = recorded("no-gpu")
    wsl(machine)
    machine.remove("dev/dxg")
    machine.write("proc/sys/kernel/osrelease", f"{kernel}\n")
    outcome = machine.setup()
    assert (outcome.exit_code, outcome.inventory.gpus) == (0, ())
    assert [problem.reason for problem in outcome.inventory.problems] == said


@pytest.mark.req("R39")
def test_on_wsl_the_old_spec_comes_back_when_the_new_one_does_not_read_back(recorded: Recorded) -> None:
    machine = recorded("no-gpu")
    wsl(machine)
    machine.setup()
    old = machine.cdi("nvidia.yaml").read_bytes()
    machine.script("usr/bin/nvidia-ctk", 'echo "]" >"${4#--output=}"')
    outcome = machine.setup()
    assert outcome.exit_code == 1
    assert machine.cdi("nvidia.yaml").read_bytes() == old
    assert (machine.root / "var/lib/rediacc/gpu/nvidia.yaml.kept").read_bytes() == old
    assert outcome.inventory.device_names == ("nvidia.com/gpu=all",)


@pytest.mark.req("R39")
def test_on_wsl_what_a_killed_run_left_broken_gives_way_to_the_last_whole_spec(recorded: Recorded) -> None:
    """Killed between the toolkit's write and the reading back; and the next call fails too."""
    machine = recorded("no-gpu")
    wsl(machine)
    machine.setup()
    whole = machine.cdi("nvidia.yaml").read_bytes()
    machine.cdi("nvidia.yaml").write_text("]")
    machine.script("usr/bin/nvidia-ctk", "exit 1")
    outcome = machine.setup()
    assert outcome.exit_code == 1
    assert machine.cdi("nvidia.yaml").read_bytes() == whole
    assert outcome.inventory.device_names == ("nvidia.com/gpu=all",)


def test_a_second_setup_waits_and_then_says_who_holds_the_lock(recorded: Recorded) -> None:
    machine = recorded("no-gpu")
    impatient = dataclasses.replace(machine.options(), limits=setup.Limits(lock=0.0))
    busy: list[str] = []

    def again(_line: str) -> None:
        with pytest.raises(setup.Busy) as caught:
            setup.run(impatient, lambda: NOW, lambda _line: None)
        busy.append(str(caught.value))

    setup.run(machine.options(), lambda: NOW, again)
    assert "another renet setup holds" in busy[0]


FILES = sorted(
    str(path.relative_to(EXAMPLES / "workstation"))
    for path in (EXAMPLES / "workstation").rglob("*")
    if path.is_file() and not path.is_symlink()
)


@pytest.mark.parametrize("seed", range(12))
def test_any_single_file_may_be_bad_and_there_is_still_an_inventory(recorded: Recorded, seed: int) -> None:
    machine = recorded("workstation")
    choose = random.Random(seed)
    path = machine.tree / choose.choice(FILES)
    path.unlink()
    match choose.choice(("gone", "garbage", "folder", "fifo", "loop")):
        case "garbage":
            path.write_bytes(choose.randbytes(3000))
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path.name)
    options = setup.Options(machine.root, machine.tree, None, True, setup.Limits(smi=1.0, toolkit=1.0))
    found = setup.run(options, lambda: NOW, lambda _line: None).inventory
    assert inventory.parse(found.dump()) == found
