from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_operator.node.vendors import amd, nvidia, pci


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:01:00.0", "0000:01:00.0"),
        ("00000000:0C:00.0", "0000:0c:00.0"),
        ("000:BA:80.0", "0000:ba:80.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("0000:01:00.8", None),
        ("[N/A]", None),
        ("", None),
    ],
)
def test_addresses_are_written_as_sysfs_does(text: str, address: str | None) -> None:
    assert pci.address(text) == address


@pytest.mark.parametrize(
    ("vendor", "class_code", "gpu"),
    [
        pytest.param("10de", "030000", True, id="a VGA card"),
        pytest.param("10de", "030200", True, id="a 3D controller"),
        pytest.param("1002", "038000", True, id="a display controller"),
        pytest.param("1002", "120000", True, id="an AMD accelerator"),
        pytest.param("8086", "120000", False, id="an NPU"),
        pytest.param("8086", "0b4000", False, id="a QAT co-processor"),
        pytest.param("1a03", "030000", False, id="a management controller's chip"),
        pytest.param("102b", "030000", False, id="another management controller's chip"),
        pytest.param("1af4", "030000", False, id="virtio"),
        pytest.param("15ad", "030000", False, id="VMware"),
        pytest.param("10de", "040300", False, id="a card's sound function"),
        pytest.param("1ed5", "030000", True, id="a vendor that nobody knows"),
    ],
)
def test_which_functions_are_gpus(vendor: str, class_code: str, gpu: bool) -> None:
    assert pci.is_gpu(vendor, "0001", class_code) is gpu


def test_names_come_from_pci_ids() -> None:
    text = (
        "# a comment\n1002  Advanced Micro Devices, Inc. [AMD/ATI]\n\t7448  Navi 31\n\t\t1002 0e0d  A board\n"
        "10de  NVIDIA Corporation\n\t27b2  AD104GL [RTX 4000]\n"
        "1ed5  Moore Threads\n\t0222  S80\nC 03  Display\n\t00  VGA\n"
    )
    wanted = {("1002", "7448"), ("10de", "27b2"), ("1ed5", "0222"), ("10de", "ffff")}
    assert pci.pci_ids_names(text, wanted) == {
        ("1002", "7448"): "AMD Navi 31",
        ("10de", "27b2"): "NVIDIA AD104GL [RTX 4000]",
        ("1ed5", "0222"): "Moore Threads S80",
    }


def test_marketing_names_come_from_amdgpu_ids() -> None:
    text = "# a comment\n1.0.0\n747E,\tC8,\tAMD Radeon RX 7800 XT\n"
    assert pci.amdgpu_ids_names(text) == {("747e", "c8"): "AMD Radeon RX 7800 XT"}


def test_a_name_is_never_empty() -> None:
    assert pci.fallback_name("1002", "74a1") == "AMD 1002:74a1"
    assert pci.fallback_name("1ed5", "0222") == "Unknown (1ed5:0222)"


PROPERTIES = (
    "cpu_cores_count 0\nsimd_count 152\nvendor_id 4098\ndevice_id 29857\nlocation_id 1283\ndomain 1\n"
    "drm_render_minor 131\nlocal_mem_size 0\nunique_id 16404946649897475633\nname gfx\n"
)


def test_a_kfd_node_tells_its_card_and_partition() -> None:
    node = amd.gpu_node(5, 61234, amd.parse_properties(PROPERTIES), 7)
    assert node is not None
    assert (node.card_address, node.partition, node.render_name) == ("0001:05:00.0", 3, "renderD131")
    assert (node.unique_id, node.memory_bytes) == (16404946649897475633, 7)


@pytest.mark.parametrize(
    ("gpu_id", "change"),
    [
        pytest.param(0, ("", ""), id="a CPU's node"),
        pytest.param(9, ("simd_count 152", "simd_count 0"), id="without compute units"),
        pytest.param(9, ("vendor_id 4098", "vendor_id 4318"), id="another vendor's"),
        pytest.param(9, ("drm_render_minor 131", "drm_render_minor 0"), id="without a render node"),
    ],
)
def test_nodes_that_are_no_gpus(gpu_id: int, change: tuple[str, str]) -> None:
    assert amd.gpu_node(0, gpu_id, amd.parse_properties(PROPERTIES.replace(*change)), 0) is None


INFORMATION = (
    "Model: \t\t NVIDIA L4\nIRQ:   \t\t 16\nGPU UUID: \t GPU-11111111-2222-3333-4444-555555555555\n"
    "Bus Location: \t 0000:70:00.0\nDevice Minor: \t 3\nGPU Excluded:\t No\n"
)


def test_procfs_tells_a_card() -> None:
    card = nvidia.parse_information("0000:70:00.0", INFORMATION)
    assert card == nvidia.ProcCard(
        "0000:70:00.0", "NVIDIA L4", "GPU-11111111-2222-3333-4444-555555555555", 3, excluded=False
    )


def test_an_old_driver_tells_no_minor_and_a_dead_card_no_uuid() -> None:
    text = INFORMATION.replace("Device Minor: \t 3\n", "").replace("GPU-11111111-2222", "GPU-????????-????")
    card = nvidia.parse_information("0000:70:00.0", text)
    assert (card.minor, card.uuid) == (None, None)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.173.02  Tue Jun 23 08:38:17 UTC 2026", "580.173.02"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build", "570.158.01"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  595.80  Tue", "595.80"),
        ("nothing", None),
    ],
)
def test_the_module_version_is_found_in_both_forms(text: str, version: str | None) -> None:
    assert nvidia.parse_module_version(text) == version


ROW = "0, GPU-1, NVIDIA L4, 580.95.05, 23034, 00000000:70:00.0, [N/A], 0123, None"


def test_a_row_of_nvidia_smi() -> None:
    answer = nvidia.parse_query(ROW + "\n", nvidia.QUERY)
    assert answer.remarks == ()
    assert answer.cards == (
        nvidia.ToolCard(0, "GPU-1", "NVIDIA L4", "580.95.05", 23034 * 1024 * 1024, "0000:70:00.0", None, "0123", None),
    )


@pytest.mark.parametrize(
    ("was", "now", "field", "value"),
    [
        ("[N/A]", "Enabled", "mig_mode", "enabled"),
        ("[N/A]", "Disabled", "mig_mode", "disabled"),
        ("23034", "[Insufficient Permissions]", "memory_bytes", None),
        ("0123", "[Not Supported]", "serial", None),
        ("23034", "[GPU requires reset]", "trouble", "[GPU requires reset]"),
        ("23034", "[Unknown Error]", "trouble", "[Unknown Error]"),
        ("None", "Reset", "trouble", "recovery action: Reset"),
        ("0, GPU-1", "N/A, GPU-1", "index", None),
    ],
)
def test_cells_without_a_value_and_cells_with_trouble(was: str, now: str, field: str, value: object) -> None:
    (card,) = nvidia.parse_query(ROW.replace(was, now), nvidia.QUERY).cards
    assert getattr(card, field) == value


def test_a_line_of_text_among_the_rows_is_kept_as_a_remark() -> None:
    lost = "Unable to determine the device handle for GPU0000:65:00.0: Unknown Error"
    answer = nvidia.parse_query(f"{ROW}\n{lost}\n", nvidia.QUERY)
    assert (len(answer.cards), answer.remarks) == (1, (lost,))


def test_a_flood_of_text_is_a_few_short_remarks() -> None:
    answer = nvidia.parse_query("\x1b[31m" + "x" * 9000 + "\n" + "noise\n" * 40_000, nvidia.QUERY)
    assert answer.remarks[0].startswith("?[31mxxx")
    assert answer.remarks[-1] == "39993 more lines that are no card's"
    assert sum(map(len, answer.remarks)) < 10 * nvidia.REMARK_LENGTH


@pytest.mark.parametrize(
    ("code", "output", "sentence"),
    [
        (
            9,
            "NVIDIA-SMI has failed\n",
            "nvidia-smi ended with 9: the NVIDIA driver is not loaded; NVIDIA-SMI has failed",
        ),
        (6, "", "nvidia-smi ended with 6: no device was found"),
        (77, "", "nvidia-smi ended with 77"),
    ],
)
def test_a_failure_is_one_clause(code: int, output: str, sentence: str) -> None:
    assert nvidia.failure(code, output) == sentence


def test_the_toolkit_version() -> None:
    assert nvidia.parse_toolkit_version("NVIDIA Container Toolkit CLI version 1.19.1\ncommit: x") == "1.19.1"
    assert nvidia.parse_toolkit_version("version unknown") is None


@given(st.text())
def test_no_text_breaks_a_parser(text: str) -> None:
    nvidia.parse_information("0000:01:00.0", text)
    nvidia.parse_module_version(text)
    nvidia.parse_query(text, nvidia.SMALL_QUERY)
    amd.parse_properties(text)
    pci.pci_ids_names(text, {("10de", "27b2")})
    pci.amdgpu_ids_names(text)
    assert pci.address(text) is None or ":" in text
