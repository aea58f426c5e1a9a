"""Every endpoint in ways in which nobody uses it, and what passes without giving anything."""

from __future__ import annotations

import pytest

import intruder
from corpus import allowed, routes
from intruder import Attack

pytestmark = [pytest.mark.real, pytest.mark.req("R4", "R37", "R45")]


@pytest.mark.parametrize("attack", routes.TABLE, ids=lambda attack: attack.id)
def test_no_endpoint_has_another_door(ground_a: intruder.Ground, attack: Attack) -> None:
    intruder.run(attack, ground_a)


@pytest.mark.parametrize("attack", allowed.TABLE, ids=lambda attack: attack.id)
def test_what_passes_gives_nothing(ground: intruder.Ground, attack: Attack) -> None:
    intruder.run(attack, ground)
