"""Specs of the real nvidia-ctk, from setup to a container: made, listed, granted, injected by a real daemon behind the
gate, with the toolkit's own hooks run in the container's start. Only the hardware is stood in for.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import nvidia_ctk
import rig
import standalone
import unsealed
from machines import Machine
from nvidia_ctk import CARDS

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SMI = ("ubuntu:24.04", "nvidia-smi", "-L")
LINES = [f"GPU {index}: NVIDIA L40S (UUID: {card.uuid})" for index, card in enumerate(CARDS)]


@dataclass(frozen=True)
class Server:
    """A machine with two cards, one repo behind its gate."""

    root: Path
    engine: str

    def gpugrant(self, *words: str) -> str:
        return rig.succeeded(standalone.program(*words, "--root", self.root))

    def rdc(self, *words: str) -> rig.Result:
        environ = {"GPUGRANT_ROOT": str(self.root), "KUBECONFIG": str(self.root / "etc/rediacc/gpu/kubeconfig")}
        return standalone.command("rdc", *words, **environ)

    def run(self, *devices: str) -> rig.Result:
        named = [word for device in devices for word in ("--device", device)]
        socket = self.root / "run/rediacc/gpu/repos/gpu-a.sock"
        return rig.docker(self.engine, socket, "run", "--rm", "--network", "none", *named, *SMI)


@pytest.fixture
def server(tmp_path: Path, engine: str) -> Iterator[Server]:
    root = rig.short_folder()
    machine = Machine(tmp_path / "tree", root)
    nvidia_ctk.native(machine, nvidia_ctk.NEWEST)
    made = Server(root, engine)
    (root / "etc/cdi").mkdir(parents=True)
    try:
        with unsealed.daemon(engine, root / "d", root / "etc/cdi", tree=machine.tree) as daemon:
            made.gpugrant("repo", "add", "gpu-a", "--upstream", str(daemon.socket))
            made.gpugrant("up", "--detach", "--hardware", str(machine.tree))
            try:
                rig.succeeded(made.rdc("machine", "setup", "gpu-server"))
                yield made
            finally:
                standalone.program("down", "--root", root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.req("R11", "R7", "R17", "R23", "D6")
def test_from_the_toolkit_to_the_container(server: Server) -> None:
    """By index, by UUID and all: exactly the cards of that name; what was not granted is refused."""
    listed = rig.succeeded(server.rdc("machine", "gpu", "list", "gpu-server"))
    for name in ("0", "1", "all", *(card.uuid for card in CARDS)):
        assert f"nvidia.com/gpu={name}" in listed
    assert "has no grant for nvidia.com/gpu=all" in server.run("nvidia.com/gpu=all").stderr
    for name, lines in (
        ("nvidia.com/gpu=0", LINES[:1]),
        (f"nvidia.com/gpu={CARDS[1].uuid}", [LINES[1].replace("GPU 1", "GPU 0", 1)]),
        ("nvidia.com/gpu=all", LINES),
    ):
        rig.succeeded(server.rdc("repo", "gpu", "grant", "gpu-a", "--device", name))
        assert rig.succeeded(server.run(name)).splitlines() == lines
        rig.succeeded(server.rdc("repo", "gpu", "revoke", "gpu-a", "--device", name))
        assert f"has no grant for {name}" in server.run(name).stderr
