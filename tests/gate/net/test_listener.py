"""Listening sockets: right from their first moment on."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from gpugrant_gate.net import listener


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
        return True


def test_has_its_rights_and_accepts(folder: Path) -> None:
    opened = listener.listen(folder / "deep/a.sock", uid=os.getuid(), gid=os.getgid(), mode=0o620)
    assert stat.S_IMODE(opened.path.stat().st_mode) == 0o620
    assert connects(opened.path)
    assert list(opened.path.parent.iterdir()) == [opened.path]
    opened.close()
    assert not opened.path.exists()


def test_takes_the_place_of_a_socket_that_is_there(folder: Path) -> None:
    first = listener.listen(folder / "a.sock", uid=-1, gid=-1, mode=0o600)
    second = listener.listen(folder / "a.sock", uid=-1, gid=-1, mode=0o600)
    first.close()
    assert connects(folder / "a.sock")
    second.close()
    assert not (folder / "a.sock").exists()


@pytest.mark.parametrize("what", ["file", "folder"])
def test_takes_the_place_of_nothing_else(folder: Path, what: str) -> None:
    path = folder / "a.sock"
    path.mkdir() if what == "folder" else path.write_text("precious")
    with pytest.raises(FileExistsError, match="is no socket"):
        listener.listen(path, uid=-1, gid=-1, mode=0o600)
    assert path.exists()


def test_a_path_that_just_fits_can_be_bound(folder: Path) -> None:
    path = folder / ("x" * (107 - len(str(folder)) - 1))
    opened = listener.listen(path, uid=-1, gid=-1, mode=0o600)
    assert connects(path)
    opened.close()
