"""Real parts for tests: sealed Docker daemons and the whole example system, driven through the scripts in hack/."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

CHECKOUT = Path(__file__).resolve().parents[1]
HACK = CHECKOUT / "hack"
Result = subprocess.CompletedProcess[str]
T = TypeVar("T")

PATIENCE = 240.0
"""Seconds for one script; the first one may have to bring Docker."""


def short_folder() -> Path:
    """A fresh folder whose path leaves room for a socket's (107 bytes)."""
    return Path(tempfile.mkdtemp(prefix="gg-", dir="/tmp"))


def script(name: str, *words: str | Path, environ: Mapping[str, str] | None = None) -> Result:
    """Runs a script of hack/ and returns what it said."""
    return run([str(HACK / name), *map(str, words)], environ={**os.environ, **(environ or {})})


def run(command: list[str], *, environ: Mapping[str, str], text: str = "") -> Result:
    """Runs a command in the checkout; both outputs are captured through files, so that what it leaves running can't
    keep the test waiting."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        done = subprocess.run(
            command,
            cwd=CHECKOUT,
            env=environ,
            input=text,
            stdout=out,
            stderr=err,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(done.args, done.returncode, out.read(), err.read())


def succeeded(done: Result) -> str:
    """Its stdout without blanks around it; fails the test with both outputs when it did not exit 0."""
    assert done.returncode == 0, f"{done.args} exited {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Daemon:
    """A sealed Docker daemon that runs."""

    root: Path
    name: str
    engine: str
    socket: Path

    @property
    def folder(self) -> Path:
        return self.root / "daemons" / self.name

    @property
    def repo_id(self) -> str:
        return (self.folder / "id").read_text().strip()

    @property
    def sealed(self) -> Path:
        """The CDI folder that this daemon sees."""
        return self.root / "var/lib/rediacc/gpu/sealed" / self.repo_id

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    def docker(self, *words: str, socket: Path | None = None, client: str | None = None, text: str = "") -> Result:
        """Runs docker against the raw socket, or against another one (a gate's); `client`: which generation's."""
        return docker(client or self.engine, socket or self.socket, *words, text=text)


def docker(client: str, socket: Path, *words: str, text: str = "") -> Result:
    """Runs the docker command of one generation (`26` with Compose 2.26, `28` with Compose 2.40) on a socket."""
    tools = tools_of(client)
    environ = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": "/nonexistent", "DOCKER_CONFIG": str(tools.parent)}
    return run([str(tools / "docker"), "--host", f"unix://{socket}", *words], environ=environ, text=text)


def tools_of(engine: str) -> Path:
    """The folder of the programs of one generation, brought if they are missing; `cli-plugins` lies beside it."""
    return Path(succeeded(script("tools", "engine", engine)))


@dataclass(slots=True)
class Daemons:
    """Makes sealed daemons below one root and stops them all at the end."""

    root: Path = field(default_factory=short_folder)
    made: dict[str, Daemon] = field(default_factory=dict)

    def start(self, name: str, *, engine: str = "28", data_root: Path | None = None) -> Daemon:
        """A running daemon; a name that was stopped or killed starts again with its data and its id."""
        extra = ["--data-root", data_root] if data_root else []
        environ = {"GPUGRANT_ENGINE": engine}
        socket = succeeded(script("daemon", name, "--root", self.root, *extra, environ=environ))
        self.made[name] = Daemon(self.root, name, engine, Path(socket))
        return self.made[name]

    def stop(self, daemon: Daemon) -> None:
        """Ends one daemon with its containers, as hack/down does."""
        succeeded(script("daemon", daemon.name, "--root", self.root, "--stop"))

    def close(self) -> None:
        """Stops all of them and removes what they left."""
        succeeded(script("down", "--root", self.root))
        shutil.rmtree(self.root)


@dataclass(frozen=True, slots=True)
class System:
    """The example system, up: two repos gpu-a and gpu-b behind their gates, and the API."""

    root: Path
    environ: Mapping[str, str]
    """As in a shell that has read `<root>/env`."""

    def docker(self, context: str, *words: str, text: str = "") -> Result:
        """docker in one repo, through its gate."""
        return self.command("docker", "--context", context, *words, text=text)

    def compose(self, client: str, repo: str, *words: str) -> Result:
        """docker compose of one generation, through a repo's gate."""
        return docker(client, self.root / "run/rediacc/gpu/repos" / f"{repo}.sock", "compose", *words)

    def kubectl(self, *words: str, text: str = "") -> Result:
        return self.command("kubectl", *words, text=text)

    def rdc(self, *words: str) -> Result:
        return self.command("rdc", *words)

    def gpugrant(self, *words: str) -> Result:
        return self.command("gpugrant", *words)

    def command(self, program: str, *words: str, text: str = "") -> Result:
        """Any program in that shell; the path is looked up there too."""
        found = shutil.which(program, path=self.environ["PATH"])
        assert found is not None, f"{program} is not in the PATH of {self.root}/env"
        return run([found, *words], environ=self.environ, text=text)


def read_env(root: Path) -> dict[str, str]:
    """The environment of a shell that reads `<root>/env`."""
    done = run(["sh", "-c", '. "$1" && env -0', "sh", str(root / "env")], environ=os.environ)
    pairs = (line.partition("=") for line in succeeded(done).split("\0") if line)
    return {key: value for key, _, value in pairs}


def bring_up(root: Path, hardware: Path) -> System:
    """hack/up on a root."""
    succeeded(script("up", "--detach", "--root", root, "--hardware", hardware))
    return System(root, read_env(root))


def wait_for(look: Callable[[], T], *, seconds: float = 15.0) -> T:
    """What `look` says as soon as it is true; fails with its last answer. Looks four times a second.

    `seconds` are those of a quiet machine: a busy one has three times as long.
    """
    end = time.monotonic() + 3 * seconds
    while not (seen := look()):
        assert time.monotonic() < end, f"still {seen!r} after {seconds} s"
        time.sleep(0.25)
    return seen


@contextmanager
def background(system: System, program: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of that shell beside the test; asked to end with the block."""
    found = shutil.which(program, path=system.environ["PATH"])
    assert found is not None
    with subprocess.Popen([found, *words], env=dict(system.environ), stderr=subprocess.DEVNULL) as running:
        try:
            yield running
        finally:
            running.terminate()
