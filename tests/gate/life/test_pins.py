"""Pinned sources in a mount namespace of their own, as a sealed daemon has one."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import rig
from gpugrant_gate.life import pins
from gpugrant_gate.life.pins import Allowed, Noted, Unpinned
from gpugrant_gate.policy.pins import Pin, place

pytestmark = [pytest.mark.real, pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")]


@pytest.fixture
def pid() -> Iterator[int]:
    """A process with mounts of its own."""
    with subprocess.Popen(["unshare", "--mount", "--propagation", "slave", "sleep", "60"]) as running:
        own = Path(f"/proc/{running.pid}/ns/mnt")
        rig.wait_for(lambda: own.readlink() != Path("/proc/self/ns/mnt").readlink())
        yield running.pid
        running.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "places"


def pin(folder: Path, source: Path) -> Pin:
    return Pin(str(source), place(str(folder), str(source)), str(source))


def seen(pid: int, made: Pin) -> Path:
    return Path(f"/proc/{pid}/root{made.place}")


def test_a_place_holds_the_object_that_was_opened_whatever_becomes_of_its_name(
    pid: int, folder: Path, tmp_path: Path
) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "mine").touch()
    made = pin(folder, source)
    pins.make([made], pid)
    source.rename(tmp_path / "moved")
    source.symlink_to("/")
    assert [path.name for path in seen(pid, made).iterdir()] == ["mine"]
    assert not list(Path(made.place).iterdir()), "this process sees nothing of it"
    with pytest.raises(Unpinned, match="symbolic link"):
        pins.make([made], pid)
    assert pins.placed(folder, pid) == {made.place}


def test_files_and_long_names_are_pinned(pid: int, folder: Path, tmp_path: Path) -> None:
    source = tmp_path / ("n" * 240) / ("m" * 240)
    source.parent.mkdir()
    source.write_text("mine")
    made = [pin(folder, source), pin(folder, source.parent)]
    pins.make(made, pid)
    assert seen(pid, made[0]).read_text() == "mine"
    assert pins.placed(folder, pid) == {one.place for one in made}
    pins.clear([one.place for one in made], pid)
    assert pins.placed(folder, pid) == frozenset()
    assert source.read_text() == "mine"


def test_a_place_is_made_anew_for_another_object(pid: int, folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "src"
    made = pin(folder, source)
    for text in ("one", "two"):
        source.write_text(text)
        pins.make([made], pid)
        assert seen(pid, made).read_text() == text
        source.rename(tmp_path / text)
    source.mkdir()
    pins.make([made], pid)
    assert seen(pid, made).is_dir()
    source.rmdir()
    source.mkdir()
    (source / "new").touch()
    pins.make([made], pid)
    assert [path.name for path in seen(pid, made).iterdir()] == ["new"]
    pins.clear([made.place], pid)
    assert (source / "new").exists()


def test_what_is_neither_folder_nor_file_is_not_pinned(pid: int, folder: Path, tmp_path: Path) -> None:
    device, pipe = tmp_path / "device", tmp_path / "pipe"
    os.mknod(device, 0o20666, os.makedev(1, 3))
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sock"))
    for source in (device, pipe, tmp_path / "sock"):
        with pytest.raises(Unpinned, match="neither a folder nor a plain file"):
            pins.make([pin(folder, source)], pid)
    with pytest.raises(Unpinned, match="no such file"):
        pins.make([pin(folder, tmp_path / "none")], pid)
    with pytest.raises(Unpinned, match="symbolic link"):
        pins.make([pin(folder, Path("/proc/self/root/tmp"))], pid)


def test_a_process_that_is_gone_gets_nothing(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Unpinned, match="can't be pinned"):
        pins.make([pin(folder, tmp_path)], 2**22)


def test_what_a_daemon_wrote_into_a_missing_place_is_not_taken_away(folder: Path, pid: int, tmp_path: Path) -> None:
    made = pin(folder, tmp_path)
    Path(made.place).mkdir(parents=True)
    (Path(made.place) / "data").touch()
    pins.clear([made.place], pid)
    assert (Path(made.place) / "data").exists()


def test_notes_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "state/id.json"
    assert pins.noted(file) == Noted()
    wanted = [Pin("/srv/a", "/p", "/srv/a"), Pin("/run/docker.sock", "/q", "/run/gate.sock", socket=True)]
    note = Noted().with_pins(wanted)
    pins.note(file, note)
    assert pins.noted(file) == note
    file.write_text("{")
    assert pins.noted(file) == Noted()
    pins.note(file, note.only([]))
    assert not file.exists()


def test_only_what_may_still_be_bound_is_restored(tmp_path: Path) -> None:
    note = Noted(frozenset({"/srv/a", "/srv/ab", "/srv/a/x"}), frozenset({"/run/docker.sock"}))
    closed = Allowed(tmp_path, (Path("/srv/a"),), None)
    assert [one.source for one in closed.pins(note)] == ["/srv/a", "/srv/a/x"]
    opened = Allowed(tmp_path, (), Path("/run/gate.sock"))
    assert [(one.source, one.target) for one in opened.pins(note)] == [("/run/docker.sock", "/run/gate.sock")]
