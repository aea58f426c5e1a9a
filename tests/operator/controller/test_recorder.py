"""Events: bounded, and never in the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpugrant_operator.controller.api import event
from gpugrant_operator.controller.recorder import BURST, REFILL, Recorder
from gpugrant_operator.reconcile.transitions import Occurrence
from world import World

ONE = Occurrence("RepoGpuGrant", "default", "g", "u1", "Warning", "ExclusiveHeld", "held by gpu-b")


@pytest.fixture
def recorder(world: World) -> Recorder:
    return Recorder(world.api, world.clock.now, world.clock.monotonic)


async def test_what_is_noted_is_posted(world: World, recorder: Recorder) -> None:
    """In the background."""
    recorder.note([ONE])
    assert world.api.events == []

    await recorder.post_one()

    assert world.api.events == [ONE]


async def test_trouble_loses_an_event_and_nothing_else(world: World, recorder: Recorder) -> None:
    """The next one is posted."""
    recorder.note([ONE, ONE])
    world.api.reachable = False
    await recorder.post_one()
    world.api.reachable = True
    await recorder.post_one()

    assert world.api.events == [ONE]


def test_an_object_that_floods_is_cut(world: World, recorder: Recorder) -> None:
    """A burst, then one in a while; other objects are not touched."""
    recorder.note([ONE] * (BURST + 10))
    assert recorder.waiting == BURST

    recorder.note([replace(ONE, uid="u2")])
    assert recorder.waiting == BURST + 1
    world.clock.forward(seconds=REFILL)
    recorder.note([ONE, ONE])
    assert recorder.waiting == BURST + 2


def test_the_event_object() -> None:
    """As kubectl describe looks for it; a cluster-scoped object's lies in default."""
    made = event(ONE, "2026-03-01T12:00:00Z")
    cluster = event(replace(ONE, kind="GpuMachine", namespace="", name="m"), "2026-03-01T12:00:00Z")

    assert made["involvedObject"] == {
        "apiVersion": "gpu.rediacc.io/v1alpha1",
        "kind": "RepoGpuGrant",
        "namespace": "default",
        "name": "g",
        "uid": "u1",
    }
    assert made["metadata"] == {"name": ONE.event_name, "namespace": "default"}
    assert (made["type"], made["reason"], made["count"]) == ("Warning", "ExclusiveHeld", 1)
    assert cluster["metadata"]["namespace"] == "default"
    assert "namespace" not in cluster["involvedObject"]
