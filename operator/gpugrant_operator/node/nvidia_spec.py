"""nvidia.yaml: when it is made, kept or removed, and whether what the toolkit wrote is whole (R11, R13, R14, R17).

Pure. `nvidia-ctk` exits with 0 also when a card's node is missing from what it wrote: the spec is judged by what
stands in it, and the old file stays where the new one is not whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto

from gpugrant_crds.cdi import Device, Problem, Spec
from gpugrant_operator.node.specs import NVIDIA_KIND
from gpugrant_operator.node.state import Install

ENVIRONMENT = {"NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS": "no-additional-gids-for-device-nodes"}
"""Else toolkit 1.19 writes version 0.7.0, which Docker 25 and 26.0 refuse as a whole file. By environment, since
older releases know neither the flag nor the variable and refuse only the flag."""

GENERATE_NATIVE = ("cdi", "generate")
"""To stdout: a temporary name in the folder would be a spec to every daemon."""

COMPLAINT_MAX = 400
"""Characters of what nvidia-ctk says last that are shown: its errors are chains of up to ten links."""

_LOG_LINE = re.compile(r'time="[^"]*" level=[a-z]+ msg="((?:[^"\\]|\\.)*)".*')
"""logrus's text format."""

_OWN_NODE = re.compile(r"/dev/(?:nvidia([0-9]+)|dxg|nvhost-gpu)")
"""A card's, WSL's, a Jetson's."""
_CAP_NODE = re.compile(r"/dev/nvidia-caps/nvidia-cap[0-9]+")
_MIG_NAME = re.compile(r"MIG-.*|[0-9]+:[0-9]+")


class Action(Enum):
    GENERATE = auto()
    REMOVE = auto()
    """The last card is gone and the file is ours."""
    LEAVE = auto()
    INSTALL = auto()
    """The toolkit is wanted and not there."""


def action(install: Install, *, present: bool, seen: bool, toolkit: bool, ours: bool) -> Action:
    """What to do about nvidia.yaml. `present`: a card that this machine can use; `seen`: any card at all;
    `toolkit`: nvidia-ctk is there; `ours`: the file in place was written by setup."""
    if install == "false":
        return Action.LEAVE
    if not toolkit and (present or install == "true"):
        return Action.INSTALL
    if present:
        return Action.GENERATE
    return Action.REMOVE if ours and not seen else Action.LEAVE


def fault(spec: Spec | Problem, minors: frozenset[int], exists: Callable[[str], bool]) -> str | None:
    """What keeps the toolkit's spec from being put in place, as one clause; None: it is whole.

    `minors`: N of each /dev/nvidia<N> that works; `exists` says whether a device node is there.
    """
    if isinstance(spec, Problem):
        return str(spec)
    if spec.doubts:
        return str(spec.doubts[0])
    if spec.kind != NVIDIA_KIND:
        return f"its kind is {spec.kind}, not {NVIDIA_KIND}"
    held: set[int] = set()
    for device in spec.devices:
        problem = _device_fault(device, exists)
        if problem is not None:
            return problem
        held |= _minors(device)
    shared = next((node.source for node in spec.edits.device_nodes if not exists(node.source)), None)
    if shared is not None:
        return f"it names {shared}, which is not there"
    missing = sorted(minors - held)
    if missing:
        return f"no device of it holds /dev/nvidia{missing[0]}, which works"
    return None


def release(version: str | None) -> tuple[int, int]:
    """Major and minor of a toolkit's version; (0, 0) where it is none."""
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", version or "")
    return (int(match[1]), int(match[2])) if match else (0, 0)


def complaint(stderr: str) -> str:
    """The message of the last line that nvidia-ctk logged, printable; a line in another form as it is."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else "it said nothing"
    match = _LOG_LINE.fullmatch(last)
    text = re.sub(r"\\(.)", r"\1", match[1]) if match else last
    return "".join(char if char.isprintable() else "?" for char in text)[:COMPLAINT_MAX]


def _device_fault(device: Device, exists: Callable[[str], bool]) -> str | None:
    nodes = device.edits.device_nodes
    if not any(_OWN_NODE.fullmatch(node.path) for node in nodes):
        return f'device "{device.name}" holds no card of its own'
    if _MIG_NAME.fullmatch(device.name) and sum(1 for n in nodes if _CAP_NODE.fullmatch(n.path)) < 2:
        # with its parent's node alone it would be the whole card
        return f'MIG device "{device.name}" lacks its capability nodes'
    absent = next((node.source for node in nodes if not exists(node.source)), None)
    return None if absent is None else f'device "{device.name}" names {absent}, which is not there'


def _minors(device: Device) -> set[int]:
    matches = (_OWN_NODE.fullmatch(node.path) for node in device.edits.device_nodes)
    return {int(match[1]) for match in matches if match and match[1]}
