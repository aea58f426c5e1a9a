"""R47 on real parts: other hardware behind a granted name is a warning Event, and the grant stays in force."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import kubernetes
import pytest

import standalone
from standalone import Instance

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.timeout(120), pytest.mark.req("R47")]

T = TypeVar("T")

INTEL, AMD = ("0000:00:02.0", "renderD128"), ("0000:03:00.0", "renderD130")
DEVICE = "rediacc.io/dri=renderD128"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return Path(shutil.copytree(standalone.WORKSTATION, tmp_path / "workstation", symlinks=True))


@pytest.fixture
def instance(tree: Path) -> Iterator[Instance]:
    with standalone.up(tree) as running:
        yield running


def swap(tree: Path) -> None:
    """As a boot that probes in another order: the two cards change their render nodes."""
    devices = tree / "sys/bus/pci/devices"
    (devices / INTEL[0] / "drm/renderD128").rename(devices / INTEL[0] / "drm/aside")
    (devices / AMD[0] / "drm/renderD130").rename(devices / AMD[0] / "drm/renderD128")
    (devices / INTEL[0] / "drm/aside").rename(devices / INTEL[0] / "drm/renderD130")
    first, second = (tree / f"sys/class/drm/{name}/device" for name in ("renderD128", "renderD130"))
    target = first.readlink()
    first.unlink()
    first.symlink_to(second.readlink())
    second.unlink()
    second.symlink_to(target)
    properties = tree / "sys/class/kfd/kfd/topology/nodes/1/properties"
    properties.write_text(properties.read_text().replace("drm_render_minor 130", "drm_render_minor 128"))


def eventually(look: Callable[[], T]) -> T:
    """What it gives once it gives something, within ten seconds."""
    deadline = time.monotonic() + 10
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


class Api:
    def __init__(self, instance: Instance) -> None:
        client = kubernetes.config.new_client_from_config(str(instance.layout.kubeconfig))
        self.objects = kubernetes.client.CustomObjectsApi(client)
        self.core = kubernetes.client.CoreV1Api(client)

    def grant(self) -> dict[str, Any]:
        found = self.objects.list_namespaced_custom_object("gpu.rediacc.io", "v1alpha1", "default", "repogpugrants")
        (item,) = found["items"]
        return dict(item)

    def conditions(self) -> dict[str, tuple[str, str]]:
        return {it["type"]: (it["status"], it["reason"]) for it in self.grant()["status"]["conditions"]}

    def warnings(self) -> list[str]:
        events = self.core.list_namespaced_event("default").items
        return [event.message for event in events if (event.type, event.reason) == ("Warning", "DeviceMoved")]


def test_a_moved_device_is_said_once_and_taken_from_nobody(instance: Instance, tree: Path) -> None:
    api = Api(instance)
    granted = instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", DEVICE)
    assert granted.exit_code == 0, granted.output
    assert api.grant()["status"]["hardware"] == ["gpu/pci:0000:00:02.0"]

    swap(tree)
    assert instance.rdc("machine", "setup", instance.machine).exit_code == 0

    assert api.conditions()["Ready"] == ("True", "Enforced")
    assert api.conditions()["Moved"] == ("True", "DeviceMoved")
    (said,) = eventually(api.warnings)
    assert f"{DEVICE} on workstation stands for amd:7c3a51e09b2d46f8 now and stood for pci:0000:00:02.0" in said
    listed = json.loads(instance.rdc("repo", "gpu", "list", "gpu-a", "-o", "json").stdout)
    assert [(one["device"], one["inForce"], one["moved"]) for one in listed] == [(DEVICE, True, said)]
    assert said in instance.rdc("repo", "gpu", "list", "gpu-a").stderr

    name = api.grant()["metadata"]["name"]
    patch = {"metadata": {"annotations": {"gpu.rediacc.io/rebind": "now"}}}
    api.objects.patch_namespaced_custom_object("gpu.rediacc.io", "v1alpha1", "default", "repogpugrants", name, patch)
    assert eventually(lambda: "Moved" not in api.conditions())
    assert api.conditions()["Ready"] == ("True", "Enforced")
    assert api.grant()["status"]["hardware"] == ["gpu/amd:7c3a51e09b2d46f8"]
