"""The catalogue of rules names all that a refusal can name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gpugrant_gate
from gpugrant_crds import openings
from gpugrant_gate.policy import catalog, rules

SOURCES = Path(gpugrant_gate.__file__).parent
ID = re.compile(
    r"[\"\[]((?:hw|host|http|body|route|start|gate|wire)\.[a-z-]+)[\"\]]|\"(build\.(?:buildkit|container|remote))\""
)


def in_code() -> set[str]:
    """Every rule's id that stands in the gate's code."""
    texts = (file.read_text() for file in SOURCES.rglob("*.py") if file.name != "catalog.py")
    return {first or second for text in texts for first, second in ID.findall(text)}


def test_every_rule_that_a_refusal_can_name_is_there_once() -> None:
    ids = [entry.id for entry in catalog.entries()]
    assert len(ids) == len(set(ids))
    named = {id_ for id_ in in_code() if not id_.startswith("wire.")}
    assert named <= set(ids)
    assert set(ids) - {"wire.*"} <= named


def test_each_says_what_it_prevents_and_either_can_be_opened_or_says_why_not() -> None:
    for entry in catalog.entries():
        assert entry.prevents
        assert bool(entry.opens) != bool(entry.closed), entry.id


@pytest.mark.req("R45")
def test_only_host_rules_can_be_opened() -> None:
    opened = {entry.id for entry in catalog.entries() if entry.opens}
    assert opened == set(openings.RULES)
    assert all(id_.startswith("host.") for id_ in opened)
    assert [rule.id for rule in rules.RULES if rule.hardware and (rule.openings or rule.closed)] == []
