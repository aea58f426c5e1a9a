"""Folders and volumes: Binds and Mounts judged by one code, as text first, then by what lies there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockerclient import (
    DRI,
    FOLDER,
    ID,
    OTHER_ID,
    create,
    inspected,
    knows,
    nothing,
    repo,
    rules_of,
    run_body,
    said,
    sent,
)
from gpugrant_crds import repofile
from gpugrant_gate.policy import judge, mounts, routes
from gpugrant_gate.policy.container import bind
from gpugrant_gate.policy.model import ContainerFact, Fact, Needs, PathFact, PathInfo, RepoView, Routed, VolumeFact

VIEW = repo(DRI, binds=("/srv/gpu-a",), hidden=("/srv/gpu-a/.gate", "/opt/root/run/docker.sock"))
LOCAL = {"Name": "data", "Driver": "local", "Options": None}


def as_bind(source: str) -> dict[str, Any]:
    return {"Binds": [f"{source}:/x"]}


def as_mount(source: str) -> dict[str, Any]:
    return {"Mounts": [{"Type": "bind", "Source": source, "Target": "/x"}]}


FORMS = pytest.mark.parametrize("form", [as_bind, as_mount], ids=["Binds", "Mounts"])

TREES = [
    "/", "//", "/dev", "/dev/", "//dev", "/proc", "/proc/1/root", "/sys", "/sys/class/drm", "/run", "/var", "/var/run",
    "/var/run/cdi", "/run/docker", "/boot", "/etc", "/etc/cdi", "/etc/cdi/nvidia.yaml", "/etc/docker", "/var/lib",
    "/var/lib/docker/volumes", "/var/lib/rediacc", "/etc/rediacc/gpu", "/srv", "/srv/gpu-a", "/srv/gpu-a/.gate/x",
    "/run/containerd/containerd.sock", "/opt/root/run",
]  # fmt: skip


@FORMS
@pytest.mark.parametrize("source", TREES)
@pytest.mark.req("R45")
def test_a_tree_that_holds_or_leads_to_devices_or_daemons_is_refused(form: Any, source: str) -> None:
    assert rules_of(create(VIEW, run_body(**form(source)))) == ["hw.trees"]


@FORMS
@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("/dev/dri", "rediacc.io/dri=renderD128"),
        ("/dev/dri/renderD128", "rediacc.io/dri=renderD128"),
        ("/dev/kfd", "rediacc.io/amd=gpu0"),
        ("/dev/nvidia0", "nvidia.com/gpu=0"),
        ("/dev/dxg", "nvidia.com/gpu=all"),
        ("/dev/snd", "only a device with a CDI name"),
    ],
)
@pytest.mark.req("R34")
def test_a_bind_below_dev_is_refused_with_the_cdi_name(form: Any, source: str, name: str) -> None:
    decision = create(VIEW, run_body(**form(source)))
    assert rules_of(decision) == ["hw.trees"]
    assert name in said(decision)


@FORMS
@pytest.mark.parametrize(
    "source",
    [
        "/var/run/docker.sock",
        "/run/docker.sock",
        "//run//docker.sock",
        "/srv/gpu-a/docker.sock",
        "/opt/root/run/docker.sock",
    ],
)
@pytest.mark.req("R45")
def test_the_daemons_socket_is_refused(form: Any, source: str) -> None:
    decision = create(VIEW, run_body(**form(source)))
    assert rules_of(decision) == ["hw.socket"]
    assert "go round the gate" in said(decision)
    assert "testcontainers" not in said(decision)


@FORMS
def test_the_helper_of_testcontainers_hears_how_to_go_without_the_socket(form: Any) -> None:
    view = repo(socket="/run/gate.sock", pins="/run/binds/1")
    body = run_body(config={"Image": "testcontainers/ryuk:0.13.0"}, **form("/var/run/docker.sock"))
    assert "; or for testcontainers set TESTCONTAINERS_RYUK_DISABLED=true [host.docker-socket]" in said(
        create(view, body)
    )


@FORMS
def test_a_folder_below_the_repos_own_passes_in_its_clean_spelling(form: Any) -> None:
    host = sent(create(VIEW, run_body(**form("//srv/gpu-a//src/"))))["HostConfig"]
    assert host.get("Binds", ["/srv/gpu-a/src:/x"]) == ["/srv/gpu-a/src:/x"]
    assert host.get("Mounts", [{"Source": "/srv/gpu-a/src"}])[0]["Source"] == "/srv/gpu-a/src"


@FORMS
@pytest.mark.parametrize("source", ["/home/me", "/srv/gpu-b", "/srv/gpu-ab", "/opt/data"])
def test_a_folder_elsewhere_is_refused_with_the_place_to_add_it(form: Any, source: str) -> None:
    decision = create(VIEW, run_body(**form(source)))
    assert rules_of(decision) == ["host.binds"]
    assert "`binds:` in the file of repo gpu-a" in said(decision)


@FORMS
def test_without_binds_the_message_says_that_there_are_none(form: Any) -> None:
    message = said(create(repo(), run_body(**form("/srv/x"))))
    assert "has no `binds:`" in message
    assert "add the folder to `binds:`" in message


@FORMS
@pytest.mark.parametrize("source", ["/srv/gpu-a/../gpu-b", "/srv/gpu-a/./x", "/srv/gpu-a/..", "/srv/gpu-a/a\\b"])
def test_a_source_that_walks_is_refused(form: Any, source: str) -> None:
    assert rules_of(create(VIEW, run_body(**form(source)))) == ["host.mounts"]


FAULTS = {
    "a symbolic link on the way": (PathInfo("directory", symlink=True, swappable=False), "symbolic link"),
    "nothing there": (PathInfo("missing", symlink=False, swappable=True), "make it first"),
    "a socket": (PathInfo("socket", symlink=False, swappable=False), "neither a folder nor a plain file"),
    "a device": (PathInfo("other", symlink=False, swappable=False), "neither a folder nor a plain file"),
    "a source that others can swap": (PathInfo("directory", symlink=False, swappable=True), "which its file lacks"),
    "a source that could not be looked at": (None, "could not be looked at"),
}


@FORMS
@pytest.mark.parametrize(("found", "why"), FAULTS.values(), ids=FAULTS.keys())
def test_refuses_what_lies_there(form: Any, found: object, why: str) -> None:
    decision = create(VIEW, run_body(**form("/srv/gpu-a/src")), knows({PathFact("/srv/gpu-a/src"): found}))
    assert rules_of(decision) == ["host.binds"]
    assert why in said(decision)


def test_a_file_may_be_bound() -> None:
    find = knows({PathFact("/srv/gpu-a/f"): PathInfo("file", symlink=False, swappable=False)})
    assert sent(create(VIEW, run_body(Binds=["/srv/gpu-a/f:/f:ro"]), find))["HostConfig"]["Binds"] == [
        "/srv/gpu-a/f:/f:ro"
    ]


@pytest.mark.parametrize("mode", ["shared", "rshared", "slave", "rslave", "ro,rshared", "dev", "RO", "ro,,rw"])
def test_a_mount_that_spreads_or_is_unknown_is_refused(mode: str) -> None:
    assert rules_of(create(VIEW, run_body(Binds=[f"/srv/gpu-a/src:/x:{mode}"]))) == ["host.mounts"]


@pytest.mark.parametrize("propagation", ["shared", "rshared", "slave", "rslave"])
def test_a_propagation_that_spreads_is_refused(propagation: str) -> None:
    mount = {"Type": "bind", "Source": "/srv/gpu-a/src", "Target": "/x", "BindOptions": {"Propagation": propagation}}
    assert rules_of(create(VIEW, run_body(Mounts=[mount]))) == ["host.mounts"]


@pytest.mark.parametrize("text", ["", ":", "a:", ":b", "a:/b:", "a:/b:ro:x", "/x\n:/y", "a::b"])
def test_a_bind_that_cannot_be_read_is_refused(text: str) -> None:
    assert rules_of(create(VIEW, run_body(Binds=[text]))) == ["host.mounts"]


@pytest.mark.parametrize("text", ["./src:/x", "../src:/x", "~/src:/x", "-v:/x", "data:relative"])
def test_a_source_that_is_neither_path_nor_volume_is_refused(text: str) -> None:
    assert rules_of(create(VIEW, run_body(Binds=[text]))) == ["host.mounts"]


PASSES = {
    "a named volume": {"Binds": ["data:/data:rw"]},
    "a named volume, long form": {
        "Mounts": [{"Type": "volume", "Source": "data", "Target": "/data", "VolumeOptions": {}}]
    },
    "an anonymous volume": {"Binds": ["/data"]},
    "an anonymous volume, long form": {"Mounts": [{"Type": "volume", "Target": "/data"}]},
    "a volume of the local driver": {
        "Mounts": [
            {"Type": "volume", "Source": "data", "Target": "/d", "VolumeOptions": {"DriverConfig": {"Name": "local"}}}
        ]
    },
    "a tmpfs": {
        "Mounts": [{"Type": "tmpfs", "Target": "/t", "TmpfsOptions": {"SizeBytes": 100, "Options": [["exec"]]}}]
    },
    "an image": {
        "Mounts": [{"Type": "image", "Source": "busybox", "Target": "/i", "ImageOptions": {"Subpath": "bin"}}]
    },
}


@pytest.mark.parametrize("host", PASSES.values(), ids=PASSES.keys())
def test_passes(host: dict[str, Any]) -> None:
    field, value = next(iter(host.items()))
    assert sent(create(VIEW, run_body(**host), knows({VolumeFact("data"): LOCAL})))["HostConfig"][field] == value


REFUSED = {
    "an unknown type": ({"Mounts": [{"Type": "npipe", "Source": "x", "Target": "/x"}]}, "host.mounts"),
    "a cluster volume": ({"Mounts": [{"Type": "cluster", "Source": "x", "Target": "/x"}]}, "host.mounts"),
    "no type": ({"Mounts": [{"Source": "/dev", "Target": "/x"}]}, "host.mounts"),
    "a type in capitals": ({"Mounts": [{"Type": "Bind", "Source": "/dev", "Target": "/x"}]}, "host.mounts"),
    "a relative target": ({"Mounts": [{"Type": "tmpfs", "Target": "x"}]}, "host.mounts"),
    "a control character": ({"Mounts": [{"Type": "bind", "Source": "/srv/gpu-a/a\nb", "Target": "/x"}]}, "host.mounts"),
    "a tmpfs with devices": (
        {"Mounts": [{"Type": "tmpfs", "Target": "/x", "TmpfsOptions": {"Options": [["dev"]]}}]},
        "host.mounts",
    ),
    "another volume driver": ({"VolumeDriver": "convoy", "Binds": ["data:/x"]}, "hw.volumes"),
    "another volume driver of a mount": (
        {"Mounts": [{"Type": "volume", "Target": "/x", "VolumeOptions": {"DriverConfig": {"Name": "convoy"}}}]},
        "hw.volumes",
    ),
    "a volume that is a bind": (
        {
            "Mounts": [
                {
                    "Type": "volume",
                    "Target": "/x",
                    "VolumeOptions": {"DriverConfig": {"Options": {"type": "none", "o": "bind", "device": "/dev"}}},
                }
            ]
        },
        "hw.volumes",
    ),
    "VolumesFrom with a mode that nobody knows": ({"VolumesFrom": ["x:rshared"]}, "host.volumes-from"),
}


@pytest.mark.parametrize(("host", "rule"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses(host: dict[str, Any], rule: str) -> None:
    assert rule in rules_of(create(VIEW, run_body(**host), knows({ContainerFact("x"): inspected()})))


OLD_VOLUMES = {
    "a bind of /dev": {"Driver": "local", "Options": {"type": "none", "o": "bind", "device": "/dev"}},
    "a file system": {"Driver": "local", "Options": {"type": "devtmpfs", "device": "devtmpfs"}},
    "another driver": {"Driver": "convoy", "Options": None},
    "no driver": {"Options": None},
}


@pytest.mark.parametrize("volume", OLD_VOLUMES.values(), ids=OLD_VOLUMES.keys())
@pytest.mark.parametrize("host", [{"Binds": ["data:/x"]}, PASSES["a named volume, long form"]], ids=["Binds", "Mounts"])
@pytest.mark.req("R45")
def test_a_volume_made_past_the_gate_is_refused(host: dict[str, Any], volume: dict[str, Any]) -> None:
    assert rules_of(create(VIEW, run_body(**host), knows({VolumeFact("data"): volume}))) == ["hw.volumes"]


@pytest.mark.parametrize("target", ["data", "/x:/y", "x:/y"])
def test_a_volume_of_the_config_is_a_path_in_the_container(target: str) -> None:
    assert rules_of(create(VIEW, run_body(config={"Volumes": {target: {}}}))) == ["host.anonymous"]


def test_borrowed_mounts_are_asked_for_by_full_id() -> None:
    find = knows({ContainerFact("lender"): inspected()})
    host = sent(create(VIEW, run_body(VolumesFrom=["lender:ro", "lender"]), find))["HostConfig"]
    assert host["VolumesFrom"] == [f"{ID}:ro", ID]


LENT = {
    "a bind of /dev": ([{"Type": "bind", "Source": "/dev", "Destination": "/x"}], "hw.trees"),
    "a bind outside": ([{"Type": "bind", "Source": "/home", "Destination": "/x"}], "host.binds"),
    "the socket": ([{"Type": "bind", "Source": "/run/docker.sock", "Destination": "/x"}], "hw.socket"),
    "a volume with options": (
        [{"Type": "volume", "Name": "old", "Driver": "local", "Destination": "/x"}],
        "hw.volumes",
    ),
    "a mount that nobody understands": (["?"], "host.mounts"),
}


@pytest.mark.parametrize(("entries", "rule"), LENT.values(), ids=LENT.keys())
def test_borrowed_mounts_are_judged_like_own_ones(entries: list[Any], rule: str) -> None:
    find = knows({ContainerFact("lender"): inspected(mounts=entries), VolumeFact("old"): OLD_VOLUMES["a bind of /dev"]})
    assert rules_of(create(VIEW, run_body(VolumesFrom=["lender"]), find)) == [rule]


def test_mounts_of_a_container_that_is_not_there_are_refused() -> None:
    assert rules_of(create(VIEW, run_body(VolumesFrom=["gone"]))) == ["host.volumes-from"]


def test_a_lender_that_cannot_be_understood_is_refused() -> None:
    find = knows({ContainerFact("lender"): {"Id": OTHER_ID, "HostConfig": "?"}})
    assert rules_of(create(VIEW, run_body(VolumesFrom=["lender"]), find)) == ["host.volumes-from"]


def test_looks_only_at_what_is_not_refused_as_text() -> None:
    looked: list[Fact] = []

    def find(fact: Fact) -> Any:
        looked.append(fact)
        return nothing(fact)

    create(
        VIEW, run_body(Binds=["/dev/sda:/a", "/home:/b", "/srv/gpu-a/src:/c", "data:/d", "/run/docker.sock:/e"]), find
    )
    assert looked == [PathFact("/srv/gpu-a/src"), VolumeFact("data")]


def test_a_fact_that_was_not_gathered_refuses() -> None:
    routed = routed_create()
    body = b'{"HostConfig":{"Binds":["/srv/gpu-a/src:/c","data:/d"],"VolumesFrom":["x"],"IpcMode":"container:y"}}'
    needs = judge.needs(routed, body, VIEW)
    assert isinstance(needs, Needs)
    assert set(needs.facts) == {
        PathFact("/srv/gpu-a/src"), VolumeFact("data"), ContainerFact("x"), ContainerFact("y"),
    }  # fmt: skip
    assert sorted(rules_of(judge.judge(routed, body, {}, VIEW))) == [
        "host.binds", "host.shared", "host.volumes-from", "hw.volumes",
    ]  # fmt: skip


def routed_create() -> Routed:
    head = routes.Head("POST", "/containers/create", (), (1, 1), True)
    routed = routes.route(
        routes.Head(head.method, head.target, (("content-type", "application/json"),), (1, 1), True), VIEW
    )
    assert isinstance(routed, Routed)
    return routed


PIECES = st.sampled_from(["", "/", ".", "..", "dev", "srv", "gpu-a", "x", "run", "docker.sock", "//", "proc", "a\\b"])
SOURCES = st.lists(PIECES, max_size=8).map(lambda parts: "/" + "/".join(parts))
VIEWS: list[RepoView] = [VIEW, repo(binds=("/",)), repo(binds=("/srv/",))]


@given(SOURCES, st.sampled_from(VIEWS))
def test_what_passes_is_a_clean_path_below_a_root_and_outside_every_tree(source: str, view: RepoView) -> None:
    decision = create(view, run_body(Binds=[f"{source}:/x"]), lambda fact: FOLDER)
    if rules_of(decision):
        return
    passed = sent(decision)["HostConfig"]["Binds"][0].removesuffix(":/x")
    assert passed == mounts.clean(passed)
    assert not any(
        passed == tree or passed.startswith(f"{tree}/") or tree.startswith(f"{passed}/") for tree in repofile.TREES
    )
    assert any(f"{passed}/".startswith(f"{root.rstrip('/')}/") for root in view.binds)
    assert not passed.endswith("docker.sock")


@given(st.text())
def test_any_text_is_read_as_a_bind_or_said_to_be_none(text: str) -> None:
    mount = bind(text, "Binds[0]")
    assert mount.broken or mount.target
