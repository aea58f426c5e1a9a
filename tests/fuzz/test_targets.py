"""What hack/fuzz begins with keeps every law already, and the command has the targets that there are."""

from __future__ import annotations

import pytest

from fuzz import run
from fuzz.targets import TARGETS

pytestmark = pytest.mark.req("R4", "R45")


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_keep_the_law(name: str) -> None:
    check, seeds = TARGETS[name]
    assert seeds
    for seed in seeds:
        check(seed)
        check(seed[: len(seed) // 2])
        check(seed + seed)
        check(seed.replace(b"a", b"\xff"))


def test_the_command_knows_the_targets() -> None:
    assert set(run.NAMES) == set(TARGETS)
