"""The operator's lock and control socket."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import aiohttp
import pytest

from gpugrant_crds.layout import SocketPathTooLong
from gpugrant_operator.control import AlreadyRunning, Health, locked, served


def test_one_operator_a_root(tmp_path: Path) -> None:
    """The second is told who the first is; a lock that is let go is free."""
    path = tmp_path / "run/operator.lock"
    with locked(path, "2026-03-01T12:00:00Z", kind="an operator"):
        assert json.loads(path.read_text()) == {"pid": os.getpid(), "since": "2026-03-01T12:00:00Z"}
        with (
            pytest.raises(AlreadyRunning, match=f"pid {os.getpid()} since 2026"),
            locked(path, "later", kind="an operator"),
        ):
            pass

    with locked(path, "later", kind="an operator"):
        assert json.loads(path.read_text())["since"] == "later"


def test_a_lock_file_without_sense_says_so(tmp_path: Path) -> None:
    """It was torn; who holds it is not known."""
    path = tmp_path / "operator.lock"
    with locked(path, "now", kind="an operator"):
        path.write_text("{")
        with pytest.raises(AlreadyRunning, match="its pid is not known"), locked(path, "later", kind="an operator"):
            pass


async def test_healthz(tmp_path: Path) -> None:
    """What the supervisor reads; only for the owner; a left-over socket is replaced."""
    socket = tmp_path / "operator.sock"
    socket.write_text("left over")
    health = Health(False, "machine m: no answer", "2026-03-01T12:00:00Z")

    async with served(socket, lambda: health):
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
            session.get("http://operator/healthz") as answer,
        ):
            said = await answer.json()
            status = answer.status

    assert (status, said) == (200, {"ok": False, "message": "machine m: no answer", "since": "2026-03-01T12:00:00Z"})
    assert not socket.exists()


async def test_a_path_that_no_socket_fits(tmp_path: Path) -> None:
    """One sentence."""
    with pytest.raises(SocketPathTooLong, match="choose a shorter --root"):
        async with served(tmp_path / ("x" * 120), lambda: Health(True, "", "")):
            pass
