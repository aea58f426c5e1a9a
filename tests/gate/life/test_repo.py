"""Many files of `repos.d` as one folder: a broken one harms only its own repo, and a doubled one gets no hardware."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpugrant_crds import repofile
from gpugrant_crds.layout import Layout
from gpugrant_crds.repofile import RepoFile, RepoProblem
from gpugrant_gate.life import repo
from gpugrant_gate.life.repo import Folder, Repo

LAYOUT = Layout(Path("/r"))


def text(name: str, **more: str) -> str:
    values = {"name": name, "id": f"id-{name}", "upstream": f"/run/{name}.sock"} | more
    return "".join(f"{key}: {value}\n" for key, value in values.items() if value)


def assemble(files: dict[str, str], before: Folder | None = None) -> Folder:
    parsed: dict[str, RepoFile | RepoProblem] = {name: repofile.parse(said, name) for name, said in files.items()}
    return repo.assemble(parsed, before or Folder(), LAYOUT)


def test_reads_a_repo_with_its_defaults() -> None:
    folder = assemble({"a.yaml": text("a")})
    assert folder == Folder(
        {"a": Repo("a", "id-a", Path("/run/a.sock"), Path("/r/run/rediacc/gpu/repos/a.sock"))}, (), {"a.yaml": "a"}
    )


def test_reads_rights_and_binds() -> None:
    said = text("a", owner="root", group="0", mode="0600", sealed="true", binds="[/srv/a]", listen="/run/x.sock")
    found = assemble({"a.yaml": said}).repos["a"]
    assert (found.uid, found.gid, found.mode, found.sealed) == (0, 0, 0o600, True)
    assert (found.binds, found.listen) == ((Path("/srv/a"),), Path("/run/x.sock"))


def test_folders_of_other_repos_above_its_own_are_known() -> None:
    """Whoever has the outer folder bound is root there, and can swap the inner one."""
    files = {
        "a.yaml": text("a", binds="[/srv]"),
        "b.yaml": text("b", binds="[/srv/b, /opt/b]"),
        "c.yaml": text("c", binds="[/srv, /srvb]", bindsPinned="false"),
    }
    repos = assemble(files).repos
    assert {name: its.above for name, its in repos.items()} == {"a": (), "b": (Path("/srv"),), "c": ()}
    assert [its.binds_pinned for its in repos.values()] == [True, True, False]


def test_a_repo_without_an_id_is_served_without_hardware() -> None:
    folder = assemble({"a.yaml": text("a", id="")})
    assert "no id" in folder.repos["a"].problem
    assert folder.problems == ("a.yaml: the repo's file has no id, so no grant can be this repo's own",)


@pytest.mark.req("R9")
@pytest.mark.parametrize("key", ["id", "upstream"])
def test_what_stands_in_two_files_gets_no_hardware_in_either(key: str) -> None:
    folder = assemble({"a.yaml": text("a", **{key: "/x"}), "b.yaml": text("b", **{key: "/x"}), "c.yaml": text("c")})
    if key == "id":
        folder = assemble({"a.yaml": text("a", id="same"), "b.yaml": text("b", id="same"), "c.yaml": text("c")})
    assert set(folder.repos) == {"a", "b", "c"}
    assert [bool(folder.repos[name].problem) for name in "abc"] == [True, True, False]
    assert len(folder.problems) == 2


def test_of_two_files_with_one_name_the_first_is_served_without_hardware() -> None:
    folder = assemble({"1.yaml": text("a"), "2.yaml": text("a", id="other", upstream="/run/o.sock", listen="/run/l")})
    assert list(folder.repos) == ["a"]
    assert folder.repos["a"].upstream == Path("/run/a.sock")
    assert folder.repos["a"].problem
    assert len(folder.problems) == 2


OTHER = {"id": "other", "upstream": "/run/o.sock"}
NEWCOMERS = {
    "of the name, first in order": ("0.yaml", text("a", listen="/run/l", **OTHER)),
    "of the name, last in order": ("z.yaml", text("a", listen="/run/l", **OTHER)),
    "of the name and the socket": ("0.yaml", text("a", **OTHER)),
    "of the socket": ("0.yaml", text("b", listen="/r/run/rediacc/gpu/repos/a.sock", **OTHER)),
    "of the socket, called like its repo": ("b.yaml", text("b", listen="/r/run/rediacc/gpu/repos/a.sock", **OTHER)),
    "of the name, called like the repo": ("a.yaml", text("a", listen="/run/l", **OTHER)),
}


@pytest.mark.req("R9")
@pytest.mark.parametrize("case", NEWCOMERS)
def test_a_new_file_does_not_take_over_what_is_served(case: str) -> None:
    filename, newcomer = NEWCOMERS[case]
    before = assemble({"repo.yaml": text("a")})
    after = assemble({"repo.yaml": text("a"), filename: newcomer}, before)
    assert list(after.repos) == ["a"]
    assert replace(after.repos["a"], problem="") == before.repos["a"]
    assert filename in after.repos["a"].problem
    assert {problem.partition(":")[0] for problem in after.problems} == {"repo.yaml", filename}
    assert assemble({"repo.yaml": text("a"), filename: newcomer}, after) == after
    assert assemble({"repo.yaml": text("a")}, after) == before


def test_at_a_cold_start_the_file_that_is_called_like_its_repo_is_served() -> None:
    by_name = assemble({"0.yaml": text("a", **OTHER), "a.yaml": text("a")}).repos
    assert (list(by_name), by_name["a"].upstream) == (["a"], Path("/run/a.sock"))
    by_socket = assemble({"0.yaml": text("b", listen="/run/l", **OTHER), "a.yaml": text("a", listen="/run/l")})
    assert list(by_socket.repos) == ["a"]
    assert len(by_socket.problems) == 2


def test_a_served_repo_that_moves_to_a_taken_socket_stays_where_it_was() -> None:
    before = assemble({"a.yaml": text("a"), "b.yaml": text("b")})
    after = assemble({"a.yaml": text("a", listen="/r/run/rediacc/gpu/repos/b.sock"), "b.yaml": text("b")}, before)
    assert {name: its.listen for name, its in after.repos.items()} == {
        name: its.listen for name, its in before.repos.items()
    }
    assert all(its.problem for its in after.repos.values())


def test_a_new_file_beside_a_broken_one_of_its_name_is_not_served_and_named() -> None:
    before = assemble({"a.yaml": text("a")})
    after = assemble({"a.yaml": "]", "0.yaml": text("a", **OTHER)}, before)
    assert after.repos["a"].upstream == Path("/run/a.sock")
    assert after.problems[0] == "0.yaml: the name a is served for another file: remove one of them"
    assert len(after.problems) == 2


def test_a_broken_file_keeps_its_socket_and_loses_its_hardware() -> None:
    good = {"a.yaml": text("a"), "b.yaml": text("b")}
    before = assemble(good)
    after = assemble(good | {"a.yaml": "name: a\nsealde: true\n"}, before)
    assert after.repos["b"] == before.repos["b"]
    assert after.repos["a"].upstream == before.repos["a"].upstream
    assert "a.yaml:2" in after.repos["a"].problem
    assert 'the key "sealde" is not known' in after.problems[0]
    again = assemble(good | {"a.yaml": "name: a\nsealde: true\n"}, after)
    assert again == after
    assert assemble(good, again) == before


def test_a_file_that_was_never_right_serves_nothing() -> None:
    folder = assemble({"a.yaml": "]"})
    assert folder.repos == {}
    assert folder.problems[0].startswith("a.yaml:1: not valid YAML")


def test_an_unknown_account_is_said() -> None:
    folder = assemble({"a.yaml": text("a", owner="nobody-here")})
    assert folder.problems == ('a.yaml: owner: "nobody-here" is not known on this machine',)


def test_a_gate_cannot_listen_where_the_daemon_does() -> None:
    folder = assemble({"a.yaml": text("a", listen="/run/a.sock")})
    assert "the daemon must have its own" in folder.problems[0]
