"""A device that can't be taken back: daemons that are down or silent, and what somebody gives up (design 4)."""

from __future__ import annotations

from datetime import timedelta

import pytest

import gen
from gpugrant_crds.decide import Decision, decide, silence
from gpugrant_crds.snapshot import GateStatus, InUse, Pending
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant

pytestmark = pytest.mark.req("R49", "R51")

ALL = "nvidia.com/gpu=all"
USE = InUse(repo="gpu-b", device=ALL, container="c" * 64, name="trainer")
OWED = Pending(repo="gpu-b", device=ALL, since=gen.NOW)
LONG_AGO = gen.NOW - timedelta(minutes=10)
JUST_NOW = gen.NOW - timedelta(minutes=9, seconds=59)


def report(epoch: int, *, running: bool = False, pending: bool = False, **repo_b: object) -> GateStatus:
    """A gate that says these things of repo gpu-b."""
    its = gen.gate(epoch)
    repos = tuple(repo.model_copy(update=repo_b) if repo.name == "gpu-b" else repo for repo in its.repos)
    return its.model_copy(update={"repos": repos, "running": (USE,) * running, "pending": (OWED,) * pending})


def run(machine: GpuMachine, grants: list[RepoGpuGrant], gate: GateStatus | None) -> Decision:
    return decide(machine, grants, gen.answering(machine, gate), gen.NOW)


def with_gate(machine: GpuMachine, **wishes: str) -> GpuMachine:
    return GpuMachine.model_validate(machine.model_dump() | {"spec": {"gate": wishes}})


CASES = {
    "it answers, and a container runs": ({"running": True}, "False InUseByOthers"),
    "it answers, and the revocation is not done": ({"pending": True}, "False Releasing"),
    "not looked at yet": ({"unseen": True}, "False InUseByOthers"),
    "silent for a while": ({"running": True, "down_since": JUST_NOW}, "False InUseByOthers"),
    "silent, not looked at": ({"unseen": True, "down_since": JUST_NOW}, "False InUseByOthers"),
    "silent for long": ({"running": True, "down_since": LONG_AGO}, "True ReleaseUnverified"),
    "silent for long with a revocation": ({"pending": True, "down_since": LONG_AGO}, "True ReleaseUnverified"),
    "silent for long, nothing known": ({"unseen": True, "down_since": LONG_AGO}, "True Enforced"),
    "gone, and it was sealed": ({"running": True, "down_since": JUST_NOW, "released": True}, "True Enforced"),
    "gone with a revocation, and it was sealed": (
        {"pending": True, "down_since": JUST_NOW, "released": True},
        "True Enforced",
    ),
}


@pytest.mark.parametrize(("said", "ready"), CASES.values(), ids=CASES.keys())
def test_a_daemon_that_is_down(said: dict[str, object], ready: str) -> None:
    """gpu-b lost the device; gpu-a wants it exclusively."""
    lost, wanted = gen.grant("gpu-b"), gen.grant("gpu-a", exclusive=True)
    machine = gen.after(gen.machine(), run(gen.machine(), [lost], gen.gate(0)))
    machine = gen.after(machine, run(machine, [wanted], gen.gate(1)))
    assert machine.status.ledger_epoch == 2
    for _ in range(3):
        decision = run(machine, [wanted], report(machine.status.ledger_epoch, **said))  # type: ignore[arg-type]
        machine = gen.after(machine, decision)
    claim = decision.verdicts[wanted.metadata.uid].ready
    assert f"{claim.status} {claim.reason}" == ready
    if ready.endswith("ReleaseUnverified"):
        assert "the daemon of repo gpu-b has not answered since" in claim.message
        assert f"its containers may still hold {ALL}" in claim.message


def test_it_is_looked_at_again_when_the_time_is_over() -> None:
    wanted = gen.grant("gpu-a", exclusive=True)
    decision = run(gen.machine(), [wanted], report(0, running=True, down_since=JUST_NOW))
    assert decision.recheck_at == JUST_NOW + timedelta(minutes=10)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("30s", timedelta(seconds=30)),
        ("1h30m", timedelta(minutes=90)),
        ("0s", silence.RELEASE_TIMEOUT),
        ("soon", silence.RELEASE_TIMEOUT),
        ("999999999h", timedelta(hours=999999999)),
    ],
)
def test_the_time_that_a_machine_waits(text: str, span: timedelta) -> None:
    machine = with_gate(gen.machine(), releaseTimeout="10m")
    assert machine.spec.gate is not None
    wishes = machine.spec.gate.model_copy(update={"release_timeout": text})
    spec = machine.spec.model_copy(update={"gate": wishes})
    machine = machine.model_copy(update={"spec": spec})
    assert silence.release_timeout(machine) == span
    gate = report(0, running=True, down_since=gen.NOW - timedelta(days=1))
    assert (silence.waited(gate, machine, frozenset(), gen.NOW).doubts == frozenset()) == (span > timedelta(days=1))


def test_a_silent_gate_is_waited_for_without_an_end() -> None:
    """It may still enforce the old snapshot, and takes the new one whole: nothing is handed over past it."""
    lost, wanted = gen.grant("gpu-b", exclusive=True), gen.grant("gpu-a", exclusive=True)
    machine = gen.after(gen.machine(), run(gen.machine(), [lost], gen.gate(0)))
    machine = gen.after(machine, run(machine, [wanted], gen.gate(1)))
    later = decide(machine, [wanted], None, gen.NOW + timedelta(days=1))
    assert later.verdicts[wanted.metadata.uid].ready.reason == "GateUnreachable"
    assert [its.state for its in later.allocations] == ["Releasing"]


class TestGivenUp:
    @pytest.fixture
    def machine(self) -> GpuMachine:
        """gpu-b lost the device and a container of it survives being killed."""
        lost = gen.grant("gpu-b", exclusive=True)
        machine = gen.after(gen.machine(), run(gen.machine(), [lost], gen.gate(0)))
        return gen.after(machine, run(machine, [], gen.gate(1)))

    def stuck(self, machine: GpuMachine) -> GateStatus:
        return report(machine.status.ledger_epoch, running=True, pending=True)

    def freed(self, machine: GpuMachine) -> GpuMachine:
        status, repos = silence.give_up(machine.status, ALL, self.stuck(machine))
        assert repos == ("gpu-b",)
        return machine.model_copy(update={"status": status})

    def test_others_may_have_it_and_hear_of_the_doubt(self, machine: GpuMachine) -> None:
        wanted = gen.grant("gpu-a", exclusive=True)
        before = run(machine, [wanted], self.stuck(machine))
        assert before.verdicts[wanted.metadata.uid].ready.status == "False"
        machine = self.freed(machine)
        for _ in range(2):
            decision = run(machine, [wanted], self.stuck(machine))
            machine = gen.after(machine, decision)
        claim = decision.verdicts[wanted.metadata.uid].ready
        assert (claim.status, claim.reason) == ("True", "ReleaseUnverified")
        assert "repo gpu-b was given up, so its containers may still hold" in claim.message

    def test_what_is_seen_to_be_free_is_no_doubt_any_more(self, machine: GpuMachine) -> None:
        freed = self.freed(machine)
        epoch = freed.status.ledger_epoch
        for gate in (None, self.stuck(freed), report(epoch, unseen=True), report(epoch, down_since=JUST_NOW)):
            assert [its.given_up for its in run(freed, [], gate).allocations] == [("gpu-b",)]
        assert run(freed, [], report(epoch)).allocations == ()

    def test_the_snapshot_is_the_same(self, machine: GpuMachine) -> None:
        freed = self.freed(machine)
        assert run(freed, [], self.stuck(freed)).epoch == machine.status.ledger_epoch

    def test_without_a_gate_the_debts_count(self, machine: GpuMachine) -> None:
        status, repos = silence.give_up(machine.status, ALL, None)
        assert (repos, status.allocations[0].releasing, status.allocations[0].state) == (("gpu-b",), (), "Held")

    def test_a_holder_is_not_given_up(self) -> None:
        """What its repo was granted is not being taken back."""
        held = gen.grant("gpu-b")
        machine = gen.after(gen.machine(), run(gen.machine(), [held], gen.gate(0)))
        assert silence.give_up(machine.status, ALL, report(1, running=True)) == (machine.status, ())
        assert silence.give_up(machine.status, "nvidia.com/gpu=0", None) == (machine.status, ())
