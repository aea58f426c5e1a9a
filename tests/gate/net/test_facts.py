"""Who listens on abstract sockets of the machine's network."""

from __future__ import annotations

import socket
from pathlib import Path

from gpugrant_gate.net import facts

TABLE = """\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000001: 00000002 00000000 00010000 0001 01 11 @/tmp/.X11-unix/X0
0000000000000002: 00000002 00000000 00010000 0001 01 12 /run/docker.sock
0000000000000003: 00000003 00000000 00000000 0001 03 13 @/tmp/.X11-unix/X1
0000000000000004: 00000003 00000000 00000000 0001 03 14
0000000000000005: 00000002 00000000 00010000 0005 01 15 @a name
"""


def test_names_those_that_are_listened_on(tmp_path: Path) -> None:
    table = tmp_path / "unix"
    table.write_text(TABLE)
    assert facts.listeners(table) == ("/tmp/.X11-unix/X0", "a name")


def test_nobody_tells_where_there_is_no_table(tmp_path: Path) -> None:
    assert facts.listeners(tmp_path / "none") is None


def test_a_real_one_is_seen_while_it_is_there() -> None:
    name = "gpugrant-test-of-facts"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"\0{name}")
        assert name not in (facts.listeners() or ())
        sock.listen()
        assert name in (facts.listeners() or ())
    assert name not in (facts.listeners() or ())
