"""What a daemon starts by itself at its boot: copies of a repo's data, containers from before the gate, and those that
an older engine leaves down; on real, unsealed daemons of both generations."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import sweepstand
from gateprocess import DEVICE
from sweepstand import DEVICE_WORDS, SLEEP, Stand, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ALWAYS = ("--restart", "always")
WITHIN = 2.0
"""Seconds from the API's first answer; measured by the daemon's own account of when the container ended."""


@pytest.fixture
def stand() -> Iterator[Stand]:
    made = sweepstand.made()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(params=["26", "28"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.req("R2", "R9")
def test_a_fork_that_is_not_sealed_is_found_and_stopped(stand: Stand, engine: str) -> None:
    """A copied data root brings running containers along, and whatever a gate could have written in it."""
    parent = stand.daemon("a", engine)
    stand.serve("a")
    stand.start()
    stand.grant(a={DEVICE})
    until(lambda: stand.looked_at("a"))
    for name in ("one", "two"):
        done = stand.through("a", "run", "-d", "--name", name, *ALWAYS, *DEVICE_WORDS, *SLEEP)
        assert done.returncode == 0, done.stderr
    parent.crash()

    stand.serve("fork")
    fork = stand.daemon("fork", engine, data_of=parent)
    answered = time.monotonic()
    # an engine that can't give devices at its boot leaves them down; elsewhere they must have run and been stopped
    until(lambda: all(fork.state(name) == ("exited", "no") for name in ("one", "two")), seconds=WITHIN)
    print(f"stopped {time.monotonic() - answered:.2f} s after the API answered; {stand.cases('fork')}")
    if engine == "28":
        assert stand.cases("fork").count("ContainerStopped") == 2
    assert stand.runs("fork") == []
    assert "repo fork has no grant" in stand.through("fork", "start", "one").stderr

    parent.start()
    until(lambda: parent.state("one") == ("running", "always"), seconds=20)
    assert "ContainerStopped" not in stand.cases("a")


@pytest.mark.req("R6")
def test_what_an_older_engine_leaves_down_is_started_once(stand: Stand, engine: str) -> None:
    daemon = stand.daemon("a", engine)
    stand.serve("a")
    stand.start()
    stand.grant(a={DEVICE})
    until(lambda: stand.looked_at("a"))
    done = stand.through("a", "run", "-d", "--name", "user", *ALWAYS, *DEVICE_WORDS, *SLEEP)
    assert done.returncode == 0, done.stderr
    stand.through("a", "run", "-d", "--name", "stopped", *ALWAYS, *DEVICE_WORDS, *SLEEP)
    daemon.crash()
    daemon.start()

    until(lambda: daemon.state("user") == ("running", "always"))
    if engine == "26":
        until(lambda: stand.cases("a").count("ContainerStarted") == 2)
    else:
        assert "ContainerStarted" not in stand.cases("a")


class TestFromBeforeTheGate:
    """A host where repos use devices already: nothing of theirs is stopped unless that is wanted."""

    def before(self, stand: Stand) -> None:
        daemon = stand.daemon("a", "28")
        assert daemon.docker("run", "-d", "--name", "old", *ALWAYS, *DEVICE_WORDS, *SLEEP).returncode == 0
        stand.serve("a")

    def test_it_is_only_told_of_until_the_repo_is_clean(self, stand: Stand) -> None:
        self.before(stand)
        stand.start()
        stand.grant()
        until(lambda: stand.cases("a") == ["UngrantedDeviceInUse"])
        stand.kill()
        stand.start()
        until(lambda: stand.looked_at("a"))
        daemon = stand.daemons["a"]
        assert daemon.state("old") == ("running", "always")

        daemon.docker("rm", "-f", "old")
        until(lambda: stand.runs("a") == [])
        stand.kill()
        stand.start()
        until(lambda: stand.looked_at("a"))
        daemon.docker("run", "-d", "--name", "new", *DEVICE_WORDS, *SLEEP)
        until(lambda: daemon.state("new")[0] == "exited")

    def test_with_a_grant_it_belongs_to_the_repo(self, stand: Stand) -> None:
        self.before(stand)
        stand.start()
        stand.grant(a={DEVICE})
        until(lambda: stand.looked_at("a"))
        stand.grant(a=set())

        assert stand.daemons["a"].state("old") == ("running", "no")

    def test_enforce_makes_no_exception(self, stand: Stand) -> None:
        self.before(stand)
        stand.start("--enforce")
        stand.grant()

        until(lambda: stand.daemons["a"].state("old") == ("exited", "no"))

    def test_a_gate_that_shall_only_report_does_so(self, stand: Stand) -> None:
        self.before(stand)
        stand.gate.layout.gate_settings.write_text("nodeName: node-1\nsweep: Report\n")
        stand.start("--enforce")
        stand.grant(a={DEVICE})
        until(lambda: stand.looked_at("a"))
        stand.grant(a=set())
        until(lambda: "UngrantedDeviceInUse" in stand.cases("a"))

        assert stand.daemons["a"].state("old") == ("running", "always")


@pytest.mark.parametrize("words", [(), ("--enforce",)], ids=["reports", "enforces"])
def test_a_trial_only_reports_unless_it_is_told_otherwise(stand: Stand, words: tuple[str, ...]) -> None:
    """`gpugrant gate` with fixed grants."""
    daemon = stand.daemon("a", "28")
    assert daemon.docker("run", "-d", "--name", "old", *ALWAYS, *DEVICE_WORDS, *SLEEP).returncode == 0
    listen = ("--listen", str(stand.root / "trial.sock"), "--upstream", str(daemon.socket), "--repo", "a")
    program = [sys.executable, "-P", "-m", "gpugrant_operator.cli.gpugrant", "gate", "--root", str(stand.root)]
    log = stand.root / "trial.log"
    with log.open("wb") as said:
        trial = subprocess.Popen([*program, *listen, *words], stderr=said)
    try:
        until(lambda: "UngrantedDeviceInUse" in log.read_text())
        if words:
            until(lambda: daemon.state("old") == ("exited", "no"))
        else:
            time.sleep(1)
            assert daemon.state("old") == ("running", "always")
    finally:
        trial.terminate()
        trial.wait(30)
