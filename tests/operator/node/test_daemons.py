"""What daemons say of the specs, and the ways in which a spec file reaches them (reference cdi-gpu 1.6)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rig
import stand_in_daemon
import unsealed
from gpugrant_crds.layout import Layout
from gpugrant_operator.node import daemons, files
from machines import Machine

Recorded = Callable[[str], Machine]
RENDER = "rediacc.io/dri=renderD128"


def add_repo(layout: Layout, name: str, upstream: Path, more: str = "") -> None:
    layout.repos.mkdir(parents=True, exist_ok=True)
    (layout.repos / f"{name}.yaml").write_text(f"name: {name}\nid: id-of-{name}\nupstream: {upstream}\n{more}")


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[tuple[Layout, stand_in_daemon.Daemon]]:
    """A repo whose daemon says of itself what a Docker 28.5 does."""
    layout = Layout(tmp_path / "root")
    with stand_in_daemon.serving(tmp_path / "sock", layout.cdi) as daemon:
        add_repo(layout, "gpu-a", daemon.socket)
        yield layout, daemon


@pytest.mark.parametrize(
    ("info", "lacks"),
    [
        pytest.param({"ServerVersion": "28.5.2"}, [RENDER], id="it lists nothing"),
        pytest.param({"ServerVersion": "26.1.5"}, [], id="it lists no devices at all: before 28.2"),
        pytest.param(
            {"ServerVersion": "29.0.0", "DiscoveredDevices": [{"Source": "cdi", "ID": RENDER}]}, [], id="it lists it"
        ),
        pytest.param(
            {"DiscoveredDevices": [{"Source": "other", "ID": RENDER}]}, [RENDER], id="what another source lists"
        ),
        pytest.param({"ServerVersion": "28.5.2", "CDISpecDirs": ["/elsewhere"]}, [], id="it reads another folder"),
        pytest.param({"ServerVersion": "28.5.2", "CDISpecDirs": None}, [], id="CDI is off"),
    ],
)
def test_who_must_list_a_name(
    asked: tuple[Layout, stand_in_daemon.Daemon], info: dict[str, object], lacks: list[str]
) -> None:
    """Only a daemon that reads the folder and lists devices can prove that a name is missing."""
    layout, daemon = asked
    base = {"CDISpecDirs": [str(layout.cdi)]}
    daemon.answer = lambda path: {**base, **info}  # type: ignore[method-assign]  # the daemon's words in this case
    assert daemons.missing(layout, [RENDER], within=0.0) == ((("gpu-a", tuple(lacks)),) if lacks else ())


@pytest.mark.parametrize(
    ("release", "version", "too_old"),
    [
        ("25.0.3", "0.6.0", False),
        ("25.0.3", "0.7.0", True),
        ("26.0.2", "0.7.0", True),
        ("26.1.5", "0.7.0", False),
        ("27.4.1", "0.8.0", True),
        ("28.0.4", "1.0.0", True),
        ("28.5.2", "1.0.0", False),
        ("29.1.0", "1.1.0", True),
        ("29.2.0", "1.1.0", False),
        ("dev", "1.1.0", False),
    ],
)
def test_who_can_not_read_a_version(
    asked: tuple[Layout, stand_in_daemon.Daemon], release: str, version: str, too_old: bool
) -> None:
    """One file above what the daemon's library knows is refused as a whole there; the others don't help."""
    layout, daemon = asked
    daemon.answer = lambda path: {"ServerVersion": release}  # type: ignore[method-assign]  # in this case
    found = daemons.too_old(layout, {"a.yaml": "0.3.0", "b.yaml": version})
    assert found == ((("gpu-a", release.rpartition(".")[0], "b.yaml"),) if too_old else ())


def test_a_sealed_or_silent_daemon_proves_nothing(asked: tuple[Layout, stand_in_daemon.Daemon]) -> None:
    layout, daemon = asked
    add_repo(layout, "gpu-a", daemon.socket, "sealed: true\n")
    add_repo(layout, "gpu-b", layout.root / "nobody")
    assert daemons.missing(layout, [RENDER]) == ()


@pytest.fixture(scope="module", params=["26", "28"])
def reader(request: pytest.FixtureRequest) -> Iterator[tuple[unsealed.Unsealed, Path]]:
    """A real daemon of each generation, and the root whose etc/cdi it reads."""
    if os.geteuid() != 0:
        pytest.skip("a Docker daemon needs root")
    root = rig.short_folder()
    (root / "etc/cdi").mkdir(parents=True)
    with unsealed.daemon(str(request.param), root / "d", root / "etc/cdi") as made:
        yield made, root
    shutil.rmtree(root)


def spec(name: str, node: Path) -> bytes:
    return (
        "cdiVersion: 0.5.0\nkind: rediacc.io/dri\n"
        f"devices: [{{name: {name}, containerEdits: {{deviceNodes: [{{path: /dev/x, hostPath: {node}}}]}}}}]\n"
    ).encode()


def by_our_writer(folder: Path, name: str, data: bytes) -> None:
    files.write(folder / name, data)


def in_place(folder: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)


def moved_in(folder: Path, name: str, data: bytes) -> None:
    aside = folder.parent / name
    aside.write_bytes(data)
    aside.replace(folder / name)


def mode_afterwards(folder: Path, name: str, data: bytes) -> None:
    temporary = folder / "x.tmp"
    temporary.touch(mode=0o000)
    temporary.write_bytes(data)
    temporary.replace(folder / name)
    (folder / name).chmod(0o644)


def folder_made_anew(folder: Path, name: str, data: bytes) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    files.write(folder / name, data)


ARRIVALS = {
    "a temporary file beside it, then a rename": (by_our_writer, True),
    "written in place": (in_place, True),
    "moved in from elsewhere": (moved_in, False),
    "mode set after the rename": (mode_afterwards, True),
    "the folder made anew": (folder_made_anew, True),
}


@pytest.mark.real
@pytest.mark.req("D6", "R43")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("arrive", "seen"), ARRIVALS.values(), ids=ARRIVALS)
def test_the_ways_a_file_arrives(
    reader: tuple[unsealed.Unsealed, Path], arrive: Callable[[Path, str, bytes], None], seen: bool
) -> None:
    """Ours is seen at once by both generations; one that only a move brings is not, which is why we never move."""
    daemon, root = reader
    folder = root / "etc/cdi"
    node = root / "node"
    if not node.exists():
        os.mknod(node, 0o600 | 0o020000, os.makedev(226, 128))
    shown = arrive.__name__.replace("_", "-")
    assert not daemon.knows(f"rediacc.io/dri={shown}")
    arrive(folder, "rediacc-dri.yaml", spec(shown, node))
    if seen:
        rig.wait_for(lambda: daemon.knows(f"rediacc.io/dri={shown}"), seconds=5)
        opened = daemon.run(f"rediacc.io/dri={shown}", "cat", "/dev/x")
        assert "No such device or address" in opened.stderr
    else:
        assert not daemon.knows(f"rediacc.io/dri={shown}")
    (folder / "rediacc-dri.yaml").unlink()


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.parametrize("version", ["0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"])
def test_the_versions_that_the_real_ones_read(reader: tuple[unsealed.Unsealed, Path], version: str) -> None:
    """Each generation reads what the table says and no more."""
    daemon, root = reader
    sight = daemons.look(daemon.socket)
    assert sight is not None
    highest = daemons.reads(sight.release)
    assert highest is not None
    name = f"v{version.replace('.', '-')}"
    path = root / "etc/cdi/rediacc-dri.yaml"
    files.write(path, spec(name, Path("/dev/null")).replace(b"0.5.0", version.encode()))
    readable = tuple(int(part) for part in version.split(".")[:2]) <= highest
    if readable:
        rig.wait_for(lambda: daemon.knows(f"rediacc.io/dri={name}"), seconds=5)
    else:
        assert not daemon.knows(f"rediacc.io/dri={name}")
    path.unlink()


@pytest.mark.real
@pytest.mark.req("D6", "R11", "R15", "R16", "R18")
@pytest.mark.timeout(180)
def test_setups_own_files_are_seen_and_confirmed(reader: tuple[unsealed.Unsealed, Path], recorded: Recorded) -> None:
    """A whole setup into the folder that a daemon reads: each name starts a container, AMD's with device files alone;
    a daemon that lists names confirms them, and one that can't see a file is a problem entry."""
    daemon, root = reader
    machine = recorded("workstation")
    machine.root = root
    add_repo(Layout(root), "gpu-a", daemon.socket)
    outcome = machine.setup()
    assert (outcome.failures, outcome.inventory.problems) == ((), ())
    for name in outcome.inventory.device_names:
        done = daemon.run(name, "true")
        assert done.returncode == 0, done.stderr
    amd = daemon.run("rediacc.io/amd=gpu0", "ls", "/dev", "/dev/dri")
    assert {"kfd", "renderD130"} <= set(rig.succeeded(amd).split())
    assert "nvidia0" not in amd.stdout.split()
    if daemon.engine == "28":
        assert set(outcome.inventory.device_names) == daemon.names()
        # a file that the daemon's watcher has not seen come
        whole = machine.cdi("rediacc-dri.yaml").read_bytes()
        machine.cdi("rediacc-dri.yaml").unlink()
        rig.wait_for(lambda: RENDER not in daemon.names())
        aside = root / "aside.yaml"
        aside.write_bytes(whole)
        aside.replace(machine.cdi("rediacc-dri.yaml"))
        problems = machine.setup().inventory.problems
        assert [problem.reason for problem in problems] == ["SpecUnseen"]
        assert RENDER in problems[0].message
    for path in machine.cdi("x").parent.iterdir():
        path.unlink()
