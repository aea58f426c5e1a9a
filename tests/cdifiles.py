"""Spec files to read: sound ones, and sound ones with something done to them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

ODD_SCALARS = (
    "0", "08", "010", "0x10", "0o10", "0b11", "-0b1", "0b-1", "1_0", "_1", "1e3", "1.0", "1.50", ".5", "+1", "-1",
    "-0", ".nan", ".inf", "-.inf", "1e21", "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "1e400", "yes", "no", "on", "off", "y", "n", "True", "FALSE", "true", "~", "null", "Null", '""', "''", "!!str 1",
    "!!int 1", "!!binary YQ==", "12:30:45", "2024-01-02", "2024-01-02T03:04:05Z", "&a x", "*a", "<<", "=", "[]", "{}",
    "[~]", "[{}]", "[[]]", "{a: b}", '|\n      x', '"\\/x"', '"\\x41"', '"\\u017f"', "'it''s'", "x y", "x: y", "x #c",
    "@x", "%x", "`x", "438.5", "195.0", "0666", "0o666", "1.5", "4294967295", "4294967296", "none", "rwm", "rw x",
    '\xe9', '\u212a', "a=b", "=b", "a", "a/b", "a.b/c.d", "v0.5.0", "0.3.0", "1.1.0", "9.9.9",
)  # fmt: skip
"""As they stand in a file; many of them mean something else to each reader of YAML."""

KEYS = (
    "cdiVersion", "kind", "annotations", "devices", "containerEdits", "name", "env", "deviceNodes", "netDevices",
    "hooks", "mounts", "intelRdt", "additionalGids", "path", "hostPath", "type", "major", "minor", "fileMode",
    "permissions", "uid", "gid", "hostInterfaceName", "hookName", "args", "timeout", "containerPath", "options",
    "closID", "l3CacheSchema", "memBwSchema", "schemata", "enableMonitoring", "enableCMT", "enableMBM", "x", "<<",
    "Kind", "NAME", "Devices", "additionalGIDs", 'deviceNode\u017f', '\u212aind', "true", "0",
)  # fmt: skip

_NAME = st.sampled_from(["0", "1", "all", "gpu0", "renderD128", "GPU-1f", "0:0", "a_b", "a.b", "A", "x1", "9"])
_PATH = st.sampled_from(["/dev/x", "/dev/nvidia0", "/dev/dri/renderD128", "x", "/"])
_ENV = st.lists(st.sampled_from(["A=b", "A=", "A=b=c", "LONG_NAME=x y"]), max_size=2)


def _some(**fields: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


_NODE = st.fixed_dictionaries(
    {"path": _PATH},
    optional={
        "hostPath": _PATH,
        "type": st.sampled_from(["", "b", "c", "u", "p"]),
        "major": st.integers(0, 300),
        "minor": st.integers(0, 300),
        "fileMode": st.sampled_from([0, 420, 438]),
        "permissions": st.sampled_from(["", "r", "rw", "rwm", "mwr", "rr"]),
        "uid": st.integers(0, 2**32 - 1),
        "gid": st.integers(0, 2**32 - 1),
    },
)
_NET = st.fixed_dictionaries(
    {"hostInterfaceName": st.sampled_from(["eth0", "eth1"]), "name": st.sampled_from(["n0", "n1"])}
)
_HOOK = st.fixed_dictionaries(
    {
        "hookName": st.sampled_from(
            ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
        ),
        "path": _PATH,
    },
    optional={
        "args": st.lists(st.sampled_from(["a", "--b", ""]), max_size=2),
        "env": _ENV,
        "timeout": st.integers(-1, 9),
    },
)
_MOUNT = st.fixed_dictionaries(
    {"hostPath": _PATH, "containerPath": _PATH},
    optional={
        "options": st.lists(st.sampled_from(["ro", "bind", "nosuid"]), max_size=2),
        "type": st.sampled_from(["", "bind", "tmpfs"]),
    },
)
_RDT = _some(
    closID=st.sampled_from(["", "/", "x", ".", "a/b"]),
    l3CacheSchema=st.just("L3:0=f"),
    memBwSchema=st.just("MB:0=70"),
    schemata=st.lists(st.just("L3:0=f"), max_size=1),
    enableMonitoring=st.booleans(),
)
_EDITS = _some(
    env=_ENV,
    deviceNodes=st.lists(_NODE, max_size=2),
    netDevices=st.lists(_NET, max_size=2),
    hooks=st.lists(_HOOK, max_size=1),
    mounts=st.lists(_MOUNT, max_size=1),
    intelRdt=_RDT,
    additionalGids=st.lists(st.integers(0, 100), max_size=2),
)
_ANNOTATIONS = st.dictionaries(st.sampled_from(["a", "b.c/d", ""]), st.sampled_from(["x", "", "y z"]), max_size=2)
_DEVICE = st.fixed_dictionaries({"name": _NAME, "containerEdits": _EDITS}, optional={"annotations": _ANNOTATIONS})

SPEC: SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "cdiVersion": st.sampled_from(
            ["0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0", "v0.5.0", "1.2.0"]
        ),
        "kind": st.sampled_from(
            [
                "nvidia.com/gpu",
                "rediacc.io/dri",
                "ab.c/d.e",
                "a/b",
                "ab/cd",
                "a1-/b",
                "1a/bc",
                "nvidia.com",
                "x/y/z",
                "",
            ]
        ),
        "devices": st.lists(_DEVICE, max_size=3),
    },
    optional={"containerEdits": _EDITS, "annotations": _ANNOTATIONS},
)
"""Near what a daemon takes; about half of them are refused for one of the library's own rules."""


class Raw(str):
    """A scalar that is written as it stands."""

    __slots__ = ()


@st.composite
def spoilt(draw: DrawFn) -> dict[str, Any]:
    """A spec with one to three places changed: an odd scalar, another key, a key more."""
    tree: dict[str, Any] = json.loads(json.dumps(draw(SPEC)))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(tree))
        holder, key = draw(st.sampled_from(places))
        odd = Raw(draw(st.sampled_from(ODD_SCALARS)))
        if isinstance(holder, dict) and draw(st.booleans()):
            holder[draw(st.sampled_from(KEYS))] = holder.pop(key) if draw(st.booleans()) else odd
        else:
            holder[key] = odd
    return tree


def _places(tree: Any) -> Any:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield tree, key
        yield from _places(value)


def written(tree: Any, indent: int = 0) -> str:
    """As YAML, block style; scalars that are no Raw are quoted so that they are what they are."""
    if isinstance(tree, dict) and tree:
        return "".join(f"\n{' ' * indent}{_key(key)}: {written(value, indent + 2)}" for key, value in tree.items())
    if isinstance(tree, list) and tree:
        return "".join(f"\n{' ' * indent}- {written(value, indent + 2).lstrip()}" for value in tree)
    return str(tree) if isinstance(tree, Raw) else json.dumps(tree, ensure_ascii=False)


def _key(key: str) -> str:
    return key or '""'
