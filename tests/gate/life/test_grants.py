"""What a repo may use at one moment: nothing unless everything is known and right."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpugrant_crds.layout import Layout
from gpugrant_crds.reasons import Reason
from gpugrant_gate.life import grants
from gpugrant_gate.life.fitness import Fitness
from gpugrant_gate.life.grants import Enforced, Grant
from gpugrant_gate.life.repo import Repo

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
REPO = Repo("a", "id-a", Path("/run/a.sock"), Path("/run/gate/a.sock"), binds=(Path("/srv/a"),))
FIT = Fitness(True, api_version="1.45", data_root="/var/lib/docker-a")
ENFORCED = Enforced("m", 7, (Grant("a", "id-a", "v.com/gpu=0"), Grant("b", "id-b", "v.com/gpu=1")), ("v.com/gpu=0",))


def granted(
    repo: Repo = REPO, enforced: Enforced = ENFORCED, fitness: Fitness | None = FIT, now: datetime = NOW
) -> frozenset[str]:
    return grants.view(repo, enforced, fitness, Layout(Path("/r")), now=now).granted


@pytest.mark.req("R1", "R5")
def test_grants_the_names_of_this_repo_only() -> None:
    assert granted() == {"v.com/gpu=0"}


NOTHING = {
    "another id": replace(REPO, id="id-x"),
    "no id": replace(REPO, id=""),
    "another name with the same id": replace(REPO, name="c"),
    "a problem with its file": replace(REPO, problem="broken"),
}


@pytest.mark.req("R2", "R9")
@pytest.mark.parametrize("case", NOTHING)
def test_grants_nothing_to_another_repo(case: str) -> None:
    assert granted(NOTHING[case]) == frozenset()


@pytest.mark.req("R52")
def test_grants_nothing_before_an_unfit_or_unknown_daemon() -> None:
    assert granted(fitness=None) == frozenset()
    assert granted(fitness=Fitness(False, reason=Reason.DAEMON_UNFIT, message="old")) == frozenset()


def test_grants_nothing_without_a_snapshot() -> None:
    view = grants.view(REPO, Enforced("m"), FIT, Layout(Path("/r")), now=NOW)
    assert view.granted == frozenset()
    assert (view.unfit, view.withheld) == ("", "this machine's gate has no grant snapshot yet")


def test_a_grant_ends_with_its_time() -> None:
    ends = NOW + timedelta(hours=1)
    enforced = replace(ENFORCED, grants=(Grant("a", "id-a", "v.com/gpu=0", ends),))
    assert granted(enforced=enforced) == {"v.com/gpu=0"}
    assert granted(enforced=enforced, now=ends) == frozenset()
    assert enforced.next_expiry(NOW) == ends
    assert enforced.next_expiry(ends) is None


def test_hides_this_installation_and_the_daemons_data() -> None:
    hidden = grants.view(REPO, ENFORCED, FIT, Layout(Path("/r")), now=NOW).hidden
    assert {"/r/etc/rediacc/gpu", "/r/etc/cdi", "/run/a.sock", "/var/lib/docker-a"} <= set(hidden)


def test_names_the_places_of_a_repo_with_an_id() -> None:
    view = grants.view(REPO, ENFORCED, FIT, Layout(Path("/r")), now=NOW)
    assert (view.pins, view.socket) == ("/r/run/rediacc/gpu/binds/id-a", "/run/gate/a.sock")
    assert view.translated == view.pins
    unnamed = grants.view(replace(REPO, id="", binds=()), ENFORCED, FIT, Layout(Path("/r")), now=NOW)
    assert (unnamed.pins, unnamed.translated) == ("", "")


def test_a_repo_whose_sources_are_not_pinned_is_said_to_have_a_way_round_the_gate() -> None:
    loose = replace(REPO, binds_pinned=False)
    assert grants.no_hardware(loose, FIT) == ""
    assert grants.no_hardware_reason(loose, FIT) == Reason.RAW_SOCKET_REACHABLE
    assert grants.warning(replace(loose, binds=())) == ""


@pytest.mark.req("R52")
def test_says_why_a_repo_gets_no_hardware() -> None:
    assert grants.no_hardware_reason(REPO, FIT) == ""
    assert grants.no_hardware_reason(REPO, None) == Reason.DAEMON_UNFIT
    rootless = Fitness(False, reason=Reason.ROOTLESS_DAEMON, message="rootless")
    assert grants.no_hardware_reason(REPO, rootless) == Reason.ROOTLESS_DAEMON
    assert grants.no_hardware(REPO, rootless) == "rootless"
    assert grants.no_hardware(replace(REPO, problem="no id"), rootless) == "no id"
