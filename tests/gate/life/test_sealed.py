"""The sealed folders: only granted devices, in folders that stay the same, and never more than before on a failure."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpugrant_gate.life import sealed

NVIDIA = """
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
- name: "1"
  containerEdits: {deviceNodes: [{path: /dev/nvidia1}]}
containerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}
"""
DRI = """
{"cdiVersion": "0.5.0", "kind": "rediacc.io/dri",
 "devices": [{"name": "renderD128", "containerEdits": {"deviceNodes": [{"path": "/dev/dri/renderD128"}]}}]}
"""


@pytest.fixture
def specs(tmp_path: Path) -> sealed.Specs:
    folder = tmp_path / "cdi"
    folder.mkdir()
    (folder / "nvidia.yaml").write_text(NVIDIA)
    (folder / "dri.json").write_text(DRI)
    (folder / "notes.txt").write_text("not a spec")
    (folder / "broken.yaml").write_text("]")
    return sealed.read_specs(folder)


def contents(folder: Path) -> dict[str, list[str]]:
    found = {}
    for path in sorted(folder.iterdir()):
        spec = yaml.safe_load(path.read_text())
        found[path.name] = [f"{spec['kind']}={device['name']}" for device in spec["devices"]]
    return found


@pytest.mark.req("R1", "R43")
def test_holds_the_granted_devices_only(specs: sealed.Specs, tmp_path: Path) -> None:
    files = sealed.wanted(specs, {"nvidia.com/gpu=1", "rediacc.io/dri=renderD128", "nvidia.com/gpu=9"})
    sealed.rewrite(tmp_path / "sealed", {"id-a": files, "id-b": {}})
    assert contents(tmp_path / "sealed/id-a") == {
        "dri.json.yaml": ["rediacc.io/dri=renderD128"],
        "nvidia.yaml": ["nvidia.com/gpu=1"],
    }
    assert contents(tmp_path / "sealed/id-b") == {}


def test_grants_nothing_of_a_name_that_stands_in_two_files(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(NVIDIA)
    assert sealed.wanted(sealed.read_specs(tmp_path), {"nvidia.com/gpu=0"}) == {}


@pytest.mark.req("R6", "R51")
def test_a_revocation_takes_the_device_out_of_the_same_folder(specs: sealed.Specs, tmp_path: Path) -> None:
    root = tmp_path / "sealed"
    sealed.rewrite(root, {"id-a": sealed.wanted(specs, {"nvidia.com/gpu=0", "nvidia.com/gpu=1"})})
    inode = (root / "id-a").stat().st_ino
    sealed.rewrite(root, {"id-a": sealed.wanted(specs, {"nvidia.com/gpu=1"})})
    assert contents(root / "id-a") == {"nvidia.yaml": ["nvidia.com/gpu=1"]}
    sealed.rewrite(root, {"id-a": sealed.wanted(specs, set())})
    assert contents(root / "id-a") == {}
    assert (root / "id-a").stat().st_ino == inode


def test_writes_nothing_that_is_there_already(specs: sealed.Specs, tmp_path: Path) -> None:
    files = sealed.wanted(specs, {"nvidia.com/gpu=0"})
    sealed.rewrite(tmp_path / "sealed", {"id-a": files})
    before = (tmp_path / "sealed/id-a/nvidia.yaml").stat()
    sealed.rewrite(tmp_path / "sealed", {"id-a": files})
    after = (tmp_path / "sealed/id-a/nvidia.yaml").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.req("R2", "R9")
def test_empties_the_folder_of_an_id_that_is_not_known_any_more(specs: sealed.Specs, tmp_path: Path) -> None:
    root = tmp_path / "sealed"
    sealed.rewrite(root, {"old": sealed.wanted(specs, {"nvidia.com/gpu=0"})})
    sealed.rewrite(root, {"new": {}})
    assert (root / "old").is_dir()
    assert contents(root / "old") == {}


def test_removes_what_somebody_else_put_there(specs: sealed.Specs, tmp_path: Path) -> None:
    root = tmp_path / "sealed"
    (root / "id-a").mkdir(parents=True)
    (root / "id-a/more.json").write_text(DRI)
    sealed.rewrite(root, {"id-a": sealed.wanted(specs, {"nvidia.com/gpu=0"})})
    assert list(contents(root / "id-a")) == ["nvidia.yaml"]


def test_one_folder_that_cannot_be_written_does_not_keep_the_others_from_it(
    specs: sealed.Specs, tmp_path: Path
) -> None:
    root = tmp_path / "sealed"
    root.mkdir()
    (root / "a").write_text("a file in the way")
    files = sealed.wanted(specs, {"nvidia.com/gpu=0"})
    with pytest.raises(OSError, match="a"):
        sealed.rewrite(root, {"a": files, "b": files})
    assert list(contents(root / "b")) == ["nvidia.yaml"]


def test_a_folder_that_is_not_there_has_no_specs(tmp_path: Path) -> None:
    assert sealed.read_specs(tmp_path / "none") == {}
