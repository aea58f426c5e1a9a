from __future__ import annotations

import json

import pytest

from gpugrant_crds import inventory
from gpugrant_crds.inventory import Cdi, CdiDevice, Gpu, Health, Inventory, InventoryUnreadable

NOW = "2026-03-01T12:00:00Z"
LATER = "2026-03-02T12:00:00Z"


def machine(**changes: object) -> Inventory:
    fields: dict[str, object] = {"generated_at": NOW, "hostname": "m", "platform": "native"}
    return Inventory.model_validate(fields | changes)


CARD = Gpu(
    id="amd:1",
    vendor="amd",
    name="Über Card",
    name_source="sysfs",
    render_nodes=("renderD128",),
    health=Health(state="ok", reason="Ok"),
)


@pytest.mark.req("R12")
def test_a_machine_with_nothing_has_the_same_document_with_empty_lists() -> None:
    document = json.loads(machine().dump())
    assert (document["schema"], document["gpus"], document["renderNodes"]) == (1, [], [])
    assert (document["cdi"]["devices"], document["problems"]) == ([], [])


@pytest.mark.req("R10", "R20")
def test_the_file_is_canonical_and_reads_back() -> None:
    full = machine(gpus=(CARD,), cdi=Cdi(devices=(CdiDevice(name="a.b/cc=d", usable=True),)))
    text = full.dump()
    assert text.endswith("}\n")
    assert "Über Card" in text
    assert list(json.loads(text)) == sorted(json.loads(text))
    assert inventory.parse(text) == full
    assert inventory.parse(text.encode()).dump() == text


def test_the_hash_covers_all_but_the_time() -> None:
    assert machine().content_hash == machine(generated_at=LATER).content_hash
    assert machine().content_hash != machine(hostname="n").content_hash
    assert json.loads(machine().dump())["contentHash"] == machine().content_hash


def test_only_usable_names_can_be_granted() -> None:
    devices = (CdiDevice(name="a.b/cc=d", usable=True), CdiDevice(name="a.b/cc=e", usable=False, reason="SpecConflict"))
    assert machine(cdi=Cdi(devices=devices)).device_names == ("a.b/cc=d",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "invalid json", id="empty"),
        pytest.param("{", "invalid json", id="torn"),
        pytest.param('{"schema": 2}', "schema", id="another schema"),
        pytest.param('{"schema": 1, "hostname": "m"}', "generatedAt", id="a field is missing"),
    ],
)
def test_what_is_no_inventory_is_said(text: str, message: str) -> None:
    with pytest.raises(InventoryUnreadable, match=message):
        inventory.parse(text)


def test_what_a_newer_version_adds_is_ignored() -> None:
    text = json.dumps(json.loads(machine().dump()) | {"later": 1})
    assert inventory.parse(text) == machine()


def test_a_problem_keeps_the_time_when_it_was_first_seen() -> None:
    before = machine(problems=inventory.carry_since((("Old", "a"),), None, NOW))
    found = inventory.carry_since((("Old", "a"), ("New", "b"), ("Old", "a")), before, LATER)
    assert [(p.reason, p.since) for p in found] == [("New", LATER), ("Old", NOW)]
