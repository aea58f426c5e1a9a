from __future__ import annotations

import itertools

import pytest

from gpugrant_crds import cdi
from gpugrant_operator.node import nvidia_spec
from gpugrant_operator.node.nvidia_spec import Action
from gpugrant_operator.node.state import Install


@pytest.mark.req("R11", "R13", "R14")
@pytest.mark.parametrize(
    ("install", "present", "toolkit", "ours", "expected"),
    [
        pytest.param("auto", True, True, False, Action.GENERATE, id="auto with a card and the toolkit"),
        pytest.param("auto", True, False, False, Action.INSTALL, id="auto with a card, no toolkit"),
        pytest.param("auto", False, True, False, Action.LEAVE, id="auto without a card leaves another's file"),
        pytest.param("auto", False, True, True, Action.REMOVE, id="auto when the last card is gone"),
        pytest.param("auto", False, False, True, Action.REMOVE, id="auto when card and toolkit are gone"),
        pytest.param("auto", False, False, False, Action.LEAVE, id="auto with nothing at all"),
        pytest.param("true", True, True, False, Action.GENERATE, id="true with a card"),
        pytest.param("true", False, True, False, Action.LEAVE, id="true without a card: no spec"),
        pytest.param("true", False, False, False, Action.INSTALL, id="true installs in any case"),
        pytest.param("true", False, True, True, Action.REMOVE, id="true when the last card is gone"),
        pytest.param("false", True, True, True, Action.LEAVE, id="false with everything"),
        pytest.param("false", True, False, False, Action.LEAVE, id="false does not install"),
        pytest.param("false", False, True, True, Action.LEAVE, id="false removes nothing"),
    ],
)
def test_what_is_done_about_nvidia_yaml(
    install: Install, present: bool, toolkit: bool, ours: bool, expected: Action
) -> None:
    found = nvidia_spec.action(install, present=present, seen=present, toolkit=toolkit, ours=ours)
    assert found is expected


def test_a_card_that_is_passed_through_keeps_the_file() -> None:
    assert nvidia_spec.action("auto", present=False, seen=True, toolkit=True, ours=True) is Action.LEAVE


def test_only_a_file_of_ours_is_ever_removed() -> None:
    installs: tuple[Install, ...] = ("auto", "true", "false")
    for install, present, seen, toolkit in itertools.product(installs, *[(False, True)] * 3):
        found = nvidia_spec.action(install, present=present, seen=seen, toolkit=toolkit, ours=False)
        assert found is not Action.REMOVE


WHOLE = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- {name: "0", containerEdits: {deviceNodes: [{path: /dev/nvidia3}]}}
- {name: "1:0", containerEdits: {deviceNodes: [{path: /dev/nvidia1}, {path: /dev/nvidia-caps/nvidia-cap12},
    {path: /dev/nvidia-caps/nvidia-cap13}]}}
- {name: all, containerEdits: {deviceNodes: [{path: /dev/nvidia3}, {path: /dev/nvidia1}]}}
containerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}
"""


def fault(text: str, minors: frozenset[int] = frozenset({3}), absent: str = "") -> str | None:
    return nvidia_spec.fault(cdi.read_spec(text, "nvidia.yaml"), minors, lambda path: path != absent)


def test_a_whole_spec_has_no_fault() -> None:
    assert fault(WHOLE) is None


@pytest.mark.parametrize(
    ("text", "minors", "absent", "clause"),
    [
        pytest.param("", frozenset(), "", "no spec data", id="empty output"),
        pytest.param(WHOLE[:90], frozenset(), "", "nvidia.yaml", id="torn output"),
        pytest.param(WHOLE.replace('"0"', "08"), frozenset(), "", "quote it", id="an ambiguous name"),
        pytest.param(WHOLE.replace("nvidia.com/gpu", "other.com/gpu"), frozenset(), "", "its kind", id="another kind"),
        pytest.param(
            WHOLE.replace("/dev/nvidia3", "/dev/dri/card0"), frozenset(), "", '"0" holds no card', id="no node"
        ),
        pytest.param(
            WHOLE.replace("/dev/nvidia-caps/nvidia-cap13", "/dev/x"),
            frozenset(),
            "",
            "capability",
            id="MIG without caps",
        ),
        pytest.param(WHOLE, frozenset(), "/dev/nvidia3", "names /dev/nvidia3, which is not there", id="an absent node"),
        pytest.param(WHOLE, frozenset(), "/dev/nvidiactl", "names /dev/nvidiactl", id="an absent control node"),
        pytest.param(WHOLE, frozenset({3, 0}), "", "no device of it holds /dev/nvidia0", id="a card is missing"),
    ],
)
def test_what_is_not_whole_is_said(text: str, minors: frozenset[int], absent: str, clause: str) -> None:
    assert clause in (fault(text, minors, absent) or "")


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        pytest.param("", "it said nothing", id="nothing"),
        pytest.param("a\nbroken\n\n", "broken", id="a plain line"),
        pytest.param(
            'time="2026-01-01T00:00:00Z" level=info msg="x"\n'
            'time="2026-01-01T00:00:00Z" level=error msg="failed: \\"no\\" way"\n',
            'failed: "no" way',
            id="a log line with quotes",
        ),
        pytest.param("\x1b[31mred", "?[31mred", id="what is not printable"),
        pytest.param("x" * 1000, "x" * 400, id="a long one"),
    ],
)
def test_what_nvidia_ctk_complains_of(stderr: str, said: str) -> None:
    assert nvidia_spec.complaint(stderr) == said
