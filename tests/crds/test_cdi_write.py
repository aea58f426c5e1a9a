from __future__ import annotations

import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_crds import cdi
from gpugrant_crds.cdi import Device, DeviceNode, Edits, Hook, IntelRdt, Mount, NetDevice, Spec

NVIDIA = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- {name: "0", containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}
- {name: all, containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/nvidia1}]}}
containerEdits: {deviceNodes: [{path: /dev/nvidiactl}], env: [NVIDIA_VISIBLE_DEVICES=void]}
"""


def nvidia() -> Spec:
    spec = cdi.read_spec(NVIDIA, "nvidia.yaml")
    assert isinstance(spec, Spec)
    return spec


@pytest.mark.req("R7")
def test_restrict_keeps_the_named_devices_and_what_all_share() -> None:
    kept = cdi.restrict(nvidia(), {"nvidia.com/gpu=0", "rediacc.io/amd=all"})
    assert kept is not None
    assert kept.names == ("nvidia.com/gpu=0",)
    assert kept.edits == nvidia().edits
    assert "nvidia1" not in cdi.dump(kept)


def test_restrict_to_nothing_is_no_spec() -> None:
    assert cdi.restrict(nvidia(), {"nvidia.com/gpu=1"}) is None


def test_dump_is_readable_and_in_the_order_of_the_specification() -> None:
    assert cdi.dump(nvidia()).splitlines()[:7] == [
        'cdiVersion: "0.5.0"',
        "kind: nvidia.com/gpu",
        "devices:",
        '- name: "0"',
        "  containerEdits:",
        "    deviceNodes:",
        "    - path: /dev/nvidia0",
    ]


texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)
names = st.text(string.ascii_letters + string.digits, min_size=1, max_size=6)
edits = st.builds(
    Edits,
    env=st.lists(texts.map(lambda value: f"A={value}"), max_size=2).map(tuple),
    device_nodes=st.lists(
        st.builds(
            DeviceNode,
            path=names,
            host_path=texts,
            type=st.sampled_from(["", "c"]),
            major=st.integers(0, 2**63 - 1),
            minor=st.integers(0, 300),
            file_mode=st.none() | st.integers(0, 2**32 - 1),
            permissions=st.sampled_from(["", "rwm"]),
            uid=st.none() | st.just(0),
        ),
        min_size=1,
        max_size=2,
    ).map(tuple),
    net_devices=st.lists(st.builds(NetDevice, names, names), max_size=1).map(tuple),
    hooks=st.lists(
        st.builds(Hook, st.just("prestart"), names, args=st.lists(texts).map(tuple), timeout=st.none() | st.just(0)),
        max_size=1,
    ).map(tuple),
    mounts=st.lists(st.builds(Mount, names, names, options=st.lists(texts).map(tuple), type=texts), max_size=1).map(
        tuple
    ),
    intel_rdt=st.none() | st.builds(IntelRdt, l3_cache_schema=texts, enable_monitoring=st.booleans()),
    additional_gids=st.lists(st.integers(0, 9), max_size=2).map(tuple),
)
annotations = st.dictionaries(names, texts, max_size=2).map(lambda pairs: tuple(sorted(pairs.items())))
specs = st.builds(
    Spec,
    filename=st.just("x.yaml"),
    version=st.just("1.1.0"),
    kind=st.just("vendor.com/dev"),
    devices=st.lists(st.builds(Device, names, edits, annotations), min_size=1, unique_by=lambda d: d.name).map(tuple),
    edits=st.just(Edits()) | edits,
    annotations=annotations,
)


@given(specs)
def test_what_is_written_reads_back_the_same_and_without_doubt(spec: Spec) -> None:
    assert cdi.read_spec(cdi.dump(spec), "x.yaml") == spec


@given(specs)
def test_every_reader_of_yaml_sees_the_same_texts(spec: Spec) -> None:
    assert yaml.safe_load(cdi.dump(spec)) == cdi.to_dict(spec)


@given(specs, st.sets(names))
def test_restrict_never_adds(spec: Spec, wanted: set[str]) -> None:
    qualified = {f"vendor.com/dev={name}" for name in wanted}
    kept = cdi.restrict(spec, qualified)
    assert set(kept.names if kept else ()) == qualified & set(spec.names)
