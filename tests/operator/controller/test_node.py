"""This machine's name and files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

import gen
import world as worlds
from gpugrant_crds.layout import Layout
from gpugrant_operator.controller.gatelink import GateLink
from gpugrant_operator.controller.node import LocalNode, Unnamed, local_name
from world import World


def tree(root: Path, hostname: str | None = "tree-host\n") -> Path:
    if hostname is not None:
        (root / "etc").mkdir(exist_ok=True)
        (root / "etc/hostname").write_text(hostname)
    return root


def test_the_setting_wins_over_the_host_name(tmp_path: Path) -> None:
    """nodeName of gate.yaml, else the tree's etc/hostname; lower-cased."""
    layout = Layout(tmp_path)
    hardware = tree(tmp_path, "Tree-Host\n")
    assert local_name(layout, hardware) == "tree-host"

    layout.gate_settings.parent.mkdir(parents=True)
    layout.gate_settings.write_text("nodeName: Node-1\n")
    assert local_name(layout, hardware) == "node-1"


UNUSABLE = {
    "no host name": (None, None, "hostname"),
    "a host name that is none": ("under_score\n", None, '"under_score" is not a machine name'),
    "settings that are no YAML": ("host\n", "nodeName: [", "gate.yaml"),
    "a setting that is no name": ("host\n", "nodeName: -x", "set nodeName in"),
}


@pytest.mark.parametrize(("hostname", "settings", "says"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_machine_without_a_name(tmp_path: Path, hostname: str | None, settings: str | None, says: str) -> None:
    """One sentence that says what to do."""
    layout = Layout(tmp_path)
    if settings is not None:
        layout.gate_settings.parent.mkdir(parents=True)
        layout.gate_settings.write_text(settings)

    with pytest.raises(Unnamed, match=says):
        local_name(layout, tree(tmp_path, hostname))


def test_the_running_machine_has_its_own_name(tmp_path: Path) -> None:
    """With hardware / no file below the root plays a part."""
    layout = Layout(tree(tmp_path))

    assert local_name(layout, Path("/")) == os.uname().nodename.lower()


def node(world: World, hardware: Path) -> LocalNode:
    return LocalNode(Layout(world.root), hardware, gen.MACHINE, GateLink(world.gate, world.clock.monotonic))


@pytest.mark.req("R20")
async def test_the_inventory_is_the_gates(world: World) -> None:
    """As the gate reads it; the file when the gate is down; none where there is none."""
    it = node(world, world.root)
    assert not await it.look()
    assert it.inventory is None

    await it.link.refresh()
    assert await it.look(again=True)
    assert it.inventory == worlds.inventory()

    layout = Layout(world.root)
    layout.inventory.parent.mkdir(parents=True)
    layout.inventory.write_text(worlds.inventory(("a.b/c=1",)).dump())
    world.gate.reachable = False
    await it.link.refresh()
    assert await it.look()
    assert it.inventory is not None
    assert it.inventory.device_names == ("a.b/c=1",)
    assert not await it.look()


async def test_a_broken_inventory_is_none_and_says_why(world: World) -> None:
    """Never half of one."""
    world.gate.bytes_of_inventory = b'{"schema": 1}'
    it = node(world, world.root)
    await it.link.refresh()

    await it.look()

    assert it.inventory is None
    assert "inventory.json: " in it.inventory_fault


async def test_spec_files_by_hash(world: World) -> None:
    """What CDI reads, and nothing else; a change is seen by its stat."""
    folder = Layout(world.root).cdi
    folder.mkdir(parents=True)
    (folder / "a.yaml").write_text("one")
    (folder / "b.json").write_text("two")
    (folder / "c.yml").write_text("not read by CDI")
    it = node(world, world.root)

    assert await it.look()
    assert it.specs == {
        name: hashlib.sha256(text).hexdigest() for name, text in (("a.yaml", b"one"), ("b.json", b"two"))
    }
    assert not await it.look()
    (folder / "a.yaml").write_text("longer than one")
    assert await it.look()
    (folder / "a.yaml").unlink()
    assert await it.look()
    assert list(it.specs) == ["b.json"]


def test_the_boot(world: World) -> None:
    """From proc; a tree may have none."""
    it = node(world, world.root)
    assert it.boot_id is None
    place = world.root / "proc/sys/kernel/random"
    place.mkdir(parents=True)
    (place / "boot_id").write_text("boot-1\n")

    assert it.boot_id == "boot-1"
