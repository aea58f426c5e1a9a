"""What is brought is built once, whole or not at all."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gpugrant_hack import cache


def test_two_at_once_build_once(tmp_path):
    built: list[Path] = []
    together = threading.Barrier(2)

    def build(into: Path) -> None:
        built.append(into)
        (into / "tool").write_text("whole")

    def bring() -> Path:
        together.wait()
        return cache.entry(tmp_path, "tool-1", build)

    with ThreadPoolExecutor(2) as pool:
        paths = {future.result() for future in [pool.submit(bring), pool.submit(bring)]}

    assert paths == {tmp_path / "tool-1"}
    assert len(built) == 1
    assert (tmp_path / "tool-1/tool").read_text() == "whole"


def test_a_failed_build_leaves_nothing_and_is_tried_again(tmp_path):
    def fails(into: Path) -> None:
        (into / "tool").write_text("half")
        raise OSError("cut off")

    with pytest.raises(OSError, match="cut off"):
        cache.entry(tmp_path, "tool-1", fails)

    assert [path.name for path in tmp_path.iterdir()] == ["tool-1.lock"]
    whole = cache.entry(tmp_path, "tool-1", lambda into: (into / "tool").touch())
    assert (whole / "tool").exists()


FOLDERS = {
    "an own folder": ({"GPUGRANT_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"),
    "the user's cache folder": ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/gpugrant"),
    "below the home": ({"HOME": "/h"}, "/h/.cache/gpugrant"),
    "an empty value is none": ({"GPUGRANT_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/gpugrant"),
}


@pytest.mark.parametrize(("environ", "expected"), FOLDERS.values(), ids=FOLDERS)
def test_the_folder(environ: dict[str, str], expected: str) -> None:
    assert cache.folder(environ) == Path(expected)
