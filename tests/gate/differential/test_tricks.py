"""What Go makes of the known tricks, seen again with the Go that is here, and that the gate takes none of them.

Should a later Go read one otherwise, these tests say so, and the gate's rule may be looked at again.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from dockerclient import ask, repo
from gpugrant_gate.policy.model import Refusal

pytestmark = [pytest.mark.req("R4", "R45")]


class Trick(NamedTuple):
    """`power`: what the body gives where Go reads it; None: Go refuses it too."""

    id: str
    body: bytes
    power: Callable[[Any], Any] | None


def host(read: Any) -> dict[str, Any]:
    found: dict[str, Any] = read["HostConfig"] or {}
    return found


def privileged(read: Any) -> Any:
    return host(read).get("Privileged")


def of(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


TRICKS = [
    Trick("lower case", of('{"hostconfig":{"privileged":true}}'), privileged),
    Trick("upper case", of('{"HOSTCONFIG":{"PRIVILEGED":true}}'), privileged),
    Trick("long s, escaped", of('{"Ho\\u017ftConfig":{"Privileged":true}}'), privileged),
    Trick("long s", of('{"HostConfig":{"Bind\u017f":["/dev:/x"]}}'), lambda read: host(read)["Binds"]),
    Trick("kelvin", of('{"HostConfig":{"Networ\u212aMode":"host"}}'), lambda read: host(read)["NetworkMode"]),
    Trick("an escaped key", of('{"\\u0048ostConfig":{"\\u0050rivileged":true}}'), privileged),
    Trick("objects merge", of('{"HostConfig":{"Privileged":true},"HostConfig":{"Binds":[]}}'), privileged),
    Trick("folded objects merge", of('{"HostConfig":{"Privileged":true},"hostconfig":{}}'), privileged),
    Trick("null takes nothing back", of('{"HostConfig":{"Privileged":true,"Privileged":null}}'), privileged),
    Trick(
        "an element stays",
        of('{"HostConfig":{"DeviceRequests":[{"Driver":"nvidia","Count":-1}],"DeviceRequests":[{}]}}'),
        lambda read: host(read)["DeviceRequests"][0]["Driver"] == "nvidia",
    ),
    Trick(
        "ids move to another driver",
        of('{"HostConfig":{"DeviceRequests":[{"Driver":"nvidia","DeviceIDs":["0"]},{"Driver":"x"}],'
           '"DeviceRequests":[{"Driver":"cdi"},{}]}}'),
        lambda read: host(read)["DeviceRequests"][0]["DeviceIDs"] == ["0"],
    ),
    Trick(
        "null keeps a bind",
        of('{"HostConfig":{"Binds":["/dev:/x"],"Binds":[null]}}'),
        lambda read: host(read)["Binds"] == ["/dev:/x"],
    ),
    Trick(
        "maps merge",
        of('{"HostConfig":{"Annotations":{"a":"b"},"Annotations":{"c":"d"}}}'),
        lambda read: len(host(read)["Annotations"]) == 2,
    ),
    Trick("a brace behind it", of('{"HostConfig":{"Privileged":true}} } junk'), privileged),
    Trick("a bracket behind it", of('{"HostConfig":{"Privileged":true}} ] {}'), privileged),
    Trick("bytes that are no UTF-8", b'{"Image":"\xff","HostConfig":{"Privileged":true}}', privileged),
    Trick("half a surrogate pair", of('{"Image":"\\ud800","HostConfig":{"Privileged":true}}'), privileged),
    Trick(
        "NUL in a name",
        of('{"HostConfig":{"Runtime":"runc\\u0000"}}'),
        lambda read: host(read)["Runtime"] == "runc\0",
    ),
    Trick("a list of no masks", of('{"HostConfig":{"MaskedPaths":[]}}'), lambda read: host(read)["MaskedPaths"] == []),
    Trick("a second value", of('{}{"HostConfig":{"Privileged":true}}'), None),
    Trick("NUL behind it", of('{"HostConfig":{"Privileged":true}}\0'), None),
    Trick("a byte order mark", of('\ufeff{"HostConfig":{"Privileged":true}}'), None),
    Trick("UTF-16", '{"HostConfig":{"Privileged":true}}'.encode("utf-16"), None),
    Trick("NaN", of('{"HostConfig":{"Memory":NaN}}'), None),
    Trick("too large", of('{"HostConfig":{"Memory":1e400}}'), None),
    Trick("a float", of('{"HostConfig":{"DeviceRequests":[{"Driver":"cdi","Count":1.0}]}}'), None),
    Trick("text for a boolean", of('{"HostConfig":{"Privileged":"true"}}'), None),
    Trick("a number for a boolean", of('{"HostConfig":{"Privileged":1}}'), None),
    Trick("a boolean for a number", of('{"HostConfig":{"Memory":true}}'), None),
    Trick("an object for a list", of('{"HostConfig":{"Devices":{"0":{}}}}'), None),
    Trick("text for a list", of('{"HostConfig":{"Binds":"/dev:/dev"}}'), None),
    Trick("a comment", of('{/**/"HostConfig":{"Privileged":true}}'), None),
    Trick("a trailing comma", of('{"HostConfig":{"Privileged":true},}'), None),
    Trick("single quotes", of("{'HostConfig':{'Privileged':true}}"), None),
    Trick("digits without end", of('{"HostConfig":{"Memory":%s}}' % ("9" * 5000)), None),
    Trick("too deep", of('{"Labels":' + '{"a":' * 11_000 + "1" + "}" * 11_000 + "}"), None),
    Trick("nothing", b"", None),
]  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: trick.id)
def test_trick(go: Any, trick: Trick) -> None:
    decision = ask("POST", "/containers/create", repo(), trick.body, headers=(("content-type", "application/json"),))
    assert isinstance(decision, Refusal), decision
    if trick.power is None:
        with pytest.raises(ValueError, match=r"."):
            go.body("container.create", trick.body)
    else:
        assert trick.power(go.body("container.create", trick.body))


HARMLESS = {
    "a blank in the key": b'{"HostConfig ":{"Privileged":true}}',
    "an underscore in the key": b'{"Host_Config":{"Privileged":true}}',
    "an embedded struct by its name": b'{"HostConfig":{"Resources":{"Devices":[{"PathOnHost":"/dev/sda"}]}}}',
    "a dotless i": '{"HostConf\u0131g":{"Privileged":true}}'.encode(),
    "a sharp s": '{"Ho\u1e9etConfig":{"Privileged":true}}'.encode(),
    "full width": '{"\uff28ostConfig":{"Privileged":true}}'.encode(),
}


@pytest.mark.parametrize("body", HARMLESS.values(), ids=HARMLESS.keys())
def test_go_reads_no_power_here_and_the_gate_asks_to_write_it_plainly(go: Any, body: bytes) -> None:
    read = go.body("container.create", body)
    assert not privileged(read)
    assert not host(read).get("Devices")
    assert isinstance(ask("POST", "/containers/create", repo(), body), Refusal)


FIELDS = {"PidMode": '"x"', "Sysctls": '{"a":"b"}', "KernelMemory": "1", "Links": '["a"]', "Init": "true"}
"""Every letter that another one might fold to, with a value."""


def test_only_two_letters_fold_to_ascii(go: Any) -> None:
    """So "a key is ASCII" is a rule that is wide enough, and no wider than it must be."""
    chars = (chr(code) for code in range(0x80, 0x20000) if not 0xD800 <= code < 0xE000)
    folding = {char for char in chars if {char.casefold(), char.lower(), char.upper()} & {*string.ascii_letters}}
    assert folding > {"\u017f", "\u212a"}
    for char in folding:
        alike = {char.casefold(), char.lower(), char.upper()}
        tried = {}
        for field, value in FIELDS.items():
            for place in (place for place, letter in enumerate(field) if letter in alike or letter.lower() in alike):
                body = f'{{"HostConfig":{{"{field[:place]}{char}{field[place + 1 :]}":{value}}}}}'
                tried[field] = host(go.body("container.create", body.encode()))[field]
        assert tried, char
        assert all(map(bool, tried.values())) == (char in "\u017f\u212a"), (char, tried)
