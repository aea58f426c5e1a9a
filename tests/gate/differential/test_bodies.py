"""What the gate reads in a JSON body, and sends on, is what Go reads there: or the gate refuses the body.

Bodies are made from the daemon's own structs, with every trick of two decoders that disagree: repeated keys, keys that
fold to one, nulls, numbers, bytes that are no UTF-8 or no JSON.
"""

from __future__ import annotations

import json
import posixpath
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dockerclient import ID, NVIDIA, OTHER_ID, ask, inspected, knows, repo
from gpugrant_gate.policy.bodies import is_zero
from gpugrant_gate.policy.model import Admission, ContainerFact, Decision, ExecFact

pytestmark = [pytest.mark.req("R4", "R45")]

WEB = inspected(id_=OTHER_ID, IpcMode="shareable")
VIEW = repo(NVIDIA, binds=("/srv/a",))
FIND = knows(
    {
        ContainerFact("c"): inspected(),
        ContainerFact(ID): inspected(),
        ContainerFact("web"): WEB,
        ExecFact(ID): {"ContainerID": ID, "ProcessConfig": {"privileged": False}},
    }
)
ENDPOINT: dict[str, Any] = {
    "IPAMConfig": {"IPv4Address": "10.0.0.2", "LinkLocalIPs": ["169.254.1.1"]}, "Links": ["a:b"], "Aliases": ["www"],
    "DriverOpts": {"com.docker.network.endpoint.ifname": "eth7"}, "DNSNames": ["x"],
}  # fmt: skip
RESOURCES: dict[str, Any] = {
    "Devices": [{"PathOnHost": NVIDIA, "PathInContainer": NVIDIA, "CgroupPermissions": "rwm"}],
    "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [NVIDIA], "Capabilities": [], "Options": {}}],
    "DeviceCgroupRules": [], "BlkioDeviceReadBps": [], "MemorySwappiness": -1, "OomKillDisable": False,
    "PidsLimit": 100, "Ulimits": [{"Name": "nofile", "Soft": 100, "Hard": 200}],
}  # fmt: skip
HOST: dict[str, Any] = {
    **RESOURCES,
    "Binds": ["/srv//a/:/w:ro", "data:/d"], "LogConfig": {"Type": "local", "Config": {"max-size": "1m"}},
    "NetworkMode": "container:web", "PortBindings": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "80"}]},
    "RestartPolicy": {"Name": "always"}, "VolumesFrom": ["web:ro"], "ConsoleSize": [24, 80], "Annotations": {},
    "CapAdd": ["cap_sys_nice"], "CapDrop": ["ALL"], "Dns": ["1.1.1.1"], "DnsOptions": ["a"], "DnsSearch": ["b"],
    "ExtraHosts": ["a:1"], "GroupAdd": ["video"], "IpcMode": "container:web", "Links": ["web:db"],
    "SecurityOpt": ["no-new-privileges"], "StorageOpt": {"size": "1G"}, "Tmpfs": {"/t": "size=1m"},
    "Sysctls": {"net.core.somaxconn": "1"}, "Runtime": "runc", "Init": True,
    "Mounts": [
        {"Type": "bind", "Source": "//srv/a", "Target": "/x", "BindOptions": {"Propagation": "private"},
         "VolumeOptions": {"Labels": {"a": "b"}, "DriverConfig": {"Name": "local", "Options": {}}},
         "ImageOptions": {"Subpath": ""}, "TmpfsOptions": {"SizeBytes": 1, "Mode": 511, "Options": [["exec"]]}}
    ],
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "Image": "ubuntu:24.04", "ExposedPorts": {"80/tcp": {}}, "Env": ["A=b"], "Cmd": ["sleep", "1"],
    "Healthcheck": {"Test": ["CMD", "true"], "Interval": 1000000000}, "Volumes": {"/v": {}}, "Entrypoint": ["sh"],
    "OnBuild": ["RUN x"], "Labels": {"a": "b"}, "StopTimeout": 1, "Shell": ["sh"],
}  # fmt: skip
EXAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "container.create": (
        "/v1.45/containers/create?name=c",
        {**CONFIG, "HostConfig": HOST, "NetworkingConfig": {"EndpointsConfig": {"net": ENDPOINT}}},
    ),
    "container.update": ("/v1.45/containers/c/update", {**RESOURCES, "RestartPolicy": {"Name": "no"}}),
    "exec.create": ("/containers/c/exec", {"Env": ["A=b"], "Cmd": ["sh"], "ConsoleSize": [1, 2]}),
    "exec.start": (f"/exec/{ID}/start", {"ConsoleSize": [1, 2]}),
    "image.commit": ("/commit?container=c", CONFIG),
    "volume.create": ("/volumes/create", {"DriverOpts": {}, "Labels": {"a": "b"}}),
    "network.create": (
        "/networks/create",
        {
            "Name": "n",
            "EnableIPv6": True,
            "CheckDuplicate": True,
            "IPAM": {
                "Driver": "default",
                "Options": {},
                "Config": [{"Subnet": "10.0.0.0/8", "AuxiliaryAddresses": {}}],
            },
            "Options": {"com.docker.network.driver.mtu": "1400"},
            "Labels": {"a": "b"},
        },
    ),
    "network.connect": ("/networks/n/connect", {"Container": "c", "EndpointConfig": ENDPOINT}),
    "network.disconnect": ("/networks/n/disconnect", {"Container": "c"}),
    "system.auth": ("/auth", {"username": "u"}),
}
"""By route: where it is asked, and a body with an entry in each list and map."""

# making bodies


class Writer:
    """Writes JSON as nobody should, by the dice of one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def body(self, example: dict[str, Any]) -> bytes:
        text = self.value(example).encode("utf-8", "surrogatepass")
        return self.bytes(text) if self.chance(0.1) else text

    def bytes(self, text: bytes) -> bytes:
        dice = self.dice
        at = dice.randrange(len(text) + 1)
        return dice.choice(
            (
                b"\xef\xbb\xbf" + text,
                text.decode("utf-8", "replace").encode("utf-16"),
                text + dice.choice((b"}", b"]", b" {}", b"\0", b"\n", b"} {", b",", text)),
                text[:at] + dice.choice((b"\xff", b"\xc0\xaf", b"\0", b"/**/", b"\xed\xa0\x80", b"\x1f")) + text[at:],
                text[:at],
                text[:at] + text[at + 1 :],
                text.replace(b'"', b"'", 2),
                text.replace(b"}", b",}", 1),
                b" \t\r\n" + text + b" \r\n",
                b"\x0b" + text,
            )
        )

    def value(self, example: Any) -> str:
        if self.chance(0.02):
            return self.dice.choice(WRONG)
        if self.chance(0.1):
            return self.dice.choice(("null", ZEROS[type(example)]))
        match example:
            case dict():
                return self.object(example)
            case list():
                return "[{}]".format(",".join(self.value(entry) for entry in example[: self.dice.randrange(3)]))
            case bool():
                return self.dice.choice(("true", "false"))
            case int():
                return self.dice.choice((str(example), "0", "-0", "-1", "7", "65536", str(2**63 - 1), str(-(2**63))))
            case _:
                return self.string(example or self.dice.choice(("", "default", "runc", "local")))

    def object(self, example: Mapping[str, Any]) -> str:
        dice = self.dice
        keys = dice.choices([*example], k=dice.randrange(min(len(example) + 1, 6)))
        keys += [key for key, entry in example.items() if isinstance(entry, dict) and entry and self.chance(0.4)]
        if self.chance(0.9):
            keys = list(dict.fromkeys(keys))
        pairs = [(self.key(key), self.value(example[key])) for key in keys]
        if self.chance(0.04):
            pairs.append((json.dumps(dice.choice(("Config", "Resources", "Unknown", ""))), dice.choice(WRONG)))
        return "{{{}}}".format(",".join(f"{key}:{value}" for key, value in pairs))

    def key(self, key: str) -> str:
        if self.chance(0.93):
            return json.dumps(key)
        return self.dice.choice(
            (
                json.dumps(key.lower()),
                json.dumps(key.upper()),
                json.dumps(key.swapcase()),
                json.dumps(key.replace("s", "\u017f", 1).replace("k", "\u212a", 1)),
                json.dumps(key.replace("S", "\u017f", 1).replace("K", "\u212a", 1), ensure_ascii=False),
                json.dumps(f"{key} "),
                json.dumps(key.replace("i", "\u0131", 1)),
                '"\\u{:04x}{}'.format(ord((key or "x")[0]), json.dumps(key[1:])[1:]),
            )
        )

    def string(self, text: str) -> str:
        if self.chance(0.96):
            return json.dumps(text, ensure_ascii=self.chance(0.5))
        return self.dice.choice(
            (
                '"{}"'.format("".join(f"\\u{ord(char):04X}" for char in text)),
                json.dumps(text + "\u2028\U0001f600", ensure_ascii=self.chance(0.5)),
                f'"{text}\\ud800"',
                f'"{text}\\ud83d\\ude00\\/\\b"',
                f'"{text}\\u0000"',
                f'"{text}\ud800"',
                json.dumps(f"{text}\n"),
                f'"{text}\\x41"',
                f'"\ufeff{text}"',
            )
        )


ZEROS: dict[type, str] = {dict: "{}", list: "[]", bool: "false", int: "0", str: '""', type(None): "null"}
WRONG = (
    "1", "1.0", "1e3", "true", '"true"', "[null]", "[[]]", "[{}]", '{"a":null}', '["x"]', '{"Privileged":true}', "NaN",
    "-Infinity", "1e400", str(2**63), "9" * 5000, "00", "+1", "0x1", "-", "[" * 40 + "]" * 40, "'x'", "tru", "{}", "[]",
)  # fmt: skip

# comparing

LEFT_OUT = frozenset({"KernelMemory", "KernelMemoryTCP", "NetworkID", "EndpointID"})
"""No supported daemon obeys them in a request."""
SILENT = frozenset(
    {"BlkioWeightDevice", "BlkioDeviceReadBps", "BlkioDeviceWriteBps", "BlkioDeviceReadIOps", "BlkioDeviceWriteIOps",
     "DeviceCgroupRules", "Annotations", "ClusterOptions", "ClusterVolumeSpec", "ConfigFrom"}
)  # fmt: skip
"""They pass only when they say nothing, and then are left out."""


def rewritten(read: Any, key: str = "") -> Any:
    """What Go read in a client's body, with the changes that the gate makes on purpose."""
    if key in LEFT_OUT:
        return None
    if key in SILENT:
        assert is_zero(read), f"{key} says something and passed: {read}"
        return None
    match read, key:
        case dict(), _:
            return {name: rewritten(entry, name) for name, entry in read.items()}
        case list(), "Binds":
            return [_clean_bind(text) for text in read]
        case list(), "CapAdd":
            return [text.upper().removeprefix("CAP_") for text in read]
        case list(), "VolumesFrom":
            return [text.replace("web", OTHER_ID) for text in read]
        case list(), _:
            return [rewritten(entry, key[:-1]) for entry in read]
        case str(), "NetworkMode" | "IpcMode":
            return read.replace("container:web", f"container:{OTHER_ID}")
        case _:
            return read


def _clean_bind(text: str) -> str:
    source, colon, rest = text.partition(":")
    return f"{_clean(source)}{colon}{rest}" if source.startswith("/") and colon else text


def _clean(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


def of_create(read: dict[str, Any], empty: dict[str, Any]) -> dict[str, Any]:
    """A create's further changes: one CDI request, runc, clean sources."""
    host = read.get("HostConfig") or empty
    names = [name for request in host["DeviceRequests"] or () for name in request["DeviceIDs"] or ()]
    names += [device["PathOnHost"] for device in host["Devices"] or ()]
    assert set(names) <= {NVIDIA}, f"passed, and Go reads {names}"
    door = {"Driver": "cdi", "Count": 0, "DeviceIDs": [NVIDIA], "Capabilities": None, "Options": None}
    assert host["Runtime"] in ("", "runc")
    assert not host["Privileged"]
    mounts = host["Mounts"] and [
        {**mount, "Source": _clean(mount["Source"])} if mount["Type"] == "bind" else mount for mount in host["Mounts"]
    ]
    new = {"Runtime": "runc", "DeviceRequests": [door] if names else None, "Devices": None, "Mounts": mounts}
    return {**read, "HostConfig": {**host, **new}}


def differences(wanted: Any, got: Any, path: str = "") -> list[str]:
    """Where two readings differ; what one of them lacks counts as null, or as zero in an embedded struct."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        keys = wanted.keys() | got.keys()
        return [text for key in sorted(keys) for text in differences(wanted.get(key), got.get(key), f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        pairs = zip(wanted, got, strict=True)
        return [text for place, (a, b) in enumerate(pairs) for text in differences(a, b, f"{path}[{place}]")]
    alike = wanted == got and type(wanted) is type(got)
    embedded = path.count(".") == 1 and None in (wanted, got) and is_zero(wanted) and is_zero(got)
    return [] if alike or embedded else [f"{path}: {wanted!r} became {got!r}"]


def unsaid(judged: Any, read: Any, path: str = "") -> list[str]:
    """Where Go reads another value than the gate judged and wrote."""
    if isinstance(judged, dict):
        if not isinstance(read, dict):
            return [f"{path}: {judged!r} is read as {read!r}"]
        return [text for key, entry in judged.items() for text in unsaid(entry, read.get(key), f"{path}.{key}")]
    if isinstance(judged, list) and isinstance(read, list) and len(judged) == len(read):
        pairs = zip(judged, read, strict=True)
        return [text for place, (a, b) in enumerate(pairs) for text in unsaid(a, b, f"{path}[{place}]")]
    if isinstance(judged, list) and path.endswith(".ConsoleSize"):
        return []  # an array of two in Go: what is missing is 0, what is more is dropped
    same = judged == read and type(judged) is type(read)
    return [] if same or (judged is None and is_zero(read)) else [f"{path}: {judged!r} is read as {read!r}"]


# the laws


def decided(route: str, body: bytes) -> Decision:
    target, _ = EXAMPLES[route]
    return ask("POST", target, VIEW, body, find=FIND, headers=(("content-type", "application/json"),))


def check(go: Any, route: str, body: bytes, empty: dict[str, Any]) -> bool:
    """Whether the body passed; fails where Go reads something else in it than the gate did."""
    decision = decided(route, body)
    if not isinstance(decision, Admission):
        return False
    written = decision.outgoing.body
    assert written is not None
    if not written:
        return True  # an empty commit
    judged = json.loads(written)
    try:
        theirs = go.body(route, written)
    except ValueError:
        theirs = None  # a number that is too large for its field: the daemon answers 400 either way
    try:
        original = go.body(route, body)
    except ValueError:
        original = None
    if theirs is not None:
        assert unsaid(judged, theirs) == [], body
    if original is None:
        return True
    assert theirs is not None, (body, written)
    wanted = rewritten(original)
    if route == "container.create":
        wanted = of_create(wanted, rewritten(empty))
    elif route == "container.update":
        assert is_zero(original["Devices"]) and is_zero(original["DeviceRequests"]), body  # noqa: PT018
        wanted |= {"Devices": None, "DeviceRequests": None}
    elif route == "image.commit":
        assert original["HostConfig"] in (None, empty), body
        assert original["NetworkingConfig"] in (None, {"EndpointsConfig": None}), body
        wanted |= {"HostConfig": None, "NetworkingConfig": None}
    elif route == "volume.create":
        assert wanted["Driver"] in ("", "local")
        wanted |= {"Driver": "local"}
    assert differences(wanted, rewritten(theirs)) == [], (body, written)
    return True


@pytest.fixture(scope="session")
def examples(go: Any) -> dict[str, dict[str, Any]]:
    """Each example with all the fields that the daemon's structs have."""
    return {route: go.body(route, json.dumps(example).encode()) for route, (_, example) in EXAMPLES.items()}


@pytest.mark.parametrize("route", EXAMPLES)
def test_bodies_have_one_reading(go: Any, examples: dict[str, dict[str, Any]], route: str) -> None:
    empty = go.body("container.create", b'{"HostConfig":{}}')["HostConfig"]
    outcomes: Counter[bool] = Counter()

    @settings(max_examples=300 if route == "container.create" else 20, deadline=None, database=None)
    @given(st.integers(0, 2**64))
    def law(seed: int) -> None:
        writer = Writer(seed)
        outcomes.update(check(go, route, writer.body(examples[route]), empty) for _ in range(50))

    law()
    assert min(outcomes[True], outcomes[False]) > 20, outcomes


def test_the_examples_pass(go: Any, examples: dict[str, dict[str, Any]]) -> None:
    """What is compared above is not only what says little."""
    empty = go.body("container.create", b'{"HostConfig":{}}')["HostConfig"]
    for route, (_, example) in EXAMPLES.items():
        asked = {key: entry for key, entry in example.items() if route == "container.create" or key not in RESOURCES}
        body = json.dumps(asked).encode()
        assert check(go, route, body, empty), decided(route, body)
