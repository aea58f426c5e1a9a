"""What hack/up decides before it starts anything."""

from __future__ import annotations

import pytest
import yaml
from gpugrant_hack import system

import rig

EXAMPLE = (rig.CHECKOUT / "examples/grant.yaml").read_text()
GPU, AMD, DRI = "nvidia.com/gpu=all", "rediacc.io/amd=gpu0", "rediacc.io/dri=renderD128"
FITTED = {
    "the example's machine": ("workstation", [DRI, GPU, AMD], [("workstation", GPU), ("workstation", AMD)]),
    "another machine with these names": ("host-1", [GPU, AMD], [("host-1", GPU), ("host-1", AMD)]),
    "a machine with an AMD card only": ("host-1", [AMD, DRI], [("host-1", AMD)]),
    "a machine with neither": ("host-1", [DRI], [("host-1", DRI)]),
}


@pytest.mark.parametrize(("machine", "devices", "expected"), FITTED.values(), ids=FITTED)
def test_the_example_grant_fits_the_machine(machine: str, devices: list[str], expected: list[tuple[str, str]]) -> None:
    text, first = system.fitted(EXAMPLE, machine, devices)

    specs = [document["spec"] for document in yaml.safe_load_all(text)]
    assert [(spec["machine"], spec["device"]) for spec in specs] == expected
    assert first == expected[0][1]


def test_on_the_example_s_machine_it_is_the_example_itself():
    assert system.fitted(EXAMPLE, "workstation", [GPU, AMD]) == (EXAMPLE, GPU)


GPUS = {
    "an NVIDIA card": ("dev/nvidiactl", True),
    "WSL": ("dev/dxg", True),
    "a render node": ("dev/dri/renderD128", True),
    "a display without a render node": ("dev/dri/card0", False),
    "nothing": ("dev/null", False),
}


@pytest.mark.parametrize(("path", "has_gpu"), GPUS.values(), ids=GPUS)
def test_a_machine_without_a_gpu_is_stood_in_for_and_that_is_said(tmp_path, path: str, has_gpu: bool) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).touch()

    tree, remark = system.default_hardware(rig.CHECKOUT, tmp_path)

    assert tree == (tmp_path if has_gpu else rig.CHECKOUT / "examples/machines/workstation")
    assert ("stands in for one" in remark) is not has_gpu


def test_down_on_a_root_that_was_never_up_says_so(tmp_path):
    done = rig.script("down", "--root", tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"nothing runs below {tmp_path}\n")


REFUSED = {
    "a hardware tree that is none": (["--hardware", "/nowhere"], "--hardware '/nowhere' is no folder"),
    "a root whose sockets' paths are too long": (["--root", "/tmp/" + "x" * 80], "choose a shorter --root"),
}


@pytest.mark.real
@pytest.mark.must_run
@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_before_anything_is_started(tmp_path, words: list[str], message: str) -> None:
    root = [] if "--root" in words else ["--root", str(tmp_path)]

    done = rig.script("up", "--detach", *root, *words)

    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "daemons").exists()
