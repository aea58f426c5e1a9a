"""What lies at a bind's source, and who could put something else there."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gpugrant_gate.net import paths

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="owners can be set by root only")


@pytest.fixture
def tree(folder: Path) -> Path:
    """Below /tmp, which is sticky: its entries are root's own."""
    (folder / "own/deep").mkdir(parents=True)
    (folder / "own/file").write_text("x")
    (folder / "link").symlink_to(folder / "own")
    (folder / "users").mkdir()
    (folder / "users/theirs").mkdir()
    os.chown(folder / "users", 1000, 1000)
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    (folder / "open/mine").mkdir()
    return folder


CASES = {
    "own/deep": ("directory", False, False),
    "own/file": ("file", False, False),
    "own/none": ("missing", False, True),
    "link": ("other", True, False),
    "link/deep": ("directory", True, True),
    "users": ("directory", False, False),
    "users/theirs": ("directory", False, True),
    "open/mine": ("directory", False, True),
    "own/../own/file": ("missing", False, True),
}


@pytest.mark.req("R45")
@pytest.mark.parametrize("case", CASES)
def test_looks_at_every_component(tree: Path, case: str) -> None:
    found = paths.look(f"{tree}/{case}")
    assert (found.kind, found.symlink, found.swappable) == CASES[case]


def test_knows_a_socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(folder / "s"))
        assert paths.look(str(folder / "s")).kind == "socket"


def test_what_lies_in_a_folder_of_binds_can_be_swapped(tree: Path) -> None:
    assert paths.look(f"{tree}/own/deep", (f"{tree}/own",)).swappable
    assert not paths.look(f"{tree}/own", (f"{tree}/own",)).swappable


def test_a_relative_path_is_nothing() -> None:
    assert paths.look("etc").kind == "missing"
