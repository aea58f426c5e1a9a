"""The files of repos.d as `gpugrant repo` writes them."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import rig
from gpugrant_crds.layout import Layout
from gpugrant_crds.repofile import RepoFile, RepoProblem
from gpugrant_operator import repos
from gpugrant_operator.repos import Folder, Refused, Same, Wanted, Write

LAYOUT = Layout(Path("/r"))
HERE = RepoFile(name="a", id="id-a", upstream=Path("/a.sock"), listen=Path("/l.sock"), sealed=True)
FOLDER = Folder({"a.yaml": HERE}, (RepoProblem("c.yaml", 2, "not valid YAML"),))


@pytest.fixture
def layout() -> Iterator[Layout]:
    root = rig.short_folder()
    yield Layout(root)
    shutil.rmtree(root)


def fresh() -> str:
    return "fresh"


def test_a_new_repo_gets_a_fresh_id_and_a_file_of_its_name() -> None:
    wanted = Wanted("b", Path("/b.sock"))
    made = RepoFile(name="b", id="fresh", upstream=Path("/b.sock"))
    assert repos.plan_add(FOLDER, wanted, LAYOUT, fresh) == Write("b.yaml", made)


def test_an_id_that_is_given_is_taken() -> None:
    planned = repos.plan_add(FOLDER, Wanted("b", Path("/b.sock"), id="mine"), LAYOUT, fresh)
    assert planned.repo.id == "mine"


@pytest.mark.parametrize(
    ("wanted", "sealed_with", "made"),
    [
        pytest.param(Wanted("b", Path("/b")), "id-b", ("id-b", True), id="the daemon sees a folder of ours"),
        pytest.param(Wanted("b", Path("/b"), id="id-b"), "id-b", ("id-b", True), id="of the id that is given"),
        pytest.param(Wanted("b", Path("/b"), id="mine"), "id-b", ("mine", False), id="of another id than is given"),
        pytest.param(Wanted("b", Path("/b")), None, ("fresh", False), id="it sees none"),
        pytest.param(Wanted("b", Path("/b"), sealed=True), None, ("fresh", True), id="it is said"),
    ],
)
@pytest.mark.req("R2", "R9")
def test_a_daemon_that_sees_the_folder_of_its_repo_is_sealed(
    wanted: Wanted, sealed_with: str | None, made: tuple[str, bool]
) -> None:
    repo = repos.plan_add(FOLDER, wanted, LAYOUT, fresh, sealed_with=sealed_with).repo
    assert (repo.id, repo.sealed) == made


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(Wanted("a", Path("/a.sock")), id="what was not said is not compared"),
        pytest.param(Wanted("a", Path("/a.sock"), "id-a", Path("/l.sock"), sealed=True), id="all said again"),
    ],
)
def test_adding_the_same_again_changes_nothing(wanted: Wanted) -> None:
    assert repos.plan_add(FOLDER, wanted, LAYOUT, fresh) == Same(HERE)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        pytest.param(
            Wanted("a", Path("/other.sock")),
            "repo a is there already with the upstream /a.sock (a.yaml): change that file, or run gpugrant repo remove "
            "a first",
            id="another daemon",
        ),
        pytest.param(Wanted("a", Path("/a.sock"), id="x"), "with the id id-a", id="another id"),
        pytest.param(Wanted("a", Path("/a.sock"), listen=Path("/x")), "with the listen /l.sock", id="another socket"),
        pytest.param(
            Wanted("b", Path("/a.sock")),
            "/a.sock is the daemon of repo a: two repos never share a daemon",
            id="a daemon that another repo has",
        ),
        pytest.param(
            Wanted("b", Path("/b.sock"), id="id-a"), "repo a has the id id-a", id="an id that another repo has"
        ),
        pytest.param(
            Wanted("b", Path("/b.sock"), listen=Path("/l.sock")),
            "the gate listens for repo a at /l.sock",
            id="a socket that another repo has",
        ),
        pytest.param(
            Wanted("b", Path("/l.sock")),
            "the gate itself listens at /l.sock, for repo a: give the daemon's own socket as --upstream",
            id="the socket of another repo behind the gate",
        ),
        pytest.param(
            Wanted("b", Path("/link.sock"), leads_to=Path("/l.sock")),
            "the gate itself listens at /link.sock, for repo a",
            id="a link to it",
        ),
        pytest.param(
            Wanted("b", Path("/b.sock"), listen=Path("/b.sock")),
            "the gate itself listens at /b.sock, for repo b",
            id="its own listening socket",
        ),
        pytest.param(
            Wanted("b", LAYOUT.repo_socket("gone")),
            "/r/run/rediacc/gpu/repos/gone.sock lies in /r/run/rediacc/gpu/repos, where the gate listens",
            id="where the gate listens",
        ),
        pytest.param(
            Wanted("c", Path("/c.sock")), "c.yaml:2: not valid YAML; mend it", id="a broken file of that name"
        ),
        pytest.param(Wanted("../b", Path("/b.sock")), "is not a repo name", id="a name that is a path"),
        pytest.param(Wanted("b", Path("/b.sock"), id="../b"), "is not a repo id", id="an id that is a path"),
        pytest.param(
            Wanted("b", Path("/" + "b" * 107)), "has 108 bytes and the kernel takes 107", id="a long upstream"
        ),
        pytest.param(
            Wanted("b", Path("/b.sock"), listen=Path("/" + "l" * 107)), "choose a shorter", id="a long listen"
        ),
    ],
)
def test_refuses(wanted: Wanted, message: str) -> None:
    with pytest.raises(Refused) as raised:
        repos.plan_add(FOLDER, wanted, LAYOUT, fresh)
    assert message in str(raised.value)


def test_a_root_that_is_too_deep_for_the_gates_socket_is_told() -> None:
    with pytest.raises(Refused, match="choose a shorter --root or listen path"):
        repos.plan_add(Folder({}), Wanted("b", Path("/b.sock")), Layout(Path("/" + "d" * 90)), fresh)


@pytest.mark.req("R9")
def test_the_id_of_a_removed_repo_is_not_given_again() -> None:
    planned = repos.plan_add(
        FOLDER, Wanted("b", Path("/b")), LAYOUT, fresh, sealed_with="id-old", retired=frozenset({"id-old"})
    )
    assert isinstance(planned, repos.Write)
    assert (planned.repo.id, planned.repo.sealed, planned.of_removed) == ("fresh", True, True)
    said = repos.plan_add(
        FOLDER, Wanted("b", Path("/b"), "id-old"), LAYOUT, fresh, sealed_with="id-old", retired=frozenset({"id-old"})
    )
    assert isinstance(said, repos.Write)
    assert (said.repo.id, said.repo.sealed, said.of_removed) == ("id-old", True, False)


@pytest.mark.req("R9")
def test_a_removed_repos_id_is_retired(layout: Layout) -> None:
    layout.repos.mkdir(parents=True)
    assert repos.retired(layout) == frozenset()
    for _ in range(2):
        repos.write(layout, repos.Write("b.yaml", RepoFile(name="b", id="id-old", upstream=Path("/b"))))
        assert repos.remove(layout, "b")
    assert layout.retired_repos.read_text() == "id-old\n"
    assert repos.retired(layout) == {"id-old"}


def test_the_daemons_configuration_is_recorded_and_compared_when_it_is_said() -> None:
    config = Path("/etc/docker/daemon.json")
    made = repos.plan_add(FOLDER, Wanted("b", Path("/b"), daemon_config=config), LAYOUT, fresh)
    assert made.repo.daemon_config == config
    known = Folder({"b.yaml": made.repo})
    assert isinstance(repos.plan_add(known, Wanted("b", Path("/b")), LAYOUT, fresh), Same)
    with pytest.raises(Refused, match=r"with the daemonConfig /etc/docker/daemon\.json"):
        repos.plan_add(known, Wanted("b", Path("/b"), daemon_config=Path("/x.json")), LAYOUT, fresh)


def test_sealed_is_compared_only_when_it_is_said() -> None:
    plain = Folder({"a.yaml": HERE.model_copy(update={"sealed": False})})
    with pytest.raises(Refused, match="with the sealed false"):
        repos.plan_add(plain, Wanted("a", Path("/a.sock"), sealed=True), LAYOUT, fresh)


def test_a_file_is_written_whole_and_readable_by_all(layout: Layout) -> None:
    before = os.umask(0o077)
    try:
        with repos.locked(layout):
            path = repos.write(layout, Write("a.yaml", HERE))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert repos.read(layout) == Folder({"a.yaml": HERE})
    assert [entry.name for entry in layout.repos.iterdir()] == ["a.yaml"]


def test_a_broken_file_hides_no_other(layout: Layout) -> None:
    with repos.locked(layout):
        repos.write(layout, Write("a.yaml", HERE))
    (layout.repos / "b.yaml").write_text("name: b\nupstraem: /b\n")
    (layout.repos / "c.yaml").write_bytes(b"name: \xff")
    (layout.repos / "README").write_text("not a repo")
    (layout.repos / ".d.yaml").write_text("not whole yet")
    found = repos.read(layout)
    assert set(found.repos) == {"a.yaml"}
    assert [problem.file for problem in found.problems] == ["b.yaml", "c.yaml"]


def test_a_folder_that_is_not_there_is_empty(layout: Layout) -> None:
    assert repos.read(layout) == Folder({})


def test_a_repo_is_removed_by_its_name_whatever_its_file_is_called(layout: Layout) -> None:
    with repos.locked(layout):
        repos.write(layout, Write("other.yaml", HERE))
        assert repos.remove(layout, "a")
        assert not repos.remove(layout, "a")


def test_a_broken_file_can_be_removed_by_its_name(layout: Layout) -> None:
    with repos.locked(layout):
        (layout.repos / "b.yaml").write_text("{")
        assert repos.remove(layout, "b")


def test_one_command_at_a_time(layout: Layout) -> None:
    order: list[str] = []
    inside, waiting = threading.Event(), threading.Event()

    def second() -> None:
        inside.wait()
        waiting.set()
        with repos.locked(layout):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with repos.locked(layout):
        inside.set()
        waiting.wait()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_nobody_listens_where_there_is_no_socket(layout: Layout) -> None:
    assert repos.accepts(layout.root / "no.sock") is None
    (layout.root / "file").touch()
    assert repos.accepts(layout.root / "file") is None


def test_who_listens_is_known(layout: Layout) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(layout.root / "s.sock"))
        listening.listen()
        assert repos.accepts(layout.root / "s.sock") == os.getpid()


def test_the_id_is_that_of_the_sealed_folder_in_place_of_the_cdi_folder(layout: Layout) -> None:
    for name in ("id-a", "id-b"):
        layout.sealed_repo(name).mkdir(parents=True)
    layout.cdi.mkdir(parents=True)
    proc = layout.root / "proc"
    daemons_root = proc / "7" / "root"
    seen = daemons_root / layout.cdi.relative_to("/")
    seen.parent.mkdir(parents=True)
    seen.symlink_to(layout.sealed_repo("id-b"))
    assert repos.sealed_id(layout, 7, proc) == "id-b"
    seen.unlink()
    seen.symlink_to(layout.cdi)
    assert repos.sealed_id(layout, 7, proc) is None, "the plain CDI folder is nobody's"
    assert repos.sealed_id(layout, 8, proc) is None, "a process that has ended"


@pytest.mark.real
@pytest.mark.must_run
@pytest.mark.req("R2", "R9")
def test_a_process_in_a_sealed_mount_namespace_is_known_by_its_folder(layout: Layout) -> None:
    if os.geteuid() != 0:
        pytest.skip("a mount namespace needs root")
    layout.cdi.mkdir(parents=True)
    layout.sealed_repo("id-a").mkdir(parents=True)
    script = f'mount --bind {layout.sealed_repo("id-a")} {layout.cdi} && echo up && exec "$@"'
    listener = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); "
        "print('listening', flush=True); sys.stdin.read()"
    )
    socket_path = layout.root / "d.sock"
    command = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        script,
        "sh",
        sys.executable,
        "-c",
        listener,
    ]
    with subprocess.Popen(
        [*command, str(socket_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert [child.stdout.readline(), child.stdout.readline()] == ["up\n", "listening\n"]
        peer = repos.accepts(socket_path)
        assert peer == child.pid
        assert repos.sealed_id(layout, peer) == "id-a"
