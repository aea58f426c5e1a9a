from __future__ import annotations

import dataclasses

import pytest

from gpugrant_operator.node import cards
from gpugrant_operator.node.cards import AmdDevice
from gpugrant_operator.node.observed import DrmNode, Observed, PciFunction, ToolRun
from gpugrant_operator.node.vendors.amd import KfdNode
from gpugrant_operator.node.vendors.nvidia import Answer, ProcCard, ToolCard

HERE = Observed(hostname="m", boot_id=None, kernel="6.12.1", platform="native")
ADDRESS = "0000:01:00.0"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
NVIDIA = PciFunction(ADDRESS, "10de", "27b2", "030000", driver="nvidia")
PROC = ProcCard(ADDRESS, "NVIDIA L4", UUID, 3, excluded=False)
ROW = ToolCard(0, UUID, "NVIDIA L4 (smi)", "580.1", 1024**3, ADDRESS, "disabled", "99", None)
SEEN = dataclasses.replace(
    HERE,
    pci=(NVIDIA,),
    proc_cards=(PROC,),
    tool=ToolRun(Answer((ROW,), ())),
    device_nodes=frozenset({"nvidia3"}),
    nvidia_module="580.0",
)


def seen(**changes: object) -> Observed:
    return dataclasses.replace(SEEN, **changes)  # type: ignore[arg-type]  # a table of fields


def test_a_machine_with_nothing_has_nothing() -> None:
    found = cards.join(HERE)
    assert (found.gpus, found.render_nodes, found.amd_devices, found.problems) == ((), (), (), ())
    assert not found.nvidia_present


@pytest.mark.req("R10", "R19")
def test_sources_are_joined_by_address() -> None:
    (gpu,) = cards.join(SEEN).gpus
    assert (gpu.id, gpu.uuid, gpu.index, gpu.minor) == (f"nvidia:{UUID}", UUID, 0, 3)
    assert (gpu.name, gpu.name_source, gpu.driver_version) == ("NVIDIA L4 (smi)", "nvidia-smi", "580.1")
    assert (gpu.memory_bytes, gpu.memory_source, gpu.serial) == (1024 * 1024 * 1024, "nvidia-smi", "99")
    assert (gpu.mig_mode, gpu.health.reason) == ("disabled", "Ok")
    assert cards.join(SEEN).nvidia_minors == {3}


def test_without_nvidia_smi_procfs_tells_the_card() -> None:
    (gpu,) = cards.join(seen(tool=None)).gpus
    assert (gpu.id, gpu.name, gpu.name_source) == (f"nvidia:{UUID}", "NVIDIA L4", "procfs")
    assert (gpu.driver_version, gpu.memory_bytes, gpu.index) == ("580.0", None, None)
    assert gpu.health.state == "unknown"


@pytest.mark.parametrize(
    ("changes", "reason", "state"),
    [
        pytest.param({"pci": (dataclasses.replace(NVIDIA, driver=None),)}, "NoDriver", "unusable", id="no driver"),
        pytest.param(
            {"pci": (dataclasses.replace(NVIDIA, driver="nouveau"),)}, "NouveauDriver", "unusable", id="nouveau"
        ),
        pytest.param(
            {"pci": (dataclasses.replace(NVIDIA, driver="vfio-pci"),)}, "PassedThrough", "unusable", id="passed through"
        ),
        pytest.param(
            {"proc_cards": (dataclasses.replace(PROC, excluded=True),)}, "Excluded", "unusable", id="excluded"
        ),
        pytest.param({"device_nodes": frozenset()}, "NoDeviceNode", "unusable", id="no device node"),
        pytest.param({"tool": ToolRun(Answer((), ()))}, "FellOffBus", "unusable", id="not listed"),
        pytest.param(
            {"tool": ToolRun(Answer((dataclasses.replace(ROW, trouble="[GPU requires reset]"),), ()))},
            "NeedsReset",
            "unusable",
            id="needs a reset",
        ),
        pytest.param(
            {"tool": ToolRun(None, "Failed to initialize NVML: Driver/library version mismatch")},
            "NvmlMismatch",
            "unusable",
            id="version mismatch",
        ),
        pytest.param({"tool": ToolRun(None, "no answer", timed_out=True)}, "Unknown", "unknown", id="hung"),
    ],
)
def test_the_health_of_an_nvidia_card(changes: dict[str, object], reason: str, state: str) -> None:
    (gpu,) = cards.join(seen(**changes)).gpus
    assert (gpu.health.reason, gpu.health.state) == (reason, state)
    assert (gpu.health.text != "") is (reason != "Ok")


@pytest.mark.parametrize(
    ("driver", "present", "noticed"),
    [("nvidia", True, True), ("nouveau", True, True), (None, True, True), ("vfio-pci", False, True)],
)
def test_which_cards_ask_for_the_toolkit(driver: str | None, present: bool, noticed: bool) -> None:
    found = cards.join(dataclasses.replace(HERE, pci=(dataclasses.replace(NVIDIA, driver=driver),)))
    assert (found.nvidia_present, found.nvidia_seen) == (present, noticed)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (ToolRun(None, "hung", timed_out=True), "DetectionTimeout"),
        (ToolRun(None, "Driver/library version mismatch"), "RebootRequired"),
        (ToolRun(None, "no permission"), "ProbeFailed"),
        (ToolRun(Answer((ROW,), ("a line of text",))), "ProbeFailed"),
    ],
)
def test_what_nvidia_smi_did_wrong_is_a_problem(run: ToolRun, reason: str) -> None:
    assert [problem[0] for problem in cards.join(seen(tool=run)).problems] == [reason]


def test_a_card_without_uuid_goes_by_its_address() -> None:
    found = cards.join(seen(tool=None, proc_cards=(dataclasses.replace(PROC, uuid=None),)))
    assert found.gpus[0].id == f"pci:{ADDRESS}"


@pytest.mark.req("R38")
def test_on_wsl_cards_are_known_by_nvidia_smi_alone() -> None:
    found = cards.join(seen(platform="wsl", pci=(), proc_cards=(), wsl_driver=True, device_nodes=frozenset({"dxg"})))
    (gpu,) = found.gpus
    assert (gpu.id, gpu.pci_address, gpu.health.reason) == (f"nvidia:{UUID}", None, "Ok")
    assert found.nvidia_present


AMD = PciFunction("0000:05:00.0", "1002", "74a1", "120000", driver="amdgpu", drm=("card1", "renderD128"))


def kfd(node: int, location: int, minor: int, unique_id: int = 0) -> KfdNode:
    return KfdNode(node, 0, location, minor, unique_id, 100)


def amd_machine(*nodes: KfdNode, **changes: object) -> Observed:
    renders = {f"dri/{node.render_name}" for node in nodes}
    fields: dict[str, object] = {
        "pci": (AMD,),
        "kfd": nodes,
        "kfd_there": True,
        "device_nodes": frozenset({"kfd", *renders}),
    }
    return dataclasses.replace(HERE, **(fields | changes))  # type: ignore[arg-type]  # a table of fields


@pytest.mark.req("R16")
def test_amd_devices_are_counted_in_the_order_of_their_places() -> None:
    found = cards.join(amd_machine(kfd(1, 0x0500, 129), kfd(2, 0x0800, 128)))
    assert found.amd_devices == (
        AmdDevice("gpu0", "renderD129", "0000:05:00.0"),
        AmdDevice("gpu1", "renderD128", "0000:08:00.0"),
    )


@pytest.mark.req("R16")
def test_a_partitioned_card_is_one_card_with_a_device_a_partition() -> None:
    found = cards.join(amd_machine(kfd(1, 0x0500, 128, 0xABC), kfd(2, 0x0501, 129, 0xABC)))
    (gpu,) = found.gpus
    assert gpu.id == "amd:0000000000000abc"
    assert [(part.id, part.render_node) for part in gpu.partitions] == [
        ("amd:0000000000000abc/p0", "renderD128"),
        ("amd:0000000000000abc/p1", "renderD129"),
    ]
    assert gpu.render_nodes == ("renderD128", "renderD129")
    assert (gpu.memory_bytes, gpu.memory_source) == (200, "kfd")
    assert [device.name for device in found.amd_devices] == ["gpu0", "gpu1"]


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(amd_machine(kfd(1, 0x0500, 128), device_nodes=frozenset({"dri/renderD128"})), id="no /dev/kfd"),
        pytest.param(amd_machine(kfd(1, 0x0500, 128), device_nodes=frozenset({"kfd"})), id="no render node"),
        pytest.param(amd_machine(device_nodes=frozenset({"kfd", "dri/renderD128"})), id="no KFD node"),
    ],
)
def test_without_all_its_parts_there_is_no_amd_device(machine: Observed) -> None:
    assert cards.join(machine).amd_devices == ()


@pytest.mark.parametrize(
    ("function", "name", "source"),
    [
        (dataclasses.replace(AMD, product_name="Instinct"), "Instinct", "sysfs"),
        (dataclasses.replace(AMD, revision="C8"), "Marketing", "amdgpu.ids"),
        (AMD, "AMD Aqua", "pci.ids"),
        (dataclasses.replace(AMD, device="ffff"), "AMD 1002:ffff", "fallback"),
    ],
)
def test_where_a_name_comes_from(function: PciFunction, name: str, source: str) -> None:
    machine = amd_machine(
        pci=(function,), pci_names={("1002", "74a1"): "AMD Aqua"}, amd_names={("74a1", "c8"): "Marketing"}
    )
    (gpu,) = cards.join(machine).gpus
    assert (gpu.name, gpu.name_source) == (name, source)


def test_a_unique_id_is_an_amd_cards_identity_and_else_its_address() -> None:
    with_id = amd_machine(pci=(dataclasses.replace(AMD, unique_id="00000000000000ff"),))
    assert cards.join(with_id).gpus[0].id == "amd:00000000000000ff"
    assert cards.join(amd_machine()).gpus[0].id == "pci:0000:05:00.0"


@pytest.mark.req("R15")
@pytest.mark.parametrize(
    ("function", "node", "gpus", "virtual"),
    [
        pytest.param(
            PciFunction("0000:00:02.0", "8086", "a780", "030000", driver="i915"),
            DrmNode("renderD128", "0000:00:02.0", "i915"),
            1,
            False,
            id="an iGPU",
        ),
        pytest.param(
            PciFunction("0000:00:01.0", "1af4", "1050", "030000", driver="virtio-pci"),
            DrmNode("renderD128", "0000:00:01.0", "virtio-pci"),
            0,
            True,
            id="a hypervisor's GPU",
        ),
        pytest.param(None, DrmNode("renderD128", "vgem", None), 0, True, id="vgem"),
        pytest.param(None, DrmNode("renderD128", "fd4a0000.gpu", "panfrost"), 1, False, id="a GPU on a chip"),
        pytest.param(None, None, 0, False, id="a node that sysfs does not know"),
    ],
)
def test_every_render_node_is_listed_and_virtual_ones_are_marked(
    function: PciFunction | None, node: DrmNode | None, gpus: int, virtual: bool
) -> None:
    machine = dataclasses.replace(
        HERE,
        pci=(function,) if function else (),
        drm=(node,) if node else (),
        device_nodes=frozenset({"dri/renderD128"}),
        by_path={"renderD128": "pci-x-render"},
    )
    found = cards.join(machine)
    (render,) = found.render_nodes
    assert len(found.gpus) == gpus
    assert (render.path, render.virtual, render.by_path) == ("/dev/dri/renderD128", virtual, "pci-x-render")
    assert (render.gpu_id is not None) is bool(gpus)


def test_a_card_whose_render_node_is_not_there_says_so() -> None:
    found = cards.join(amd_machine(kfd(1, 0x0500, 128), device_nodes=frozenset()))
    assert found.gpus[0].health.reason == "NoDeviceNode"
