"""What was made past the gate: nothing through the gate sets it going or lends its power."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import intruder
from corpus.past import EXEC, HARDWARE, NEVER, POLICY, RUNTIMES, START_STALE, TABLE, stale
from intruder import Attack, create, host

pytestmark = [pytest.mark.real, pytest.mark.req("R1", "R2", "R4", "R45")]


@pytest.mark.parametrize("attack", TABLE, ids=lambda attack: attack.id)
def test_the_past_stays_shut(ground: intruder.Ground, attack: Attack) -> None:
    intruder.run(attack, ground)


SEEN = {name: body for name, (body, _) in (HARDWARE | RUNTIMES | NEVER).items()} | {
    "network": host(NetworkMode="host"),
    "ipc": host(IpcMode="host"),
    "seccomp": host(SecurityOpt=["seccomp=unconfined"]),
}


@pytest.mark.parametrize("body", SEEN.values(), ids=SEEN.keys())
def test_the_judge_sees_each_power(ground: intruder.Ground, body: dict[str, Any]) -> None:
    """The same on the daemon's own socket, where nothing refuses it."""
    attack = Attack("past the gate", (create(body),), answers=(201,))
    with pytest.raises(AssertionError, match="past the gate"):
        intruder.run(attack, replace(ground, gate=ground.judge.daemon))


DEEDS = {
    "a start": (START_STALE, "was started"),
    "an exec": (EXEC, "runs an exec"),
    "an update": (POLICY, "has other settings"),
}


@pytest.mark.parametrize(("request_", "what"), DEEDS.values(), ids=DEEDS.keys())
def test_the_judge_sees_each_deed(ground: intruder.Ground, request_: bytes, what: str) -> None:
    started = () if request_ is START_STALE else (START_STALE,)
    attack = Attack("deed", (request_,), past=stale(host(Privileged=True), *started))
    with pytest.raises(AssertionError, match=what):
        intruder.run(attack, replace(ground, gate=ground.judge.daemon))
