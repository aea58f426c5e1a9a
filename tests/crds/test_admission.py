"""The admission review: what is refused, what is warned of, and in which words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

import gen
from gpugrant_crds.admission import Request, Review, review
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant

KNOWN = gen.machine(gate={"repos": [{"name": "gpu-a", "id": "id-a"}, {"name": "gpu-b", "id": "id-b"}]})


def ask(
    grant: RepoGpuGrant,
    *,
    old: RepoGpuGrant | None = None,
    machine: GpuMachine | None = KNOWN,
    stored: tuple[RepoGpuGrant, ...] = (),
    live: tuple[str, ...] | None = gen.DEVICES,
) -> Review:
    return review(Request(grant=grant, old=old, machine=machine, stored=stored, live_devices=live, now=gen.NOW))


@dataclass(frozen=True)
class Refused:
    review: Review
    reason: str
    says: tuple[str, ...]


REFUSED = {
    "a misspelt device, with the nearest name": Refused(
        ask(gen.grant(device="nvidia.com/gpu=al")), "DeviceNotFound", ("nvidia.com/gpu=all", "wsl-gpu")
    ),
    "a device that was there at the last detection and is gone now": Refused(
        ask(gen.grant(), live=("nvidia.com/gpu=0",)), "DeviceNotFound", ("nvidia.com/gpu=0",)
    ),
    "a device when the gate does not answer and the last detection lacks it": Refused(
        ask(gen.grant(device="nvidia.com/gpu=5"), live=None), "DeviceNotFound", ("nvidia.com/gpu=0",)
    ),
    "a path in place of a name": Refused(
        ask(gen.grant(device="/dev/dri/renderD128")), "InvalidDevice", ("vendor/class=name",)
    ),
    "exclusive while another repo holds the name": Refused(
        ask(gen.grant(exclusive=True), stored=(gen.grant("gpu-b"),)),
        "SharedHeld",
        ("repo gpu-b holds", "rdc repo gpu revoke gpu-b@wsl-gpu --device nvidia.com/gpu=all"),
    ),
    "exclusive while another repo's grant waits in another namespace": Refused(
        ask(gen.grant(exclusive=True), stored=(gen.grant("gpu-x", namespace="far"),)), "SharedHeld", ("gpu-x",)
    ),
    "any grant while another repo reserves the name": Refused(
        ask(gen.grant(), stored=(gen.grant("gpu-b", exclusive=True),)),
        "ExclusiveHeld",
        ("reserved for repo gpu-b", "default/gpu-b-all"),
    ),
    "an upgrade while another repo holds the name": Refused(
        ask(gen.grant(exclusive=True), old=gen.grant(), stored=(gen.grant(), gen.grant("gpu-b"))),
        "SharedHeld",
        ("gpu-b",),
    ),
    "a time in the past": Refused(ask(gen.grant(expires=gen.NOW - timedelta(seconds=1))), "Expired", ("in the past",)),
    "another device in an update": Refused(
        ask(gen.grant(device="nvidia.com/gpu=0"), old=gen.grant()), "Immutable", ("spec.device",)
    ),
    "a repo id that is added later": Refused(
        ask(gen.grant(repo_id="x1"), old=gen.grant()), "Immutable", ("spec.repoId",)
    ),
}


@pytest.mark.req("R8", "R26", "R27")
@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_refuses(case: Refused) -> None:
    """Not stored, with the reason and a sentence that says what to do instead."""
    assert not case.review.allowed
    assert str(case.review.reason) == case.reason
    for text in case.says:
        assert text in case.review.message


ALLOWED = {
    "a device that the machine has": ask(gen.grant()),
    "a device that came after the last detection": ask(
        gen.grant(device="nvidia.com/gpu=7"), live=("nvidia.com/gpu=7",)
    ),
    "the same name for the same repo in another namespace": ask(
        gen.grant(exclusive=True), stored=(gen.grant(exclusive=True, namespace="far"),)
    ),
    "a name that another repo reserves on another machine": ask(
        gen.grant(), stored=(gen.grant("gpu-b", exclusive=True, machine="other"),)
    ),
    "another name of the same card": ask(gen.grant(), stored=(gen.grant("gpu-b", "nvidia.com/gpu=0", exclusive=True),)),
    "a name whose exclusive grant has expired": ask(
        gen.grant(), stored=(gen.grant("gpu-b", exclusive=True, expires=gen.NOW),)
    ),
    "a name whose exclusive grant is being deleted": ask(
        gen.grant(), stored=(gen.grant("gpu-b", exclusive=True, deleted=gen.NOW),)
    ),
    "an update without a change, whatever became of the world": ask(
        gen.grant(device="nvidia.com/gpu=gone"),
        old=gen.grant(device="nvidia.com/gpu=gone"),
        stored=(gen.grant("gpu-b", "nvidia.com/gpu=gone", exclusive=True),),
    ),
    "an update of the expiry when the device is gone": ask(
        gen.grant(expires=gen.NOW + timedelta(1)), old=gen.grant(), live=()
    ),
}


@pytest.mark.req("R8", "R26")
@pytest.mark.parametrize("answer", ALLOWED.values(), ids=ALLOWED.keys())
def test_allows(answer: Review) -> None:
    """Stored, without a warning."""
    assert (answer.allowed, answer.warnings, answer.message) == (True, (), "")


@pytest.mark.req("R8", "R9")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ask(gen.grant(), machine=None), "MachineNotFound"),
        (ask(gen.grant(), machine=gen.machine(devices=None)), "MachineNotDetected"),
        (ask(gen.grant("gpu-aa")), "gpu-a"),
        (ask(gen.grant(repo_id="id-old")), "RepoIdMismatch"),
        (ask(gen.grant(), machine=gen.machine(gate={"repos": [{"name": "gpu-a"}]})), "(DaemonUnfit)"),
    ],
    ids=[
        "an unknown machine",
        "a machine never detected",
        "a repo that the machine does not know",
        "a repo of another id",
        "a repo without an id",
    ],
)
def test_warns(answer: Review, said: str) -> None:
    """Stored with a warning: it may still come."""
    assert answer.allowed
    assert said in answer.warnings[0]
