"""The reader of repos.d: whole or refused, with the line that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_crds import repofile
from gpugrant_crds.layout import Layout
from gpugrant_crds.repofile import RepoFile, RepoProblem

WHOLE = """\
name: gpu-a
id: 6f1d2c3b4a5948f7a1b2c3d4e5f60718
upstream: /run/docker-a.sock
listen: /run/gpu-a.sock
owner: root
group: "100"
mode: 0660
sealed: true
daemonConfig: /etc/docker/daemon.json
binds:
- /srv/gpu-a
"""


def test_reads_every_key() -> None:
    repo = repofile.parse(WHOLE, "gpu-a.yaml")
    assert isinstance(repo, RepoFile)
    assert repo.id == "6f1d2c3b4a5948f7a1b2c3d4e5f60718"
    assert repo.permissions == 0o660
    assert repo.sealed
    assert repo.binds == (Path("/srv/gpu-a"),)
    assert repo.daemon_config == Path("/etc/docker/daemon.json")
    assert repo.listens(Layout()) == Path("/run/gpu-a.sock")


def test_needs_only_a_name_and_an_upstream() -> None:
    repo = repofile.parse("name: b\nupstream: /run/b.sock\n", "b.yaml")
    assert repo == RepoFile(name="b", upstream=Path("/run/b.sock"))
    assert isinstance(repo, RepoFile)
    assert repo.listens(Layout(Path("/r"))) == Path("/r/run/rediacc/gpu/repos/b.sock")


@pytest.mark.parametrize("text", ["660", "0660", '"0660"', "0o660"], ids=lambda text: f"mode {text}")
def test_a_mode_is_octal_however_it_is_written(text: str) -> None:
    repo = repofile.parse(f"name: b\nupstream: /b\nmode: {text}\n", "b.yaml")
    assert isinstance(repo, RepoFile)
    assert repo.permissions == 0o660


def test_an_id_of_digits_stays_a_text() -> None:
    repo = repofile.parse("name: b\nupstream: /b\nid: 0012e4\n", "b.yaml")
    assert isinstance(repo, RepoFile)
    assert repo.id == "0012e4"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        pytest.param("", 0, "empty", id="an empty file"),
        pytest.param("- a\n", 1, "keys and values", id="a list"),
        pytest.param(
            "name: a\nupstream: /u\nseeled: true\n",
            3,
            '"seeled" is not known; did you mean sealed?',
            id="an unknown key",
        ),
        pytest.param("name: a\nname: b\nupstream: /u\n", 2, '"name" stands here twice', id="a key twice"),
        pytest.param("name: a\n", 0, '"upstream" is missing', id="no upstream"),
        pytest.param("upstream: /u\n", 0, '"name" is missing', id="no name"),
        pytest.param("name: ../a\nupstream: /u\n", 1, "not a repo name", id="a name that is a path"),
        pytest.param("name: a\nupstream: u.sock\n", 2, "absolute path", id="a relative upstream"),
        pytest.param("name: a\nupstream: /u/../v\n", 2, "absolute path", id="an upstream with dots"),
        pytest.param(f"name: a\nupstream: /{'u' * 107}\n", 2, "108 bytes", id="a long socket path"),
        pytest.param("name: a\nupstream: /u\nid:\n", 3, "one text", id="an empty id"),
        pytest.param("name: a\nupstream: /u\nid: ../x\n", 3, "not a repo id", id="an id that is a path"),
        pytest.param("name: a\nupstream: /u\nsealed: yes\n", 3, "true or false", id="another word for true"),
        pytest.param('name: a\nupstream: /u\nsealed: "true"\n', 3, "true or false", id="true as a text"),
        pytest.param("name: a\nupstream: /u\nmode: 888\n", 3, "octal", id="no octal mode"),
        pytest.param("name: a\nupstream: /u\nowner: a b\n", 3, "account", id="no account"),
        pytest.param("name: a\nupstream: /u\nbinds: /srv\n", 3, "must be a list", id="binds as one text"),
        pytest.param("name: a\nupstream: /u\nbindsPinned: no\n", 3, "must be true or false", id="a loose boolean"),
        pytest.param("name: a\nupstream: /u\nbinds: [/]\n", 3, "the whole machine", id="the root as a bind root"),
        pytest.param("name: a\nupstream: /u\nbinds: [/dev]\n", 3, "no container may see /dev", id="devices to bind"),
        pytest.param(
            "name: a\nupstream: /u\nbinds: [/srv, /run/x]\n", 3, "no container may see /run", id="sockets to bind"
        ),
        pytest.param("name: a\nupstream: /u\nopen:\nopen:\n", 4, "stands here twice", id="an empty key twice"),
        pytest.param("name: a\nupstream: /u\nbinds: [srv]\n", 3, "absolute path", id="a relative bind root"),
        pytest.param("name: a\nupstream: /u\ndaemonConfig: d.json\n", 3, "absolute path", id="a relative daemon.json"),
        pytest.param("name: a\nupstream: /u\ndaemon_config: /d\n", 3, "did you mean daemonConfig?", id="a Python key"),
        pytest.param("name: a\nupstream: [/u\n", 3, "not valid YAML", id="broken YAML"),
        pytest.param("name: a\n---\nname: b\n", 2, "not valid YAML", id="two documents"),
        pytest.param("name: a\x00\n", 0, "not valid YAML", id="a NUL byte"),
        pytest.param("[" * 5000, 0, "not valid YAML", id="deep nesting"),
        pytest.param("#" * 70_000, 0, "larger than", id="a huge file"),
    ],
)
def test_says_what_is_wrong_and_where(text: str, line: int, words: str) -> None:
    problem = repofile.parse(text, "a.yaml")
    assert isinstance(problem, RepoProblem)
    assert problem.line == line
    assert words in problem.message
    assert str(problem).startswith(f"a.yaml:{line}: " if line else "a.yaml: ")
    assert "\n" not in str(problem)


def test_names_ids_daemons_and_sockets_that_stand_twice_are_told() -> None:
    repos = {
        "a.yaml": RepoFile(name="a", id="1", upstream=Path("/a")),
        "b.yaml": RepoFile(name="a", id="2", upstream=Path("/b")),
        "c.yaml": RepoFile(name="c", id="3", upstream=Path("/c")),
        "d.yaml": RepoFile(name="d", id="3", upstream=Path("/d")),
        "e.yaml": RepoFile(name="e", id="5", upstream=Path("/e")),
        "f.yaml": RepoFile(name="f", id="6", upstream=Path("/e")),
        "g.yaml": RepoFile(name="g", upstream=Path("/g")),
        "h.yaml": RepoFile(name="h", upstream=Path("/h")),
        "i.yaml": RepoFile(name="i", upstream=Path("/i"), listen=Path("/run/rediacc/gpu/repos/j.sock")),
        "j.yaml": RepoFile(name="j", upstream=Path("/j")),
    }
    found = repofile.clashes(repos, Layout())
    assert set(found) == {"a.yaml", "b.yaml", "c.yaml", "d.yaml", "e.yaml", "f.yaml", "i.yaml", "j.yaml"}
    assert found["a.yaml"] == "the name a stands in b.yaml too: remove one of them"
    assert "the id 3" in found["d.yaml"]
    assert "the listen path /run/rediacc/gpu/repos/j.sock" in found["j.yaml"]
    assert "the upstream /e" in found["e.yaml"]


_repo = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True)
_path = st.from_regex(r"(/[a-zA-Z0-9:#' _-]{1,12}){1,3}", fullmatch=True).map(Path)


@given(
    st.builds(
        RepoFile,
        name=_repo,
        id=st.none() | _repo,
        upstream=_path,
        listen=st.none() | _path,
        owner=st.none() | st.sampled_from(["root", "1000"]),
        group=st.none() | st.sampled_from(["docker", "0"]),
        mode=st.none() | st.sampled_from(["0660", "600", "0o666"]),
        sealed=st.booleans(),
        binds=st.none() | st.lists(_path, max_size=3).map(tuple),
        bindsPinned=st.booleans(),
    )
)
def test_what_is_written_reads_back(repo: RepoFile) -> None:
    assert repofile.parse(repofile.dump(repo), "x.yaml") == repo


@given(st.text())
def test_any_text_is_a_repo_or_a_sentence(text: str) -> None:
    assert isinstance(repofile.parse(text, "x.yaml"), RepoFile | RepoProblem)


def test_host_rules_are_opened_by_name_and_by_profile() -> None:
    text = "name: b\nupstream: /b\nopen: [host.ipc, host.capabilities=SYSLOG]\nprofile: rediacc\n"
    repo = repofile.parse(text, "b.yaml")
    assert isinstance(repo, RepoFile)
    assert {"host.ipc", "host.capabilities=SYSLOG", "host.capabilities=NET_ADMIN", "host.network"} <= repo.opened
    assert repofile.parse(repofile.dump(repo), "b.yaml") == repo
    assert RepoFile(name="b", upstream=Path("/b")).opened == frozenset()


def test_a_list_of_which_every_line_is_commented_out_is_none() -> None:
    repo = repofile.parse("name: b\nupstream: /b\nopen:\n  # - host.ipc\nbinds:\nprofile:\n", "b.yaml")
    assert repo == RepoFile(name="b", upstream=Path("/b"))


OPEN = {
    "open: [hw.devices]": "open: hw.devices can't be opened: no setting opens a way to a device (R45)",
    "open: [host.ipc, host.netwrk]": 'open: "host.netwrk" is nothing that can be opened; did you mean host.network',
    "open: host.ipc": "open: must be a list, for example [host.network]",
    "open: [{host.capabilities: NET_ADMIN}]": "open: must be one text",
    "profile: root": 'profile: there is no profile "root"; there is rediacc',
}


@pytest.mark.req("R45")
@pytest.mark.parametrize(("line", "words"), OPEN.items(), ids=OPEN.keys())
def test_what_can_not_be_opened_breaks_the_file(line: str, words: str) -> None:
    problem = repofile.parse(f"name: b\nupstream: /b\n{line}\n", "b.yaml")
    assert isinstance(problem, RepoProblem)
    assert problem.line == 3
    assert problem.message.startswith(words)


def test_the_example_opens_what_it_says() -> None:
    text = (Path(__file__).parents[2] / "examples/repo.yaml").read_text()
    repo = repofile.parse(text, "repo.yaml")
    assert isinstance(repo, RepoFile)
    assert repo.opened == {"host.network", "host.capabilities=NET_ADMIN", "host.security=apparmor=unconfined"}
