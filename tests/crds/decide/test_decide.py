"""`decide` case by case: what enters the ledger, what waits and what the statuses say."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import pytest

import gen
from gpugrant_crds import conditions
from gpugrant_crds.decide import Decision, decide, without_machine
from gpugrant_crds.decide.conflicts import Refused
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import GateStatus, GrantInForce
from gpugrant_crds.v1alpha1 import FORCE_RELEASE_ANNOTATION, GpuMachine, RepoGpuGrant

ALL = "nvidia.com/gpu=all"


def run(machine: GpuMachine, grants: list[RepoGpuGrant], gate: GateStatus | None) -> Decision:
    return decide(machine, grants, gen.answering(machine, gate), gen.NOW)


def settle(machine: GpuMachine, grants: list[RepoGpuGrant]) -> GpuMachine:
    """The machine with these grants accepted and enforced."""
    return gen.after(machine, run(machine, grants, gen.gate(machine.status.ledger_epoch)))


def holders(decision: Decision, device: str = ALL) -> list[str]:
    return [
        holder.repo for allocation in decision.allocations if allocation.device == device for holder in allocation.repos
    ]


def says(decision: Decision, grant: RepoGpuGrant) -> dict[str, str]:
    """Condition type to `status reason`."""
    return {claim.type: f"{claim.status} {claim.reason}" for claim in decision.verdicts[grant.metadata.uid].claims}


@dataclass(frozen=True)
class Case:
    """A newcomer in a world, and the reason that its Ready condition gives."""

    grant: RepoGpuGrant
    reason: str
    machine: GpuMachine = field(default_factory=gen.machine)
    gate: GateStatus | None = field(default_factory=gen.gate)
    message: str = ""


NEWCOMERS = {
    "waits for the gate after it is accepted": Case(gen.grant(), "GatePending"),
    "waits for a detection": Case(
        gen.grant(), "MachineNotDetected", machine=gen.machine(devices=None), message="rdc machine setup wsl-gpu"
    ),
    "names the nearest device": Case(
        gen.grant(device="nvidia.com/gpu=al"), "DeviceNotFound", message="did you mean nvidia.com/gpu=all"
    ),
    "takes no device on a machine without any": Case(gen.grant(), "DeviceNotFound", machine=gen.machine(devices=())),
    "names the nearest repo": Case(gen.grant("gpu-aa"), "RepoNotFound", message="gpu-a"),
    "does not take a repo without an id": Case(
        gen.grant(),
        "DaemonUnfit",
        gate=gen.gate(repos={"gpu-a": ""}),
        message="gpu-a on machine wsl-gpu gets no hardware",
    ),
    "says of a repo without an id what its gate says": Case(
        gen.grant(),
        "DaemonUnfit",
        gate=gen.gate(repos={"gpu-a": ""}, unfit={"gpu-a": "DaemonUnfit"}),
        message="repo gpu-a on machine wsl-gpu gets no hardware: the daemon has CDI off",
    ),
    "does not take a repo whose id is another than the issued one": Case(
        gen.grant(repo_id="id-old"), "RepoIdMismatch", message="id-old"
    ),
    "does not take a repo whose id is another than the recorded one": Case(
        gen.grant(status_repo_id="id-old"), "RepoIdMismatch"
    ),
    "ends at its time": Case(gen.grant(expires=gen.NOW), "Expired"),
    "waits for a gate that does not answer": Case(gen.grant(), "GateUnreachable", gate=None),
    "refuses a name that is no CDI name": Case(
        gen.grant(device="/dev/dri/renderD128"), "InvalidDevice", message="vendor/class=name"
    ),
    "refuses a vendor of one letter": Case(gen.grant(device="a/gpu=all"), "InvalidDevice"),
}


@pytest.mark.req("R1", "R5", "R8", "R9")
@pytest.mark.parametrize("case", NEWCOMERS.values(), ids=NEWCOMERS.keys())
def test_newcomer(case: Case) -> None:
    """A newcomer's Ready is False with this reason, and it holds the device only when it was accepted."""
    decision = run(case.machine, [case.grant], case.gate)

    verdict = decision.verdicts[case.grant.metadata.uid]
    assert (verdict.ready.status, str(verdict.ready.reason)) == ("False", case.reason)
    assert case.message in verdict.ready.message
    assert verdict.accepted == (case.reason == "GatePending")
    assert len(decision.grants) == int(verdict.accepted)


@pytest.mark.req("R6")
def test_ready_only_when_the_gate_has_answered_for_this_epoch() -> None:
    """Ready=True comes with the gate's answer for the current epoch, no earlier."""
    grant = gen.grant()
    machine = settle(gen.machine(), [grant])

    assert says(run(machine, [grant], gen.gate(0)), grant)["Ready"] == "False GatePending"
    assert says(run(machine, [grant], gen.gate(1)), grant) == {
        "Accepted": "True Enforced",
        "Programmed": "True Enforced",
        "Ready": "True Enforced",
    }


ENFORCEMENT = {
    "a gate that does not answer": (None, "GateUnreachable"),
    "a gate of another machine": (gen.gate(1, machine_uid="machine-0"), "GatePending"),
    "a repo that is gone": (gen.gate(1, repos={"gpu-b": "id-b"}), "RepoNotFound"),
    "a repo whose file is broken": (gen.gate(1, repos={"gpu-a": ""}), "DaemonUnfit"),
    "a repo made anew": (gen.gate(1, repos={"gpu-a": "id-a2"}), "RepoIdMismatch"),
    "an unfit daemon": (gen.gate(1, unfit={"gpu-a": "DaemonUnfit"}), "DaemonUnfit"),
    "a rootless daemon": (gen.gate(1, unfit={"gpu-a": "RootlessDaemon"}), "RootlessDaemon"),
}


@pytest.mark.req("R9", "R21", "R52")
@pytest.mark.parametrize(("gate", "reason"), ENFORCEMENT.values(), ids=ENFORCEMENT.keys())
def test_held_but_not_enforced(gate: GateStatus | None, reason: str) -> None:
    """What stands between the ledger and the device is named; the hold stays."""
    grant = gen.grant()
    machine = settle(gen.machine(), [grant])

    decision = run(machine, [grant], gate)

    assert says(decision, grant)["Ready"] == f"False {reason}"
    assert says(decision, grant)["Accepted"] == "True Enforced"
    assert holders(decision) == ["gpu-a"]
    assert decision.epoch == 1


def test_a_machine_that_no_gate_serves_says_why() -> None:
    """Where no gate can answer, newcomers and holders hear the reason of that; holders keep their hold."""
    held, newcomer = gen.grant(), gen.grant("gpu-b")
    machine = settle(gen.machine(), [held])
    unserved = Refused(Reason.NODE_CLAIMED, "the machine older has this node")

    decision = decide(machine, [held, newcomer], None, gen.NOW, unserved=unserved)

    assert says(decision, held)["Ready"] == says(decision, newcomer)["Ready"] == "False NodeClaimed"
    assert holders(decision) == ["gpu-a"]


def test_an_unsealed_daemon_is_said() -> None:
    """Ready stays True, and the message says what an unsealed daemon means."""
    grant = gen.grant()
    machine = settle(gen.machine(), [grant])

    ready = run(machine, [grant], gen.gate(1, unsealed=["gpu-a"])).verdicts[grant.metadata.uid].ready

    assert ready.status == "True"
    assert "; repo gpu-a is not sealed: " in ready.message
    assert ready.message.endswith("to mend it: gpugrant repo seal gpu-a")


def test_a_device_that_goes_keeps_its_holder() -> None:
    """DeviceGone is said, and nobody else gets the name."""
    grant = gen.grant(exclusive=True)
    machine = settle(gen.machine(), [grant])
    gone = machine.model_copy(update={"status": machine.status.model_copy(update={"devices": ()})})

    decision = run(gone, [grant], gen.gate(1))

    assert says(decision, grant)["Ready"] == "False DeviceGone"
    assert holders(decision) == ["gpu-a"]


@pytest.mark.req("R7")
def test_one_name_is_one_name() -> None:
    """A grant of `all` gives `all` and no single card."""
    decision = run(gen.machine(), [gen.grant()], gen.gate())

    assert [grant.device for grant in decision.grants] == [ALL]


@pytest.mark.req("R25", "R26", "R27", "R28")
@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (None, True, "SharedHeld"),
        (True, None, "ExclusiveHeld"),
        (True, True, "ExclusiveHeld"),
    ],
    ids=["exclusive while another holds", "shared while another reserves", "exclusive while another reserves"],
)
def test_conflict_with_a_holder(first: bool | None, second: bool | None, reason: str) -> None:
    """The holder stays; the newcomer waits, Conflicted, and its message names the holder."""
    holder = gen.grant("gpu-b", exclusive=first, created=gen.NOW)
    machine = settle(gen.machine(), [holder])
    newcomer = gen.grant("gpu-a", exclusive=second, created=gen.NOW - timedelta(days=9))

    decision = run(machine, [holder, newcomer], gen.gate(1))

    assert holders(decision) == ["gpu-b"]
    assert says(decision, newcomer) == {
        "Accepted": f"False {reason}",
        "Conflicted": f"True {reason}",
        "Programmed": f"False {reason}",
        "Ready": f"False {reason}",
        "Stalled": f"True {reason}",
    }
    assert "gpu-b" in decision.verdicts[newcomer.metadata.uid].ready.message


@pytest.mark.req("R26")
def test_newcomers_by_age_then_name_then_uid() -> None:
    """Of several newcomers the oldest wins, whatever the order in which they are given."""
    older = gen.grant("gpu-b", exclusive=True, created=gen.NOW - timedelta(hours=2))
    younger = gen.grant("gpu-a", exclusive=True, created=gen.NOW - timedelta(hours=1))
    same_age = gen.grant("gpu-c", exclusive=True, created=gen.NOW - timedelta(hours=2), namespace="a")

    for order in ([younger, older], [older, younger]):
        assert holders(run(gen.machine(), order, gen.gate())) == ["gpu-b"]
    assert holders(run(gen.machine(), [older, same_age], gen.gate())) == ["gpu-c"]


def test_one_repo_in_two_namespaces() -> None:
    """The same repo may hold a name twice, exclusively too; it goes when the last grant goes."""
    one = gen.grant(exclusive=True, namespace="one")
    two = gen.grant(exclusive=True, namespace="two")
    machine = settle(gen.machine(), [one, two])

    left = run(machine, [two], gen.gate(1))

    assert holders(left) == ["gpu-a"]
    assert [grant.grant.namespace for grant in left.grants] == ["two"]


@pytest.mark.req("R22")
def test_upgrade_to_exclusive() -> None:
    """A repo's own grant becomes exclusive when nobody else holds the name; else it stays shared and says so."""
    grant = gen.grant()
    other = gen.grant("gpu-b")
    upgraded = gen.grant(exclusive=True)

    alone = run(settle(gen.machine(), [grant]), [upgraded], gen.gate(1))
    beside = run(settle(gen.machine(), [grant, other]), [upgraded, other], gen.gate(1))

    assert alone.allocations[0].repos[0].grants[0].exclusive
    assert says(alone, upgraded)["Ready"] == "True Enforced"
    assert says(beside, upgraded)["Ready"] == "False SharedHeld"
    assert says(beside, upgraded)["Conflicted"] == "True SharedHeld"
    assert sorted(holders(beside)) == ["gpu-a", "gpu-b"]
    assert not beside.allocations[0].repos[0].grants[0].exclusive


@pytest.mark.req("R51", "R28")
def test_hand_over_has_two_phases() -> None:
    """After a deletion the next repo gets an exclusive name only when the gate has answered without the old holder."""
    first = gen.grant("gpu-a", exclusive=True)
    machine = settle(gen.machine(), [first])
    leaving = gen.grant("gpu-a", exclusive=True, deleted=gen.NOW)
    second = gen.grant("gpu-b", exclusive=True)

    marked = run(machine, [leaving, second], gen.gate(1))
    machine = gen.after(machine, marked)
    unanswered = run(machine, [leaving, second], gen.gate(1))
    pending = run(machine, [leaving, second], gen.gate(2, pending=[("gpu-a", ALL)]))
    answered = run(machine, [leaving, second], gen.gate(2))

    assert (marked.epoch, marked.grants, marked.allocations[0].state) == (2, (), "Releasing")
    assert says(marked, second)["Ready"] == "False Releasing"
    for waiting in (unanswered, pending):
        assert holders(waiting) == []
        assert not waiting.verdicts[leaving.metadata.uid].release
        assert waiting.epoch == 2
    assert holders(answered) == ["gpu-b"]
    assert answered.verdicts[leaving.metadata.uid].release
    assert answered.epoch == 3


def test_a_gate_that_is_ahead_answers_for_nothing() -> None:
    """A higher epoch, or the same one with other contents, is of another history: no debt is paid."""
    first = gen.grant("gpu-a", exclusive=True)
    machine = settle(gen.machine(), [first])
    machine = gen.after(machine, run(machine, [], gen.gate(1)))

    rival = gen.grant("gpu-b", exclusive=True)
    for report in (gen.gate(9), gen.gate(2)):
        decision = decide(machine, [rival], report, gen.NOW)
        assert holders(decision) == []
        assert decision.allocations[0].state == "Releasing"
    assert holders(run(machine, [rival], gen.gate(2))) == ["gpu-b"]


def test_a_shared_name_goes_on_while_another_leaves() -> None:
    """A debt of a shared hold blocks exclusive newcomers only."""
    leaving = gen.grant("gpu-a")
    machine = settle(gen.machine(), [leaving])
    gone = gen.after(machine, run(machine, [], gen.gate(1)))

    shared = run(gone, [gen.grant("gpu-b")], gen.gate(1))
    exclusive = run(gone, [gen.grant("gpu-b", exclusive=True)], gen.gate(1))

    assert holders(shared) == ["gpu-b"]
    assert holders(exclusive) == []


def test_deletion_never_hangs() -> None:
    """Without an answer the finalizer goes after two minutes or with its namespace; the debt stays."""
    grant = gen.grant(deleted=gen.NOW)
    machine = settle(gen.machine(), [gen.grant()])
    machine = gen.after(machine, run(machine, [grant], gen.gate(1)))
    uid = grant.metadata.uid

    waiting = decide(machine, [grant], None, gen.NOW + timedelta(seconds=119))
    impatient = decide(machine, [grant], None, gen.NOW + timedelta(seconds=120))
    terminating = decide(machine, [grant], None, gen.NOW, terminating=frozenset({"default"}))

    assert [it.verdicts[uid].release for it in (waiting, impatient, terminating)] == [False, True, True]
    assert waiting.recheck_at == gen.NOW + timedelta(seconds=120)
    assert impatient.allocations[0].state == "Releasing"


def test_a_grant_never_accepted_is_released_at_once() -> None:
    """What the gate never heard of needs no answer."""
    grant = gen.grant(device="nvidia.com/gpu=9", deleted=gen.NOW)

    assert run(gen.machine(), [grant], None).verdicts[grant.metadata.uid].release


def test_expiry_acts_as_a_revocation() -> None:
    """At its time a grant leaves the ledger and a debt remains; before, the time is known for a recheck."""
    grant = gen.grant(expires=gen.NOW + timedelta(minutes=5))
    machine = settle(gen.machine(), [grant])

    before = run(machine, [grant], gen.gate(1))
    over = decide(machine, [grant], gen.answering(machine, gen.gate(1)), gen.NOW + timedelta(minutes=5))

    assert before.recheck_at == gen.NOW + timedelta(minutes=5)
    assert before.grants[0].expires_at == gen.NOW + timedelta(minutes=5)
    assert (over.grants, over.allocations[0].state) == ((), "Releasing")
    assert says(over, grant)["Ready"] == "False Expired"


@pytest.mark.req("R9")
def test_an_object_made_anew_is_another_grant() -> None:
    """Delete and create under the same name: the new uid is a newcomer, the old one a debt."""
    old = gen.grant(exclusive=True, uid="uid-1")
    machine = settle(gen.machine(), [old])

    decision = run(machine, [gen.grant(exclusive=True, uid="uid-2")], gen.gate(1))

    assert [grant.grant.uid for grant in decision.grants] == ["uid-2"]
    assert decision.allocations[0].releasing[0].uids == ("uid-1",)


def test_missing_things_stall_after_the_grace_time() -> None:
    """Ten minutes not ready: Stalled instead of Reconciling; conflicts are stalled at once."""
    fresh = gen.grant(device="nvidia.com/gpu=9", not_ready_since=gen.NOW - timedelta(minutes=9))
    stale = gen.grant(device="nvidia.com/gpu=8", not_ready_since=gen.NOW - timedelta(minutes=10))

    decision = run(gen.machine(), [fresh, stale], gen.gate())

    assert says(decision, fresh)["Reconciling"] == "True DeviceNotFound"
    assert says(decision, stale)["Stalled"] == "True DeviceNotFound"
    assert decision.recheck_at == gen.NOW + timedelta(minutes=1)


def test_a_machine_without_an_object() -> None:
    """Its grants wait and say how to make it; a deleted grant goes at once."""
    waiting = without_machine(gen.grant(), gen.NOW)

    assert str(waiting.ready.reason) == "MachineNotFound"
    assert "rdc machine setup wsl-gpu" in waiting.ready.message
    assert without_machine(gen.grant(deleted=gen.NOW), gen.NOW).release


def test_a_machine_that_is_deleted_lets_go_after_an_empty_snapshot() -> None:
    """Its finalizer goes when the gate enforces nothing of it, or when it is forced by its own uid."""
    grant = gen.grant()
    held = settle(gen.machine(), [grant])
    deleted = gen.machine(deleted=gen.NOW, **held.status.to_json() | {"devices": None})

    emptied = run(deleted, [grant], gen.gate(1))
    answered = run(gen.after(deleted, emptied), [grant], gen.gate(2))
    forced = gen.machine(
        deleted=gen.NOW,
        annotations={FORCE_RELEASE_ANNOTATION: "machine-1"},
        **held.status.to_json() | {"devices": None},
    )

    assert (emptied.grants, emptied.machine_released) == ((), False)
    assert answered.machine_released
    assert run(forced, [grant], None).machine_released
    assert run(gen.machine(deleted=gen.NOW), [], None).machine_released


def test_grants_of_other_machines_do_not_matter() -> None:
    """Only grants of this machine get a verdict."""
    decision = run(gen.machine(), [gen.grant(machine="other")], gen.gate())

    assert (decision.grants, decision.verdicts) == ((), {})


def test_conditions_move_only_on_a_flip() -> None:
    """lastTransitionTime stays while the status stays, though reason and message change."""
    grant = gen.grant()
    first = conditions.merge(
        (), run(gen.machine(), [grant], None).verdicts[grant.metadata.uid].claims, generation=1, now="t1"
    )
    second = conditions.merge(
        first, run(gen.machine(), [grant], gen.gate()).verdicts[grant.metadata.uid].claims, generation=2, now="t2"
    )

    ready = conditions.find(second, "Ready")
    accepted = conditions.find(second, "Accepted")
    assert ready is not None
    assert accepted is not None
    assert (ready.reason, ready.last_transition_time, ready.observed_generation) == ("GatePending", "t1", 2)
    assert (accepted.status, accepted.last_transition_time) == ("True", "t2")


class TestAhead:
    """A gate that enforces another history of this machine, as after a restored backup (design 4)."""

    def report(self, epoch: int, *in_force: tuple[str, str]) -> GateStatus:
        grants = tuple(GrantInForce(repo=repo, device=device) for repo, device in in_force)
        return gen.gate(epoch).model_copy(update={"grants": grants, "digest": "sha256:" + "0" * 64})

    def settled(self, machine: GpuMachine, grants: list[RepoGpuGrant], gate: GateStatus) -> list[Decision]:
        """Decisions until nothing changes, each answered by the gate."""
        made = []
        for _ in range(6):
            decision = decide(machine, grants, gate, gen.NOW, api_id="api-1")
            made.append(decision)
            machine = gen.after(machine, decision)
            gate = gen.answering(machine, gen.gate(decision.epoch)) or gate
        return made

    def test_what_the_backup_gave_comes_after_what_the_gate_enforces_has_gone(self) -> None:
        """Restored: exclusive for gpu-a. The gate: exclusive for gpu-b. Never both, and not in one step."""
        backup = gen.grant("gpu-a", exclusive=True)
        machine = settle(gen.machine(), [backup])
        made = self.settled(machine, [backup], self.report(7, ("gpu-b", ALL)))

        assert [decision.epoch for decision in made][:2] == [8, 9]
        enforced = [[grant.repo for grant in decision.grants] for decision in made]
        assert enforced[0] == []
        assert enforced[-1] == ["gpu-a"]
        assert made[0].allocations[0].state == "Releasing"

    def test_what_both_have_goes_on(self) -> None:
        backup = gen.grant("gpu-a", exclusive=True)
        machine = settle(gen.machine(), [backup])
        made = self.settled(machine, [backup], self.report(7, ("gpu-a", ALL)))

        assert {decision.epoch for decision in made} == {8}
        assert all([grant.repo for grant in decision.grants] == ["gpu-a"] for decision in made)

    def test_a_newcomer_waits_for_what_the_gate_enforces(self) -> None:
        rival = gen.grant("gpu-a", exclusive=True)
        made = self.settled(gen.machine(), [rival], self.report(3, ("gpu-b", ALL)))

        assert says(made[0], rival)["Ready"] == "False Releasing"
        assert [grant.repo for grant in made[-1].grants] == ["gpu-a"]

    def test_older_debts_are_paid_by_the_new_history_alone(self) -> None:
        first = gen.grant("gpu-a", exclusive=True)
        machine = settle(gen.machine(), [first])
        machine = gen.after(machine, run(machine, [], gen.gate(1)))
        decision = decide(machine, [], self.report(7), gen.NOW, api_id="api-1")

        assert [debt.epoch for debt in decision.allocations[0].releasing] == [8]

    @pytest.mark.parametrize("api_id", [None, "api-0"])
    def test_another_apis_gate_is_not_ahead(self, api_id: str | None) -> None:
        grant = gen.grant()
        machine = settle(gen.machine(), [grant])
        assert decide(machine, [grant], self.report(7), gen.NOW, api_id=api_id).epoch == 1
