"""Many files of `repos.d` as one folder: a broken one harms only its own repo, and a doubled one gets no hardware."""

from __future__ import annotations

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
