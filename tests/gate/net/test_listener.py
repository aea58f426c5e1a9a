"""Listening sockets: right from their first moment on."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gpugrant_gate.net import listener
from gpugrant_gate.net.listener import Found, Inherited, Listener


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


WATCHED = """
import json, os, socket, stat, sys
from pathlib import Path
from gpugrant_gate.net import listener
path, seen = Path(sys.argv[1]), []
def rights(place):
    try:
        found = os.lstat(place)
    except OSError:
        return None
    return [found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)] if stat.S_ISSOCK(found.st_mode) else None
def watch(event, args):
    if event in ("socket.bind", "os.chown", "os.chmod", "os.rename", "os.rmdir", "os.remove"):
        inside = [stat.S_IMODE(entry.lstat().st_mode) for entry in path.parent.glob(".gate-*")]
        seen.append([event, rights(path), rights(args[0]) if event == "os.rename" else None, inside])
os.umask(0)
sys.addaudithook(watch)
opened = listener.listen(path, uid=int(sys.argv[2]), gid=int(sys.argv[3]), mode=0o620)
events, seen = seen, []
print(json.dumps([events, rights(path)]))
"""


def test_is_never_reached_with_wider_rights_than_it_shall_have(folder: Path) -> None:
    """Whatever the umask: looked at before each step that the kernel is asked for."""
    uid, gid = (12, 34) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    before = listener.listen(folder / "a.sock", uid=-1, gid=-1, mode=0o600)
    old = [os.getuid(), os.getgid(), 0o600]
    words = [str(folder / "a.sock"), str(uid), str(gid)]
    done = subprocess.run([sys.executable, "-c", WATCHED, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    events, after = json.loads(done.stdout)
    names = [event for event, *_ in events]
    assert names.index("socket.bind") < names.index("os.chown") < names.index("os.chmod") < names.index("os.rename")
    for event, at_its_path, moved, private in events:
        renamed = names.index(event) > names.index("os.rename")
        assert at_its_path == ([uid, gid, 0o620] if renamed else old), event
        assert moved in (None, [uid, gid, 0o620])
        assert set(private) <= {0o700}
    assert after == [uid, gid, 0o620]
    before.close()


def found(opened: Listener, **more: object) -> Found:
    given = {"fd": os.dup(opened.sock.fileno()), "path": opened.path, "inode": opened.inode}
    return Found(**given | more)  # type: ignore[arg-type]


RIGHTS = {"uid": os.getuid(), "gid": os.getgid(), "mode": 0o600}


def test_an_inherited_socket_is_served_where_clients_reach_it(folder: Path) -> None:
    opened = listener.listen(folder / "a.sock", **RIGHTS)
    inherited = Inherited([found(opened)])
    taken = inherited.take(opened.path, **RIGHTS)
    assert taken is not None
    assert (taken.path, taken.inode) == (opened.path, opened.inode)
    assert inherited.take(opened.path, **RIGHTS) is None
    assert inherited.close() == []
    opened.let_go()
    assert connects(taken.path)
    taken.close()
    assert not opened.path.exists()


@pytest.mark.parametrize("why", ["other mode", "other owner", "other socket there", "nothing there", "listens not"])
def test_an_inherited_socket_that_is_not_the_one_wanted_is_not_served(folder: Path, why: str) -> None:
    opened = listener.listen(folder / "a.sock", **RIGHTS)
    one, wanted, other = found(opened), dict(RIGHTS), None
    if why == "other mode":
        wanted["mode"] = 0o660
    elif why == "other owner":
        wanted["uid"] = os.getuid() + 1
    elif why == "other socket there":
        other = listener.listen(folder / "a.sock", **RIGHTS)
    elif why == "nothing there":
        opened.path.unlink()
    else:
        os.close(one.fd)
        one = found(opened, fd=socket.socket(socket.AF_UNIX).detach())
    inherited = Inherited([one])
    assert inherited.take(opened.path, **wanted) is None
    inherited.close()
    if other is not None:
        assert connects(other.path)
        other.close()
    opened.close()


def test_inherited_sockets_that_nobody_wants_go_with_their_paths(folder: Path) -> None:
    opened = listener.listen(folder / "a.sock", **RIGHTS)
    inherited = Inherited([found(opened)])
    opened.let_go()
    assert [left.path for left in inherited.close()] == [folder / "a.sock"]
    assert not (folder / "a.sock").exists()
