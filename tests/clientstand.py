"""Repos for real clients: sealed daemons of both generations behind one gate, each with one granted device, one that
it was not granted and a folder to bind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import intruder
import rig
from gateprocess import RUN, GateProcess
from gpugrant_crds import snapshot
from gpugrant_crds.snapshot import GrantRef, SnapshotGrant

IMAGE = intruder.IMAGE
GRANTED = "nvidia.com/gpu=all"
ALSO_GRANTED = "nvidia.com/gpu=0"
UNGRANTED = "nvidia.com/gpu=1"
MACHINE = "workstation"
GENERATIONS = ("26", "28")


@dataclass(frozen=True, slots=True)
class Stand:
    """One repo as its people have it, and its daemon for the one who judges."""

    daemon: rig.Daemon
    gate: GateProcess
    socket: Path
    folder: Path
    """May be bound into containers."""

    @property
    def judge(self) -> intruder.Judge:
        return intruder.Judge(self.daemon.socket, frozenset({GRANTED, ALSO_GRANTED}), (str(self.folder),))

    @property
    def no_grant(self) -> str:
        """What R24 says of the device that was not granted."""
        command = f"rdc repo gpu grant {self.daemon.name}@{MACHINE} --device {UNGRANTED}"
        missing = f"repo {self.daemon.name} has no grant for {UNGRANTED} on {MACHINE}"
        return f"{missing}; an operator can run: {command}"

    def environ(self, home: Path) -> dict[str, str]:
        """A shell in which docker, of the daemon's own generation, speaks with the gate."""
        tools = rig.tools_of(self.daemon.engine)
        return {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "HOME": str(home),
            "DOCKER_CONFIG": str(tools.parent),
            "DOCKER_HOST": f"unix://{self.socket}",
            "DOCKER_BUILDKIT": "0",
            "FOLDER": str(self.folder),
        }

    def docker(self, *words: str, text: str = "") -> rig.Result:
        return self.daemon.docker(*words, socket=self.socket, text=text)

    def ok(self, *words: str, text: str = "") -> str:
        return rig.succeeded(self.docker(*words, text=text))

    def refused(self, *words: str) -> str:
        """What docker says on stderr; fails the test when it did not refuse."""
        done = self.docker(*words)
        assert done.returncode != 0, done.stdout
        return done.stderr


def plays(*files: Path) -> list[Any]:
    """The scripts of some files as cases of (script, what it prints); `> ` is before a line that it prints."""
    made = []
    for play in (play for file in files for play in file.read_text().split("\n## ")[1:]):
        id_, *rows = play.rstrip("\n").split("\n")
        script = "\n".join(row for row in rows if not row.startswith("> "))
        expected = "".join(f"{row[2:]}\n" for row in rows if row.startswith("> "))
        made.append(pytest.param(script, expected, id=id_))
    return made


NODES = {"all": 0, "0": 0, "1": 1}
"""Devices of the machine's one spec, with the number of the node behind each: opened, it answers ENXIO."""


@contextmanager
def opened(generations: Sequence[str] = GENERATIONS, settings: str = "") -> Iterator[dict[str, Stand]]:
    """One repo a generation of Docker, behind one gate; all is stopped and removed with the block. `settings`: lines
    of gate.yaml."""
    made, folder = rig.Daemons(), rig.short_folder()
    (folder / "sub").mkdir()
    gate = GateProcess(made.root)
    try:
        _lay_machine(made.root, gate, settings)
        daemons = [made.start(f"repo-{engine}", engine=engine) for engine in generations]
        for daemon in daemons:
            upstream = {"id": daemon.repo_id, "upstream": str(daemon.socket)}
            gate.write_repo(daemon.name, **upstream, sealed="true", binds=f"[{folder}]")
        with _running(gate):
            stands = {d.engine: Stand(d, gate, gate.layout.repo_socket(d.name), folder) for d in daemons}
            for stand in stands.values():
                rig.wait_for(partial(_answers, stand), seconds=60)
            status, answer = asyncio.run(gate.put(_snapshot(daemons)))
            assert status == 200, answer
            yield stands
    finally:
        made.close()
        shutil.rmtree(folder)


def _answers(stand: Stand) -> bool:
    return stand.docker("version").returncode == 0


def _lay_machine(root: Path, gate: GateProcess, settings: str) -> None:
    for place in (gate.layout.repos, gate.layout.cdi):
        place.mkdir(parents=True)
    gate.layout.gate_settings.write_text(f"nodeName: {MACHINE}\nworkers: 2\n{settings}")
    for number in set(NODES.values()):
        os.mknod(root / f"nvidia{number}", 0o666 | 0o020000, os.makedev(195, number))
    devices = "".join(
        f'- name: "{name}"\n  containerEdits:\n'
        f"    deviceNodes: [{{path: /dev/nvidia{number}, hostPath: {root}/nvidia{number}}}]\n"
        for name, number in NODES.items()
    )
    (gate.layout.cdi / "nvidia.yaml").write_text(f"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n{devices}")


@contextmanager
def _running(gate: GateProcess) -> Iterator[None]:
    log = gate.root / "gate.log"
    with log.open("wb") as out:
        running = subprocess.Popen([sys.executable, "-P", "-c", RUN, str(gate.root)], stderr=out)
    try:
        yield
    finally:
        running.send_signal(signal.SIGTERM)
        status = running.wait(10)
    said = log.read_text(errors="replace")
    assert status == 0, said
    assert not [line for line in said.splitlines() if "session failed" in line or "Traceback" in line], said


def _snapshot(daemons: Sequence[rig.Daemon]) -> snapshot.Snapshot:
    ref = GrantRef(namespace="default", name="g", uid="u")
    return snapshot.build(
        api_id="api",
        machine=MACHINE,
        machine_uid="m1",
        epoch=1,
        issued_at=datetime(2026, 3, 1, tzinfo=UTC),
        grants=tuple(
            SnapshotGrant(repo=daemon.name, repo_id=daemon.repo_id, device=device, grant=ref)
            for daemon in daemons
            for device in (GRANTED, ALSO_GRANTED)
        ),
    )
