"""A whole instance of real parts below a root of its own, with stand-in daemons behind two repos: for tests of the
commands, in seconds and without Docker."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner, Result

import rig
import stand_in_daemon
from gpugrant_crds.layout import Layout
from gpugrant_operator.cli.gpugrant import cli as gpugrant
from gpugrant_operator.cli.rdc import cli as rdc

WORKSTATION = rig.CHECKOUT / "examples/machines/workstation"


@dataclass(frozen=True)
class Instance:
    """What a test asks of it: commands, run in this process."""

    root: Path
    daemons: Mapping[str, stand_in_daemon.Daemon]
    machine: str

    @property
    def layout(self) -> Layout:
        return Layout(self.root)

    def rdc(self, *words: str, **environ: str | None) -> Result:
        env = {"GPUGRANT_ROOT": str(self.root), "KUBECONFIG": None, **environ}
        return CliRunner().invoke(rdc, list(words), env=env)

    def gpugrant(self, *words: str) -> Result:
        return CliRunner().invoke(gpugrant, list(words), env={"GPUGRANT_ROOT": str(self.root)})


def program(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """`gpugrant` as a process of its own."""
    environ = {key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "GPUGRANT_ROOT")}
    return rig.run([sys.executable, "-m", "gpugrant_operator.cli.gpugrant", *map(str, words)], environ=environ)


def command(name: str, *words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """One of the other programs (`rdc`, `renet`) as a process of its own."""
    clean = {key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "GPUGRANT_ROOT")}
    module = f"gpugrant_operator.cli.{name}"
    return rig.run([sys.executable, "-m", module, *map(str, words)], environ={**clean, **environ})


@contextlib.contextmanager
def up(hardware: Path = WORKSTATION) -> Iterator[Instance]:
    root = rig.short_folder()
    layout = Layout(root)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, root)
        daemons = {
            name: stack.enter_context(stand_in_daemon.serving(root / f"{name}.docker", layout.cdi))
            for name in ("gpu-a", "gpu-b")
        }
        for name, daemon in daemons.items():
            rig.succeeded(program("repo", "add", name, "--root", root, "--upstream", daemon.socket))
        stack.callback(program, "down", "--root", root)
        rig.succeeded(program("up", "--detach", "--root", root, "--hardware", hardware))
        instance = Instance(root, daemons, (hardware / "etc/hostname").read_text().strip())
        ready = instance.rdc("machine", "setup", instance.machine)
        assert ready.exit_code == 0, ready.output
        yield instance
