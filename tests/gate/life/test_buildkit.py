"""What a daemon lets its builds reach: closed only where everything is known and said (design 5, R45)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_crds import cdi
from gpugrant_gate.life import buildkit
from gpugrant_gate.life.buildkit import AUTO_ALLOW, Builder, Entitlements, Question

CLOSED = Entitlements(network_host=False, security_insecure=False, device=False)
BUILDER = Builder((28, 5, 2), "/etc/docker/daemon.json", CLOSED, runc=True, own_specs=True)
FILE = {"builder": {"entitlements": {"network-host": False, "security-insecure": False, "device": False}}}


def refusal(builder: Builder = BUILDER, **more: Any) -> str:
    return buildkit.refusal(Question(builder, **{"sealed": False, "auto_allowed": (), **more}))


def with_(**entitlements: bool) -> Builder:
    return replace(BUILDER, entitlements=replace(CLOSED, **entitlements))


@pytest.mark.parametrize("engine", [(25, 0, 2), (26, 1, 5), (27, 5, 1), (28, 0, 0), (28, 5, 2), (29, 0, 0), (29, 6, 3)])
@pytest.mark.parametrize("sealed", [True, False])
def test_passes_where_a_build_reaches_nothing(engine: buildkit.Engine, sealed: bool) -> None:
    assert refusal(replace(BUILDER, engine=engine), sealed=sealed) == ""


REFUSED = {
    "nothing known": (Builder(), {}, "not known"),
    "a build could become privileged": (replace(BUILDER, engine=(25, 0, 1)), {}, "install 25.0.2 or newer"),
    "an engine after the known ones": (replace(BUILDER, engine=(30, 0, 0)), {}, "update gpugrant"),
    "no version": (replace(BUILDER, engine=None), {}, "not known which Docker Engine"),
    "insecure": (with_(security_insecure=True), {"sealed": True}, "become privileged (security-insecure)"),
    "the host's network": (with_(network_host=True), {"sealed": True}, '"network-host": false'),
    "devices in 29": (
        replace(with_(device=True), engine=(29, 0, 0)),
        {"sealed": True},
        '"device": false}} into /etc/docker/daemon.json and restart it',
    ),
    "an unread file": (replace(BUILDER, entitlements="/x can't be read"), {"sealed": True}, "/x can't be read"),
    "another program than runc": (replace(BUILDER, runc=False), {"sealed": True}, "DOCKER_BUILDKIT_RUNC_COMMAND"),
    "devices for everybody": (BUILDER, {"auto_allowed": ("x.yaml",)}, "x.yaml may give devices to any build"),
    "a folder of its own": (replace(BUILDER, own_specs=False), {}, "another CDI folder"),
}


@pytest.mark.req("R45")
@pytest.mark.parametrize("case", REFUSED)
def test_refuses_with_the_mend(case: str) -> None:
    builder, more, words = REFUSED[case]
    assert words in refusal(builder, **more)


PASSES = {
    "devices' entitlement is not known before 29": (with_(device=True), {}),
    "no devices in builds before 28": (
        replace(BUILDER, engine=(27, 0, 0), own_specs=False),
        {"auto_allowed": ("x.yaml",)},
    ),
    "a sealed folder has no such annotation": (BUILDER, {"sealed": True, "auto_allowed": ("x.yaml",)}),
    "the host's network where it is open": (with_(network_host=True), {"network_open": True}),
}


@pytest.mark.parametrize("case", PASSES)
def test_passes_for(case: str) -> None:
    builder, more = PASSES[case]
    assert refusal(builder, **more) == ""


def test_all_that_is_open_is_named_at_once() -> None:
    said = refusal(with_(network_host=True, security_insecure=True), auto_allowed=("a.yaml", "b.yaml"))
    for words in ("security-insecure", "network-host", "a.yaml, b.yaml"):
        assert words in said


def test_reads_a_daemon_json() -> None:
    assert buildkit.read(json.dumps(FILE).encode()) == CLOSED
    assert buildkit.read(b"{%s}" % buildkit.daemon_json().encode()) == CLOSED


@pytest.mark.parametrize(
    "text", ["{}", '{"builder": null}', '{"builder": {"entitlements": {}, "gc": {"enabled": true}}}']
)
def test_what_is_not_said_is_the_daemons_default(text: str) -> None:
    assert buildkit.read(text.encode()) == Entitlements(network_host=True, security_insecure=False, device=True)


UNCLEAR = {
    "no JSON": "{",
    "no object": "[]",
    "nothing": "",
    "a key twice": '{"builder": {}, "builder": {"entitlements": {"security-insecure": true}}}',
    "another case": '{"builder": {"entitlements": {"network-host": false, "Security-Insecure": true}}}',
    "a folded letter": '{"builder": {"entitlements": {"network-hoſt": true}}}',
    "a section in another case": '{"Builder": {"entitlements": {"security-insecure": true}}}',
    "no truth": '{"builder": {"entitlements": {"network-host": "false"}}}',
    "a list": '{"builder": []}',
    "a byte order mark": "\ufeff{}",
}


@pytest.mark.parametrize("case", UNCLEAR)
def test_a_file_that_can_be_read_in_two_ways_says_nothing(case: str) -> None:
    assert isinstance(buildkit.read(UNCLEAR[case].encode()), str)


FLAGS = st.sampled_from([True, False, None])


@given(FLAGS, FLAGS, FLAGS, st.integers(25, 31), st.booleans(), st.booleans(), st.booleans())
def test_never_passes_while_something_is_open(
    network: bool | None,
    insecure: bool | None,
    device: bool | None,
    major: int,
    sealed: bool,
    annotated: bool,
    network_open: bool,
) -> None:
    """The law, said without the code's own tables: what Docker's defaults leave open is refused."""
    said = {"network-host": network, "security-insecure": insecure, "device": device}
    read = buildkit.read(json.dumps({"builder": {"entitlements": said}}).encode())
    builder = Builder((major, 1, 0), "/d", read, runc=True, own_specs=True)
    passes = not refusal(builder, sealed=sealed, auto_allowed=("x",) if annotated else (), network_open=network_open)
    dangers = (
        insecure is True,
        network is not False and not network_open,
        major == 29 and device is not False,
        major >= 28 and annotated and not sealed,
        major > 29,
    )
    assert passes == (not any(dangers))


SPEC = """\
cdiVersion: 0.6.0
kind: v.com/gpu
{top}
devices:
- name: a
  {of_a}
  containerEdits: {{env: [A=1]}}
- name: b
  containerEdits: {{env: [B=1]}}
"""
ANNOTATION = f'annotations: {{"{AUTO_ALLOW}": "true", "x.y/z": "kept"}}'


def spec(*, top: str = "", of_a: str = "") -> cdi.Spec:
    read = cdi.read_spec(SPEC.format(top=top, of_a=of_a), "v.yaml")
    assert isinstance(read, cdi.Spec)
    return read


@pytest.mark.req("R45")
@pytest.mark.parametrize("where", ["top", "of_a"])
def test_finds_the_annotation_and_takes_it_away(where: str) -> None:
    annotated = spec(**{where: ANNOTATION})
    assert buildkit.auto_allowed({"v.yaml": annotated, "w.yaml": spec()}) == ("v.yaml",)
    without = buildkit.withheld(annotated)
    assert buildkit.auto_allowed({"v.yaml": without}) == ()
    assert AUTO_ALLOW not in cdi.dump(without)
    assert "kept" in cdi.dump(without)


@pytest.mark.req("R45")
def test_a_spec_that_cannot_be_read_here_may_be_read_by_a_daemon() -> None:
    broken = cdi.read_spec("]", "x.yaml")
    assert buildkit.auto_allowed({"x.yaml": broken}) == ("x.yaml",)
