"""The plan of `rdc repo gpu grant`, as tables: all or nothing, idempotent, admission's own sentences."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gen
from gpugrant_crds import names, timestamps
from gpugrant_crds.names import RepoRef
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant
from gpugrant_operator.cli import granting, refs
from gpugrant_operator.cli.granting import Change, Create, Keep, Plan, Wish
from gpugrant_operator.cli.live import Answer
from gpugrant_operator.cli.refs import Refused, World

ALL = "nvidia.com/gpu=all"
OWN = names.grant_object_name("gpu-a", gen.MACHINE, ALL)


def world(*grants: RepoGpuGrant, machines: tuple[GpuMachine, ...] | None = None, live: bool = True) -> World:
    machines = (gen.machine(),) if machines is None else machines
    answers = {gen.MACHINE: Answer(gen.gate(), gen.DEVICES)} if live else {}
    return World(machines, grants, gen.NOW, answers)


def wish(*devices: str, repo: str = "gpu-a", machine: str | None = None, **said: object) -> Wish:
    return Wish(RepoRef(repo, machine), devices or (ALL,), "default", **said)  # type: ignore[arg-type]


def planned(asked: Wish, seen: World) -> Plan:
    found = granting.plan(asked, seen)
    assert isinstance(found, Plan), found
    return found


def refused(asked: Wish, seen: World) -> str:
    found = granting.plan(asked, seen)
    assert isinstance(found, Refused), found
    return found.message


@pytest.mark.req("R22", "R9")
def test_a_new_grant_is_of_the_repo_that_is_there_now_and_has_a_name_of_its_own() -> None:
    (step,) = planned(wish(), world()).steps
    assert isinstance(step, Create)
    assert (step.namespace, step.name) == ("default", OWN)
    assert step.spec.to_json() == {"machine": gen.MACHINE, "repo": "gpu-a", "device": ALL, "repoId": "id-a"}
    assert step.instead_of is None


def test_what_was_wished_stands_in_the_spec() -> None:
    ends = gen.NOW + timedelta(hours=8)
    (step,) = planned(wish(exclusive=True, expires_at=ends), world()).steps
    assert isinstance(step, Create)
    assert step.spec.exclusive is True
    assert step.spec.expires_at == timestamps.write(ends)


@pytest.mark.req("R22")
def test_a_device_named_twice_is_one_grant() -> None:
    assert len(planned(wish(ALL, ALL), world()).steps) == 1


@pytest.mark.parametrize(
    ("asked", "seen", "message"),
    [
        pytest.param(
            wish("nvidia.com/gpu=al"),
            world(),
            "machine wsl-gpu has no device nvidia.com/gpu=al; did you mean nvidia.com/gpu=all or nvidia.com/gpu=0?",
            id="a misspelt device, with the nearest names",
            marks=pytest.mark.req("R8"),
        ),
        pytest.param(
            wish(ALL, "nvidia.com/gpu=7", "rediacc.io/dri=renderD9"),
            world(),
            "machine wsl-gpu has no device nvidia.com/gpu=7; did you mean nvidia.com/gpu=0 or nvidia.com/gpu=all?; "
            "machine wsl-gpu has no device rediacc.io/dri=renderD9; did you mean rediacc.io/dri=renderD128?; "
            "nothing is granted",
            id="one bad name of three refuses all, and every bad one is named",
            marks=pytest.mark.req("R22"),
        ),
        pytest.param(
            wish("/dev/nvidia0"),
            world(),
            '"/dev/nvidia0" is not a CDI device name: write vendor/class=name, for example nvidia.com/gpu=all',
            id="a path",
            marks=pytest.mark.req("R3"),
        ),
        pytest.param(
            wish(repo="gpu-x"),
            world(),
            "machine wsl-gpu has no repo gpu-x; did you mean gpu-c or gpu-b or gpu-a?",
            id="a repo that nobody knows",
            marks=pytest.mark.req("R9"),
        ),
        pytest.param(
            wish(repo="gpu-x", machine=gen.MACHINE),
            world(),
            "machine wsl-gpu has no repo gpu-x; did you mean gpu-c or gpu-b or gpu-a?",
            id="a repo that the written machine does not know",
            marks=pytest.mark.req("R9"),
        ),
        pytest.param(
            wish(machine="wsl-gp"),
            world(),
            "there is no machine wsl-gp; did you mean wsl-gpu?",
            id="a misspelt machine",
            marks=pytest.mark.req("R22"),
        ),
        pytest.param(
            wish(machine="node-1"),
            world(machines=()),
            "there is no machine node-1; an operator can run: rdc machine setup node-1",
            id="a machine where there is none",
        ),
        pytest.param(
            wish(machine=gen.MACHINE),
            world(machines=(gen.machine(devices=None),)),
            "the devices of machine wsl-gpu were never detected; run: rdc machine setup wsl-gpu",
            id="a machine that was never detected, which kubectl would be let through for",
            marks=pytest.mark.req("R8"),
        ),
        pytest.param(
            wish(exclusive=True),
            world(gen.grant("gpu-b")),
            "nvidia.com/gpu=all on wsl-gpu can't be reserved while repo gpu-b holds it; to free it: "
            "rdc repo gpu revoke gpu-b@wsl-gpu --device nvidia.com/gpu=all",
            id="a reservation of what another repo holds",
            marks=pytest.mark.req("R26"),
        ),
        pytest.param(
            wish(),
            world(gen.grant("gpu-b", exclusive=True, namespace="team")),
            "nvidia.com/gpu=all on wsl-gpu is reserved for repo gpu-b (exclusive grant team/gpu-b-all); to free it: "
            "rdc repo gpu revoke gpu-b@wsl-gpu --device nvidia.com/gpu=all",
            id="what another repo reserves, in whatever namespace",
            marks=pytest.mark.req("R27"),
        ),
        pytest.param(
            wish(exclusive=True),
            world(gen.grant("gpu-a"), gen.grant("gpu-b")),
            "nvidia.com/gpu=all on wsl-gpu can't be reserved while repo gpu-b holds it; to free it: "
            "rdc repo gpu revoke gpu-b@wsl-gpu --device nvidia.com/gpu=all",
            id="an upgrade of one's own grant while another repo holds the name",
            marks=pytest.mark.req("R22", "R26"),
        ),
        pytest.param(
            wish(),
            world(gen.grant("gpu-b", device="rediacc.io/dri=renderD128", name=OWN)),
            f"the object default/{OWN} has the name of this grant and is another: delete it first",
            id="an object of the grant's name that is something else",
        ),
        pytest.param(
            wish(),
            world(
                machines=(
                    gen.machine(gate={"repos": [{"name": "gpu-a", "id": "1"}]}),
                    gen.machine(name="node-2", uid="m2", gate={"repos": [{"name": "gpu-a", "id": "2"}]}),
                ),
                live=False,
            ),
            "repo gpu-a is on 2 machines: write gpu-a@node-2 or gpu-a@wsl-gpu",
            id="a repo on several machines",
            marks=pytest.mark.req("R22"),
        ),
        pytest.param(
            wish(repo="gpu-x"),
            world(
                machines=(
                    gen.machine(gate={"repos": [{"name": "gpu-a", "id": "1"}]}),
                    gen.machine(name="node-2", uid="m2", gate={"repos": [{"name": "web", "id": "2"}]}),
                ),
                live=False,
            ),
            "no machine has a repo gpu-x; there is gpu-a@wsl-gpu",
            id="a repo on none of several machines",
            marks=pytest.mark.req("R22"),
        ),
        pytest.param(
            wish(),
            world(machines=(gen.machine(gate={"repos": [{"name": "gpu-a"}]}),), live=False),
            "repo gpu-a on machine wsl-gpu gets no hardware: its file in repos.d is broken, or gives it no id of its "
            "own: see gpugrant status",
            id="a repo without an id gets no hardware",
        ),
        pytest.param(
            wish(),
            World(
                (gen.machine(),),
                (),
                gen.NOW,
                {gen.MACHINE: Answer(gen.gate(repos={"gpu-a": ""}, unfit={"gpu-a": "DaemonUnfit"}), (ALL,))},
            ),
            "repo gpu-a on machine wsl-gpu gets no hardware: the daemon has CDI off",
            id="a repo without an id: what its gate says",
        ),
    ],
)
def test_refuses(asked: Wish, seen: World, message: str) -> None:
    assert refused(asked, seen) == message


@pytest.mark.req("R8")
def test_the_specs_as_they_are_now_count_more_than_the_last_detection() -> None:
    fresh = "nvidia.com/gpu=1"
    live = {gen.MACHINE: Answer(gen.gate(), (fresh,))}
    seen = World((gen.machine(),), (), gen.NOW, live)
    assert planned(wish(fresh), seen).steps
    assert "has no device nvidia.com/gpu=all" in refused(wish(ALL), seen)


@pytest.mark.req("R22")
def test_an_existing_grant_is_kept_and_said() -> None:
    stored = gen.grant(namespace="team")
    found = planned(wish(), world(stored))
    assert found.steps == (Keep(stored),)
    assert found.notes == ("repo gpu-a has nvidia.com/gpu=all on wsl-gpu already (grant team/gpu-a-all)",)


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        pytest.param(RepoRef("gpu-a", None), None, id="a repo that is there"),
        pytest.param(RepoRef("gpu-a", gen.MACHINE), None, id="a repo that is on that machine"),
        pytest.param(
            RepoRef("gpu-x", None),
            "machine wsl-gpu has no repo gpu-x; did you mean gpu-c or gpu-b or gpu-a?",
            id="a repo that no machine has",
        ),
        pytest.param(
            RepoRef("gpu-x", gen.MACHINE),
            "machine wsl-gpu has no repo gpu-x; did you mean gpu-c or gpu-b or gpu-a?",
            id="a repo that this machine has not",
        ),
        pytest.param(
            RepoRef("gpu-a", "wsl-gpx"),
            "there is no machine wsl-gpx; did you mean wsl-gpu?",
            id="a machine that is not there",
        ),
    ],
)
def test_a_reference_that_means_nothing_is_told_as_a_grant_would(ref: RepoRef, said: str | None) -> None:
    seen = world()
    assert refs.unknown(ref, seen) == said
    if said is not None:
        assert refused(Wish(ref, (ALL,), "default"), seen) == said


def test_a_reference_may_mean_one_of_several_machines() -> None:
    there = gen.machine(name="node-2", gate={"repos": [{"name": "only-there", "id": "x"}, {"name": "no-id"}]})
    seen = world(machines=(gen.machine(), there))
    assert refs.unknown(RepoRef("only-there", None), seen) is None
    assert refs.unknown(RepoRef("no-id", None), seen) is None, "it is there; what it lacks is an id"
    assert refs.unknown(RepoRef("only-there", gen.MACHINE), seen) is not None
    nowhere = refs.unknown(RepoRef("only-ther", None), seen)
    assert nowhere == "no machine has a repo only-ther; there is only-there@node-2"


LATER = gen.NOW + timedelta(hours=8)
EARLIER = gen.NOW - timedelta(hours=1)


@pytest.mark.parametrize(
    ("asked", "stored", "notes"),
    [
        pytest.param(
            wish(exclusive=True),
            gen.grant(name=OWN),
            (f"the grant default/{OWN} becomes exclusive",),
            id="it becomes exclusive",
        ),
        pytest.param(
            wish(expires_at=LATER),
            gen.grant(name=OWN),
            (f"the grant default/{OWN} ends at 2026-03-01T20:00:00Z from now on",),
            id="it gets an end",
        ),
        pytest.param(
            wish(exclusive=True, expires_at=LATER),
            gen.grant(name=OWN),
            (
                f"the grant default/{OWN} becomes exclusive",
                f"the grant default/{OWN} ends at 2026-03-01T20:00:00Z from now on",
            ),
            id="both",
        ),
        pytest.param(
            wish(),
            gen.grant(name=OWN, expires=EARLIER),
            (f"the grant default/{OWN} had expired at 2026-03-01T11:00:00Z and no longer ends by itself",),
            id="an expired one is renewed for good",
        ),
        pytest.param(
            wish(expires_at=LATER),
            gen.grant(name=OWN, expires=EARLIER),
            (
                f"the grant default/{OWN} had expired at 2026-03-01T11:00:00Z and "
                "ends at 2026-03-01T20:00:00Z from now on",
            ),
            id="an expired one is renewed for a time",
        ),
        pytest.param(
            wish(expires_at=LATER),
            gen.grant(name=OWN, exclusive=True),
            (
                f"the grant default/{OWN} ends at 2026-03-01T20:00:00Z from now on",
                f"{ALL} stays reserved for repo gpu-a: the grant default/{OWN} is exclusive",
            ),
            id="an exclusive one gets an end",
        ),
    ],
)
def test_a_change_says_what_changes_and_not_already(asked: Wish, stored: RepoGpuGrant, notes: tuple[str, ...]) -> None:
    found = planned(asked, world(stored))
    assert isinstance(found.steps[0], Change)
    assert found.notes == notes


def test_a_written_namespace_wants_a_grant_there() -> None:
    (step,) = planned(wish(namespace_given=True), world(gen.grant(namespace="team"))).steps
    assert isinstance(step, Create)


@pytest.mark.req("R22")
def test_an_exclusive_grant_stays_exclusive_and_that_is_said() -> None:
    found = planned(wish(), world(gen.grant(exclusive=True)))
    assert isinstance(found.steps[0], Keep)
    assert "stays reserved" in found.notes[1]


@pytest.mark.req("R22")
def test_exclusive_upgrades_ones_own_grant() -> None:
    stored = gen.grant()
    (step,) = planned(wish(exclusive=True), world(stored)).steps
    assert isinstance(step, Change)
    assert step.patch(step.spec) == {"exclusive": True}
    assert step.patch(stored.spec) == {"exclusive": None}, "how it is changed back"


def test_a_new_end_is_written_into_the_grant_that_is_there() -> None:
    (step,) = planned(wish(expires_at=gen.NOW + timedelta(hours=1)), world(gen.grant())).steps
    assert isinstance(step, Change)
    assert step.fields == ("expiresAt",)


def test_a_grant_of_ours_that_has_ended_is_renewed() -> None:
    (step,) = planned(wish(), world(gen.grant(name=OWN, expires=gen.NOW - timedelta(hours=1)))).steps
    assert isinstance(step, Change)
    assert step.patch(step.spec) == {"expiresAt": None}


def test_somebody_elses_grant_that_has_ended_counts_for_nothing() -> None:
    (step,) = planned(wish(), world(gen.grant(expires=gen.NOW - timedelta(hours=1)))).steps
    assert isinstance(step, Create)


@pytest.mark.parametrize(
    "stale",
    [
        pytest.param(gen.grant(name=OWN, repo_id="id-of-old"), id="issued for an earlier repo of that name"),
        pytest.param(gen.grant(name=OWN, status_repo_id="id-of-old"), id="accepted for an earlier repo of that name"),
        pytest.param(gen.grant(name=OWN, deleted=gen.NOW), id="on its way out"),
    ],
)
@pytest.mark.req("R9")
def test_an_object_that_serves_nobody_makes_way(stale: RepoGpuGrant) -> None:
    (step,) = planned(wish(), world(stale)).steps
    assert isinstance(step, Create)
    assert step.instead_of == stale


def test_a_dry_run_says_each_step() -> None:
    stored = gen.grant()
    said = [granting.told(step) for step in planned(wish(ALL, "nvidia.com/gpu=0"), world(stored)).steps]
    own = names.grant_object_name("gpu-a", gen.MACHINE, "nvidia.com/gpu=0")
    assert said == [
        "would leave the grant default/gpu-a-all as it is",
        f"would grant nvidia.com/gpu=0 on wsl-gpu to repo gpu-a as default/{own}",
    ]
    (change,) = planned(wish(exclusive=True), world(stored)).steps
    assert granting.told(change) == "would change exclusive of the grant default/gpu-a-all"


@given(st.lists(st.sampled_from((*gen.DEVICES, "nvidia.com/gpu=9", "x")), min_size=1, max_size=4))
def test_all_or_nothing(devices: list[str]) -> None:
    found = granting.plan(wish(*devices), world())
    good = set(devices) <= set(gen.DEVICES)
    assert isinstance(found, Plan) is good
    if isinstance(found, Plan):
        assert len(found.steps) == len(set(devices))


@given(st.lists(st.sampled_from(gen.DEVICES), min_size=1, max_size=3), st.booleans())
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(devices: list[str], exclusive: bool) -> None:
    asked = wish(*devices, exclusive=exclusive)
    made = [
        RepoGpuGrant.model_validate(
            {
                "metadata": {"name": step.name, "namespace": step.namespace, "uid": step.name},
                "spec": step.spec.to_json(),
            }
        )
        for step in planned(asked, world()).steps
        if isinstance(step, Create)
    ]
    assert all(isinstance(step, Keep) for step in planned(asked, world(*made)).steps)


def _said(*conditions: tuple[str, str, str, str], observed: int = 1, generation: int = 1) -> RepoGpuGrant:
    stored = gen.grant().to_json()
    stored["metadata"]["generation"] = generation
    stored["status"] = {
        "observedGeneration": observed,
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": "2026-03-01T12:00:00Z",
            }
            for kind, status, reason, message in conditions
        ],
    }
    return RepoGpuGrant.model_validate(stored)


READY = ("Ready", "True", "Enforced", "")
ACCEPTED = ("Accepted", "True", "Enforced", "")


@pytest.mark.parametrize(
    ("grant", "progress"),
    [
        pytest.param(_said(), granting.Progress(accepted=False, message=""), id="nothing is said yet"),
        pytest.param(
            _said(READY, ACCEPTED, generation=2), granting.Progress(), id="what is said of an older spec says nothing"
        ),
        pytest.param(
            _said(READY, ACCEPTED), granting.Progress(enforced=True, accepted=True, message="Enforced"), id="in force"
        ),
        pytest.param(
            _said(("Ready", "False", "GatePending", "waiting"), ACCEPTED),
            granting.Progress(accepted=True, message="waiting"),
            id="accepted, and the gate has not answered",
        ),
        pytest.param(
            _said(
                ("Ready", "False", "ExclusiveHeld", "held by gpu-b"),
                ("Conflicted", "True", "ExclusiveHeld", "held by gpu-b"),
            ),
            granting.Progress(lost="held by gpu-b"),
            id="another repo holds it",
        ),
        pytest.param(
            _said(ACCEPTED, ("Ready", "False", "SharedHeld", "x"), ("Conflicted", "True", "SharedHeld", "x")),
            granting.Progress(lost="x"),
            id="accepted, but not as exclusive",
        ),
    ],
)
@pytest.mark.req("R6", "R48")
def test_how_far_a_grant_has_come(grant: RepoGpuGrant, progress: granting.Progress) -> None:
    assert granting.progress(grant) == progress
