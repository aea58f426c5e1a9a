"""What becomes of a container that holds hardware: tables and laws."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockerclient import cdi, gpus, inspected
from gpugrant_gate.life import sweep
from gpugrant_gate.life.admitted import Admitted, Ledger
from gpugrant_gate.life.sweep import Seen, Standing, Step, Why

GPU, DRI = "nvidia.com/gpu=all", "rediacc.io/dri=renderD128"
ID = "c" * 64
MORNING, NOON = "2026-03-01T08:00:00Z", "2026-03-01T12:00:00Z"


def seen(state: str = "running", policy: str = "always", **more: Any) -> Seen:
    fields: dict[str, Any] = {"started_at": MORNING, "error": "", "devices": (GPU,)}
    return Seen(ID, "user", state, policy=policy, **fields | more)


def standing(*granted: str, run: str | None = None, stops: bool = False, **more: bool) -> Standing:
    """`run`: the container is in the ledger; with that run, empty: it had its grant when it was looked at last."""
    containers = {} if run is None else {ID: Admitted({GPU: "uid"}, run)}
    ledger = Ledger("id-a", more.get("enforced", True), containers)
    return Standing(frozenset(granted), ledger, stops, more.get("enforces", True))


CASES: dict[str, tuple[Seen, Standing, str]] = {
    "granted": (seen(), standing(GPU), ""),
    "one of two granted": (seen(devices=(GPU, DRI)), standing(GPU), "disarm end tell"),
    "revoked, running": (seen(), standing(run=""), "disarm"),
    "revoked, running, without a policy": (seen(policy="no"), standing(run=""), ""),
    "revoked, running, where it stops": (seen(), standing(run="", stops=True), "disarm end"),
    "revoked, paused": (seen("paused"), standing(run=""), "disarm"),
    "revoked, about to be restarted": (seen("restarting"), standing(run=""), "calm disarm"),
    "revoked, about to be restarted, its policy gone": (seen("restarting", "no"), standing(run=""), "calm"),
    "revoked, exited": (seen("exited"), standing(run=""), "disarm"),
    "revoked, exited, where it stops": (seen("exited"), standing(run="", stops=True), "disarm"),
    "revoked, the run that was seen": (seen("running", "no"), standing(run=MORNING), ""),
    "revoked, a later run": (seen("running", "no"), standing(run=NOON), "end tell"),
    "never granted, running": (seen(), standing(), "disarm end tell"),
    "never granted, created": (seen("created", "no"), standing(), ""),
    "never granted, exited": (seen("exited"), standing(), "disarm"),
    "never granted, being removed": (seen("removing"), standing(), ""),
    "never granted, about to be restarted": (seen("restarting"), standing(), "calm disarm tell"),
    "never granted, from before the gate": (seen(), standing(enforced=False), "tell"),
    "revoked, in a repo from before the gate": (seen(), standing(run="", enforced=False), "disarm"),
    "never granted, only reported": (seen(), standing(enforces=False), "tell"),
    "revoked, only reported": (seen(), standing(run="", enforces=False), "tell"),
    "no grant can be for it": (seen(devices=(), foreign=("x",)), standing(GPU), "disarm end tell"),
    "no grant can be for it, though it was let start": (seen(foreign=("x",)), standing(GPU, run=""), "disarm end tell"),
    "other hardware": (seen(devices=(), suspect=("privileged",)), standing(), "tell"),
    "other hardware, exited": (seen("exited", devices=(), suspect=("privileged",)), standing(), ""),
    "left down at boot": (seen("exited", error='could not select device driver "cdi" with'), standing(GPU), "start"),
    "left down at boot, revoked": (seen("exited", error='could not select device driver "cdi"'), standing(), "disarm"),
    "left down by another fault": (seen("exited", error="no such image"), standing(GPU), ""),
    "left down, not to be restarted": (seen("exited", "no", error='select device driver "cdi"'), standing(GPU), ""),
}  # fmt: skip


def shown(step: Step) -> str:
    return " ".join(word for word in ("calm", "disarm", "end", "tell", "start") if getattr(step, word))


@pytest.mark.req("R1", "R2", "R6", "R51")
@pytest.mark.parametrize(("found", "under", "expected"), CASES.values(), ids=CASES.keys())
def test_what_is_done(found: Seen, under: Standing, expected: str) -> None:
    assert shown(sweep.decide(found, under)) == expected


def test_who_never_had_it_is_told_from_who_had() -> None:
    assert sweep.decide(seen(), standing()).why is Why.NEVER
    assert sweep.decide(seen(), standing(run="")).why is Why.REVOKED
    assert sweep.decide(seen(), standing(run=NOON)).why is Why.NEVER


class TestRead:
    def test_of_a_container_with_a_device(self) -> None:
        answer = inspected(DeviceRequests=cdi(GPU, DRI, GPU), RestartPolicy={"Name": "always", "MaximumRetryCount": 0})
        found = sweep.read(answer | {"State": {"Status": "exited", "StartedAt": MORNING, "Error": "x"}, "Name": "/n"})

        assert found is not None
        assert (found.devices, found.foreign, found.policy) == ((GPU, DRI), (), "always")
        assert (found.state, found.started_at, found.error, found.name) == ("exited", MORNING, "x", "n")

    def test_of_one_without(self) -> None:
        found = sweep.read(inspected(DeviceRequests=None))
        assert found is not None
        assert not found.holds
        assert sweep.read(inspected(DeviceRequests=[{"Driver": "", "Count": 0, "DeviceIDs": None}])) == found

    def test_every_other_request_is_for_what_cant_be_granted(self) -> None:
        found = sweep.read(inspected(DeviceRequests=gpus()))
        assert found is not None
        assert found.foreign == ('a device request of driver ""',)

    @pytest.mark.parametrize("answer", [None, [], {}, {"State": {}, "HostConfig": {}, "Id": "x"}, {"State": 1}])
    def test_what_is_no_container(self, answer: object) -> None:
        assert sweep.read(answer) is None


class TestFollowed:
    """The ledger after a look."""

    def after(self, found: Seen, ledger: Ledger, *granted: str, starting: tuple[str, ...] = ()) -> Admitted | None:
        grants = dict.fromkeys(granted, "uid")
        return sweep.followed(ledger, [found], {ID}, grants, starting).containers.get(ID)

    def known(self, run: str = "") -> Ledger:
        return Ledger("id-a", enforced=True, containers={ID: Admitted({GPU: "uid"}, run)})

    def test_what_runs_with_a_grant_is_taken_in(self) -> None:
        assert self.after(seen(), Ledger("id-a"), GPU) == Admitted({GPU: "uid"})
        assert self.after(seen(), self.known(MORNING), GPU) == Admitted({GPU: "uid"})

    def test_what_outlives_its_grant_is_bound_to_its_run(self) -> None:
        assert self.after(seen(), self.known()) == Admitted({GPU: "uid"}, MORNING)
        assert self.after(seen(started_at=NOON), self.known(MORNING)) is None

    def test_what_does_not_run_and_may_not_start_is_forgotten(self) -> None:
        assert self.after(seen("exited"), self.known()) is None
        assert self.after(seen("exited"), self.known(), starting=(ID,)) is not None
        assert self.after(seen("exited"), self.known(), GPU) is not None

    def test_what_never_had_it_does_not_get_in(self) -> None:
        assert self.after(seen(), Ledger("id-a")) is None
        assert self.after(seen(foreign=("x",)), self.known(), GPU) is None

    def test_what_is_gone_goes(self) -> None:
        assert sweep.followed(self.known(), [], set(), {}, ()).containers == {}
        assert sweep.followed(self.known(), [], None, {}, ()).containers != {}
        assert sweep.followed(self.known(), [], set(), {}, (ID,)).containers != {}


def test_clean_is_a_repo_in_which_nothing_runs_that_was_not_granted() -> None:
    assert sweep.clean([seen(), seen("exited", devices=(DRI,))], {GPU})
    assert not sweep.clean([seen()], {DRI})
    assert not sweep.clean([seen(devices=(), foreign=("x",))], {GPU})


STATES = st.sampled_from(["created", "running", "paused", "restarting", "exited", "dead", "removing"])
SEEN = st.builds(
    seen,
    STATES,
    st.sampled_from(["no", "", "always", "on-failure", "unless-stopped"]),
    started_at=st.sampled_from([MORNING, NOON]),
    devices=st.sampled_from([(), (GPU,), (GPU, DRI)]),
    foreign=st.sampled_from([(), ("x",)]),
)
GRANTED = st.sets(st.sampled_from([GPU, DRI]))
STANDINGS = st.builds(
    lambda granted, run, stops: standing(*granted, run=run, stops=stops),
    GRANTED,
    st.sampled_from([None, "", MORNING, NOON]),
    st.booleans(),
)


@given(SEEN, STANDINGS)
def test_nothing_without_a_grant_keeps_a_future(found: Seen, under: Standing) -> None:
    """Where the gate enforces: no policy, no restart; and it runs only when its very run was admitted."""
    step = sweep.decide(found, under)
    if set(found.devices) <= under.granted and not found.foreign:
        assert not step.acts
        return
    assert step.disarm or found.policy in ("", "no") or found.state in ("removing", "dead")
    assert step.calm or found.state != "restarting"
    if found.state in ("running", "paused") and not step.end:
        assert step.why is Why.REVOKED
        assert not under.stops
    assert not step.start


@given(st.lists(st.tuples(SEEN, GRANTED), max_size=8))
def test_no_run_is_admitted_that_no_grant_ever_covered(history: list[tuple[Seen, set[str]]]) -> None:
    """However a container and its grants change: what the ledger lets outlive its grants began under them."""
    ledger = Ledger("id-a")
    covered: set[str] = set()
    for found, granted in history:
        grants = dict.fromkeys(granted, "uid")
        ledger = sweep.followed(ledger, [found], {ID}, grants, ())
        if found.alive and found.devices and set(found.devices) <= granted and not found.foreign:
            covered |= set(found.devices)
        entry = ledger.containers.get(ID)
        assert entry is None or set(entry.devices) <= covered
