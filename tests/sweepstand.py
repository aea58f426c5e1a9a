"""Unsealed Docker daemons that are killed and come back, copies of their data, and one gate in front of all of them."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import rig
import unsealed
from gateprocess import DEVICE, GateProcess
from gpugrant_crds import snapshot
from gpugrant_crds.snapshot import GrantRef, SnapshotGrant
from gpugrant_operator.node import daemons

T = TypeVar("T")
RUN = (
    "import sys; from pathlib import Path; from gpugrant_gate.main import run; "
    "sys.exit(run(Path(sys.argv[1]), enforce='--enforce' in sys.argv))"
)
OFFLINE = ("--network", "none")
SLEEP = (*OFFLINE, unsealed.IMAGE, "sleep", "600")
DEVICE_WORDS = ("--device", DEVICE)


@dataclass(slots=True)
class Daemon:
    """One daemon; its containers die with it, and come back by their restart policies."""

    name: str
    engine: str
    folder: Path
    cdi: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "docker.sock"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        """Returns as soon as its API answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {
            "hosts": [f"unix://{self.socket}"],
            "data-root": str(self.data),
            "exec-root": str(self.folder / "exec"),
            "pidfile": str(self.folder / "pid"),
            "bridge": "none",
            "iptables": False,
            "ip6tables": False,
            "features": {"cdi": True},
            "cdi-spec-dirs": [str(self.cdi)],
            "shutdown-timeout": 1,
        }
        (self.folder / "daemon.json").write_text(json.dumps(settings))
        tools = rig.tools_of(self.engine)
        environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        with (self.folder / "log").open("ab") as log:
            command = [str(tools / "dockerd"), "--config-file", str(self.folder / "daemon.json")]
            self.process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
        rig.wait_for(lambda: daemons.look(self.socket), seconds=60)

    def crash(self) -> None:
        """All that belongs to it dies at once, as when the power goes."""
        for pid in _family(str(self.folder)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(30)
            self.process = None

    def docker(self, *words: str, socket: Path | None = None) -> rig.Result:
        """Past every gate, or through the one whose socket is given."""
        return rig.docker(self.engine, socket or self.socket, *words)

    def inspect(self, container: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(rig.succeeded(self.docker("inspect", container)))
        return found[0]

    def state(self, container: str) -> tuple[str, str]:
        """Its state, and its restart policy."""
        found = self.inspect(container)
        return found["State"]["Status"], found["HostConfig"]["RestartPolicy"]["Name"]


@dataclass(slots=True)
class Stand:
    """A machine with one device and a gate; repos are called like their daemons."""

    root: Path
    gate: GateProcess
    daemons: dict[str, Daemon] = field(default_factory=dict)
    held: dict[str, set[str]] = field(default_factory=dict)
    stops: bool = False
    process: subprocess.Popen[bytes] | None = None
    epoch: int = 0

    def daemon(self, name: str, engine: str, *, data_of: Daemon | None = None) -> Daemon:
        """A running one; `data_of`: with a copy of that daemon's data, which must not run."""
        made = self.daemons[name] = Daemon(name, engine, self.root / name, self.gate.layout.cdi)
        if data_of is not None:
            made.folder.mkdir()
            copied = ["cp", "-a", "--one-file-system", str(data_of.data), str(made.data)]
            rig.succeeded(rig.run(copied, environ={"PATH": "/usr/bin:/bin"}))
        made.start()
        if data_of is None:
            unsealed.import_image(unsealed.Unsealed(engine, made.socket, made.folder / "log"))
        return made

    def serve(self, name: str, repo_id: str = "") -> None:
        """Puts the daemon of that name behind the gate."""
        self.gate.write_repo(name, id=repo_id or f"id-{name}", upstream=str(self.root / name / "docker.sock"))

    def start(self, *words: str) -> None:
        with (self.root / "gate.log").open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-P", "-c", RUN, str(self.root), *words], stderr=log)
        until(self._answers)

    def kill(self) -> None:
        """The gate ends without a last word."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def through(self, repo: str, *words: str) -> rig.Result:
        """docker through the gate."""
        return self.daemons[repo].docker(*words, socket=self.gate.layout.repo_socket(repo))

    def grant(self, **held: set[str]) -> dict[str, Any]:
        """Each of these repos has exactly these devices from now on; the gate's answer."""
        self.held |= held
        return self.push()

    def push(self) -> dict[str, Any]:
        self.epoch = max(self.epoch + 1, time.time_ns())
        policy = snapshot.SnapshotPolicy(revocation="Stop") if self.stops else None
        grants = tuple(
            SnapshotGrant(
                repo=repo,
                repo_id=f"id-{repo}",
                device=device,
                grant=GrantRef(namespace="default", name=repo, uid=f"uid-{repo}"),
            )
            for repo, devices in self.held.items()
            for device in devices
        )
        issued = snapshot.timestamps.read("2026-03-01T12:00:00Z")
        sent = snapshot.build(
            api_id="api", machine="wsl-gpu", machine_uid="m1", epoch=self.epoch, issued_at=issued, grants=grants,
            policy=policy,
        )  # fmt: skip
        status, answer = asyncio.run(self.gate.put(sent))
        assert status == 200, answer
        return dict(answer)

    def status(self) -> dict[str, Any]:
        return dict(asyncio.run(self.gate.control("GET", "/v1/status"))[1])

    def cases(self, repo: str = "") -> list[str]:
        """The reasons of what was found, in order."""
        return [case["reason"] for case in self.status().get("cases", ()) if repo in ("", case["repo"])]

    def looked_at(self, repo: str) -> bool:
        """Its daemon is fit, and its containers were listed."""
        return any(entry["name"] == repo and entry["fit"] and not entry["unseen"] for entry in self.status()["repos"])

    def runs(self, repo: str) -> list[str]:
        """The containers that the gate knows to run with devices."""
        return [entry["name"] for entry in self.status().get("running", ()) if entry["repo"] == repo]

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
        for daemon in self.daemons.values():
            daemon.crash()
            mounts = (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())
            for mount in sorted((path for path in mounts if path.startswith(f"{daemon.folder}/")), reverse=True):
                subprocess.run(["umount", "--lazy", mount], check=False)
        shutil.rmtree(self.root, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            return asyncio.run(self.gate.control("GET", "/healthz"))[0] == 200
        except OSError:
            return False


def made() -> Stand:
    root = rig.short_folder()
    gate = GateProcess(root)
    gate.prepare()
    node = root / "nvidia0"
    os.mknod(node, 0o666 | 0o020000, os.makedev(195, 0))
    (gate.layout.cdi / "nvidia.yaml").write_text(
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits:\n"
        f"    deviceNodes: [{{path: /dev/nvidia0, hostPath: {node}}}]\n"
    )
    return Stand(root, gate)


def _family(word: str) -> set[int]:
    """The processes that have the word in their command line, and all that they have started."""
    parents: dict[int, int] = {}
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if word.encode() in (folder / "cmdline").read_bytes() and pid != os.getpid():
                found.add(pid)
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return found


def until(look: Callable[[], T], *, seconds: float = 40.0) -> T:
    """What `look` says as soon as it is true; looks twenty times a second."""
    end = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < end, f"still {seen!r} after {seconds} s"
        time.sleep(0.05)
    return seen


class _OnSocket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self._path))


def post(path: Path, target: str) -> int:
    """The status of an empty POST: quicker than a docker process."""
    with contextlib.closing(_OnSocket(path)) as connection:
        connection.request("POST", f"/v1.44{target}")
        return connection.getresponse().status
