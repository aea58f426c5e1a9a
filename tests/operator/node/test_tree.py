from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpugrant_operator.node.tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    (tmp_path / "secret").write_text("outside")
    root = tmp_path / "tree"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text(" text \0\n")
    (root / "relative").symlink_to("a/b/file")
    (root / "absolute").symlink_to("/a/b/file")
    (root / "up").symlink_to("../../../../a/b/file")
    (root / "out").symlink_to("../secret")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("nowhere/at/all")
    (root / "folder").symlink_to("a")
    os.mkfifo(root / "fifo")
    return Tree(root)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("a/b/file", "text", id="a file"),
        pytest.param("/a//b/./file", "text", id="odd slashes"),
        pytest.param("relative", "text", id="a relative link"),
        pytest.param("absolute", "text", id="an absolute link means a place in the tree"),
        pytest.param("up", "text", id="a link above the root stays in it"),
        pytest.param("folder/b/file", "text", id="through a link to a folder"),
        pytest.param("out", None, id="a link out of the tree"),
        pytest.param("loop", None, id="a loop of links"),
        pytest.param("dangling", None, id="a link to nothing"),
        pytest.param("fifo", None, id="a FIFO does not hang"),
        pytest.param("a/b", None, id="a folder"),
        pytest.param("a/b/file/x", None, id="below a file"),
        pytest.param("nothing", None, id="nothing"),
    ],
)
def test_text_is_read_below_the_root_only(tree: Tree, path: str, text: str | None) -> None:
    assert tree.text(path) == text


def test_text_is_cut_at_its_limit(tree: Tree) -> None:
    assert tree.text("a/b/file", limit=3) == "te"


def test_names_of_a_folder(tree: Tree) -> None:
    assert tree.names("folder") == ("b",)
    assert tree.names("nothing") == ()
    assert tree.names("a/b/file") == ()


def test_the_last_part_of_a_link(tree: Tree) -> None:
    assert tree.link_name("dangling") == "all"
    assert tree.link_name("folder/b/file") is None
    assert tree.link_name("nothing/x") is None


def test_programs_are_found_below_the_root_only(tree: Tree) -> None:
    assert tree.program("sh") is None
    place = tree.root / "usr/sbin/sh"
    place.parent.mkdir(parents=True)
    place.write_text("#!/bin/sh\n")
    assert tree.program("sh") is None
    place.chmod(0o755)
    assert tree.program("sh") == place


def test_only_the_root_folder_is_the_live_machine(tree: Tree) -> None:
    assert Tree().is_live
    assert not tree.is_live
