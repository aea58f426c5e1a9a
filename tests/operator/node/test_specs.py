from __future__ import annotations

import pytest

from gpugrant_crds import cdi
from gpugrant_crds.cdi import Spec
from gpugrant_operator.node import specs
from gpugrant_operator.node.cards import AmdDevice


def here(path: str) -> str:
    return path


def below(path: str) -> str:
    return f"/root{path}"


CARDS = (AmdDevice("gpu0", "renderD128", "0000:03:00.0"), AmdDevice("gpu1", "renderD130", "0000:04:00.0"))


@pytest.mark.req("R15", "R18")
def test_one_dri_device_a_render_node_in_numeric_order() -> None:
    spec = specs.dri(["renderD130", "renderD9", "renderD128"], here)
    assert spec is not None
    assert spec.names == ("rediacc.io/dri=renderD9", "rediacc.io/dri=renderD128", "rediacc.io/dri=renderD130")
    assert cdi.dump(spec).splitlines()[:6] == [
        'cdiVersion: "0.3.0"',
        "kind: rediacc.io/dri",
        "devices:",
        "- name: renderD9",
        "  containerEdits:",
        "    deviceNodes:",
    ]
    assert "hostPath" not in cdi.dump(spec)


@pytest.mark.req("R16", "R18")
def test_each_amd_device_holds_kfd_and_all_holds_every_card() -> None:
    spec = specs.amd(CARDS, here)
    assert spec is not None
    held = {device.name: [node.path for node in device.edits.device_nodes] for device in spec.devices}
    assert held == {
        "gpu0": ["/dev/kfd", "/dev/dri/renderD128"],
        "gpu1": ["/dev/kfd", "/dev/dri/renderD130"],
        "all": ["/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD130"],
    }
    assert spec.edits.empty


def test_nothing_to_offer_is_no_spec() -> None:
    assert specs.dri([], here) is None
    assert specs.amd([], here) is None


@pytest.mark.parametrize("spec", [specs.dri(["renderD128"], below), specs.amd(CARDS, below)])
def test_nodes_that_lie_elsewhere_are_named_with_the_version_that_allows_it(spec: Spec) -> None:
    assert spec.version == "0.5.0"
    assert all(node.host_path == f"/root{node.path}" for d in spec.devices for node in d.edits.device_nodes)


@pytest.mark.parametrize("spec", [specs.dri(["renderD128"], here), specs.amd(CARDS, below)])
def test_they_read_back_as_they_are(spec: Spec) -> None:
    assert cdi.read_spec(cdi.dump(spec), spec.filename) == spec
