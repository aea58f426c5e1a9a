from __future__ import annotations

from pathlib import Path

from gpugrant_operator.node import state
from gpugrant_operator.node.state import State


def test_it_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "setup.json"
    known = State(install_nvidia_toolkit="false", nodes=("kfd",)).wrote("etc/cdi/nvidia.yaml", b"one")
    state.save(path, known)
    assert state.load(path) == (known, None)


def test_the_last_two_hashes_of_a_file_are_ours() -> None:
    known = State().wrote("f", b"one").wrote("f", b"two").wrote("f", b"three")
    assert [known.owns("f", data) for data in (b"one", b"two", b"three")] == [False, True, True]
    assert not known.owns("g", b"three")
    assert not known.removed("f").owns("f", b"three")


def test_no_file_is_an_empty_state(tmp_path: Path) -> None:
    assert state.load(tmp_path / "setup.json") == (State(), None)


def test_a_damaged_file_is_said_and_nothing_is_ours(tmp_path: Path) -> None:
    path = tmp_path / "setup.json"
    path.write_text('{"schema": 1, "files"')
    known, damage = state.load(path)
    assert known == State()
    assert damage is not None
    assert str(path) in damage
