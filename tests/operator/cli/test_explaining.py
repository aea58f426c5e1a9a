"""Why a repo may or may not use a device: every link, and the answer that follows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import gen
from gpugrant_crds import names, timestamps
from gpugrant_crds.snapshot import GateStatus, GrantInForce
from gpugrant_crds.v1alpha1 import Condition, RepoGpuGrant
from gpugrant_operator.cli import explaining
from gpugrant_operator.cli.explaining import Explanation
from gpugrant_operator.cli.live import Answer
from gpugrant_operator.cli.refs import Refused, World
from standalone import Instance

ALL = "nvidia.com/gpu=all"
REF = names.parse_repo_ref("gpu-a")


def ready(status: str, reason: str = "Enforced", message: str = "", **terms: Any) -> RepoGpuGrant:
    said = Condition(
        type="Ready", status=status, reason=reason, message=message, last_transition_time=timestamps.write(gen.NOW)
    )
    made = gen.grant(**terms)
    return made.model_copy(
        update={"status": made.status.model_copy(update={"conditions": (said,), "observed_generation": 9})}
    )


def enforcing(*repos: str, **gate: Any) -> GateStatus:
    return gen.gate(4, **gate).model_copy(
        update={"grants": tuple(GrantInForce(repo=repo, device=ALL) for repo in repos)}
    )


MACHINE = gen.machine()
WELL = World(
    machines=(MACHINE,),
    grants=(ready("True"),),
    now=gen.NOW,
    live={MACHINE.metadata.name: Answer(enforcing("gpu-a"), gen.DEVICES)},
)


def explained(world: World, device: str = ALL) -> Explanation:
    found = explaining.explain(REF, device, world)
    assert isinstance(found, Explanation), found
    return found


def live(status: GateStatus) -> dict[str, Answer]:
    return {MACHINE.metadata.name: Answer(status, gen.DEVICES)}


def test_it_may() -> None:
    found = explained(WELL)
    assert [(link.name, link.holds) for link in found.links] == [
        (name, True) for name in ("device", "repo", "grant", "ledger", "gate", "daemon")
    ]
    assert found.may is True
    assert found.sentence.startswith(f"repo gpu-a may use {ALL} on {gen.MACHINE}: docker run --device {ALL}")


@pytest.mark.parametrize(
    ("world", "link", "because"),
    [
        (
            replace(WELL, machines=(gen.machine(devices=None),), live={}),
            "device",
            "were never detected; run: rdc machine",
        ),
        (replace(WELL, live=live(enforcing("gpu-a", repos={"gpu-b": "b"}))), "repo", "gpu-a"),
        (replace(WELL, grants=()), "grant", "nobody has granted it; an operator can run: rdc repo gpu grant gpu-a@"),
        (replace(WELL, grants=(ready("True", repo="gpu-b"),)), "grant", "nobody has granted it"),
        (
            replace(WELL, grants=(ready("False", "ExclusiveHeld", "gpu-b has it"),)),
            "ledger",
            "gpu-b has it (ExclusiveHeld)",
        ),
        (replace(WELL, live=live(enforcing("gpu-b"))), "gate", "the gate does not let this repo use it (snapshot 4)"),
        (
            replace(WELL, live=live(enforcing("gpu-a", unfit={"gpu-a": "DaemonUnfit"}))),
            "daemon",
            "the daemon has CDI off",
        ),
    ],
)
def test_the_link_that_is_broken_is_the_answer(world: World, link: str, because: str) -> None:
    found = explained(world)
    broken = next(its for its in found.links if its.holds is False)
    assert (broken.name, because in broken.because) == (link, True), broken
    assert found.may is False
    assert found.sentence == f"repo gpu-a may not use {ALL} on {gen.MACHINE}: {broken.because}"


def test_a_device_that_is_not_there_is_said_with_the_near_ones() -> None:
    found = explained(WELL, "nvidia.com/gpu=al")
    assert "did you mean nvidia.com/gpu=all" in found.sentence


def test_what_cannot_be_asked_is_unknown() -> None:
    unasked = explained(
        replace(WELL, live={}, machines=(gen.machine(gate={"repos": [{"name": "gpu-a", "id": "id-a"}]}),))
    )
    assert (unasked.may, "may perhaps use" in unasked.sentence) == (None, True)
    stale = WELL.grants[0].model_copy(
        update={"metadata": WELL.grants[0].metadata.model_copy(update={"generation": 10})}
    )
    assert explained(replace(WELL, grants=(stale,))).may is None


@pytest.mark.parametrize(("ref", "device"), [("gpu-a@none", ALL), ("none", ALL), ("gpu-a", "nvidia.com/gpu")])
def test_a_question_without_meaning_is_refused(ref: str, device: str) -> None:
    assert isinstance(explaining.explain(names.parse_repo_ref(ref), device, WELL), Refused)


@pytest.mark.real
@pytest.mark.req("R6", "R21")
def test_on_a_real_instance(instance: Instance) -> None:
    before = instance.rdc("repo", "gpu", "explain", "gpu-a", "--device", ALL)
    assert before.exit_code == 1
    assert f"repo gpu-a may not use {ALL} on {instance.machine}: nobody has granted it" in before.stderr
    assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL).exit_code == 0
    after = instance.rdc("repo", "gpu", "explain", "gpu-a", "--device", ALL)
    assert (after.exit_code, after.stderr) == (0, "")
    assert f"repo gpu-a may use {ALL} on {instance.machine}: docker run --device {ALL}" in after.stdout
    found = json.loads(instance.rdc("repo", "gpu", "explain", "gpu-a", "--device", ALL, "-o", "json").stdout)
    assert (found["may"], {link["name"] for link in found["links"]}) == (
        True,
        {"device", "repo", "grant", "ledger", "gate", "daemon"},
    )
