"""What a device stands for, in words."""

from __future__ import annotations

import pytest

from gpugrant_crds.inventory import Gpu, Health, Partition
from gpugrant_operator.cli import behind

OK = Health(state="ok", reason="Ok")
MIG = Partition(id="nvidia:MIG-1", index=0, name="MIG 3g.40gb", gi=1, ci=0)
CARDS = (
    Gpu(id="nvidia:GPU-1", vendor="nvidia", name="H100", name_source="nvml", pci_address="0000:01:00.0", health=OK),
    Gpu(id="nvidia:GPU-12", vendor="nvidia", name="A100", name_source="nvml", partitions=(MIG,), health=OK),
    Gpu(id="amd:ff", vendor="amd", name="MI300X", name_source="sysfs", pci_address="0000:05:00.0", health=OK),
    Gpu(id="nvidia:GPU-2", vendor="nvidia", name="H100", name_source="nvml", pci_address="0000:02:00.0", health=OK),
)


@pytest.mark.req("R19")
@pytest.mark.parametrize(
    ("atoms", "words"),
    [
        ((), "-"),
        (("gpu/nvidia:GPU-1",), "H100 at 0000:01:00.0"),
        (("gpu/nvidia:GPU-12/gi1/ci0",), "MIG 3g.40gb of A100 at nvidia:GPU-12"),
        (("gpu/nvidia:GPU-12/gi2/ci0",), "gi2/ci0 of A100 at nvidia:GPU-12"),
        (("gpu/amd:ff/p3",), "partition 3 of MI300X at 0000:05:00.0"),
        (("gpu/amd:ff/vf0000:05:00.1",), "virtual function 0000:05:00.1 of MI300X at 0000:05:00.0"),
        (("gpu/nvidia:GPU-1", "gpu/nvidia:GPU-2", "gpu/nvidia:GPU-12/gi1/ci0"), "2 x H100, part of A100"),
        (("gpu/amd:ff/p0", "gpu/amd:ff/p1"), "2 x part of MI300X"),
        (("wsl/dxg",), "all GPUs of this WSL machine"),
        (("node/dri/renderD128",), "/dev/dri/renderD128, no card of its own"),
        (("unknown/nvidia.com/gpu",), "what a hook of nvidia.com/gpu gives"),
        (("gpu/pci:gone",), "pci:gone"),
    ],
)
def test_what_a_device_stands_for(atoms: tuple[str, ...], words: str) -> None:
    assert behind.told(atoms, CARDS) == words
