from __future__ import annotations

import os
from pathlib import Path

from gpugrant_operator.node import folder

SPEC = """\
cdiVersion: 0.3.0
kind: vendor.com/dev
devices:
- {name: d, containerEdits: {deviceNodes: [{path: /dev/x}]}}
"""


def write(path: Path, *names: str) -> None:
    path.mkdir(exist_ok=True)
    for name in names:
        (path / name).write_text(SPEC)


def test_only_spec_files_are_read_and_a_bad_one_is_said(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "b.yml", ".rediacc-x.tmp")
    (tmp_path / "c.json").mkdir()
    (tmp_path / "d.yaml").symlink_to("nowhere")
    os.mkfifo(tmp_path / "e.yaml")
    (tmp_path / "f.yaml").symlink_to("c.json")
    found = folder.read(tmp_path)
    assert list(found) == ["a.yaml", "d.yaml", "e.yaml", "f.yaml"]
    assert isinstance(found["a.yaml"], bytes)
    assert [found[name] for name in ("d.yaml", "e.yaml", "f.yaml")] == [
        "no such file or directory",
        "not a file",
        "not a file",
    ]


def test_no_folder_has_no_files(tmp_path: Path) -> None:
    assert folder.read(tmp_path / "nothing") == {}


def test_a_name_is_usable_when_its_nodes_are_there(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml")
    files = folder.read(tmp_path)
    listed, problems = folder.describe(tmp_path, files, {"a.yaml": "renet"}, lambda path: path == "/dev/x")
    assert [(device.name, device.usable) for device in listed.devices] == [("vendor.com/dev=d", True)]
    assert (listed.files[0].generator, listed.files[0].kind) == ("renet", "vendor.com/dev")
    assert problems == ()
    listed, problems = folder.describe(tmp_path, files, {}, lambda _path: False)
    assert [(device.usable, device.reason) for device in listed.devices] == [(False, "NoDeviceNode")]
    assert [reason for reason, _ in problems] == ["SpecStale"]


def test_a_name_in_two_files_can_not_be_granted(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "b.yaml")
    listed, problems = folder.describe(tmp_path, folder.read(tmp_path), {}, lambda _path: True)
    assert [(device.usable, device.reason) for device in listed.devices] == [(False, "SpecConflict")]
    assert [conflict.files for conflict in listed.conflicts] == [("a.yaml", "b.yaml")]
    assert [reason for reason, _ in problems] == ["SpecConflict"]


def test_a_broken_file_stands_in_the_list_with_its_error(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml")
    (tmp_path / "b.yaml").write_text("]")
    listed, problems = folder.describe(tmp_path, folder.read(tmp_path), {}, lambda _path: True)
    assert [(spec.kind, spec.error is None) for spec in listed.files] == [("vendor.com/dev", True), (None, False)]
    assert [reason for reason, _ in problems] == ["SpecInvalid"]
