"""Kinds of machines, one function each: what a person would see in their /sys, /proc and /dev, as small trees.

Numbers and texts are made up in the forms of the real ones. `KINDS` is what the tests of detection run over;
tests/operator/node/kinds/<name>.txt says what must be found on each.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable

import nvml
from machines import EXAMPLES, Machine

Build = Callable[[Machine], None]

KINDS: dict[str, Build] = {}

BOOT = "0b7cf2a4-52a1-4c31-9d0b-6f1f6f0a2b17"
DRIVER = "580.95.05"


def kind(build: Build) -> Build:
    KINDS[build.__name__.replace("_", "-")] = build
    return build


# --- parts ------------------------------------------------------------------------------------------------------


def base(m: Machine, name: str = "node-1") -> None:
    m.write("etc/hostname", f"{name}\n")
    m.write("proc/sys/kernel/random/boot_id", f"{BOOT}\n")
    m.write("proc/sys/kernel/osrelease", "6.12.48+deb13-amd64\n")
    m.write(
        "proc/devices",
        "Character devices:\n  1 mem\n195 nvidia\n226 drm\n508 nvidia-uvm\n511 kfd\n\nBlock devices:\n  8 sd\n",
    )
    m.pci("0000:00:1f.2", "8086", "a352", "010601", "ahci")


def card(
    m: Machine,
    address: str,
    vendor: str,
    device: str,
    driver: str | None,
    *,
    class_code: str = "030000",
    numbers: tuple[int, int | None] | None = None,
    **files: str,
) -> None:
    """A PCI function with its DRM nodes; `files` are further ones of its folder."""
    m.pci(address, vendor, device, class_code, driver)
    base_path = f"sys/bus/pci/devices/{address}"
    defaults = {"revision": "0xa1", "numa_node": "0", "subsystem_vendor": f"0x{vendor}", "subsystem_device": "0x0001"}
    for name, value in (defaults | files).items():
        m.write(f"{base_path}/{name}", f"{value}\n")
    if numbers is not None:
        m.drm(address, *numbers)
        for node, suffix in ((f"card{numbers[0]}", "card"), (f"renderD{numbers[1]}", "render")):
            if (m.tree / f"dev/dri/{node}").exists():
                m.link(f"dev/dri/by-path/pci-{address}-{suffix}", f"../{node}")


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-1111-2222-3333-444444444444"


def nvidia_driver(m: Machine, version: str = DRIVER) -> None:
    m.write("sys/module/nvidia/version", f"{version}\n")
    m.write(
        "proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue\nGCC version:  gcc\n",
    )
    for node in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"):
        m.write(f"dev/{node}")


def nvidia(
    m: Machine,
    address: str,
    minor: int | None,
    number: int,
    name: str = "NVIDIA L4",
    device: str = "27b8",
    numbers: tuple[int, int | None] | None = None,
    *,
    driver: str | None = "nvidia",
    node: bool = True,
    excluded: str | None = "No",
) -> None:
    """A card with NVIDIA's driver and its procfs."""
    card(m, address, "10de", device, driver, class_code="030200", numbers=numbers)
    if driver != "nvidia":
        return
    lines = [f"Model: \t\t {name}", "IRQ:   \t\t 16", f"GPU UUID: \t {uuid(number)}", f"Bus Location: \t {address}"]
    lines += [] if minor is None else [f"Device Minor: \t {minor}"]
    lines += [] if excluded is None else [f"GPU Excluded:\t {excluded}"]
    m.write(f"proc/driver/nvidia/gpus/{address}/information", "\n".join(lines) + "\n")
    if minor is not None and node:
        m.write(f"dev/nvidia{minor}")


def told(address: str, minor: int, number: int, name: str = "NVIDIA L4", **fields: object) -> nvml.Card:
    return nvml.Card(minor, uuid(number), address, name, **fields)  # type: ignore[arg-type]  # a table of fields


def toolkit(
    m: Machine, devices: dict[str, tuple[str, ...]], shared: tuple[str, ...] = ("nvidiactl", "nvidia-uvm")
) -> None:
    """A stand-in nvidia-ctk that writes these devices: name → nodes below /dev."""
    lines = ["cdiVersion: 0.5.0", "kind: nvidia.com/gpu", "devices:"]
    for name, nodes in devices.items():
        lines += [f'- name: "{name}"', "  containerEdits:", "    deviceNodes:"]
        lines += [f"    - {{path: /dev/{node}, hostPath: $GPUGRANT_ROOT/dev/{node}}}" for node in nodes]
    lines += ["containerEdits:", "  env: [NVIDIA_VISIBLE_DEVICES=void]", "  deviceNodes:"]
    lines += [f"  - {{path: /dev/{n}, hostPath: $GPUGRANT_ROOT/dev/{n}}}" for n in shared]
    text = "\n".join(lines)
    m.script(
        "usr/bin/nvidia-ctk",
        'if [ "$1" = --version ]; then echo "NVIDIA Container Toolkit CLI version 1.19.1"; exit; fi\n'
        f"cat <<END\n{text}\nEND",
    )


def kfd(m: Machine, nodes: list[dict[str, int]]) -> None:
    """KFD's topology behind two CPU nodes; each dict is what differs from a plain GPU node."""
    topology = "sys/class/kfd/kfd/topology"
    m.write(f"{topology}/generation_id", "2\n")
    m.write("dev/kfd")
    m.write("sys/class/kfd/kfd/dev", "511:0\n")
    plain = {"cpu_cores_count": 0, "simd_count": 152, "gfx_target_version": 90402, "vendor_id": 4098, "domain": 0}
    cpu = {"cpu_cores_count": 96, "simd_count": 0, "vendor_id": 0, "location_id": 0, "drm_render_minor": 0}
    for number, properties in enumerate([cpu, cpu, *(plain | node for node in nodes)]):
        place = f"{topology}/nodes/{number}"
        m.write(f"{place}/gpu_id", f"{20000 + number if properties['simd_count'] else 0}\n")
        bank = properties.pop("bank", 0) if properties is not cpu else 0
        m.write(f"{place}/properties", "".join(f"{key} {value}\n" for key, value in properties.items()))
        if bank:
            m.write(f"{place}/mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {bank}\nflags 0\n")


def location(bus: int, function: int = 0) -> int:
    return bus << 8 | function


# --- machines with nothing to grant -----------------------------------------------------------------------------


@kind
def bare_server(m: Machine) -> None:
    base(m)


@kind
def aspeed_and_qat(m: Machine) -> None:
    base(m)
    card(m, "0000:02:00.0", "1a03", "2000", "ast", numbers=(0, None))
    m.pci("0000:41:00.0", "8086", "37c8", "0b4000", "c6xx")


@kind
def matrox_and_npu(m: Machine) -> None:
    base(m)
    card(m, "0000:03:00.0", "102b", "0538", "mgag200", numbers=(0, None))
    card(m, "0000:00:0b.0", "8086", "7d1d", "intel_vpu", class_code="120000")


@kind
def habana(m: Machine) -> None:
    base(m)
    card(m, "0000:33:00.0", "1da3", "1020", "habanalabs", class_code="120000")


@kind
def huawei_bmc(m: Machine) -> None:
    base(m)
    card(m, "0000:07:00.0", "19e5", "1711", "hibmc-drm", numbers=(0, None))


@kind
def boot_framebuffer(m: Machine) -> None:
    base(m)
    m.write("dev/dri/card0")
    m.write("sys/class/drm/card0/dev", "226:0\n")
    m.link("sys/class/drm/card0/device", "../../../devices/platform/simple-framebuffer.0")
    m.write("sys/devices/platform/simple-framebuffer.0/uevent", "DRIVER=simple-framebuffer\nMODALIAS=platform:x\n")


# --- virtual ones -----------------------------------------------------------------------------------------------


@kind
def virtio_with_virgl(m: Machine) -> None:
    base(m)
    card(m, "0000:00:01.0", "1af4", "1050", "virtio-pci", numbers=(0, 128))


@kind
def vmware_guest(m: Machine) -> None:
    base(m)
    card(m, "0000:00:0f.0", "15ad", "0405", "vmwgfx", numbers=(0, 128))


@kind
def hyperv_guest_with_shared_gpu(m: Machine) -> None:
    base(m)
    card(m, "0000:00:08.0", "1414", "5353", "hyperv_drm", numbers=(0, None))
    m.write("dev/dxg")
    m.write("proc/misc", "125 dxg\n")


@kind
def vgem_beside_an_igpu(m: Machine) -> None:
    base(m)
    card(m, "0000:00:02.0", "8086", "a780", "i915", numbers=(1, 128))
    m.write("dev/dri/renderD129")
    m.link("sys/class/drm/renderD129/device", "../../../devices/platform/vgem")


# --- Intel and others -------------------------------------------------------------------------------------------


@kind
def intel_igpu(m: Machine) -> None:
    base(m)
    card(m, "0000:00:02.0", "8086", "a780", "i915", numbers=(1, 128))
    m.write(
        "usr/share/misc/pci.ids",
        "8086  Intel Corporation\n\ta780  Raptor Lake-S GT1 [UHD Graphics 770]\nC 03  Display\n",
    )


@kind
def intel_arc_and_igpu(m: Machine) -> None:
    base(m)
    card(m, "0000:00:02.0", "8086", "a780", "i915", numbers=(1, 129))
    card(m, "0000:03:00.0", "8086", "56a0", "xe", numbers=(0, 128))


@kind
def intel_flex_with_virtual_functions(m: Machine) -> None:
    base(m)
    card(m, "0000:4d:00.0", "8086", "56c0", "xe", numbers=(0, 128), sriov_numvfs="2")
    for number in (1, 2):
        address = f"0000:4d:00.{number}"
        card(m, address, "8086", "56c0", "xe" if number == 1 else "vfio-pci", numbers=(1, 129) if number == 1 else None)
        m.link(f"sys/bus/pci/devices/{address}/physfn", "../0000:4d:00.0")


@kind
def card_of_an_unknown_maker(m: Machine) -> None:
    base(m)
    card(m, "0000:01:00.0", "1ed5", "0222", "mtgpu", numbers=(0, 128))
    m.write("sys/module/mtgpu/version", "2.7.0\n")


@kind
def many_render_nodes(m: Machine) -> None:
    """Minors from one pool: render numbers go beyond 192, and card<N> is not renderD<128+N>."""
    base(m)
    for number in range(3):
        card(m, f"0000:{number + 1:02x}:00.0", "8086", "56a0", "xe", numbers=(5 - number, 190 + number * 3))


@kind
def raspberry_pi(m: Machine) -> None:
    base(m, "pi")
    for node in ("card0", "renderD128"):
        m.write(f"dev/dri/{node}")
        m.link(f"sys/class/drm/{node}/device", "../../../devices/platform/axi/1002000000.v3d")
    m.write(
        "sys/devices/platform/axi/1002000000.v3d/uevent", "DRIVER=v3d\nOF_NAME=v3d\nOF_COMPATIBLE_0=brcm,2712-v3d\n"
    )
    m.write("dev/dri/card1")
    m.link("sys/class/drm/card1/device", "../../../devices/platform/axi/axi:gpu")


# --- AMD --------------------------------------------------------------------------------------------------------


@kind
def amd_consumer(m: Machine) -> None:
    base(m)
    card(
        m,
        "0000:0c:00.0",
        "1002",
        "747e",
        "amdgpu",
        numbers=(1, 128),
        revision="0xc8",
        mem_info_vram_total="17163091968",
        serial_number="",
        product_name="",
    )
    kfd(m, [{"location_id": location(0x0C), "drm_render_minor": 128, "gfx_target_version": 110001}])
    m.write("usr/share/libdrm/amdgpu.ids", "# names\n1.0.0\n747E,\tC8,\tAMD Radeon RX 7800 XT\n")


@kind
def amd_apu(m: Machine) -> None:
    base(m)
    card(m, "0000:c4:00.0", "1002", "15bf", "amdgpu", numbers=(1, 128), mem_info_vram_total="536870912")
    kfd(m, [{"location_id": location(0xC4), "drm_render_minor": 128, "cpu_cores_count": 16, "simd_count": 24}])


@kind
def amd_old_without_kfd(m: Machine) -> None:
    base(m)
    card(m, "0000:01:00.0", "1002", "6611", "radeon", numbers=(0, 128))


@kind
def amd_without_the_kfd_node(m: Machine) -> None:
    amd_consumer(m)
    m.remove("dev/kfd")


@kind
def amd_unbound(m: Machine) -> None:
    base(m)
    card(m, "0000:0c:00.0", "1002", "747e", None)
    card(m, "0000:0d:00.0", "1002", "747e", "vfio-pci")


@kind
def amd_mi300x_whole(m: Machine) -> None:
    """Eight cards in SPX: minors eight apart, no neighbours."""
    base(m)
    nodes = []
    for number, bus in enumerate((0x05, 0x27, 0x47, 0x65, 0x85, 0xA7, 0xC7, 0xE5)):
        render = 128 + 8 * number
        card(
            m,
            f"0000:{bus:02x}:00.0",
            "1002",
            "74a1",
            "amdgpu",
            class_code="120000",
            numbers=(1 + number, render),
            product_name="AMD Instinct MI300X OAM",
            serial_number=f"69243000{number}",
            unique_id=f"{0xE3A9_0000_0000_0100 + number:x}",
        )
        nodes.append({"location_id": location(bus), "drm_render_minor": render, "bank": 206141652992})
    kfd(m, nodes)


def _partitioned(m: Machine, cards: int, parts: int, step: int) -> None:
    base(m)
    nodes = []
    for number in range(cards):
        bus = 0x05 + 0x20 * number if number < 8 else 0
        first = 128 + step * number
        unique = 0xE3A9_0000_0000_0100 + number
        card(
            m,
            f"0000:{bus:02x}:00.0",
            "1002",
            "74a1",
            "amdgpu",
            class_code="120000",
            numbers=(1 + number * step, first),
            product_name="AMD Instinct MI300X OAM",
            unique_id=f"{unique:x}",
        )
        for part in range(1, step):
            for node in (f"card{1 + number * step + part}", f"renderD{first + part}"):
                m.write(f"dev/dri/{node}")
                m.link(f"sys/class/drm/{node}/device", f"../../../devices/platform/amdgpu_xcp_{number * step + part}")
        nodes += [
            {
                "location_id": location(bus, part),
                "drm_render_minor": first + part,
                "unique_id": unique,
                "bank": 24 << 30,
            }
            for part in range(parts)
        ]
    kfd(m, nodes)


@kind
def amd_mi300x_cpx(m: Machine) -> None:
    """Eight cards of eight partitions: with two CPUs 66 KFD nodes."""
    _partitioned(m, cards=8, parts=8, step=8)


@kind
def amd_mi308(m: Machine) -> None:
    """Four partitions a card; the other render nodes exist and KFD does not have them."""
    _partitioned(m, cards=2, parts=4, step=8)


# --- NVIDIA -----------------------------------------------------------------------------------------------------


@kind
def nvidia_one(m: Machine) -> None:
    base(m)
    nvidia_driver(m)
    nvidia(m, "0000:70:00.0", 0, 1, numbers=(1, 128))
    nvml.put(m.tree, [told("0000:70:00.0", 0, 1, mib=23034, serial="1652922012345")])
    nodes = ("nvidia0", "dri/card1", "dri/renderD128")
    toolkit(m, {"0": nodes, uuid(1): nodes, "all": nodes})


@kind
def nvidia_by_smi_alone(m: Machine) -> None:
    base(m)
    nvidia_driver(m)
    nvidia(m, "0000:70:00.0", 0, 1, numbers=(1, 128))
    row = f"0, {uuid(1)}, NVIDIA L4, {DRIVER}, 23034, 00000000:70:00.0, [N/A], 0123, None"
    m.script("usr/bin/nvidia-smi", f'echo "{row}"')
    toolkit(m, {"0": ("nvidia0",), "all": ("nvidia0",)})


@kind
def nvidia_without_any_tool(m: Machine) -> None:
    base(m)
    nvidia_driver(m)
    nvidia(m, "0000:70:00.0", 0, 1, numbers=(1, 128))


@kind
def nvidia_eight(m: Machine) -> None:
    """Index is not minor: NVML counts by bus, minors as the kernel probed."""
    base(m)
    nvidia_driver(m)
    buses = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
    minors = (3, 2, 1, 0, 7, 6, 5, 4)
    cards = []
    for number, (bus, minor) in enumerate(zip(buses, minors, strict=True)):
        address = f"0000:{bus:02x}:00.0"
        nvidia(m, address, minor, number, "NVIDIA H100 80GB HBM3", "2330")
        cards.append(told(address, minor, number, "NVIDIA H100 80GB HBM3", mib=81559, mig=0))
    nvml.put(m.tree, cards)
    devices = {str(index): (f"nvidia{minor}",) for index, minor in enumerate(minors)}
    toolkit(m, devices | {"all": tuple(f"nvidia{minor}" for minor in range(8))})


MIG_MINORS = "config 1\nmonitor 2\n" + "".join(
    f"gpu{card}/gi{gi}/access {(card * 8 + gi) * 3}\ngpu{card}/gi{gi}/ci0/access {(card * 8 + gi) * 3 + 1}\n"
    for card in range(2)
    for gi in range(1, 4)
)


@kind
def nvidia_mig(m: Machine) -> None:
    """One whole card, one with two MIG instances."""
    base(m)
    nvidia_driver(m)
    m.write("proc/devices", "Character devices:\n195 nvidia\n226 drm\n237 nvidia-caps\n508 nvidia-uvm\n")
    nvidia(m, "0000:17:00.0", 1, 1, "NVIDIA A100-SXM4-40GB", "20b0")
    nvidia(m, "0000:65:00.0", 0, 2, "NVIDIA A100-SXM4-40GB", "20b0")
    instances = tuple(
        nvml.Instance(gi, 0, f"MIG-{gi:08x}-1111-2222-3333-444444444444", "NVIDIA A100-SXM4-40GB MIG 3g.20gb")
        for gi in (1, 2)
    )
    nvml.put(
        m.tree,
        [
            told("0000:17:00.0", 1, 1, "NVIDIA A100-SXM4-40GB", mib=40960, mig=0),
            told("0000:65:00.0", 0, 2, "NVIDIA A100-SXM4-40GB", mib=40960, mig=1, instances=instances),
        ],
    )
    m.write("proc/driver/nvidia-caps/mig-minors", MIG_MINORS)
    for gi in (1, 2):
        m.write(f"proc/driver/nvidia/capabilities/gpu0/mig/gi{gi}/access", "DeviceFileMinor: 3\n")
        m.write(f"proc/driver/nvidia/capabilities/gpu0/mig/gi{gi}/ci0/access", "DeviceFileMinor: 4\n")
        for cap in (gi * 3, gi * 3 + 1):
            m.write(f"dev/nvidia-caps/nvidia-cap{cap}")
    first, second = (
        ("nvidia0", f"nvidia-caps/nvidia-cap{gi * 3}", f"nvidia-caps/nvidia-cap{gi * 3 + 1}") for gi in (1, 2)
    )
    every = ("nvidia0", "nvidia1", *first[1:], *second[1:])
    toolkit(m, {"0": ("nvidia1",), "1:0": first, "1:1": second, instances[0].uuid: first, "all": every})


@kind
def nvidia_without_a_driver(m: Machine) -> None:
    base(m)
    nvidia(m, "0000:01:00.0", None, 1, driver=None)


@kind
def nvidia_with_nouveau(m: Machine) -> None:
    base(m)
    nvidia(m, "0000:01:00.0", None, 1, driver="nouveau", numbers=(0, 128))


@kind
def nvidia_passed_through(m: Machine) -> None:
    base(m)
    nvidia(m, "0000:01:00.0", None, 1, driver="vfio-pci")


@kind
def nvidia_driver_mismatch(m: Machine) -> None:
    nvidia_one(m)
    nvml.put(m.tree, [], driver="590.48.01", init=nvml.VERSION_MISMATCH)


@kind
def nvidia_driver_not_loaded(m: Machine) -> None:
    """The module is bound and NVML does not reach it; nvidia-smi says the same."""
    nvidia_one(m)
    nvml.put(m.tree, [], init=nvml.DRIVER_NOT_LOADED)
    m.script("usr/bin/nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")


@kind
def nvidia_hung(m: Machine) -> None:
    nvidia_one(m)
    nvml.put(m.tree, [], init=nvml.HANGS)
    m.script("usr/bin/nvidia-smi", "sleep 600")


@kind
def nvidia_one_of_two_lost(m: Machine) -> None:
    base(m)
    nvidia_driver(m)
    nvidia(m, "0000:17:00.0", 0, 1)
    nvidia(m, "0000:65:00.0", 1, 2)
    lost = told("0000:65:00.0", 1, 2, error=-nvml.GPU_IS_LOST)
    nvml.put(m.tree, [told("0000:17:00.0", 0, 1), lost])
    toolkit(m, {"0": ("nvidia0",), "all": ("nvidia0",)})


@kind
def nvidia_gone_from_the_bus(m: Machine) -> None:
    """The driver's procfs still has the card that PCI has no more."""
    nvidia_one(m)
    nvidia(m, "0000:65:00.0", 1, 2)
    m.remove("sys/bus/pci/devices/0000:65:00.0")


@kind
def nvidia_needs_a_reset(m: Machine) -> None:
    nvidia_one(m)
    nvml.put(m.tree, [told("0000:70:00.0", 0, 1, action=1)])


@kind
def nvidia_dead(m: Machine) -> None:
    """Question marks for the UUID, and NVML that does not list it."""
    nvidia_one(m)
    path = "proc/driver/nvidia/gpus/0000:70:00.0/information"
    m.write(path, (m.tree / path).read_text().replace(uuid(1), "GPU-????????-????-????-????-????????????"))
    nvml.put(m.tree, [])


@kind
def nvidia_excluded(m: Machine) -> None:
    base(m)
    nvidia_driver(m)
    nvidia(m, "0000:17:00.0", 0, 1)
    nvidia(m, "0000:65:00.0", 1, 2, excluded="Yes")
    nvml.put(m.tree, [told("0000:17:00.0", 0, 1)])
    toolkit(m, {"0": ("nvidia0",), "all": ("nvidia0",)})


@kind
def nvidia_without_its_node(m: Machine) -> None:
    nvidia_one(m)
    m.remove("dev/nvidia0")


@kind
def nvidia_of_2017(m: Machine) -> None:
    """No Device Minor, no GPU Excluded."""
    base(m)
    nvidia_driver(m, "384.130")
    nvidia(m, "0000:04:00.0", None, 1, "GeForce GTX 650", "0fc6", numbers=(0, 128), excluded=None)
    m.write("dev/nvidia0")
    row = f"0, {uuid(1)}, GeForce GTX 650, 384.130, 979, 00000000:04:00.0"
    m.script("usr/bin/nvidia-smi", f'case "$*" in *mig.mode*) echo "Field is not valid"; exit 2;; esac\necho "{row}"')
    toolkit(m, {"0": ("nvidia0",), "all": ("nvidia0",)})


@kind
def nvidia_in_a_far_domain(m: Machine) -> None:
    base(m)
    nvidia_driver(m)
    nvidia(m, "10000:01:00.0", 0, 1)
    nvml.put(m.tree, [told("10000:01:00.0", 0, 1)])
    toolkit(m, {"0": ("nvidia0",), "all": ("nvidia0",)})


@kind
def laptop_with_two(m: Machine) -> None:
    base(m, "laptop")
    card(m, "0000:00:02.0", "8086", "a7a0", "i915", numbers=(1, 128))
    nvidia_driver(m)
    nvidia(m, "0000:01:00.0", 0, 1, "NVIDIA GeForce RTX 4070 Laptop GPU", "2860", numbers=(2, 129))
    m.pci("0000:01:00.1", "10de", "22be", "040300", "snd_hda_intel")
    nvml.put(m.tree, [told("0000:01:00.0", 0, 1, "NVIDIA GeForce RTX 4070 Laptop GPU", mib=8188)])
    nodes = ("nvidia0", "dri/card2", "dri/renderD129")
    toolkit(m, {"0": nodes, "all": nodes})


@kind
def jetson_orin(m: Machine) -> None:
    base(m, "orin")
    m.write("proc/device-tree/compatible", "nvidia,p3737-0000+p3701-0000\0nvidia,tegra234\0")
    m.write("proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    m.write("etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n")
    m.write("sys/bus/platform/devices/17000000.gpu/uevent", "DRIVER=gk20a\n")
    m.write("proc/misc", " 61 nvmap\n 62 nvhost-gpu\n 63 nvhost-ctrl-gpu\n")
    for node in ("nvmap", "nvhost-gpu", "nvhost-ctrl-gpu", "dri/card0", "dri/renderD128"):
        m.write(f"dev/{node}")
    for node in ("card0", "renderD128"):
        m.link(f"sys/class/drm/{node}/device", "../../../devices/platform/bus@0/13e00000.host1x/drm")
    m.write(
        "sys/devices/platform/bus@0/13e00000.host1x/drm/uevent",
        "DRIVER=tegra-drm\nOF_COMPATIBLE_0=nvidia,tegra234-host1x\n",
    )
    nodes = ("nvhost-gpu", "nvhost-ctrl-gpu", "nvmap")
    toolkit(m, {"0": nodes, "all": nodes}, shared=("nvmap",))


# --- WSL --------------------------------------------------------------------------------------------------------


def wsl(m: Machine, *stores: tuple[str, bool]) -> None:
    """WSL2 with these driver stores: name, and whether it holds NVIDIA's libcuda."""
    base(m, "wsl-gpu")
    m.write("proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n")
    m.write("proc/misc", "125 dxg\n")
    m.write("dev/dxg")
    m.write("usr/lib/wsl/lib/libdxcore.so")
    for store, cuda in stores:
        m.write(f"usr/lib/wsl/drivers/{store}/{'libcuda.so.1.1' if cuda else 'igd.dll'}")


def wsl_toolkit(m: Machine) -> None:
    spec = (
        "cdiVersion: 0.3.0\\nkind: nvidia.com/gpu\\ndevices:\\n- name: all\\n  containerEdits:\\n    deviceNodes:\\n"
        "    - {path: /dev/dxg, hostPath: %s/dev/dxg}\\n"
    )
    m.script(
        "usr/bin/nvidia-ctk",
        'for a in "$@"; do case $a in --output=*) '
        f'printf \'{spec.replace("0.3.0", "0.5.0")}\' "$GPUGRANT_ROOT" >"${{a#--output=}}";; --version) '
        'echo "NVIDIA Container Toolkit CLI version 1.19.1";; esac; done',
    )


@kind
def wsl_nvidia(m: Machine) -> None:
    wsl(m, ("nvlti.inf_amd64_4bd2a3580753f54d", True))
    row = f"0, {uuid(1)}, NVIDIA GeForce RTX 4080, 581.57, 16376, 00000000:01:00.0, [N/A], [N/A], None"
    m.script("usr/lib/wsl/lib/nvidia-smi", f'echo "{row}"')
    wsl_toolkit(m)


@kind
def wsl_two_stores(m: Machine) -> None:
    wsl(m, ("iigd_dch.inf_amd64_0123456789abcdef", False), ("nv_dispi.inf_amd64_fedcba9876543210", True))
    wsl_toolkit(m)
    m.write("dev/dri/renderD128")
    m.link("sys/class/drm/renderD128/device", "../../../devices/platform/vgem")


@kind
def wsl_intel_alone(m: Machine) -> None:
    wsl(m, ("iigd_dch.inf_amd64_0123456789abcdef", False))


# --- the recorded trees that people are given -------------------------------------------------------------------


def _example(name: str, m: Machine) -> None:
    shutil.copytree(EXAMPLES / name, m.tree, symlinks=True, dirs_exist_ok=True)


for _name in ("workstation", "amd-1gpu", "no-gpu"):
    KINDS[f"example-{_name}"] = functools.partial(_example, _name)
