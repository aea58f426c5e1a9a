"""Machines for the tests of the node part: copies of the recorded trees, and trees built file by file."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from machines import EXAMPLES, Machine


@pytest.fixture
def nodes_can_be_made(tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    try:
        os.mknod(probe, 0o600 | stat.S_IFCHR, os.makedev(226, 128))
    except PermissionError:
        pytest.skip("device nodes can only be made as root")
    probe.unlink()


@pytest.fixture
def recorded(tmp_path: Path, nodes_can_be_made: None) -> Callable[[str], Machine]:
    """A copy of one of the recorded trees; needs the right to make device nodes."""

    def copy(name: str) -> Machine:
        tree = tmp_path / "tree"
        shutil.copytree(EXAMPLES / name, tree, symlinks=True)
        return Machine(tree, tmp_path / "root")

    return copy


@pytest.fixture
def bare(tmp_path: Path) -> Machine:
    """A tree with nothing in it but a name."""
    machine = Machine(tmp_path / "tree", tmp_path / "root")
    machine.write("etc/hostname", "bare\n")
    return machine
