"""Paths: all below one root, and sockets that the kernel takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpugrant_crds import layout


def test_everything_lies_below_the_root(tmp_path: Path) -> None:
    """A second instance with another root never touches the first."""
    place = layout.Layout(tmp_path)
    names = [name for name in dir(layout.Layout) if isinstance(getattr(layout.Layout, name), property)]
    paths = [getattr(place, name) for name in names]
    paths += [place.control("gate"), place.lock("gate"), place.repo_socket("a"), place.sealed_repo("b")]

    assert len(paths) > 10
    assert all(path.is_relative_to(tmp_path) for path in paths)


@pytest.mark.parametrize(("length", "fits"), [(107, True), (108, False)])
def test_socket_paths(length: int, fits: bool) -> None:
    """sun_path holds 107 bytes and a NUL; more is a sentence, not an OSError."""
    path = Path("/" + "a" * (length - 1))
    if fits:
        assert layout.checked_socket(path) == path
        return
    with pytest.raises(layout.SocketPathTooLong, match="choose a shorter --root"):
        layout.checked_socket(path)
