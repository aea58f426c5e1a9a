"""What is measured: two real Docker daemons, and in front of them a gate of two repos and HAProxy.

HAProxy is set up as docker-socket-proxy sets it up: methods and path prefixes are filtered, nothing else is looked at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import programs
from programs import CHECKOUT, Programs

sys.path.insert(0, str(CHECKOUT / "tests"))

import intruder
import rig

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PATHS = "_ping|version|info|events|containers|exec|images|build|volumes|networks"
HAPROXY = """\
global
    maxconn 4000
{threads}
defaults
    mode http
    option http-server-close
    option redispatch
    retries 3
    timeout http-request 10s
    timeout queue 1m
    timeout connect 10s
    timeout client 10m
    timeout server 10m
    timeout http-keep-alive 10s
    maxconn 3000
backend docker
    server docker unix@{daemon}
frontend clients
    bind unix@{listen} mode 600
    http-request deny unless METH_GET || {{ path,url_dec -m reg -i ^(/v[\\d\\.]+)?/({paths}) }}
    http-request allow if {{ path,url_dec -m reg -i ^(/v[\\d\\.]+)?/({paths}) }}
    http-request deny
    default_backend docker
"""


@dataclass(frozen=True, slots=True)
class Side:
    """One way to a daemon."""

    name: str
    socket: Path
    pids: tuple[int, ...] = ()
    """The processes in between; none: the daemon's own socket."""

    def cpu(self) -> float:
        """Seconds that they have run."""
        return cpu(self.pids)

    def rss(self) -> float:
        """The largest one's resident memory in MB."""
        return max((rss(pid) for pid in self.pids), default=0.0)

    def memory(self) -> float:
        """MB of all of them together; what they share counts once."""
        return sum(pss(pid) for pid in self.pids)


@dataclass(slots=True)
class Stand:
    """Everything that runs."""

    root: Path
    programs: Programs
    daemon_pid: int
    sides: dict[str, Side] = field(default_factory=dict)
    """direct, haproxy, haproxy-1 (one thread), ours; all to the same daemon."""
    neighbour: Side | None = None
    """The gate's other repo, with a daemon of its own."""

    def some(self, *names: str) -> list[Side]:
        return [self.sides[name] for name in names]


def cpu(pids: Sequence[int]) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def rss(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6


def pss(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Pss:"))) / 1000


@contextmanager
def standing(workers: int | None) -> Iterator[Stand]:
    """Starts it and takes it away again; `workers` of the gate, None: its default."""
    found = programs.find()
    with ExitStack() as stack:
        daemons = rig.Daemons()
        stack.callback(daemons.close)
        first, second = daemons.start("one"), daemons.start("two")
        root = daemons.root
        made = Stand(root, found, first.pid, {"direct": Side("direct", first.socket)})
        for name, threads in (("haproxy", ""), ("haproxy-1", "    nbthread 1")):
            made.sides[name] = stack.enter_context(_haproxy(found, root, name, threads, first.socket))
        pids = stack.enter_context(_gate(root, (first, second), workers))
        sockets = root / "run/rediacc/gpu/repos"
        made.sides["ours"] = Side("ours", sockets / "one.sock", pids)
        made.neighbour = Side("neighbour", sockets / "two.sock", pids)
        yield made


@contextmanager
def _haproxy(found: Programs, root: Path, name: str, threads: str, daemon: Path) -> Iterator[Side]:
    listen, config = root / f"{name}.sock", root / f"{name}.cfg"
    config.write_text(HAPROXY.format(threads=threads, daemon=daemon, listen=listen, paths=PATHS))
    with (root / f"{name}.log").open("w") as log:
        process = subprocess.Popen([found.haproxy, "-f", config], env=found.environ, stdout=log, stderr=log)
    try:
        _answers(listen)
        yield Side(name, listen, (process.pid,))
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _gate(root: Path, daemons: Sequence[rig.Daemon], workers: int | None) -> Iterator[tuple[int, ...]]:
    command = shutil.which("gpugrant", path=str(Path(sys.executable).parent))
    assert command is not None, "run it with the Python of .venv"
    environ = {**os.environ, "GPUGRANT_ROOT": str(root)}
    for daemon in daemons:
        words = ["repo", "add", daemon.name, "--upstream", daemon.socket, "--id", daemon.repo_id, "--sealed"]
        rig.succeeded(rig.run([command, *map(str, words)], environ=environ))
    settings = root / "etc/rediacc/gpu/gate.yaml"
    settings.write_text("nodeName: bench\n" + (f"workers: {workers}\n" if workers else ""))
    with (root / "gate.log").open("w") as log:
        process = subprocess.Popen([command, "gate"], env=environ, stderr=log)
    try:
        for daemon in daemons:
            _answers(root / "run/rediacc/gpu/repos" / f"{daemon.name}.sock")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield (process.pid, *map(int, children))
    finally:
        process.terminate()
        process.wait()


def _answers(path: Path) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            if intruder.ask(path, "GET", "/_ping")[0] == 200:
                return
        except OSError:
            pass
        if time.monotonic() > end:
            raise SystemExit(f"nothing answers at {path}")
        time.sleep(0.05)
