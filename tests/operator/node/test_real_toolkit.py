"""Specs that the real nvidia-ctk makes, of several releases: made, judged, read, listed (R11, R14, R39, R40, R42)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import nvidia_ctk
from gpugrant_crds import cdi
from gpugrant_crds.cdi import Spec
from machines import Machine
from nvidia_ctk import CARDS
from nvidia_machines import calls, content

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

UUIDS = tuple(f"nvidia.com/gpu={card.uuid}" for card in CARDS)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "tree", tmp_path / "root")


def spec(machine: Machine) -> Spec:
    read = cdi.read_spec(machine.cdi("nvidia.yaml").read_bytes(), "nvidia.yaml")
    assert isinstance(read, Spec)
    return read


@pytest.mark.req("R11", "R14", "R17", "D6")
@pytest.mark.parametrize("version", nvidia_ctk.VERSIONS)
def test_a_server_with_two_cards(machine: Machine, version: str) -> None:
    """Read back whole, listed by index and UUID; low enough a version for Docker 25, made anew in every run."""
    nvidia_ctk.native(machine, version)
    (machine.tree / "dev/dri/renderD128").chmod(0o660)
    outcome = machine.setup()
    assert (outcome.failures, outcome.inventory.problems) == ((), ())
    assert outcome.inventory.nvidia.toolkit_version == version
    names = [name for name in outcome.inventory.device_names if name.startswith("nvidia")]
    assert names == ["nvidia.com/gpu=0", "nvidia.com/gpu=1", *UUIDS, "nvidia.com/gpu=all"]
    assert spec(machine).version == "0.5.0"
    first = next(device for device in spec(machine).devices if device.name == "0")
    assert first.edits.device_nodes[0].path == "/dev/nvidia3"
    assert [gpu.name for gpu in outcome.inventory.gpus] == ["NVIDIA L40S", "NVIDIA L40S"]
    first_card, second_card = ((f"gpu/nvidia:{card.uuid}",) for card in CARDS)
    hardware = outcome.inventory.hardware
    assert (hardware["nvidia.com/gpu=0"], hardware["nvidia.com/gpu=1"]) == (first_card, second_card)
    assert (hardware[UUIDS[0]], hardware["nvidia.com/gpu=all"]) == (first_card, (*first_card, *second_card))
    assert machine.setup().written == ()
    assert [line for line in calls(machine) if "generate" in line] == ["nvidia-ctk cdi generate"] * 2


@pytest.mark.req("R14", "R42")
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("the card's node is gone", "is not whole: no device of it holds /dev/nvidia3, which works"),
        ("the driver is not loaded", "failed to initialize NVML: Driver Not Loaded"),
        ("a library of the driver is gone", "nvidia-ctk ended with 1: "),
    ],
)
def test_what_the_real_tool_makes_of_a_broken_machine_never_replaces_a_whole_spec(
    machine: Machine, fault: str, says: str
) -> None:
    """It exits 0 without a card's node, and 1 when NVML fails: the old spec stays, with the reason."""
    nvidia_ctk.native(machine, nvidia_ctk.NEWEST)
    machine.setup()
    whole = machine.cdi("nvidia.yaml").read_bytes()
    match fault:
        case "the card's node is gone":
            hidden = nvidia_ctk.SCRIPT.replace("exec chroot", 'rm "$tree/dev/nvidia3"\n    exec chroot')
            machine.script("usr/bin/nvidia-ctk", hidden)
        case "the driver is not loaded":
            machine.script(
                "usr/bin/nvidia-ctk", nvidia_ctk.SCRIPT.replace("exec chroot", "MOCK_NVML_FAULT=9 exec chroot")
            )
        case _:
            machine.remove(f"{nvidia_ctk.LIBRARIES}/libnvidia-ml.so.1", f"{nvidia_ctk.LIBRARIES}/libcuda.so.1")
    outcome = machine.setup()
    assert outcome.exit_code == 1
    assert says in outcome.failures[0]
    assert machine.cdi("nvidia.yaml").read_bytes() == whole
    assert "GenerationFailed" in {problem.reason for problem in outcome.inventory.problems}


@pytest.mark.req("R14")
def test_a_driver_update_and_a_card_less_are_in_the_next_spec(machine: Machine) -> None:
    """What the spec mounts follows the driver; the last card takes the spec along."""
    nvidia_ctk.native(machine, nvidia_ctk.NEWEST)
    machine.setup()
    nvidia_ctk.driver(machine, "590.44.01")
    assert machine.setup().failures == ()
    assert "libcuda.so.590.44.01" in content(machine.cdi("nvidia.yaml"))
    assert nvidia_ctk.DRIVER not in content(machine.cdi("nvidia.yaml"))
    for card in CARDS:
        machine.remove(
            f"sys/bus/pci/devices/{card.address}", f"proc/driver/nvidia/gpus/{card.address}", f"dev/nvidia{card.minor}"
        )
    assert machine.setup().exit_code == 0
    assert not machine.cdi("nvidia.yaml").exists()


STORES = ("nvlti.inf_amd64_4bd2a3580753f54d", "nvlti.inf_amd64_00aa11bb22cc33dd")


@pytest.mark.req("R38", "R39", "R40")
@pytest.mark.parametrize("version", nvidia_ctk.VERSIONS)
def test_wsl_and_a_driver_update_of_windows(machine: Machine, version: str) -> None:
    """R39's call to the letter; the next setup after an update names the files of the new driver store."""
    nvidia_ctk.install(machine, version)
    machine.write("etc/hostname", "wsl-gpu\n")
    nvidia_ctk.windows(machine, STORES[0])
    outcome = machine.setup()
    assert outcome.failures == ()
    assert (outcome.inventory.platform, outcome.inventory.device_names) == ("wsl", ("nvidia.com/gpu=all",))
    assert [line for line in calls(machine) if "generate" in line] == [
        f"nvidia-ctk cdi generate --mode=wsl --output={machine.root}/etc/cdi/nvidia.yaml"
    ]
    assert STORES[0] in content(machine.cdi("nvidia.yaml"))

    machine.remove("dev/dxg")
    nvidia_ctk.windows(machine, STORES[1])
    outcome = machine.setup()
    assert outcome.failures == ()
    assert STORES[1] in content(machine.cdi("nvidia.yaml"))
    assert STORES[0] not in content(machine.cdi("nvidia.yaml"))

    whole = machine.cdi("nvidia.yaml").read_bytes()
    machine.remove("usr/lib/wsl/lib/libdxcore.so")
    outcome = machine.setup()
    assert outcome.exit_code == 1
    assert "failed to initialize dxcore context" in outcome.failures[0]
    assert machine.cdi("nvidia.yaml").read_bytes() == whole


SYSTEMCTL = """\
echo "systemctl $*" >>"$GPUGRANT_HARDWARE/calls"
[ "$1 $2" = "restart nvidia-cdi-refresh.service" ] || exit 0
unit=$GPUGRANT_HARDWARE/lib/systemd/system/nvidia-cdi-refresh.service
set -a
eval "$(sed -n 's/^Environment=//p' "$unit")"
file=$(sed -n 's/^EnvironmentFile=-//p' "$unit")
[ ! -e "$GPUGRANT_ROOT$file" ] || . "$GPUGRANT_ROOT$file"
set +a
command=$(sed -n 's/^ExecStart=//p' "$unit" | tail -n 1)
exec "$GPUGRANT_HARDWARE"$command
"""


@pytest.mark.req("R42", "R43")
def test_the_real_refresh_unit_writes_the_file_that_the_daemons_read(machine: Machine) -> None:
    """Its own command, with its own variables and our file after them; what it makes is what setup makes."""
    nvidia_ctk.native(machine, nvidia_ctk.NEWEST)
    units = nvidia_ctk.module(nvidia_ctk.NEWEST) / "deployments/systemd"
    for name, place in (
        ("nvidia-cdi-refresh.service", "lib/systemd/system"),
        ("nvidia-cdi-refresh.env", "etc/nvidia-container-toolkit"),
    ):
        (machine.tree / place).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(units / name, machine.tree / place / name)
    machine.script("usr/bin/systemctl", SYSTEMCTL)
    outcome = machine.setup()
    assert (outcome.failures, outcome.inventory.problems) == ((), ())
    made = machine.cdi("nvidia.yaml").read_bytes()
    assert not (machine.root / "var/run/cdi").exists()

    # as at a boot: the service alone
    machine.cdi("nvidia.yaml").unlink()
    environ = {"GPUGRANT_ROOT": str(machine.root), "GPUGRANT_HARDWARE": str(machine.tree)}
    machine.run("usr/bin/systemctl", "restart", "nvidia-cdi-refresh.service", **environ)
    assert machine.cdi("nvidia.yaml").read_bytes() == made
    assert machine.setup().inventory.problems == ()
