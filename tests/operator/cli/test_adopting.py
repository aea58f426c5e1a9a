"""What a container uses, whichever way it asked for it, and the names that stand for it."""

from __future__ import annotations

from typing import Any

import pytest

from gpugrant_crds import cdi
from gpugrant_operator.cli import adopting
from gpugrant_operator.cli.adopting import Plan, Use, User

BY_NODE = {"/dev/dri/renderD128": ("rediacc.io/dri=renderD128",), "/dev/nvidia0": ("nvidia.com/gpu=0", "x.io/gpu=0")}


def inspected(status: str = "running", env: tuple[str, ...] = (), **host: Any) -> dict[str, Any]:
    return {"Id": "c" * 64, "Name": "/trainer", "State": {"Status": status}, "Config": {"Env": env}, "HostConfig": host}


def request(driver: str, *ids: str, count: int = 0) -> dict[str, Any]:
    return {"DeviceRequests": [{"Driver": driver, "Count": count, "DeviceIDs": list(ids) or None}]}


def node(path: str) -> dict[str, Any]:
    return {"Devices": [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"}]}


@pytest.mark.parametrize(
    ("host", "env", "use"),
    [
        (request("cdi", "nvidia.com/gpu=0"), (), Use("a CDI device", ("nvidia.com/gpu=0",), granted_as_it_is=True)),
        (request("", count=-1), (), Use("--gpus", ("nvidia.com/gpu=all",))),
        (request("nvidia", "0", "GPU-1"), (), Use("--gpus", ("nvidia.com/gpu=0", "nvidia.com/gpu=GPU-1"))),
        (request("", count=2), (), Use("--gpus")),
        (request("other", "0"), (), Use('a device request of driver "other"')),
        (
            {"Runtime": "nvidia"},
            ("A=b", "NVIDIA_VISIBLE_DEVICES=0,1"),
            Use("--runtime nvidia", ("nvidia.com/gpu=0", "nvidia.com/gpu=1"), ruled=True),
        ),
        (
            {"Runtime": "nvidia"},
            ("NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all",),
            Use("--runtime nvidia", ("nvidia.com/gpu=all",), ruled=True),
        ),
        (
            node("/dev/dri/renderD128"),
            (),
            Use("--device /dev/dri/renderD128", ("rediacc.io/dri=renderD128",), ruled=True),
        ),
    ],
)
def test_every_way_to_hardware(host: dict[str, Any], env: tuple[str, ...], use: Use) -> None:
    assert adopting.user(inspected(env=env, **host), BY_NODE) == User("c" * 64, "trainer", (use,))


def test_what_the_gate_would_refuse_is_hardware_whatever_it_is() -> None:
    clause = 'the bind of "/dev/dri" is refused'
    assert adopting.user(inspected(), {}, (clause,)) == User("c" * 64, "trainer", (), (clause,))
    assert adopting.plan([User("1" * 64, "a", (), (clause,))], (), "m") == Plan((), (f"container a: {clause}",))


def test_a_link_to_a_node_is_that_node() -> None:
    link = "/dev/dri/by-path/pci-0000:03:00.0-render"
    found = adopting.user(inspected(**node(link)), BY_NODE, real={link: "/dev/dri/renderD128"}.__getitem__)
    assert found is not None
    assert found.uses == (Use(f"--device {link}", ("rediacc.io/dri=renderD128",), ruled=True),)


@pytest.mark.parametrize(("policy", "counts"), [("always", True), ("unless-stopped", True), ("no", False), ("", False)])
def test_one_that_its_daemon_would_start_counts(policy: str, counts: bool) -> None:
    stopped = inspected("exited", RestartPolicy={"Name": policy}, **request("cdi", "nvidia.com/gpu=0"))
    assert (adopting.user(stopped, {}) is not None) is counts


@pytest.mark.parametrize(
    "found",
    [
        inspected(),
        inspected(**node("/dev/nvidia0")),
        inspected(DeviceRequests=[{"Driver": "", "Count": "x"}]),
        inspected("exited", **request("cdi", "nvidia.com/gpu=0")),
        inspected(**node("/dev/fuse")),
        inspected(env=("NVIDIA_VISIBLE_DEVICES=all",)),
        inspected(Runtime="nvidia"),
        inspected(env=("NVIDIA_VISIBLE_DEVICES=void",), Runtime="nvidia"),
        inspected(DeviceRequests=None, Devices=None),
        {"Id": "x"},
        None,
        [],
    ],
)
def test_no_hardware_that_runs(found: Any) -> None:
    assert adopting.user(found, BY_NODE) is None


def test_a_node_is_named_by_the_devices_that_inject_it_alone() -> None:
    spec = cdi.read_spec(
        b"""
cdiVersion: 0.5.0
kind: x.io/gpu
devices:
  - {name: one, containerEdits: {deviceNodes: [{path: /dev/one, hostPath: /at/one}]}}
  - {name: both, containerEdits: {deviceNodes: [{path: /dev/one, hostPath: /at/one}, {path: /dev/two}]}}
  - {name: again, containerEdits: {deviceNodes: [{path: /dev/three}]}}
  - {name: three, containerEdits: {deviceNodes: [{path: /dev/three}]}}
""",
        "x.yaml",
    )
    assert isinstance(spec, cdi.Spec)
    assert adopting.nodes([spec]) == {"/at/one": ("x.io/gpu=one",), "/dev/three": ("x.io/gpu=again", "x.io/gpu=three")}


def test_the_plan_grants_what_the_machine_has_and_says_the_rest() -> None:
    users = [
        User(
            "1" * 64, "a", (Use("a CDI device", ("x.io/gpu=2", "x.io/gpu=10", "x.io/gpu=away"), granted_as_it_is=True),)
        ),
        User("2" * 64, "", (Use("--gpus", ("x.io/gpu=2",)), Use("--gpus"))),
    ]
    assert adopting.plan(users, ("x.io/gpu=2", "x.io/gpu=10"), "m") == Plan(
        ("x.io/gpu=2", "x.io/gpu=10"),
        (
            "container a: x.io/gpu=away is no device of machine m; did you mean x.io/gpu=2 or x.io/gpu=10?",
            "container 222222222222 has --gpus, which no grant is for: make it anew with --device x.io/gpu=2",
            "container 222222222222 has --gpus, which no grant is for: make it anew with --device and a CDI "
            "device name (rdc machine gpu list MACHINE shows them)",
        ),
    )
