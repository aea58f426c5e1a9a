"""A Docker daemon that reads a CDI folder of its own choice, unsealed: for tests of what a spec file does to it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rig
from gpugrant_operator.node import daemons

IMAGE = "ubuntu:24.04"

AS_MACHINE = """
set -eu
tree=$1 work=$2
shift 2
mkdir -p "$work/dev"
mount -t tmpfs -o mode=0755 none "$work/dev"
for name in null zero full random urandom tty; do cp -a "/dev/$name" "$work/dev/"; done
ln -s /proc/self/fd "$work/dev/fd"
for name in pts shm mqueue; do
    mkdir "$work/dev/$name"
    [ ! -d "/dev/$name" ] || mount --bind "/dev/$name" "$work/dev/$name"
done
ln -s pts/ptmx "$work/dev/ptmx"
rm -f "$work/dev/null"
cp -a "$tree/dev/." "$work/dev/"
chmod 0666 "$work/dev/null"
mount --rbind "$work/dev" /dev
mount -t overlay -o "lowerdir=$tree/usr:/usr" overlay /usr
exec "$@"
"""
"""Runs the daemon on the machine of a tree: its device nodes, and its files below /usr over the real ones."""


@dataclass(frozen=True, slots=True)
class Unsealed:
    """`names` is what GET /info lists; `run` a container with one device."""

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
            self.engine, self.socket, "run", "--rm", "--network", "none", "--device", device, IMAGE, *command
        )

    def knows(self, device: str) -> bool:
        """Whether a container gets past the resolution of the name."""
        done = self.run(device, "true")
        return "unresolvable CDI devices" not in done.stderr


@contextmanager
def daemon(engine: str, folder: Path, cdi: Path, *, tree: Path | None = None) -> Iterator[Unsealed]:
    """A running one of that generation, with its data below `folder` and `cdi` as its only CDI folder; with a tree on
    the machine that the tree is."""
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
    place = [] if tree is None else ["unshare", "--mount", "sh", "-c", AS_MACHINE, "sh", str(tree), str(folder)]
    command = [*place, str(tools / "dockerd"), "--config-file", str(folder / "daemon.json")]
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    with made.log.open("wb") as log:
        running = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
        try:
            rig.wait_for(lambda: daemons.look(made.socket), seconds=60)
            import_image(made)
            yield made
        finally:
            running.terminate()
            running.wait(30)
    subprocess.run(["umount", "--recursive", "--quiet", str(folder / "exec/netns/default")], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def import_image(made: Unsealed) -> None:
    """Gives it the stand-in image of hack/."""
    build = (
        "import sys; from pathlib import Path; from gpugrant_hack import image; "
        "sys.stdout.buffer.write(image.archive(Path(sys.argv[1]).read_bytes(), image.c_library()))"
    )
    busybox = rig.succeeded(rig.script("tools", "busybox"))
    archive = made.log.parent / "image.tar"
    with archive.open("wb") as out:
        environ = {**os.environ, "PYTHONPATH": str(rig.HACK / "lib")}
        subprocess.run([sys.executable, "-c", build, busybox], env=environ, stdout=out, check=True)
    environment = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    rig.succeeded(rig.docker(made.engine, made.socket, "import", "--change", environment, str(archive), IMAGE))
