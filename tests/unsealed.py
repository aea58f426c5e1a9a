"""A Docker daemon that reads a CDI folder of its own choice, unsealed: for tests of what a spec file does to it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rig
from gpugrant_operator.node import daemons

BUSYBOX = "busybox:test"


@dataclass(frozen=True, slots=True)
class Unsealed:
    """`sight` is what GET /info says of CDI; `run` a container with one device."""

    engine: str
    socket: Path
    log: Path

    def names(self) -> frozenset[str]:
        """Empty for a daemon before 28.2, which lists none."""
        sight = daemons.look(self.socket)
        assert sight is not None
        return sight.names

    def run(self, device: str, *command: str) -> rig.Result:
        return rig.docker(
            self.engine, self.socket, "run", "--rm", "--network", "none", "--device", device, BUSYBOX, *command
        )

    def knows(self, device: str) -> bool:
        """Whether a container gets past the resolution of the name."""
        done = self.run(device, "true")
        return "unresolvable CDI devices" not in done.stderr


@contextmanager
def daemon(engine: str, folder: Path, cdi: Path) -> Iterator[Unsealed]:
    """A running one of that generation, with its data below `folder` and `cdi` as its only CDI folder."""
    tools = rig.tools_of(engine)
    settings: dict[str, Any] = {
        "hosts": [f"unix://{folder}/docker.sock"],
        "data-root": f"{folder}/data",
        "exec-root": f"{folder}/exec",
        "pidfile": f"{folder}/pid",
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
        "features": {"cdi": True},
        "cdi-spec-dirs": [str(cdi)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "daemon.json").write_text(json.dumps(settings))
    made = Unsealed(engine, folder / "docker.sock", folder / "log")
    command = [str(tools / "dockerd"), "--config-file", str(folder / "daemon.json")]
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    with made.log.open("wb") as log:
        running = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
        try:
            rig.wait_for(lambda: daemons.look(made.socket), seconds=60)
            _image(made)
            yield made
        finally:
            running.terminate()
            running.wait(30)
    subprocess.run(["umount", "--recursive", "--quiet", str(folder / "exec/netns/default")], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _image(made: Unsealed) -> None:
    """A static busybox with its links, from a folder."""
    found = Path(rig.succeeded(rig.script("tools", "busybox")))
    tree = made.log.parent / "image"
    (tree / "bin").mkdir(parents=True)
    shutil.copy(found, tree / "bin/busybox")
    for name in ("sh", "ls", "true", "cat", "stat"):
        (tree / "bin" / name).symlink_to("busybox")
    archive = made.log.parent / "image.tar"
    subprocess.run(["tar", "-C", str(tree), "-cf", str(archive), "."], check=True)
    rig.succeeded(rig.docker(made.engine, made.socket, "import", str(archive), BUSYBOX))
