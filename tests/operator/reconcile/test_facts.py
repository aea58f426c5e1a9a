"""The inventory and the gate's report as a machine's status shows them."""

from __future__ import annotations

import pytest

import gen
import world
from gpugrant_crds.inventory import Cdi, Gpu, Problem, SpecFile
from gpugrant_crds.snapshot import GateStatus, RepoStatus
from gpugrant_crds.v1alpha1 import DetectionStatus, GateRepo, GpuMachineStatus
from gpugrant_operator.reconcile import facts

MODELS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "no card": ((), None),
    "one card": (("NVIDIA L40S",), "NVIDIA L40S"),
    "two of a kind": (("NVIDIA L40S", "NVIDIA L40S"), "2 x NVIDIA L40S"),
    "two kinds in the bus's order": (("NVIDIA L40S", "AMD W7900"), "NVIDIA L40S, AMD W7900"),
    "a pair around another": (("A", "B", "A"), "2 x A, B"),
}


@pytest.mark.req("D13")
@pytest.mark.parametrize(("names", "text"), MODELS.values(), ids=MODELS.keys())
def test_model(names: tuple[str, ...], text: str | None) -> None:
    """Equal cards are counted, different ones listed."""
    assert facts.model(tuple(world.gpu(name) for name in names)) == text


DRIVERS: dict[str, tuple[tuple[Gpu, ...], str | None]] = {
    "none": ((), None),
    "unknown": ((world.gpu(driver_version=None),), None),
    "the first card's": ((world.gpu("A", "amd", "6.1"), world.gpu("B", "intel", "6.2")), "6.1"),
    "NVIDIA's before the kernel's": ((world.gpu("A", "intel", "6.1"), world.gpu("B", "nvidia", "580.1")), "580.1"),
    "the first that is known": ((world.gpu("A", "nvidia", None), world.gpu("B", "amd", "6.1")), "6.1"),
}


@pytest.mark.parametrize(("gpus", "version"), DRIVERS.values(), ids=DRIVERS.keys())
def test_driver_version(gpus: tuple[Gpu, ...], version: str | None) -> None:
    """The driver whose version a person wants to know."""
    assert facts.driver_version(gpus) == version


@pytest.mark.req("R12", "R20", "D13")
def test_an_inventory_becomes_the_status() -> None:
    """Counts, cards, names and specs are copied; what another tool said of a file is not judged."""
    found = world.inventory(
        ("b/x=1", "a/x=1"),
        cdi=Cdi(
            files=(
                SpecFile(path="/etc/cdi/nvidia.yaml", sha256="ab", kind="nvidia.com/gpu"),
                SpecFile(path="/etc/cdi/broken.json", sha256="", error="not JSON"),
            ),
            devices=world.inventory(("nvidia.com/gpu=2", "nvidia.com/gpu=10")).cdi.devices,
        ),
        problems=(Problem(reason="SpecInvalid", message="broken.json: not JSON", since="t"),),
        boot_id="boot-1",
    )

    status = facts.laid_over(gen.machine(devices=None), found, None).status

    assert (status.platform, status.model, status.gpu_count, status.device_count) == ("native", "NVIDIA L40S", 1, 2)
    assert [device.name for device in status.devices or ()] == ["nvidia.com/gpu=2", "nvidia.com/gpu=10"]
    assert [(spec.file, spec.kind, spec.hash) for spec in status.specs or ()] == [
        ("nvidia.yaml", "nvidia.com/gpu", "ab"),
        ("broken.json", None, None),
    ]
    assert [problem.reason for problem in status.problems or ()] == ["SpecInvalid"]
    assert (status.inventory_hash, status.boot_id) == (found.content_hash, "boot-1")
    assert status.inventory_time == "2026-03-01T12:00:00Z"


@pytest.mark.req("R12")
def test_a_machine_without_a_gpu_has_empty_lists() -> None:
    """Detected and empty is another thing than never detected."""
    status = facts.laid_over(gen.machine(devices=None), world.inventory((), gpus=()), None).status

    assert (status.gpus, status.devices, status.gpu_count, status.model) == ((), (), 0, None)


def test_without_an_inventory_the_last_facts_stay() -> None:
    """A file that can't be read takes nothing away."""
    known = facts.laid_over(gen.machine(devices=None), world.inventory(), None)

    assert facts.laid_over(known, None, None) == known


def test_the_gates_problems_stand_in_the_status() -> None:
    """They come and go with the gate's report, and stay while the gate is silent."""
    known = facts.laid_over(gen.machine(), world.inventory(), GateStatus(problems=("a.yaml:3: no id",)))
    silent = facts.laid_over(known, None, None)
    mended = facts.laid_over(known, None, GateStatus())

    assert [(p.reason, p.message) for p in known.status.problems or ()] == [("GateProblem", "a.yaml:3: no id")]
    assert silent == known
    assert mended.status.problems == ()


def test_the_gates_repos_by_name() -> None:
    """Sorted, absent rather than empty; an epoch only of this machine."""
    report = GateStatus(
        machine_uid="machine-1",
        epoch=4,
        repos=(RepoStatus(name="b", reason="DaemonUnfit"), RepoStatus(name="a", id="1", fit=True, sealed=True)),
    )
    ours = facts.gate_sync(GpuMachineStatus(), "machine-1", report)
    other = facts.gate_sync(GpuMachineStatus(), "machine-2", report)

    assert ours is not None
    assert other is not None
    assert (ours.epoch, other.epoch) == (4, None)
    assert ours.repos == (
        GateRepo(name="a", id="1", fit=True, sealed=True, reason=None),
        GateRepo(name="b", id=None, reason="DaemonUnfit"),
    )
    assert facts.gate_sync(GpuMachineStatus(gate=ours), "machine-1", None) == ours


def test_a_detection_that_nobody_asked_for_keeps_the_last_answer() -> None:
    """The request that was answered stays until another one is."""
    status = GpuMachineStatus(detection=DetectionStatus(request="1", succeeded=True))

    assert facts.detection(status, request=None, succeeded=False) == DetectionStatus(request="1", succeeded=False)
    assert facts.detection(status, request="2", succeeded=True) == DetectionStatus(request="2", succeeded=True)
