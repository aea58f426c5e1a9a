"""The table of rules as a whole."""

from __future__ import annotations

import pytest

from gpugrant_crds import openings
from gpugrant_gate.policy import hardware, host, rules


def test_each_rule_is_there_once_and_says_what_it_prevents() -> None:
    ids = [rule.id for rule in rules.RULES]
    assert len(ids) == len(set(ids))
    assert all(rule.prevents and (rule.check or rule.look) for rule in rules.RULES)


@pytest.mark.req("R45")
def test_hardware_comes_first_so_that_it_is_told_first() -> None:
    kinds = [rule.hardware for rule in rules.RULES]
    assert kinds == sorted(kinds, reverse=True)


def test_no_capability_is_both_open_and_closed() -> None:
    free = host.DEFAULT_CAPABILITIES | host.HARMLESS_CAPABILITIES
    assert not free & hardware.CAPABILITIES
    assert free == openings.PASS["host.capabilities"], "who asks to open what passes anyway is told so"
    assert {f"host.capabilities={name}" for name in hardware.CAPABILITIES} <= openings.NEVER.keys()
