"""What the lists show, as values."""

from __future__ import annotations

from datetime import timedelta

import pytest

import gen
from gpugrant_crds import inventory, timestamps
from gpugrant_crds.snapshot import GateStatus, GrantInForce
from gpugrant_crds.v1alpha1 import GpuMachine
from gpugrant_operator.cli import listing
from gpugrant_operator.cli.live import Answer
from gpugrant_operator.cli.refs import World

ALL = "nvidia.com/gpu=all"

GPU = {
    "id": "nvidia:GPU-1",
    "vendor": "nvidia",
    "name": "NVIDIA L40S",
    "nameSource": "nvidia-smi",
    "driverVersion": "580.1",
    "memoryBytes": 48 * 2**30,
    "pciAddress": "0000:01:00.0",
    "health": {"state": "ok", "reason": "Ok"},
}
FOUND = inventory.Inventory.model_validate(
    {
        "generatedAt": timestamps.write(gen.NOW - timedelta(minutes=5)),
        "hostname": "x",
        "platform": "wsl",
        "gpus": [GPU, GPU | {"id": "pci:1", "name": "Old card", "driverVersion": None, "memoryBytes": None}],
        "cdi": {
            "devices": [
                {"name": "nvidia.com/gpu=0", "usable": True, "atoms": ["gpu/nvidia:GPU-1"]},
                {"name": ALL, "usable": True, "atoms": ["gpu/nvidia:GPU-1", "gpu/pci:1"]},
            ]
        },
        "problems": [{"reason": "SpecInvalid", "message": "x.yaml is broken", "since": "2026-03-01T12:00:00Z"}],
    }
)


def held(*, exclusive: bool = False) -> GpuMachine:
    """A machine whose ledger gives `all` to gpu-a."""
    grant = {"namespace": "default", "name": "g", "uid": "u", "exclusive": exclusive}
    return gen.machine(
        platform="native",
        inventoryTime=timestamps.write(gen.NOW - timedelta(hours=3)),
        gpus=[{"id": "x", "vendor": "amd", "name": "AMD card"}],
        hardware={ALL: ("gpu/x",)},
        allocations=[{"device": ALL, "repos": [{"repo": "gpu-a", "repoId": "id-a", "grants": [grant]}]}],
    )


def enforcing(*repos: str) -> GateStatus:
    return gen.gate().model_copy(update={"grants": tuple(GrantInForce(repo=repo, device=ALL) for repo in repos)})


@pytest.mark.req("R19")
def test_a_machine_as_its_gate_says_it_is() -> None:
    shown = listing.machine(held(exclusive=True), FOUND, enforcing("gpu-a"), gen.DEVICES, gen.NOW)
    assert shown.head == ("machine: wsl-gpu", "platform: wsl", "inventory: 5m old")
    assert shown.gpus == (("NVIDIA L40S", "580.1", "48.0 GiB", "Ok"), ("Old card", "-", "-", "Ok"))
    assert shown.devices == (
        ("nvidia.com/gpu=0", "NVIDIA L40S at 0000:01:00.0", "-"),
        ("nvidia.com/gpu=all", "NVIDIA L40S, Old card", "gpu-a (exclusive)"),
        ("rediacc.io/dri=renderD128", "-", "-"),
    )
    assert shown.problems == ("problem: SpecInvalid: x.yaml is broken",)


@pytest.mark.req("R21")
def test_a_machine_whose_gate_is_silent_is_shown_as_it_was_last_known() -> None:
    shown = listing.machine(held(), None, None, gen.DEVICES, gen.NOW)
    assert shown.head == ("machine: wsl-gpu", "platform: native", "inventory: 3h old")
    assert shown.gpus == (("AMD card", "-", "-", "-"),)
    assert shown.devices[1] == (ALL, "AMD card at x", "gpu-a")


@pytest.mark.req("R21")
def test_who_holds_a_device_is_what_the_gate_enforces_not_what_the_ledger_hopes() -> None:
    assert listing.holders(ALL, held(), enforcing()) == listing.NOBODY
    assert listing.holders(ALL, held(), enforcing("gpu-a", "gpu-b")) == "gpu-a, gpu-b"


@pytest.mark.parametrize(
    ("moment", "age"),
    [(None, "unknown"), ("yesterday", "unknown"), (timestamps.write(gen.NOW), "0s")],
    ids=["no time", "no time that can be read", "now"],
)
def test_the_age_of_a_moment(moment: str | None, age: str) -> None:
    assert listing.age_of(moment, gen.NOW) == age


def test_grants_are_filtered_and_in_an_order_that_stays() -> None:
    grants = (
        gen.grant("gpu-b"),
        gen.grant("gpu-a", namespace="z"),
        gen.grant("gpu-a"),
        gen.grant("gpu-a", machine="node-2", name="n"),
    )
    world = World((gen.machine(),), grants, gen.NOW)
    refs = [grant.ref for grant in listing.grants(world, repo=None, machine_name=None)]
    assert refs == ["default/n", "default/gpu-a-all", "z/gpu-a-all", "default/gpu-b-all"]
    only = listing.grants(world, repo="gpu-a", machine_name="node-2")
    assert [grant.ref for grant in only] == ["default/n"]


@pytest.mark.req("R21")
def test_a_grant_is_in_force_when_the_gate_says_so() -> None:
    live = {gen.MACHINE: Answer(enforcing("gpu-a"), None)}
    world = World((gen.machine(),), (gen.grant(), gen.grant("gpu-b")), gen.NOW, live)
    assert [listing.in_force(grant, world) for grant in world.grants] == [True, False]
    row = listing.grant_row(world.grants[0], world)
    assert dict(zip(listing.GRANT_COLUMNS, row, strict=True)) == {
        "REPO": "gpu-a",
        "MACHINE": "wsl-gpu",
        "DEVICE": ALL,
        "EXCLUSIVE": "no",
        "IN FORCE": "yes",
        "READY": "no",
        "REASON": "-",
        "EXPIRES": "-",
        "GRANT": "default/gpu-a-all",
        "AGE": "60m",
    }


@pytest.mark.parametrize(
    ("synced", "inventory_age", "words"),
    [
        pytest.param(None, None, "the operator never heard of it", id="never heard of"),
        pytest.param(
            ("True", "Synced"),
            timedelta(seconds=40),
            "this is what the operator knows of it, with an inventory that is 40s old",
            id="in sync when last heard of",
        ),
        pytest.param(
            ("False", "GatePending"), timedelta(hours=3), "an inventory that is 3h old", id="late when last heard of"
        ),
        pytest.param(("True", "Synced"), None, "with an inventory of unknown age", id="no age is known"),
        pytest.param(
            ("Unknown", "GateUnreachable"),
            timedelta(hours=3),
            "does not answer: this is the state of 10m ago",
            id="known to be silent",
        ),
    ],
)
@pytest.mark.req("R21")
def test_the_age_of_what_is_known_instead_is_said(
    synced: tuple[str, str] | None, inventory_age: timedelta | None, words: str
) -> None:
    """Never the time for which nothing changed: that makes what is fresh look old, and what is old look certain."""
    told = {
        "type": "GateSynced",
        "message": "",
        "lastTransitionTime": timestamps.write(gen.NOW - timedelta(minutes=10)),
    }
    machine = gen.machine(
        conditions=[] if synced is None else [told | {"status": synced[0], "reason": synced[1]}],
        inventoryTime=None if inventory_age is None else timestamps.write(gen.NOW - inventory_age),
    )
    world = World((machine,), (gen.grant(),), gen.NOW)
    (sentence,) = listing.silent(world.grants, world)
    assert words in sentence
    assert listing.in_force(world.grants[0], world) is None


def test_a_grant_of_a_machine_that_is_not_there_is_not_blamed_on_a_gate() -> None:
    world = World((), (gen.grant(),), gen.NOW)
    assert listing.silent(world.grants, world) == ()
