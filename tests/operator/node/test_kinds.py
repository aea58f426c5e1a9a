"""Every kind of machine that we know, as a tree: what must be found on it, and that it is found the same again."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest

import kinds
from gpugrant_crds import inventory
from gpugrant_operator.node.gather import Limits
from machines import Machine
from summary import summary

EXPECTED = Path(__file__).parent / "kinds"

PATIENT, IMPATIENT = Limits(), Limits(smi=0.5)
"""Seconds for a healthy driver on a busy machine, and for one that never answers."""


@pytest.fixture(params=sorted(kinds.KINDS))
def machine(request: pytest.FixtureRequest, tmp_path: Path, nodes_can_be_made: None) -> Machine:
    limits = IMPATIENT if request.param == "nvidia-hung" else PATIENT
    made = Machine(tmp_path / "tree", tmp_path / "root", limits=limits)
    kinds.KINDS[request.param](made)
    return made


@pytest.mark.req("R10", "R12", "R15", "R16", "R17", "R38")
def test_what_is_found(machine: Machine, request: pytest.FixtureRequest) -> None:
    """Cards, render nodes, CDI devices with what they stand for, problems: all as a person would list them."""
    found = machine.setup().inventory
    expected = EXPECTED / f"{request.node.callspec.params['machine']}.txt"
    assert summary(found, root=str(machine.root)) == expected.read_text()


def test_equal_machines_give_equal_bytes(machine: Machine) -> None:
    first = machine.setup()
    written = machine.inventory.read_bytes()
    again = machine.setup()
    assert machine.inventory.read_bytes() == written
    assert again.inventory.content_hash == first.inventory.content_hash
    assert again.written == ()


def test_the_file_is_as_the_published_schema_says(machine: Machine) -> None:
    machine.setup()
    schema = (Path(__file__).parents[3] / "crds" / inventory.SCHEMA_FILE).read_text()
    jsonschema_rs.validator_for(json.loads(schema)).validate(json.loads(machine.inventory.read_bytes()))


def test_every_device_stands_for_something_and_every_card_has_a_name(machine: Machine) -> None:
    found = machine.setup().inventory
    assert all(device.atoms for device in found.cdi.devices)
    assert all(gpu.name and gpu.id for gpu in found.gpus)
    assert len({gpu.id for gpu in found.gpus}) == len(found.gpus)


def test_each_kind_is_expected_and_nothing_else_is() -> None:
    assert {path.stem for path in EXPECTED.glob("*.txt")} == set(kinds.KINDS)
