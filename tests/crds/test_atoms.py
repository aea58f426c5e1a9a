"""Which names share hardware: the table of the reference (cdi-gpu 7.3), and its laws."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_crds import atoms, cdi
from gpugrant_crds.atoms import Hardware, Part

FIRST, SECOND, THIRD = "gpu/nvidia:GPU-a", "gpu/nvidia:GPU-b", "gpu/nvidia:GPU-c"
AMD, IGPU = "gpu/amd:00000000000000ff", "gpu/pci:0000:00:02.0"
MACHINE = Hardware(
    nodes={
        "nvidia0": FIRST,
        "nvidia3": SECOND,
        "nvidia5": THIRD,
        "dri/card1": FIRST,
        "dri/renderD128": FIRST,
        "dri/by-path/pci-0000:01:00.0-render": FIRST,
        "dri/card9": THIRD,
        "dri/renderD140": THIRD,
        "dri/renderD129": IGPU,
        "dri/renderD130": f"{AMD}/p0",
        "dri/card5": f"{AMD}/p0",
        "dri/renderD131": f"{AMD}/p1",
        "dxg": "wsl/dxg",
    },
    caps={
        30: Part(THIRD, 1),
        31: Part(THIRD, 1, 0),
        32: Part(THIRD, 1, 1),
        33: Part(THIRD, 11),
        34: Part(THIRD, 11, 0),
    },
    folders=("/root/of/it/dev/", "/dev/"),
)
SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


def caps(*numbers: int) -> tuple[str, ...]:
    return tuple(f"nvidia-caps/nvidia-cap{number}" for number in numbers)


DEVICES: dict[str, tuple[str, ...]] = {
    "nvidia.com/gpu=0": ("nvidia0", "dri/card1", "dri/renderD128"),
    "nvidia.com/gpu=GPU-a": ("nvidia0",),
    "nvidia.com/gpu=1": ("nvidia3",),
    "nvidia.com/gpu=2:0": ("nvidia5", *caps(30, 31), "dri/renderD140"),
    "nvidia.com/gpu=2:1": ("nvidia5", *caps(30, 32)),
    "nvidia.com/gpu=2:2": ("nvidia5", *caps(33, 34)),
    "nvidia.com/gpu=2": ("nvidia5",),
    "nvidia.com/gpu=all": ("nvidia0", "nvidia3", "nvidia5", *caps(30, 31, 32, 33, 34)),
    "management.nvidia.com/gpu=all": ("nvidia0", "nvidia3", "nvidia5", *caps(1, 30, 31, 32, 33, 34)),
    "rediacc.io/dri=renderD128": ("dri/renderD128",),
    "rediacc.io/dri=renderD129": ("dri/renderD129",),
    "rediacc.io/dri=renderD130": ("dri/renderD130",),
    "rediacc.io/dri=renderD140": ("dri/renderD140",),
    "rediacc.io/amd=gpu0": ("kfd", "dri/renderD130"),
    "rediacc.io/amd=gpu1": ("kfd", "dri/renderD131"),
    "rediacc.io/amd=all": ("kfd", "dri/renderD130", "dri/renderD131"),
    "amd.com/gpu=0": ("kfd", "dri/card5", "dri/renderD130"),
    "amd.com/gpu=3": ("kfd", "dri/renderD131"),
    "wsl.nvidia.com/gpu=all": ("dxg",),
    "other.example/dxg=x": ("dxg",),
    "by.path/gpu=0": ("dri/by-path/pci-0000:01:00.0-render",),
    "whole.folder/gpu=x": ("dri",),
    "net.example/nic=0": ("infiniband/uverbs0", "vfio/12"),
}


def device(name: str, nodes: tuple[str, ...] = (), *, env: str = "", mounts: tuple[str, ...] = ()) -> str:
    lines = [f"- name: {name!r}", "  containerEdits:"]
    lines += ["    deviceNodes:", *(f"    - path: /dev/{node}" for node in nodes)] if nodes else []
    lines += [f"    env: [{env}]"] if env else []
    lines += ["    mounts:", *(f"    - {{hostPath: {m}, containerPath: {m}}}" for m in mounts)] if mounts else []
    return "\n".join(lines)


def found(
    name: str, nodes: tuple[str, ...] = (), *, shared: tuple[str, ...] = (), tail: str = "", **edits: object
) -> tuple[str, ...]:
    kind, _, own = name.partition("=")
    text = f"cdiVersion: 0.5.0\nkind: {kind}\ndevices:\n{device(own, nodes, **edits)}\n"  # type: ignore[arg-type]
    nodes_of_all = "".join(f"  - path: /dev/{node}\n" for node in shared)
    text += f"containerEdits:\n  deviceNodes:\n{nodes_of_all}" if shared else ""
    spec = cdi.read_spec(text + tail, "test.yaml")
    assert isinstance(spec, cdi.Spec), spec
    return atoms.of_spec(spec, MACHINE)[name]


def of(name: str) -> tuple[str, ...]:
    return found(name, DEVICES[name], shared=SHARED)


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [
        ("nvidia.com/gpu=all", "nvidia.com/gpu=0", True),
        ("nvidia.com/gpu=0", "nvidia.com/gpu=GPU-a", True),
        ("nvidia.com/gpu=0", "nvidia.com/gpu=1", False),
        ("nvidia.com/gpu=2:0", "nvidia.com/gpu=2:1", False),
        ("nvidia.com/gpu=2:0", "nvidia.com/gpu=2:2", False),
        ("nvidia.com/gpu=2:0", "nvidia.com/gpu=all", True),
        ("nvidia.com/gpu=2:0", "nvidia.com/gpu=2", True),
        ("nvidia.com/gpu=0", "rediacc.io/dri=renderD128", True),
        ("nvidia.com/gpu=1", "rediacc.io/dri=renderD129", False),
        ("nvidia.com/gpu=2:0", "rediacc.io/dri=renderD140", True),
        ("rediacc.io/amd=gpu0", "rediacc.io/dri=renderD130", True),
        ("rediacc.io/amd=gpu0", "amd.com/gpu=0", True),
        ("rediacc.io/amd=gpu0", "rediacc.io/amd=gpu1", False),
        ("rediacc.io/amd=all", "amd.com/gpu=3", True),
        ("wsl.nvidia.com/gpu=all", "other.example/dxg=x", True),
        ("management.nvidia.com/gpu=all", "nvidia.com/gpu=0", True),
        ("management.nvidia.com/gpu=all", "nvidia.com/gpu=2:1", True),
        ("by.path/gpu=0", "nvidia.com/gpu=0", True),
        ("whole.folder/gpu=x", "rediacc.io/amd=gpu1", True),
        ("net.example/nic=0", "nvidia.com/gpu=all", False),
    ],
)
def test_which_names_share_hardware(a: str, b: str, shared: bool) -> None:
    assert atoms.overlap(of(a), of(b)) is shared
    assert atoms.overlap(of(b), of(a)) is shared


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("nvidia.com/gpu=0", (FIRST,)),
        ("nvidia.com/gpu=2:0", (f"{THIRD}/gi1/ci0",)),
        (
            "management.nvidia.com/gpu=all",
            tuple(sorted((FIRST, SECOND, THIRD, *(f"{THIRD}/gi1/ci{n}" for n in (0, 1)), f"{THIRD}/gi11/ci0"))),
        ),
        ("rediacc.io/amd=gpu1", (f"{AMD}/p1",)),
        ("wsl.nvidia.com/gpu=all", ("wsl/dxg",)),
        ("net.example/nic=0", ("node/vfio/12",)),
    ],
)
def test_the_atoms_of_a_device(name: str, given: tuple[str, ...]) -> None:
    assert of(name) == given


def test_shared_nodes_of_a_file_give_no_atom_and_a_card_there_does() -> None:
    """Toolkit 1.20 mounts /dev/null in every spec: it must not make all devices one."""
    tail = "  mounts:\n  - {hostPath: /dev/null, containerPath: /void}\n"
    assert found("nvidia.com/gpu=0", ("nvidia0",), shared=SHARED, tail=tail) == (FIRST,)
    assert found("nvidia.com/gpu=1", ("nvidia3",), shared=("nvidia0",)) == (FIRST, SECOND)


def test_a_mount_of_a_device_counts_as_the_device() -> None:
    assert found("a.example/bb=c", mounts=("/dev/nvidia3",)) == (SECOND,)
    assert found("a.example/bb=c", mounts=("/dev/dri/renderD129", "/usr/lib/libc.so")) == (IGPU,)
    assert set(found("a.example/bb=c", mounts=("/dev",))) == set(MACHINE.nodes.values())


def test_what_only_asks_a_hook_shares_with_all_of_its_vendor() -> None:
    """Legacy specs: the variable alone, and the runtime's hook adds any card."""
    legacy = found("nvidia.com/gpu=legacy", env="NVIDIA_VISIBLE_DEVICES=0")
    assert legacy == ("unknown/nvidia.com/gpu",)
    assert atoms.overlap(legacy, of("nvidia.com/gpu=1"), same_vendor=True)
    assert not atoms.overlap(legacy, of("rediacc.io/dri=renderD129"), same_vendor=False)
    assert found("nvidia.com/gpu=x", env="A=b", shared=SHARED) == ("unknown/nvidia.com/gpu",)


def test_a_capability_that_nobody_knows_gives_the_whole_card() -> None:
    assert found("nvidia.com/gpu=2:9", ("nvidia5", *caps(30, 31, 99))) == (THIRD, f"{THIRD}/gi1/ci0")


def test_a_gpu_instance_without_a_compute_instance_is_all_of_it() -> None:
    assert found("nvidia.com/gpu=gi", ("nvidia5", *caps(30))) == (f"{THIRD}/gi1",)


def test_a_node_below_another_root_is_the_trees_own() -> None:
    text = (
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: '0'\n  containerEdits:\n    deviceNodes:\n"
        "    - {path: /dev/nvidia0, hostPath: /root/of/it/dev/nvidia3}\n"
        "    - {path: /dev/elsewhere, hostPath: /srv/dev/nvidia0}\n"
    )
    spec = cdi.read_spec(text, "test.yaml")
    assert isinstance(spec, cdi.Spec)
    assert atoms.of_spec(spec, MACHINE) == {"nvidia.com/gpu=0": (SECOND, "node/srv/dev/nvidia0")}


@pytest.mark.req("R47")
@pytest.mark.parametrize(
    ("before", "now", "moved"),
    [
        pytest.param((FIRST,), (FIRST,), False, id="the same card"),
        pytest.param((FIRST,), (SECOND,), True, id="another card"),
        pytest.param((FIRST,), (f"{FIRST}/gi1/ci0",), False, id="a part of the same card"),
        pytest.param((f"{FIRST}/gi1/ci0",), (FIRST,), True, id="all of a card instead of a part"),
        pytest.param((f"{FIRST}/gi1",), (f"{FIRST}/gi11",), True, id="no part of it, though the name begins alike"),
        pytest.param((FIRST,), (FIRST, SECOND), True, id="one card more"),
        pytest.param((), (FIRST,), False, id="nothing is known of before"),
        pytest.param((FIRST,), (), False, id="it is gone"),
        pytest.param((FIRST,), ("node/nvidia0",), False, id="its driver was unloaded"),
        pytest.param((FIRST,), ("gpu/pci:0000:01:00.0",), False, id="it does not tell its UUID"),
    ],
)
def test_when_a_name_has_moved(before: tuple[str, ...], now: tuple[str, ...], moved: bool) -> None:
    assert atoms.moved("nvidia.com/gpu=0", before, now) is moved


@pytest.mark.req("R47")
def test_a_card_that_goes_by_its_address_moves_with_it() -> None:
    """AMD's consumer cards and others have no identity of their own."""
    assert atoms.moved("rediacc.io/amd=gpu0", ("gpu/pci:0000:03:00.0",), ("gpu/pci:0000:05:00.0",))
    assert atoms.moved("rediacc.io/dri=renderD128", (FIRST,), (IGPU,))


@pytest.mark.req("R47")
def test_which_names_are_sets() -> None:
    assert atoms.names_a_set("nvidia.com/gpu=all", (FIRST,))
    assert atoms.names_a_set("x.example/pair=left", (FIRST, SECOND))
    assert not atoms.names_a_set("nvidia.com/gpu=0", (FIRST,))


def test_a_name_of_everything_shares_with_each_of_its_members() -> None:
    every = of("nvidia.com/gpu=all")
    members = [name for name in DEVICES if name.startswith("nvidia.com/gpu=") and not name.endswith("=all")]
    assert all(atoms.overlap(every, of(name)) for name in members)


_ATOMS = st.lists(st.sampled_from(sorted({*MACHINE.nodes.values(), f"{THIRD}/gi1/ci0", "node/x", "unknown/a.b/cc"})))


@given(_ATOMS, _ATOMS, st.booleans())
def test_sharing_is_symmetric_and_grows_with_more(a: list[str], b: list[str], same_vendor: bool) -> None:
    shared = atoms.overlap(a, b, same_vendor=same_vendor)
    assert shared is atoms.overlap(b, a, same_vendor=same_vendor)
    for extra in itertools.islice(MACHINE.nodes.values(), 3):
        assert not shared or atoms.overlap([*a, extra], b, same_vendor=same_vendor)


@given(_ATOMS)
def test_nothing_moves_by_itself(a: list[str]) -> None:
    assert not atoms.moved("nvidia.com/gpu=0", a, a)
