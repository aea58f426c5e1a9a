"""The plan of `rdc repo gpu revoke`, and when it is done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import gen
from gpugrant_crds.names import RepoRef
from gpugrant_crds.snapshot import GateStatus, GrantInForce, InUse
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant
from gpugrant_operator.cli import revoking
from gpugrant_operator.cli.live import Answer
from gpugrant_operator.cli.refs import Refused, World
from gpugrant_operator.cli.revoking import Plan

ALL = "nvidia.com/gpu=all"
ZERO = "nvidia.com/gpu=0"
HERE = RepoRef("gpu-a", gen.MACHINE)


def world(*grants: RepoGpuGrant, machines: tuple[GpuMachine, ...] | None = None) -> World:
    live = {gen.MACHINE: Answer(gen.gate(), gen.DEVICES)}
    return World((gen.machine(),) if machines is None else machines, grants, gen.NOW, live)


@pytest.mark.req("R51")
def test_every_grant_of_repo_machine_and_name_goes_in_all_namespaces_and_no_other() -> None:
    ours = (gen.grant(), gen.grant(namespace="team"))
    others = (
        gen.grant("gpu-b"),
        gen.grant(device=ZERO),
        gen.grant(machine="node-2", name="elsewhere"),
    )
    found = revoking.plan(HERE, (ALL, ALL), world(*ours, *others))
    assert found == Plan(gen.MACHINE, ours, ())


@pytest.mark.req("R51")
def test_what_is_not_granted_is_said() -> None:
    assert revoking.plan(HERE, (ALL, ZERO), world(gen.grant())) == Plan(gen.MACHINE, (gen.grant(),), (ZERO,))


@pytest.mark.parametrize(
    ("ref", "devices", "seen", "message"),
    [
        pytest.param(
            HERE,
            (ALL, "nvidia.com/gpu=9"),
            world(gen.grant()),
            "machine wsl-gpu has no device nvidia.com/gpu=9; did you mean nvidia.com/gpu=0 or nvidia.com/gpu=all?; "
            "nothing is revoked",
            id="a name that the machine does not have",
            marks=pytest.mark.req("R51"),
        ),
        pytest.param(
            RepoRef("gpu-z"),
            (ALL,),
            world(),
            "machine wsl-gpu has no repo gpu-z; did you mean gpu-c or gpu-b or gpu-a?",
            id="a repo that nobody knows",
        ),
        pytest.param(
            RepoRef("gpu-a", "wsl-gp"),
            (ALL,),
            world(),
            "there is no machine wsl-gp; did you mean wsl-gpu?",
            id="a machine that is not there",
        ),
        pytest.param(
            HERE,
            ("all",),
            world(),
            '"all" is not a CDI device name: write vendor/class=name, for example nvidia.com/gpu=all',
            id="no device name",
        ),
    ],
)
def test_refuses(ref: RepoRef, devices: tuple[str, ...], seen: World, message: str) -> None:
    assert revoking.plan(ref, devices, seen) == Refused(message)


@pytest.mark.parametrize(
    ("ref", "grant", "seen_machines"),
    [
        pytest.param(RepoRef("old"), gen.grant("old"), None, id="of a repo that is gone"),
        pytest.param(RepoRef("gpu-a", "gone"), gen.grant(machine="gone"), (), id="of a machine that is gone"),
        pytest.param(HERE, gen.grant(device="nvidia.com/gpu=9"), None, id="of a device that is gone"),
    ],
)
@pytest.mark.req("R51")
def test_a_grant_can_be_revoked_whatever_has_gone_meanwhile(
    ref: RepoRef, grant: RepoGpuGrant, seen_machines: tuple[GpuMachine, ...] | None
) -> None:
    found = revoking.plan(ref, (grant.spec.device,), world(grant, machines=seen_machines))
    assert isinstance(found, Plan)
    assert found.grants == (grant,)


def allocation(*holders: str, owed: Sequence[str] = (), repo: str = "gpu-a") -> dict[str, object]:
    return {
        "device": ALL,
        "repos": [
            {
                "repo": repo,
                "repoId": "id-a",
                "grants": [{"namespace": "default", "name": "g", "uid": uid} for uid in holders],
            }
        ],
        "releasing": [{"repo": repo, "repoId": "id-a", "epoch": 3, "uids": list(owed)}] if owed else [],
    }


def enforcing(*repos: str) -> GateStatus:
    return gen.gate(3).model_copy(update={"grants": tuple(GrantInForce(repo=repo, device=ALL) for repo in repos)})


GONE = gen.grant(uid="u1")


@pytest.mark.parametrize(
    ("stored", "machine", "gate", "words"),
    [
        pytest.param((GONE,), gen.machine(), None, "waits for the gate's answer", id="the object is there"),
        pytest.param(
            (gen.grant(uid="u2"),), gen.machine(), None, None, id="an object of the same name made anew is another"
        ),
        pytest.param(
            (),
            gen.machine(allocations=[allocation("u1")]),
            None,
            "from the ledger",
            id="the ledger holds it: no operator ran",
        ),
        pytest.param(
            (),
            gen.machine(allocations=[allocation(owed=["u1"])]),
            None,
            "has not answered",
            id="the gate has not answered",
        ),
        pytest.param(
            (),
            gen.machine(),
            enforcing("gpu-a"),
            "still lets it through",
            id="the gate itself says that it enforces it",
        ),
        pytest.param((), gen.machine(), enforcing("gpu-b"), None, id="another repo's grant is no hindrance"),
        pytest.param(
            (),
            gen.machine(allocations=[allocation("u9")]),
            enforcing("gpu-a"),
            None,
            id="the repo holds the name by a grant that was made meanwhile",
        ),
        pytest.param((), gen.machine(), None, None, id="nothing is left"),
        pytest.param((), None, None, None, id="the machine is gone"),
    ],
)
@pytest.mark.req("R6", "R51")
def test_when_a_revocation_is_done(
    stored: tuple[RepoGpuGrant, ...], machine: GpuMachine | None, gate: GateStatus | None, words: str | None
) -> None:
    waits = revoking.still((GONE,), stored, machine, gate)
    assert (waits is None) if words is None else (waits is not None and words in waits)


@pytest.mark.req("R51")
def test_containers_that_still_run_with_it_are_named() -> None:
    in_use = [
        InUse(repo="gpu-a", device=ALL, container="b" * 64, name="/train"),
        InUse(repo="gpu-a", device=ALL, container="a" * 64),
        InUse(repo="gpu-a", device=ZERO, container="c" * 64),
        InUse(repo="gpu-b", device=ALL, container="d" * 64),
    ]
    assert revoking.running(in_use, "gpu-a", [ALL]) == (
        "container aaaaaaaaaaaa of repo gpu-a still runs with nvidia.com/gpu=all",
        "container train (bbbbbbbbbbbb) of repo gpu-a still runs with nvidia.com/gpu=all",
    )
