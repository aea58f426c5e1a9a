"""The names of pinned sources: there and back, and nothing else is touched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockerclient import ask, create, inspected, knows, repo, rules_of, run_body, said, sent
from gpugrant_gate.policy import pins
from gpugrant_gate.policy.model import Admission, ContainerFact, PathFact, PathInfo
from gpugrant_gate.policy.pins import Pin

FOLDER = "/run/rediacc/gpu/binds/0a1b"
OTHER = "/run/rediacc/gpu/binds/0a1c"
SWAPPABLE = PathInfo("directory", symlink=False, swappable=True)
VIEW = repo(
    binds=("/srv/a",), pins=FOLDER, socket="/run/rediacc/gpu/repos/a.sock", hidden=("/run/rediacc/gpu", "/opt/raw.sock")
)
OPEN = repo(
    pins=FOLDER,
    socket="/run/rediacc/gpu/repos/a.sock",
    hidden=("/opt/raw.sock",),
    open=frozenset({"host.docker-socket"}),
)
SRC = PathFact("/srv/a/src")
find = knows({SRC: SWAPPABLE})
PLACE = pins.place(FOLDER, "/srv/a/src")

NAMES = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="/"), min_size=1, max_size=300)
SOURCES = st.lists(NAMES, min_size=1, max_size=12).map(lambda parts: "/" + "/".join(parts))


@given(SOURCES)
def test_a_place_names_its_source(source: str) -> None:
    place = pins.place(FOLDER, source)
    assert pins.source(FOLDER, place) == source
    assert pins.source(OTHER, place) is None
    assert pins.bind_source(FOLDER, f"{place}:/x:ro") == (source, ":/x:ro")
    assert all(len(part.encode()) <= 255 for part in place.split("/"))
    assert place.isascii()


@given(SOURCES, SOURCES)
def test_two_sources_have_two_places_and_none_lies_in_another(one: str, two: str) -> None:
    first, second = pins.place(FOLDER, one), pins.place(FOLDER, two)
    assert (first == second) == (one == two)
    assert not first.startswith(f"{second}/")


@given(st.text(), st.sampled_from(["", f"{FOLDER}/", f"{FOLDER}", f"{PLACE}", f"{PLACE}/"]))
def test_what_only_looks_like_a_place_is_none(text: str, before: str) -> None:
    found = pins.source(FOLDER, before + text)
    assert found is None or pins.place(FOLDER, found) == before + text


@pytest.mark.parametrize("end", ["=", "==", " ", "/", "/x", "A", "%", "\n", "+", "."])
def test_a_place_is_read_to_its_last_character(end: str) -> None:
    assert pins.source(FOLDER, PLACE + end) is None


def told(route: str, value: Any, status: int = 200) -> Any:
    rewrite = pins.rewrite(route, FOLDER, status)
    assert rewrite is not None
    return json.loads(rewrite(json.dumps(value).encode()))


def container(bind: str, label: str) -> dict[str, Any]:
    mount = {"Type": "bind", "Source": bind, "Destination": "/x"}
    return {
        "Id": "1",
        "Config": {"Labels": {"l": label}, "Env": [f"E={label}"]},
        "HostConfig": {"Binds": [f"{bind}:/x:ro", "data:/d"], "Mounts": [mount, {"Type": "tmpfs", "Target": "/t"}]},
        "Mounts": [mount],
    }


@given(SOURCES, st.text())
def test_answers_name_sources_and_nothing_else_of_them_changes(source: str, label: str) -> None:
    place = pins.place(FOLDER, source)
    for text in (label, place):
        came, goes = container(place, text), container(source, text)
        assert told("container.inspect", came) == goes
        assert told("container.list", [came, {"Mounts": None}]) == [goes, {"Mounts": None}]
        assert told("system.df", {"Containers": [came], "Images": [place]}) == {
            "Containers": [goes],
            "Images": [place],
        }


@given(SOURCES)
def test_a_daemons_error_names_sources(source: str) -> None:
    message = f'error mounting "{pins.place(FOLDER, source)}" to rootfs at "/x": {FOLDER}/?, {OTHER}/L3g'
    expected = f'error mounting "{source}" to rootfs at "/x": {FOLDER}/?, {OTHER}/L3g'
    assert told("container.start", {"message": message}, 500) == {"message": expected}


@given(st.binary())
def test_an_answer_without_a_place_passes_byte_by_byte(body: bytes) -> None:
    for route in ("container.inspect", "container.list", "system.df"):
        rewrite = pins.rewrite(route, FOLDER, 200)
        assert rewrite is not None
        assert rewrite(body) == body
        assert rewrite(FOLDER.encode() + body) == FOLDER.encode() + body


@pytest.mark.parametrize("value", [None, 1, "x", [], [1], {"HostConfig": 1, "Mounts": [1, {"Source": 2}]}])
def test_an_answer_of_another_shape_passes(value: Any) -> None:
    for route in ("container.inspect", "container.list", "system.df"):
        assert told(route, [value, PLACE][:1][0]) == value


@pytest.mark.parametrize("route", ["container.logs", "container.create", "image.list", "system.info"])
def test_other_answers_are_not_held(route: str) -> None:
    assert pins.rewrite(route, FOLDER, 200) is None


def test_a_swappable_source_goes_on_as_its_place() -> None:
    body = run_body(Binds=["/srv/a//src/:/x:ro"], Mounts=[{"Type": "bind", "Source": "/srv/a/src", "Target": "/y"}])
    decision = create(VIEW, body, find)
    assert sent(decision)["HostConfig"]["Binds"] == [f"{PLACE}:/x:ro"]
    assert sent(decision)["HostConfig"]["Mounts"][0]["Source"] == PLACE
    assert isinstance(decision, Admission)
    assert decision.pins == (Pin("/srv/a/src", PLACE, "/srv/a/src"),)


def test_what_only_root_can_swap_keeps_its_name() -> None:
    decision = create(VIEW, run_body(Binds=["/srv/a:/x"]))
    assert sent(decision)["HostConfig"]["Binds"] == ["/srv/a:/x"]
    assert isinstance(decision, Admission)
    assert decision.pins == ()


def test_a_repo_that_is_not_pinned_mounts_what_is_named() -> None:
    view = repo(binds=("/srv/a",), pins=FOLDER, as_named=True)
    decision = create(view, run_body(Binds=["/srv/a/src:/x"]), find)
    assert sent(decision)["HostConfig"]["Binds"] == ["/srv/a/src:/x"]


def made(source: str, **more: Any) -> dict[str, Any]:
    return inspected(Binds=[f"{source}:/x"], mounts=[{"Type": "bind", "Source": source, "Destination": "/x"}], **more)


def start(source: str, view: Any = VIEW, look: Any = SWAPPABLE) -> Any:
    return ask("POST", "/containers/web/start", view, find=knows({ContainerFact("web"): made(source), SRC: look}))


def test_a_start_wants_the_places_of_the_container() -> None:
    decision = start(PLACE)
    assert isinstance(decision, Admission)
    assert decision.pins == (Pin("/srv/a/src", PLACE, "/srv/a/src"),)


@pytest.mark.parametrize(
    ("source", "look", "why"),
    [
        ("/srv/a/src", SWAPPABLE, "make the container anew"),
        (PLACE, PathInfo("directory", symlink=True, swappable=True), "symbolic link"),
        (PLACE, PathInfo("missing", symlink=False, swappable=True), "make it first"),
        (pins.place(FOLDER, "/srv/b"), SWAPPABLE, "lies below none of"),
    ],
)
def test_a_start_is_refused(source: str, look: PathInfo, why: str) -> None:
    decision = start(source, look=look)
    assert rules_of(decision) == ["host.binds"]
    assert why in said(decision)


@pytest.mark.parametrize("source", [PLACE, FOLDER, pins.place(OTHER, "/srv/a/src")])
@pytest.mark.req("R45")
def test_nobody_asks_for_a_place(source: str) -> None:
    assert rules_of(create(VIEW, run_body(Binds=[f"{source}:/x"]), find)) == ["hw.trees"]


@pytest.mark.parametrize("tree", ["/dev", "/proc/1/root", "/var/lib/docker"])
@pytest.mark.req("R45")
def test_a_place_that_names_a_tree_does_not_start(tree: str) -> None:
    assert rules_of(start(pins.place(FOLDER, tree))) == ["hw.trees"]


def test_borrowed_mounts_are_pinned_too() -> None:
    lender = knows({ContainerFact("web"): made(PLACE), SRC: SWAPPABLE})
    decision = create(VIEW, run_body(VolumesFrom=["web"]), lender)
    assert isinstance(decision, Admission)
    assert [pin.source for pin in decision.pins] == ["/srv/a/src"]
    lender = knows({ContainerFact("web"): made("/srv/a/src"), SRC: SWAPPABLE})
    assert rules_of(create(VIEW, run_body(VolumesFrom=["web"]), lender)) == ["host.binds"]


# the Docker socket

SOCKETS = pytest.mark.parametrize("source", ["/var/run/docker.sock", "//run/docker.sock", "/opt/raw.sock"])


@SOCKETS
@pytest.mark.req("R45")
def test_the_docker_socket_is_refused_with_the_way_to_open_it(source: str) -> None:
    decision = create(VIEW, run_body(Binds=[f"{source}:/s"]))
    assert rules_of(decision) == ["host.docker-socket"]
    assert "add host.docker-socket to `open:` in the file of repo gpu-a" in said(decision)


@SOCKETS
@pytest.mark.req("R45")
def test_the_docker_socket_becomes_the_gates(source: str) -> None:
    decision = create(OPEN, run_body(Binds=[f"{source}:/s"]))
    assert isinstance(decision, Admission)
    (pin,) = decision.pins
    assert (pin.target, pin.socket) == ("/run/rediacc/gpu/repos/a.sock", True)
    assert sent(decision)["HostConfig"]["Binds"] == [f"{pin.place}:/s"]


@pytest.mark.parametrize("source", ["/srv/a/docker.sock", "/run/containerd/containerd.sock", "/run/user/0/docker.sock"])
@pytest.mark.req("R45")
def test_no_other_socket_is_opened(source: str) -> None:
    assert rules_of(create(OPEN, run_body(Binds=[f"{source}:/s"])))[0] in ("hw.socket", "hw.trees")


@SOCKETS
@pytest.mark.req("R45")
def test_a_container_that_has_the_raw_socket_does_not_start(source: str) -> None:
    assert rules_of(start(source, OPEN)) == ["hw.socket"]


def test_without_an_id_there_is_no_pin() -> None:
    view = repo(binds=("/srv/a",), socket="/x.sock", open=frozenset({"host.docker-socket"}))
    decision = create(view, run_body(Binds=["/srv/a/src:/x", "/run/docker.sock:/s"]), find)
    assert rules_of(decision) == ["host.docker-socket", "host.binds"]
    assert "by the repo's own id" in said(decision)
