"""YAML nodes to a Spec, as encoding/json with unknown fields refused does it; nothing is judged here but the shape.

Where a value reads differently in the library's newer parser it is still taken, and a doubt is noted: the caller
decides what a doubt means. An empty entry in a list of objects makes every release panic, so it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gpugrant_crds.cdi import yaml11
from gpugrant_crds.cdi.spec import (
    VERSIONS,
    Device,
    DeviceNode,
    Edits,
    Hook,
    IntelRdt,
    Mount,
    NetDevice,
    Problem,
    ProblemReason,
    Spec,
)
from gpugrant_crds.cdi.yaml11 import Mapping, Node, Scalar, Sequence, go_text

T = TypeVar("T")

_INT64 = (-(2**63), 2**63 - 1)
_UINT32 = (0, 2**32 - 1)

_SINCE = {
    "additionalGids": "0.7.0",
    "intelRdt": "0.7.0",
    "netDevices": "1.1.0",
    "schemata": "1.1.0",
    "enableMonitoring": "1.1.0",
}
"""A release that knows no such field refuses the file for it, even where it is empty and so needs no higher version."""

# The only letters outside ASCII that encoding/json folds into an ASCII letter.
_FOLD = str.maketrans({"ſ": "s", "K": "k"})


class Malformed(ValueError):
    """A value has the wrong shape; carries the problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def decode(root: Node, filename: str) -> Spec:
    """The spec as written; raises Malformed."""
    return _Decoder(filename).spec(root)


class _Decoder:
    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.doubts: list[Problem] = []
        self.visited = 0
        self.declared = ""

    def spec(self, root: Node) -> Spec:
        if isinstance(root, Scalar) and root.value is None:
            raise self.bad("no spec data in the file", root)
        fields = self.fields(root, ("cdiVersion", "kind", "annotations", "devices", "containerEdits"))
        version = self.text(fields.get("cdiVersion"))
        self.declared = version.removeprefix("v")
        return Spec(
            filename=self.filename,
            version=version,
            kind=self.text(fields.get("kind")),
            annotations=self.annotations(fields.get("annotations")),
            devices=self.items(fields.get("devices"), self.device),
            edits=self.edits(fields.get("containerEdits")),
            doubts=tuple(self.doubts),
        )

    def device(self, node: Node) -> Device:
        fields = self.fields(node, ("name", "annotations", "containerEdits"))
        return Device(
            name=self.text(fields.get("name")),
            annotations=self.annotations(fields.get("annotations")),
            edits=self.edits(fields.get("containerEdits")),
        )

    def edits(self, node: Node | None) -> Edits:
        names = ("env", "deviceNodes", "netDevices", "hooks", "mounts", "intelRdt", "additionalGids")
        fields = self.fields(node, names)
        return Edits(
            env=self.items(fields.get("env"), self.text),
            device_nodes=self.objects(fields.get("deviceNodes"), self.device_node),
            net_devices=self.objects(fields.get("netDevices"), self.net_device),
            hooks=self.objects(fields.get("hooks"), self.hook),
            mounts=self.objects(fields.get("mounts"), self.mount),
            intel_rdt=self.intel_rdt(fields.get("intelRdt")),
            additional_gids=self.items(fields.get("additionalGids"), lambda n: self.number(n, _UINT32) or 0),
        )

    def device_node(self, node: Node) -> DeviceNode:
        names = ("path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid")
        fields = self.fields(node, names)
        return DeviceNode(
            path=self.text(fields.get("path")),
            host_path=self.text(fields.get("hostPath")),
            type=self.text(fields.get("type")),
            major=self.device_number(fields.get("major")),
            minor=self.device_number(fields.get("minor")),
            file_mode=self.number(fields.get("fileMode"), _UINT32),
            permissions=self.text(fields.get("permissions")),
            uid=self.number(fields.get("uid"), _UINT32),
            gid=self.number(fields.get("gid"), _UINT32),
        )

    def net_device(self, node: Node) -> NetDevice:
        fields = self.fields(node, ("hostInterfaceName", "name"))
        return NetDevice(self.text(fields.get("hostInterfaceName")), self.text(fields.get("name")))

    def hook(self, node: Node) -> Hook:
        fields = self.fields(node, ("hookName", "path", "args", "env", "timeout"))
        return Hook(
            hook_name=self.text(fields.get("hookName")),
            path=self.text(fields.get("path")),
            args=self.items(fields.get("args"), self.text),
            env=self.items(fields.get("env"), self.text),
            timeout=self.number(fields.get("timeout"), _INT64),
        )

    def mount(self, node: Node) -> Mount:
        fields = self.fields(node, ("hostPath", "containerPath", "options", "type"))
        return Mount(
            host_path=self.text(fields.get("hostPath")),
            container_path=self.text(fields.get("containerPath")),
            options=self.items(fields.get("options"), self.text),
            type=self.text(fields.get("type")),
        )

    def intel_rdt(self, node: Node | None) -> IntelRdt | None:
        if node is None or _is_null(node):
            return None
        names = ("closID", "l3CacheSchema", "memBwSchema", "schemata", "enableMonitoring")
        fields = self.fields(node, names)
        return IntelRdt(
            clos_id=self.text(fields.get("closID")),
            l3_cache_schema=self.text(fields.get("l3CacheSchema")),
            mem_bw_schema=self.text(fields.get("memBwSchema")),
            schemata=self.items(fields.get("schemata"), self.text),
            enable_monitoring=self.flag(fields.get("enableMonitoring")),
        )

    # --- shapes -------------------------------------------------------------------------------------------------

    def fields(self, node: Node | None, names: tuple[str, ...]) -> dict[str, Node]:
        """The values by their proper names; null is the empty object."""
        if node is None or _is_null(node):
            return {}
        self.count(node)
        if not isinstance(node, Mapping):
            raise self.bad(f"expected keys and values, got {_shown(node)}", node)
        folded = {_fold(name): name for name in names}
        found: dict[str, Node] = {}
        for key, value in node.pairs:
            written = self.key(key)
            name = written if written in names else folded.get(_fold(written))
            if name is None:
                raise self.bad(f'unknown field "{written}"', key)
            if self.declared in VERSIONS and _is_newer(_SINCE.get(name), self.declared):
                self.doubt(f'the field "{name}" is unknown to releases of version {self.declared}', key)
            if name != written:
                self.doubt(f'the key "{written}" is read as "{name}" by older releases and refused by newer ones', key)
            if name in found:
                raise self.bad(f'the key "{name}" is written twice', key, ProblemReason.AMBIGUOUS_SPEC)
            found[name] = value
        return found

    def key(self, key: Scalar) -> str:
        if key.value is None:
            raise self.bad("a key must not be empty", key)
        text = go_text(key.value)
        if text != key.text:
            self.doubt(f'the key "{key.text}" is read as "{text}" by older releases', key)
        return text

    def annotations(self, node: Node | None) -> tuple[tuple[str, str], ...]:
        if node is None or _is_null(node):
            return ()
        self.count(node)
        if not isinstance(node, Mapping):
            raise self.bad(f"annotations must be keys and values, got {_shown(node)}", node)
        pairs = [(self.key(key), self.text(value)) for key, value in node.pairs]
        if len({key for key, _ in pairs}) != len(pairs):
            raise self.bad("an annotation is written twice", node, ProblemReason.AMBIGUOUS_SPEC)
        return tuple(sorted(pairs))

    def items(self, node: Node | None, read: Callable[[Node], T]) -> tuple[T, ...]:
        if node is None or _is_null(node):
            return ()
        self.count(node)
        if not isinstance(node, Sequence):
            raise self.bad(f"expected a list, got {_shown(node)}", node)
        return tuple(read(item) for item in node.items)

    def objects(self, node: Node | None, read: Callable[[Node], T]) -> tuple[T, ...]:
        """A list of Go pointers: an empty entry is a nil pointer, which no release checks for."""

        def one(item: Node) -> T:
            if _is_null(item):
                raise self.bad(
                    "an empty list entry makes the CDI library crash: remove it", item, ProblemReason.AMBIGUOUS_SPEC
                )
            return read(item)

        return self.items(node, one)

    def text(self, node: Node | None) -> str:
        if node is None:
            return ""
        self.count(node)
        if not isinstance(node, Scalar):
            raise self.bad(f"expected a text, got {_shown(node)}", node)
        if node.value is None:
            return ""
        text = go_text(node.value)
        if text != node.text:
            self.doubt(
                f'"{node.text}" is read as "{text}" by older releases and as written by newer ones: quote it', node
            )
        return text

    def number(self, node: Node | None, limits: tuple[int, int]) -> int | None:
        if node is None or _is_null(node):
            return None
        self.count(node)
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.bad(f"expected a whole number, got {_shown(node)}", node)
        if not limits[0] <= value <= limits[1]:
            raise self.bad(f"{value} is out of range", node)
        return value

    def device_number(self, node: Node | None) -> int:
        value = self.number(node, _INT64) or 0
        if value < 0 and node is not None:
            self.doubt(f"the device number {value} is taken by older releases and refused by newer ones", node)
        return value

    def flag(self, node: Node | None) -> bool:
        if node is None or _is_null(node):
            return False
        value = node.value if isinstance(node, Scalar) else None
        if not isinstance(value, bool):
            raise self.bad(f"expected true or false, got {_shown(node)}", node)
        return value

    # --- bookkeeping --------------------------------------------------------------------------------------------

    def count(self, node: Node) -> None:
        """Aliases make one node many: what they expand to is bounded like what is written."""
        self.visited += 1
        if self.visited > yaml11.MAX_NODES:
            raise self.bad("document contains excessive aliasing", node)

    def doubt(self, message: str, node: Node) -> None:
        if len(self.doubts) < 20:
            self.doubts.append(Problem(ProblemReason.AMBIGUOUS_SPEC, message, self.filename, node.line))

    def bad(self, message: str, node: Node, reason: ProblemReason = ProblemReason.SPEC_INVALID) -> Malformed:
        return Malformed(Problem(reason, message, self.filename, node.line))


def _is_newer(since: str | None, declared: str) -> bool:
    return since is not None and VERSIONS.index(since) > VERSIONS.index(declared)


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def _fold(name: str) -> str:
    return name.translate(_FOLD).lower()


def _shown(node: Node) -> str:
    match node:
        case Scalar():
            return f'"{node.text[:40]}"'
        case Sequence():
            return "a list"
        case Mapping():
            return "keys and values"
