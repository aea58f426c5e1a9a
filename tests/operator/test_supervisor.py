"""The supervisor over real processes: what dies comes back, what lives is adopted, down ends all and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import rig
from gpugrant_crds.layout import Layout
from gpugrant_operator.cli import waiting
from gpugrant_operator.supervisor import health, parts, processes, stop

STAND_INS = Path(__file__).with_name("supervisor_stand_ins")
WITHIN = 30.0
"""Seconds; a loaded machine starts a process in one or two."""


@dataclass
class Instance:
    """A root with a supervisor over stand-in parts."""

    root: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def layout(self) -> Layout:
        return Layout(self.root)

    @property
    def signatures(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(name, (str(STAND_INS / "part.py"), name, "--root", str(self.root))) for name in parts.NAMES]

    def up(self, *, hardware: str = "/", version: str = "1") -> subprocess.Popen[bytes]:
        command = [sys.executable, STAND_INS / "supervisor.py", self.root, hardware, version]
        with (self.root / "supervisor.log").open("ab") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self.started.append(child)
        return child

    def well(self) -> dict[str, int]:
        """The pids of the parts, when the supervisor says that all is well."""
        eventually(lambda: self.says().startswith("all parts"))
        return self.pids()

    def says(self) -> str:
        answer = asyncio.run(health.ask(self.layout.control(parts.SUPERVISOR)))
        return "" if answer is None else answer.message

    def pids(self) -> dict[str, int]:
        held = {name: processes.holder(self.layout.lock(name)) for name in parts.NAMES}
        return {name: holder.pid for name, holder in held.items() if holder is not None}

    def down(self) -> tuple[str, ...]:
        try:
            return stop.everything(self.layout, self.signatures)
        finally:
            for child in self.started:
                child.wait(WITHIN)


def eventually(look: Callable[[], object]) -> None:
    assert waiting.until(lambda: look() or None, WITHIN) is not None


@pytest.fixture
def instance() -> Iterator[Instance]:
    root = rig.short_folder()
    (root / "machine").touch()
    made = Instance(root)
    yield made
    made.down()
    shutil.rmtree(root)


def test_a_part_that_is_killed_comes_back_and_the_others_go_on(instance: Instance) -> None:
    instance.up()
    before = instance.well()
    os.kill(before["gate"], signal.SIGKILL)
    eventually(lambda: instance.pids().get("gate") not in (None, before["gate"]))
    after = instance.well()
    assert after["apiserver"] == before["apiserver"]
    assert after["operator"] == before["operator"]


def test_the_parts_outlive_the_supervisor_and_the_next_one_adopts_them(instance: Instance) -> None:
    first = instance.up()
    before = instance.well()
    first.kill()
    first.wait()
    assert instance.pids() == before
    instance.up()
    assert instance.well() == before


def test_a_part_that_died_without_a_supervisor_is_started_by_the_next(instance: Instance) -> None:
    first = instance.up()
    before = instance.well()
    first.kill()
    first.wait()
    os.kill(before["operator"], signal.SIGKILL)
    eventually(lambda: "operator" not in instance.pids())
    instance.up()
    after = instance.well()
    assert after["gate"] == before["gate"]
    assert after["operator"] != before["operator"]


@pytest.mark.parametrize(
    ("hardware", "version"),
    [pytest.param("/other", "1", id="other arguments"), pytest.param("/", "2", id="another version")],
)
def test_parts_of_another_making_are_replaced(instance: Instance, hardware: str, version: str) -> None:
    first = instance.up()
    before = instance.well()
    first.kill()
    first.wait()
    instance.up(hardware=hardware, version=version)
    after = instance.well()
    assert not set(before.values()) & set(after.values())


def test_a_part_that_does_not_answer_is_replaced_by_the_next_supervisor(instance: Instance) -> None:
    mute = instance.root / "mute-gate"
    mute.touch()
    first = instance.up()
    eventually(lambda: "gate" in instance.pids())
    silent = instance.pids()["gate"]
    first.kill()
    first.wait()
    mute.unlink()
    instance.up()
    assert instance.well()["gate"] != silent


def test_a_part_that_cannot_start_is_named_and_the_others_run(instance: Instance) -> None:
    broken = instance.root / "broken-operator"
    broken.touch()
    instance.up()
    eventually(lambda: "operator: it ended (exit status 7)" in instance.says())
    assert set(instance.pids()) == {"gate", "apiserver"}
    broken.unlink()
    assert set(instance.well()) == set(parts.NAMES)


def test_it_is_not_ready_before_the_machine_is_made(instance: Instance) -> None:
    (instance.root / "machine").unlink()
    instance.up()
    eventually(lambda: instance.says() == "the machine is not there")
    (instance.root / "machine").touch()
    instance.well()


def test_down_ends_all_and_can_be_run_again(instance: Instance) -> None:
    instance.up()
    pids = instance.well()
    assert instance.down() == ("supervisor", "gate", "apiserver", "operator")
    assert instance.pids() == {}
    assert not any(processes.arguments(pid) for pid in pids.values())
    assert instance.down() == ()


def test_down_finds_the_parts_of_a_supervisor_that_was_killed(instance: Instance) -> None:
    first = instance.up()
    instance.well()
    first.kill()
    first.wait()
    assert instance.down() == ("gate", "apiserver", "operator")
    assert instance.pids() == {}


def test_down_leaves_another_root_alone(instance: Instance) -> None:
    other = Instance(rig.short_folder())
    (other.root / "machine").touch()
    try:
        instance.up()
        other.up()
        instance.well()
        kept = other.well()
        instance.down()
        assert other.pids() == kept
    finally:
        other.down()
        shutil.rmtree(other.root)


def test_a_second_supervisor_of_a_root_is_refused(instance: Instance) -> None:
    instance.up()
    instance.well()
    assert instance.up().wait(WITHIN) != 0
    assert "locks.Held" in (instance.root / "supervisor.log").read_text()


def test_the_parts_are_told_the_version_that_they_are_known_by(instance: Instance) -> None:
    instance.up(version="7")
    instance.well()
    assert json.loads((instance.root / "environ-gate").read_text())[parts.VERSION_VARIABLE] == "7"
