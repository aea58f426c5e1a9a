"""What starts without a request, and what was admitted and is no longer, on real daemons of both generations."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import sweepstand
from gateprocess import DEVICE
from sweepstand import DEVICE_WORDS, SLEEP, Daemon, Stand, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ALWAYS = ("--restart", "always")
ENGINES = ("26", "28")


@pytest.fixture(scope="module", params=ENGINES)
def shared(request: pytest.FixtureRequest) -> Iterator[Stand]:
    """One unsealed daemon `a` behind a gate that enforces."""
    stand = sweepstand.made()
    try:
        stand.daemon("a", request.param)
        stand.serve("a")
        stand.start()
        stand.grant(a={DEVICE})
        until(lambda: stand.looked_at("a"))
        yield stand
    finally:
        stand.close()


@pytest.fixture
def stand(shared: Stand) -> Iterator[Stand]:
    """With the device granted to `a`, `Retain`, and no container."""
    shared.stops = False
    shared.grant(a={DEVICE})
    yield shared
    daemon = shared.daemons["a"]
    ids = daemon.docker("ps", "-aq").stdout.split()
    if ids:
        daemon.docker("unpause", *ids)
        daemon.docker("rm", "-f", *ids)


@pytest.fixture
def daemon(stand: Stand) -> Daemon:
    return stand.daemons["a"]


def run(stand: Stand, name: str, *words: str) -> None:
    done = stand.through("a", "run", "-d", "--name", name, *words)
    assert done.returncode == 0, done.stderr


class TestRevocation:
    """With `Retain` what runs goes on, and has no future; with `Stop` it ends."""

    @pytest.mark.req("R6", "R51")
    def test_a_running_one_goes_on_and_never_comes_again(self, stand: Stand, daemon: Daemon) -> None:
        run(stand, "user", *ALWAYS, *DEVICE_WORDS, *SLEEP)
        answer = stand.grant(a=set())

        assert answer["pending"] == []
        assert daemon.state("user") == ("running", "no")
        assert "RestartPolicyRemoved" in stand.cases("a")
        assert stand.runs("a") == ["user"]
        assert "has no grant" in stand.through("a", "restart", "user").stderr
        daemon.docker("kill", "user")
        until(lambda: stand.runs("a") == [])
        assert daemon.state("user") == ("exited", "no")

    @pytest.mark.req("R6")
    def test_a_running_one_is_stopped_where_that_is_wanted(self, stand: Stand, daemon: Daemon) -> None:
        run(stand, "user", *ALWAYS, *DEVICE_WORDS, *SLEEP)
        stand.stops = True
        answer = stand.grant(a=set())
        # `sleep` is process 1 and hears no signal: it lives on until Docker kills it after its 10 s
        assert [(entry["repo"], entry["device"]) for entry in answer["pending"]] == [("a", DEVICE)]
        until(lambda: stand.status()["pending"] == [], seconds=60)

        assert daemon.state("user") == ("exited", "no")
        assert "ContainerStopped" in stand.cases("a")

    @pytest.mark.parametrize("stops", [False, True], ids=["retain", "stop"])
    def test_a_paused_one(self, stand: Stand, daemon: Daemon, stops: bool) -> None:
        run(stand, "user", *ALWAYS, *DEVICE_WORDS, *SLEEP)
        daemon.docker("pause", "user")
        stand.stops = stops
        stand.grant(a=set())
        until(lambda: stand.status()["pending"] == [], seconds=60)

        assert daemon.state("user") == ("exited" if stops else "paused", "no")
        assert stand.through("a", "unpause", "user").returncode != 0

    def test_an_exited_one_loses_its_policy(self, stand: Stand, daemon: Daemon) -> None:
        run(stand, "user", *ALWAYS, *DEVICE_WORDS, *SLEEP)
        daemon.docker("stop", "-t", "0", "user")
        assert stand.grant(a=set())["pending"] == []

        assert daemon.state("user") == ("exited", "no")

    def test_one_that_waits_to_be_restarted_is_called_off(self, stand: Stand, daemon: Daemon) -> None:
        run(stand, "user", *ALWAYS, *DEVICE_WORDS, "--network", "none", "ubuntu:24.04", "false")
        until(lambda: daemon.state("user")[0] == "restarting" and daemon.inspect("user")["RestartCount"] > 4)
        assert stand.grant(a=set())["pending"] == []

        assert daemon.state("user") == ("exited", "no")
        count = daemon.inspect("user")["RestartCount"]
        time.sleep(4)
        assert daemon.inspect("user")["RestartCount"] == count

    def test_a_restart_with_a_long_timeout_starts_nothing(self, stand: Stand, daemon: Daemon) -> None:
        import threading

        run(stand, "user", *DEVICE_WORDS, *SLEEP)
        said: list[str] = []
        asking = threading.Thread(target=lambda: said.append(stand.through("a", "restart", "-t", "12", "user").stderr))
        asking.start()
        time.sleep(1.5)
        answer = stand.grant(a=set())
        assert [entry["device"] for entry in answer["pending"]] == [DEVICE]
        asking.join()

        assert "has no grant" in said[0]
        until(lambda: stand.status()["pending"] == [])
        assert daemon.state("user")[0] == "exited"

    def test_a_policy_that_comes_back_past_the_gate_brings_nothing_back(self, stand: Stand, daemon: Daemon) -> None:
        """The run that outlived its grant may go on; the next one was admitted by nobody."""
        run(stand, "user", *ALWAYS, *DEVICE_WORDS, *SLEEP)
        stand.grant(a=set())
        assert "has no grant" in stand.through("a", "update", "--restart", "always", "user").stderr
        daemon.docker("update", "--restart", "always", "user")
        daemon.docker("exec", "user", "kill", "-9", "1")
        daemon.docker("kill", "user")
        daemon.docker("start", "user")

        until(lambda: daemon.state("user") == ("exited", "no"))

    @pytest.mark.req("R6")
    def test_no_start_completes_after_the_answer(self, stand: Stand, daemon: Daemon) -> None:
        """Starts race with revocations: what runs in the end began before the answer came."""
        import random
        import threading
        from datetime import datetime

        chance = random.Random(7)
        done = stand.through("a", "create", "--name", "user", *DEVICE_WORDS, *SLEEP)
        assert done.returncode == 0, done.stderr
        socket = stand.gate.layout.repo_socket("a")
        ran = 0
        for _ in range(50):
            stand.grant(a={DEVICE})
            starting = threading.Thread(target=lambda: sweepstand.post(socket, "/containers/user/start"))
            starting.start()
            time.sleep(chance.random() * 0.25)
            stand.grant(a=set())
            answered = time.time()
            starting.join()
            state = daemon.inspect("user")["State"]
            if state["Running"]:
                ran += 1
                began = datetime.fromisoformat(state["StartedAt"][:26] + "+00:00").timestamp()
                assert began < answered
            else:
                assert sweepstand.post(socket, "/containers/user/start") == 403
            sweepstand.post(daemon.socket, "/containers/user/kill")
            until(lambda: not daemon.inspect("user")["State"]["Running"])
        assert ran > 0


class TestKilledGate:
    """What was let start is on disk before it starts."""

    @pytest.mark.parametrize("stops", [False, True], ids=["retain", "stop"])
    def test_revoked_while_no_gate_runs(self, stand: Stand, daemon: Daemon, stops: bool) -> None:
        run(stand, "user", *ALWAYS, *DEVICE_WORDS, *SLEEP)
        stand.kill()
        stand.start()
        stand.stops = stops
        stand.grant(a=set())
        until(lambda: stand.looked_at("a") and stand.status()["pending"] == [], seconds=60)

        until(lambda: daemon.state("user") == ("exited" if stops else "running", "no"))

    def test_killed_between_revocation_and_end(self, stand: Stand, daemon: Daemon) -> None:
        """It goes on with it, and still tells a run that may outlive its grant from one that may not."""
        run(stand, "kept", *DEVICE_WORDS, *SLEEP)
        stand.grant(a=set())
        stand.kill()
        daemon.docker("kill", "kept")
        daemon.docker("start", "kept")
        stand.start()

        until(lambda: daemon.state("kept")[0] == "exited")


class TestPastTheGate:
    @pytest.mark.req("R1", "R45")
    def test_what_comes_by_the_raw_socket_is_found_and_stopped(self, stand: Stand, daemon: Daemon) -> None:
        stand.grant(a=set())
        daemon.docker("run", "-d", "--name", "past", *ALWAYS, *DEVICE_WORDS, *SLEEP)

        until(lambda: daemon.state("past") == ("exited", "no"), seconds=10)
        assert stand.cases("a")[-3:] == ["UngrantedDeviceInUse", "RestartPolicyRemoved", "ContainerStopped"]

    def test_other_ways_to_hardware_are_told_of(self, stand: Stand, daemon: Daemon) -> None:
        daemon.docker("run", "-d", "--name", "mighty", "--privileged", *SLEEP)
        until(lambda: any("privileged" in case["message"] for case in stand.status()["cases"]))

        assert daemon.state("mighty")[0] == "running"

    def test_what_holds_no_hardware_is_left_alone(self, stand: Stand, daemon: Daemon) -> None:
        stand.grant(a=set())
        daemon.docker("run", "-d", "--name", "plain", *ALWAYS, *SLEEP)
        daemon.docker("run", "-d", "--name", "past", *DEVICE_WORDS, *SLEEP)
        until(lambda: daemon.state("past")[0] == "exited")

        assert daemon.state("plain") == ("running", "always")
