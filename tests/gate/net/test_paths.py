"""Looking at bind sources on a real file system."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import rig
from gpugrant_gate.net import paths
from gpugrant_gate.policy.model import PathInfo


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder with `sub/`, `file`, `link` and `open/x` (others may write to open/), whose parents are root's own."""
    if os.geteuid() != 0:
        pytest.skip("only root can make root's folders")
    made = rig.short_folder()
    (made / "sub").mkdir(mode=0o755)
    (made / "file").touch(mode=0o644)
    (made / "link").symlink_to("sub")
    (made / "open").mkdir()
    (made / "open").chmod(0o777)
    (made / "open/x").mkdir()
    yield made
    shutil.rmtree(made)


CASES = {
    "the folder": ("", (), PathInfo("directory", symlink=False, swappable=False)),
    "a folder in it": ("sub", (), PathInfo("directory", symlink=False, swappable=False)),
    "a file": ("file", (), PathInfo("file", symlink=False, swappable=False)),
    "a link": ("link", (), PathInfo("other", symlink=True, swappable=False)),
    "nothing": ("none", (), PathInfo("missing", symlink=False, swappable=True)),
    "a folder that others can replace": ("open/x", (), PathInfo("directory", symlink=False, swappable=True)),
    "a root itself": ("", ("",), PathInfo("directory", symlink=False, swappable=False)),
    "a folder in a root": ("sub", ("",), PathInfo("directory", symlink=False, swappable=True)),
    "a root in a root": ("sub", ("", "sub"), PathInfo("directory", symlink=False, swappable=True)),
    "beside a root": ("file", ("sub",), PathInfo("file", symlink=False, swappable=False)),
}


@pytest.mark.req("R45")
@pytest.mark.parametrize(("path", "roots", "expected"), CASES.values(), ids=CASES.keys())
def test_sees(root: Path, path: str, roots: tuple[str, ...], expected: PathInfo) -> None:
    assert paths.look(str(root / path), [str(root / name) for name in roots]) == expected
