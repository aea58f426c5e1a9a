"""Attacks in the bodies of requests."""

from __future__ import annotations

import pytest

import intruder
from corpus.bodies import TABLE
from intruder import Attack

pytestmark = [pytest.mark.real, pytest.mark.req("R4", "R5", "R45")]


@pytest.mark.parametrize("attack", TABLE, ids=lambda attack: attack.id)
def test_a_body_brings_no_hardware(ground: intruder.Ground, attack: Attack) -> None:
    intruder.run(attack, ground)
