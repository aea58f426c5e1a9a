"""The whole system for a session of tests, as a user starts it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

import rig


@pytest.fixture(scope="session")
def system() -> Iterator[rig.System]:
    """The example system on the recorded machine, ended and removed with the session."""
    if os.geteuid() != 0:
        pytest.skip("hack/up needs root")
    root = rig.short_folder()
    try:
        yield rig.bring_up(root, rig.CHECKOUT / "examples/machines/workstation")
    finally:
        rig.succeeded(rig.script("down", "--root", root))
    shutil.rmtree(root)
