"""`gpugrant service`: the unit's text, and the instance under a real systemd."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rig
import standalone
import whole_machine
from gpugrant_operator.cli import service
from whole_machine import Booted, Box

GPUGRANT = Path(sys.executable).parent / "gpugrant"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("words", [("up",), ("up", "--root", "/a b", "--manifests", '/100%/$x"y')])
def test_systemd_takes_the_unit(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = tmp_path / service.NAME
    path.write_text(service.unit((sys.executable, *words)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if service.NAME in line]) == (0, [])


def test_where_systemd_does_not_look_the_unit_is_written_and_nothing_is_started(tmp_path: Path) -> None:
    done = standalone.program("service", "install", "--root", tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"note: systemd does not run here, or not below {tmp_path}: nothing is started" in done.stderr
    unit = tmp_path / service.PATH
    assert f"ExecStart={GPUGRANT} up --root {tmp_path}\n" in unit.read_text()
    gone = standalone.program("service", "remove", "--root", tmp_path)
    assert (gone.returncode, unit.exists()) == (0, False)
    assert standalone.program("service", "remove", "--root", tmp_path).stdout == f"there is no {unit}\n"


@pytest.fixture
def box() -> Iterator[Box]:
    made = whole_machine.server()
    yield made
    shutil.rmtree(made.work)


def parts(up: Booted) -> dict[str, int]:
    """The pid of each part, once all are well."""

    def well() -> dict[str, int]:
        done = up.run(str(GPUGRANT), "status", "-o", "json")
        if done.returncode != 0:
            return {}
        return {part["name"]: part["pid"] for part in json.loads(done.stdout)["parts"]}

    return rig.wait_for(well, seconds=60)


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.skipif(os.geteuid() != 0, reason="a systemd in a box needs root")
def test_the_instance_under_a_real_systemd(box: Box) -> None:
    """Taken over from one that was started by hand; a reload and a killed supervisor leave the gate as it is; removed,
    nothing runs and the data stays."""
    with box.booted() as up:
        rig.succeeded(up.run(str(GPUGRANT), "up", "--detach"))
        by_hand = parts(up)
        rig.succeeded(up.run(str(GPUGRANT), "service", "install"))
        served = parts(up)
        assert served["gate"] == by_hand["gate"]
        assert served["supervisor"] != by_hand["supervisor"]
        assert up.systemctl("is-enabled", service.NAME) == "enabled"
        assert up.systemctl("show", "--property=MainPID", "--value", service.NAME) == str(served["supervisor"])

        up.systemctl("reload", service.NAME)
        rig.wait_for(lambda: parts(up)["supervisor"] != served["supervisor"], seconds=60)
        assert parts(up)["gate"] == served["gate"]

        before = parts(up)
        up.systemctl("kill", "--kill-who=main", "--signal=KILL", service.NAME)
        rig.wait_for(lambda: parts(up)["supervisor"] != before["supervisor"], seconds=60)
        assert parts(up)["gate"] == served["gate"]

        # again: the unit is written anew, nothing is cut
        rig.succeeded(up.run(str(GPUGRANT), "service", "install"))
        assert parts(up)["gate"] == served["gate"]

        rig.succeeded(up.run(str(GPUGRANT), "service", "remove"))
        status = up.run(str(GPUGRANT), "status", "-o", "json")
        assert [part["pid"] for part in json.loads(status.stdout)["parts"]] == [None] * 4
        assert not (box.upper / service.PATH).exists()
        assert (box.upper / "var/lib/rediacc/gpu/manifests").is_dir()
