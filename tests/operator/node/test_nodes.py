from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpugrant_operator.node import nodes
from gpugrant_operator.node.nodes import Node, Numbers

NONE = Numbers({}, {}, {}, {})


@pytest.mark.parametrize(
    ("path", "numbers", "expected"),
    [
        pytest.param("dri/renderD128", NONE, (226, 128), id="a render node by the kernel's rule"),
        pytest.param("dri/card0", NONE, (226, 0), id="a card node by the kernel's rule"),
        pytest.param("nvidia3", NONE, (195, 3), id="an NVIDIA card by its rule"),
        pytest.param("nvidiactl", NONE, (195, 255), id="NVIDIA's control node"),
        pytest.param("nvidia-modeset", NONE, (195, 254), id="NVIDIA's mode setting node"),
        pytest.param("dri/renderD128", Numbers({}, {"renderD128": (226, 130)}, {}, {}), (226, 130), id="sysfs wins"),
        pytest.param(
            "dri/renderD128",
            Numbers({"dri/renderD128": (226, 131)}, {"renderD128": (226, 130)}, {}, {}),
            (226, 131),
            id="a real node wins over sysfs",
        ),
        pytest.param("kfd", Numbers({}, {}, {"kfd": 510}, {}), (510, 0), id="a driver's major"),
        pytest.param("nvidia-uvm", Numbers({}, {}, {"nvidia-uvm": 508}, {}), (508, 0), id="uvm"),
        pytest.param("nvidia-uvm-tools", Numbers({}, {}, {"nvidia-uvm": 508}, {}), (508, 1), id="uvm's tools"),
        pytest.param("nvidia-caps/nvidia-cap7", Numbers({}, {}, {"nvidia-caps": 509}, {}), (509, 7), id="a capability"),
        pytest.param("dxg", Numbers({}, {}, {}, {"dxg": 125}), (10, 125), id="a misc device"),
        pytest.param("nvidiactl", Numbers({}, {}, {"nvidiactl": 195}, {}), (195, 255), id="nvidiactl is no minor 0"),
    ],
)
def test_where_a_number_comes_from(path: str, numbers: Numbers, expected: tuple[int, int]) -> None:
    assert nodes.plan([path], numbers) == ((Node(path, *expected),), ())


@pytest.mark.parametrize(
    ("path", "numbers"),
    [
        pytest.param("kfd", NONE, id="no number is recorded"),
        pytest.param("kfd", Numbers({"kfd": (1, 3)}, {}, {}, {}), id="the numbers of /dev/null"),
        pytest.param("kfd", Numbers({"kfd": (0, 0)}, {}, {}, {}), id="no device at all"),
    ],
)
def test_a_node_without_a_usable_number_is_left_out_and_said(path: str, numbers: Numbers) -> None:
    planned, unknown = nodes.plan([path], numbers)
    assert planned == ()
    assert f"/dev/{path}" in unknown[0]


def test_nodes_are_made_kept_and_taken_away(recorded: object, tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    dev.mkdir()
    (dev / "kfd").write_text("in the way")
    wanted = (Node("dri/renderD128", 226, 128), Node("kfd", 510, 0))
    assert nodes.make(dev, wanted) == ({"dri/renderD128", "kfd"}, ())
    info = (dev / "kfd").stat()
    assert stat.S_ISCHR(info.st_mode)
    assert (os.major(info.st_rdev), os.minor(info.st_rdev)) == (510, 0)
    nodes.make(dev, wanted)
    assert (dev / "kfd").stat().st_ino == info.st_ino
    (dev / "file").touch()
    nodes.remove(dev, ["kfd", "file", "nothing"])
    assert sorted(entry.name for entry in dev.iterdir()) == ["dri", "file"]


def test_a_place_where_no_node_can_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "dev").write_text("a file")
    made, failed = nodes.make(tmp_path / "dev", [Node("kfd", 510, 0)])
    assert made == frozenset()
    assert "can't be made" in failed[0]
