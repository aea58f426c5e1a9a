"""What is accepted and refused here was compared with the real Go library, releases 1.1.0 and 1.1.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_crds import cdi
from gpugrant_crds.cdi import Problem, ProblemReason, Spec

HEAD = 'cdiVersion: "1.1.0"\nkind: vendor.com/dev\n'


def device(edits: str) -> str:
    return f"{HEAD}devices:\n- name: d\n  containerEdits:\n    {edits}\n"


def named(scalar: str) -> str:
    return f"{HEAD}devices:\n- name: {scalar}\n  containerEdits:\n    env: [A=b]\n"


def read(text: str | bytes) -> Spec:
    spec = cdi.read_spec(text, "x.yaml")
    assert isinstance(spec, Spec), spec
    return spec


def refused(text: str | bytes) -> Problem:
    problem = cdi.read_spec(text, "x.yaml")
    assert isinstance(problem, Problem), problem
    return problem


WHOLE = """\
cdiVersion: 1.1.0
kind: vendor.com/dev
annotations: {a.b/c: text}
devices:
- name: "0"
  annotations: {seen: true}
  containerEdits:
    env: [FOO=bar]
    deviceNodes:
    - {path: /dev/x, hostPath: /host/x, type: c, major: 226, minor: 128, fileMode: 0660, permissions: rw,
       uid: 0, gid: 44}
    netDevices: [{hostInterfaceName: eth0, name: net0}]
    hooks: [{hookName: createContainer, path: /bin/hook, args: [hook, go], env: [A=], timeout: 5}]
    mounts: [{hostPath: /a, containerPath: /b, options: [ro, rbind], type: bind}]
    intelRdt: {closID: a, l3CacheSchema: b, memBwSchema: c, schemata: [d], enableMonitoring: yes}
    additionalGids: [44]
containerEdits: {env: [ALL=1]}
"""


def test_every_field_is_read() -> None:
    spec = read(WHOLE)
    edits = spec.devices[0].edits
    assert spec.names == ("vendor.com/dev=0",)
    assert (spec.vendor, spec.cls, spec.version) == ("vendor.com", "dev", "1.1.0")
    assert spec.annotations == (("a.b/c", "text"),)
    assert spec.devices[0].annotations == (("seen", "true"),)
    assert spec.edits.env == ("ALL=1",)
    assert edits.device_nodes == (cdi.DeviceNode("/dev/x", "/host/x", "c", 226, 128, 0o660, "rw", 0, 44),)
    assert edits.device_nodes[0].source == "/host/x"
    assert edits.net_devices == (cdi.NetDevice("eth0", "net0"),)
    assert edits.hooks == (cdi.Hook("createContainer", "/bin/hook", ("hook", "go"), ("A=",), 5),)
    assert edits.mounts == (cdi.Mount("/a", "/b", ("ro", "rbind"), "bind"),)
    assert edits.intel_rdt == cdi.IntelRdt("a", "b", "c", ("d",), True)
    assert edits.additional_gids == (44,)
    assert spec.doubts == ()


JSON = (
    b'{"cdiVersion": "0.3.0", "kind": "vendor.com/dev", "devices": [{"name": "d", "containerEdits": {"env": ["A=b"]}}]}'
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(JSON, id="JSON"),
        pytest.param(b"\xef\xbb\xbf" + JSON, id="a byte order mark"),
        pytest.param(JSON.decode().encode("utf-16"), id="UTF-16 with a mark"),
        pytest.param(JSON + b"\n---\nbogus: 1\n", id="a second document is ignored"),
        pytest.param(JSON + b"\n---\n]]]\n", id="a broken second document is ignored"),
        pytest.param(b"%YAML 1.1\n---\n" + JSON, id="the version directive 1.1"),
        pytest.param(JSON.replace(b"0.3.0", b"v0.3.0"), id="a leading v in the version"),
        pytest.param(JSON.replace(b"}]}", b'}], "annotations": null}'), id="null is absent"),
    ],
)
def test_accepted_files(text: bytes) -> None:
    assert read(text).names == ("vendor.com/dev=d",)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("0", "0"),
        ('"08"', "08"),
        ("12:30:45", "12:30:45"),
        ("2024-01-02", "2024-01-02"),
        ("true", "true"),
        ("0.1", "0.1"),
        ("18446744073709551615", "18446744073709551615"),
        ("0x", "0x"),
        ("! x", "x"),
        ("!!str 08", "08"),
        (">-\n    abc", "abc"),
    ],
)
def test_scalars_that_every_release_reads_alike(written: str, name: str) -> None:
    spec = read(named(written))
    assert spec.names == (f"vendor.com/dev={name}",)
    assert spec.doubts == ()


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("08", "8"),
        ("010", "8"),
        ("0x10", "16"),
        ("0o10", "8"),
        ("0b11", "3"),
        ("1_0", "10"),
        ("1e3", "1000"),
        ("1.0", "1"),
        ("1.50", "1.5"),
        ("yes", "true"),
        ("on", "true"),
        ("y", "true"),
        ("n", "false"),
        ("True", "true"),
    ],
)
def test_a_name_that_releases_read_differently_is_in_doubt(written: str, name: str) -> None:
    spec = read(named(written))
    assert spec.names == (f"vendor.com/dev={name}",)
    assert [doubt.reason for doubt in spec.doubts] == [ProblemReason.AMBIGUOUS_SPEC]
    assert spec.doubts[0].line == 4
    assert f'"{written}"' in spec.doubts[0].message


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(named("d").replace("kind", "Kind"), id="a key in another case"),
        pytest.param(device("env: [A=b]\n    additionalGIDs: [1]"), id="a nested key in another case"),
        pytest.param(device("deviceNodes: [{path: /dev/x, major: -1}]"), id="a negative device number"),
        pytest.param(named("d").replace("devices", "deviceſ"), id="a key that only Unicode folds"),
    ],
)
def test_files_that_only_some_releases_read_are_in_doubt(text: str) -> None:
    assert read(text).doubts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "no spec data", id="empty file"),
        pytest.param("---\n", "no spec data", id="empty document"),
        pytest.param("[]", "expected keys and values", id="a list"),
        pytest.param("{}", 'invalid version ""', id="an empty object"),
        pytest.param(named("d") + "bogus: 1\n", 'unknown field "bogus"', id="unknown key"),
        pytest.param(device("deviceNodes: [{path: /dev/x, x: 1}]"), 'unknown field "x"', id="unknown nested key"),
        pytest.param(named("d") + "kind: a.b/cc\n", 'key "kind" already set', id="duplicate key"),
        pytest.param(named("d") + "Kind: a.b/cc\n", "written twice", id="duplicate key by case"),
        pytest.param(named("d") + "annotations: {1: a, '1': b}\n", "written twice", id="keys equal as text"),
        pytest.param(named("d") + "annotations: {~: a}\n", "must not be empty", id="null key"),
        pytest.param(named("d") + "? [a]\n: b\n", "single word", id="complex key"),
        pytest.param(device("<<: {env: [A=b]}"), "merge keys", id="merge key"),
        pytest.param(device("env: [*q]"), 'unknown anchor "q"', id="unknown alias"),
        pytest.param(device("env: &q [*q]"), "contains itself", id="recursive alias"),
        pytest.param("%YAML 1.2\n---\n" + named("d"), "incompatible YAML", id="YAML 1.2"),
        pytest.param(device('env: ["A=\\/b"]'), "unknown escape", id="an escape that Go lacks"),
        pytest.param(device("env: [!!binary QT1i]"), "tag", id="a tag that changes the value"),
        pytest.param(named("d") + "\tx: y\n", "", id="tab"),
        pytest.param(named("d") + "\x07", "", id="control character"),
        pytest.param("[" * 5000, "", id="deep flow"),
        pytest.param("- " * 5000, "deep", id="deep block"),
    ],
)
def test_files_refused_for_their_shape(text: str, message: str) -> None:
    assert message in refused(text).message


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ("{}", "empty device edits"),
        ("env: []", "empty device edits"),
        ("env: [AB]", 'invalid environment variable "AB"'),
        ("env: ['=x']", 'invalid environment variable "=x"'),
        ("env: [~]", 'invalid environment variable ""'),
        ("env: A=b", "expected a list"),
        ("deviceNodes: [{}]", "invalid (empty) device path"),
        ("deviceNodes: {path: /dev/x}", "expected a list"),
        ("deviceNodes: [{path: /dev/x, type: q}]", 'invalid type "q"'),
        ("deviceNodes: [{path: /dev/x, permissions: rx}]", 'invalid permissions "rx"'),
        ("deviceNodes: [{path: /dev/x, permissions: none}]", 'invalid permissions "none"'),
        ("deviceNodes: [{path: /dev/x, fileMode: '438'}]", "expected a whole number"),
        ("deviceNodes: [{path: /dev/x, fileMode: 438.5}]", "expected a whole number"),
        ("deviceNodes: [{path: /dev/x, fileMode: -1}]", "out of range"),
        ("deviceNodes: [{path: /dev/x, fileMode: 4294967296}]", "out of range"),
        ("deviceNodes: [{path: /dev/x, major: 9223372036854775808}]", "out of range"),
        ("deviceNodes: [{path: /dev/x, major: true}]", "expected a whole number"),
        ("hooks: [{hookName: bogus, path: x}]", 'invalid hook name "bogus"'),
        ("hooks: [{hookName: prestart}]", "empty path"),
        ("hooks: [{hookName: prestart, path: x, env: [q]}]", "invalid environment variable"),
        ("hooks: [{hookName: prestart, path: x, timeout: 1.5}]", "expected a whole number"),
        ("mounts: [{containerPath: b}]", "empty host path"),
        ("mounts: [{hostPath: b}]", "empty container path"),
        ("mounts: [{hostPath: a, containerPath: b, options: ro}]", "expected a list"),
        ("intelRdt: {closID: a/b}", "closID"),
        ("intelRdt: {closID: ..}", "closID"),
        ("intelRdt: {enableMonitoring: 'true'}", "expected true or false"),
        ("netDevices: [{hostInterfaceName: a}]", "empty Name"),
        ("netDevices: [{hostInterfaceName: a, name: b}, {hostInterfaceName: a, name: c}]", "duplicate"),
        ("additionalGids: [-1]", "out of range"),
    ],
)
def test_edits_refused(edits: str, message: str) -> None:
    problem = refused(device(edits))
    assert problem.reason is ProblemReason.SPEC_INVALID
    assert message in problem.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(named("d").replace("vendor.com", "v"), "one letter", id="one-letter vendor"),
        pytest.param(named("d").replace("/dev", "/d"), "one letter", id="one-letter class"),
        pytest.param(device("deviceNodes: [~]"), "crash", id="empty entry among nodes"),
        pytest.param(device("hooks: [~]"), "crash", id="empty entry among hooks"),
        pytest.param(device("mounts: [~]"), "crash", id="empty entry among mounts"),
        pytest.param(device("netDevices: [~]"), "crash", id="empty entry among network devices"),
        pytest.param(device("additionalGids: [0]"), "group 0", id="group 0 alone"),
        pytest.param(device("intelRdt: {closID: /}").replace("1.1.0", "0.7.0"), 'closID "/"', id="the root CLOS"),
    ],
)
def test_files_that_crash_or_split_the_releases_are_refused(text: str, message: str) -> None:
    problem = refused(text)
    assert problem.reason is ProblemReason.AMBIGUOUS_SPEC
    assert message in problem.message


def test_the_root_clos_is_read_alike_by_all_that_read_version_1_1() -> None:
    assert not read(device("intelRdt: {closID: /}")).doubts


@pytest.mark.parametrize(
    ("version", "edits"),
    [("0.5.0", "additionalGids: []"), ("0.6.0", "intelRdt: ~"), ("1.0.0", "netDevices: []")],
)
def test_an_empty_field_of_a_later_version_is_in_doubt(version: str, edits: str) -> None:
    """A release that takes the version does not know the field, and refuses the whole file."""
    text = device(f"env: [A=b]\n    {edits}").replace("1.1.0", version)
    doubts = [doubt.message for doubt in read(text).doubts]
    assert doubts == [f'the field "{edits.split(":")[0]}" is unknown to releases of version {version}']


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("a1-/b", ProblemReason.SPEC_INVALID),
        ("1/bb", ProblemReason.SPEC_INVALID),
        ("a", ProblemReason.SPEC_INVALID),
        ("aa/b", ProblemReason.AMBIGUOUS_SPEC),
    ],
)
def test_what_is_refused_before_it_crashes_crashes_nothing(kind: str, reason: ProblemReason) -> None:
    assert refused(named("d").replace("vendor.com/dev", kind)).reason is reason


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("vendor.com", "invalid vendor"),
        ("/dev", "invalid vendor"),
        ("vendor.com/", "invalid vendor"),
        ("1a.com/dev", "should start with letter"),
        ("vendor.com/1dev", "should start with letter"),
        ("vendor_/dev", "should end with a letter or digit"),
        ("aa/bb/cc", "invalid character"),
        ("aäa/bb", "invalid character"),
    ],
)
def test_kinds_refused(kind: str, message: str) -> None:
    assert message in refused(named("d").replace("vendor.com/dev", kind)).message


@pytest.mark.parametrize(
    ("version", "change", "accepted"),
    [
        ("0.1.0", ("", ""), False),
        ("0.2.0", ("", ""), False),
        ("0.3.0", ("", ""), True),
        ("1.1.0", ("", ""), True),
        ("1.2.0", ("", ""), False),
        ("vv0.3.0", ("", ""), False),
        ("1.0", ("", ""), False),
        ("0.3.0", ("env: [A=b]", "mounts: [{hostPath: a, containerPath: b, type: t}]"), False),
        ("0.4.0", ("env: [A=b]", "mounts: [{hostPath: a, containerPath: b, type: t}]"), True),
        ("0.4.0", ("name: d", 'name: "0"'), False),
        ("0.5.0", ("name: d", 'name: "0"'), True),
        ("0.4.0", ("env: [A=b]", "deviceNodes: [{path: a, hostPath: b}]"), False),
        ("0.5.0", ("env: [A=b]", "deviceNodes: [{path: a, hostPath: b}]"), True),
        ("0.5.0", ("/dev\n", "/de.v\n"), False),
        ("0.6.0", ("/dev\n", "/de.v\n"), True),
        ("0.5.0", ("devices:", "annotations: {a: b}\ndevices:"), False),
        ("0.6.0", ("devices:", "annotations: {a: b}\ndevices:"), True),
        ("0.6.0", ("env: [A=b]", "additionalGids: [4]"), False),
        ("0.7.0", ("env: [A=b]", "additionalGids: [4]"), True),
        ("0.6.0", ("env: [A=b]", "intelRdt: {}"), False),
        ("0.8.0", ("env: [A=b]", "intelRdt: {}"), True),
        ("1.0.0", ("env: [A=b]", "netDevices: [{hostInterfaceName: a, name: b}]"), False),
    ],
)
def test_the_version_must_be_known_and_high_enough(version: str, change: tuple[str, str], accepted: bool) -> None:
    text = named("d").replace('"1.1.0"', version).replace(*change)
    assert isinstance(cdi.read_spec(text, "x.yaml"), Spec) is accepted


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("", "invalid spec, no devices"),
        ("devices: []\n", "invalid spec, no devices"),
        ("devices: [~]\n", "invalid (empty) device name"),
        ("devices: [{name: d, containerEdits: {env: [A=b]}}, {name: d, containerEdits: {env: [A=b]}}]\n", "multiple"),
        ("devices: [{name: a b, containerEdits: {env: [A=b]}}]\n", "invalid character"),
        ("devices: [{name: a_, containerEdits: {env: [A=b]}}]\n", "should end with"),
        ("devices: [{name: -a, containerEdits: {env: [A=b]}}]\n", "should start with"),
    ],
)
def test_devices_refused(devices: str, message: str) -> None:
    assert message in refused(HEAD + devices).message


def test_a_problem_names_file_and_line() -> None:
    assert str(refused(named("d") + "bogus: 1\n")) == 'x.yaml:7: unknown field "bogus"'


def test_aliases_expand_within_a_bound() -> None:
    layers = "".join(f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 9))
    text = f"annotations:\n  l0: &l0 [A=b]\n{layers}" + device("env: *l8")
    assert refused(text).message  # the layers are no texts; what matters is that the answer comes at once
    entries = ", ".join(["*e"] * 60_000)
    many = (
        HEAD
        + "devices:\n"
        + "".join(
            f"- name: d{n}\n  containerEdits: {{env: {'&all [&e A=b, ' + entries + ']' if n == 0 else '*all'}}}\n"
            for n in range(9)
        )
    )
    assert "excessive aliasing" in refused(many).message


def test_a_file_beyond_the_size_limit_is_refused() -> None:
    assert "bytes" in refused(b"#" * (cdi.yaml11.MAX_BYTES + 1)).message


@given(st.text() | st.binary())
def test_any_input_is_a_spec_or_a_problem(data: str | bytes) -> None:
    assert isinstance(cdi.read_spec(data, "x.yaml"), Spec | Problem)


_SCALARS = st.sampled_from(["0", "08", "yes", "~", "[]", "{}", "1.5", "x", "/dev/x", "A=b", "'0'", "[~]", "[{}]"])
_KEYS = st.sampled_from(["path", "Path", "env", "name", "mounts", "hostPath", "major", "kind", "deviceNodes", "<<"])


@given(st.dictionaries(_KEYS, _SCALARS), st.dictionaries(_KEYS, _SCALARS))
def test_any_mixture_of_fields_is_a_spec_or_a_problem(outer: dict[str, str], inner: dict[str, str]) -> None:
    nested = ", ".join(f"{key}: {value}" for key, value in inner.items())
    text = named("d") + "".join(f"{key}: {value}\n" for key, value in outer.items())
    for candidate in (text, device(f"deviceNodes: [{{{nested}}}]")):
        assert isinstance(cdi.read_spec(candidate, "x.yaml"), Spec | Problem)
