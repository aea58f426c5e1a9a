"""Names of kept sockets: what is written is read back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_crds import keptsockets
from gpugrant_crds.keptsockets import Place

PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


@given(PATHS, st.integers(0, 2**64), st.integers(0, 2**64))
def test_is_read_back_as_it_was_written_and_fits_into_a_list(text: str, device: int, inode: int) -> None:
    place = Place(Path(f"/run/{text}"), device, inode)
    written = keptsockets.name(place)
    assert written == "" or keptsockets.parse(written) == place
    assert len(written) <= 255
    assert written.isascii()
    assert not set(written) & {":", "\n", " "}


@pytest.mark.parametrize("text", ["", "gpu-a.socket", "/a", "/a@", "/a@1", "/a@x.y", "a@1.2"])
def test_other_names_are_none_of_ours(text: str) -> None:
    assert keptsockets.parse(text) is None
