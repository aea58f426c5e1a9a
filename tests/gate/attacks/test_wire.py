"""Attacks on how a request is written."""

from __future__ import annotations

import pytest

import intruder
from corpus.requests import TABLE
from intruder import Attack

pytestmark = [pytest.mark.real, pytest.mark.req("R4", "R45")]


@pytest.mark.parametrize("attack", TABLE, ids=lambda attack: attack.id)
def test_bytes_have_one_meaning(ground: intruder.Ground, attack: Attack) -> None:
    intruder.run(attack, ground)
