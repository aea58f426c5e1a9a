"""A gate as a process of its own below a root, with a fake daemon a repo, and its control socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from gatebench import INFO, FakeDaemon, reply
from gpugrant_crds import snapshot
from gpugrant_crds.layout import Layout
from gpugrant_crds.snapshot import GrantRef, Snapshot, SnapshotGrant
from gpugrant_operator.supervisor.processes import HANDING

DEVICE = "nvidia.com/gpu=all"
SPEC = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: all
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
"""
RUN = "import sys; from pathlib import Path; from gpugrant_gate.main import run; sys.exit(run(Path(sys.argv[1])))"
PATIENCE = 30.0
"""Seconds; starting two processes on a machine under load takes some."""


def made(epoch: int, *devices: str, repo: str = "a", repo_id: str = "", uid: str = "m1") -> Snapshot:
    """A snapshot with these devices for the repo (id: `id-<repo>` where none is given)."""
    ref = GrantRef(namespace="default", name="g", uid="u")
    its_id = repo_id or f"id-{repo}"
    grants = tuple(SnapshotGrant(repo=repo, repo_id=its_id, device=device, grant=ref) for device in devices)
    issued = datetime(2026, 3, 1, tzinfo=UTC)
    return snapshot.build(
        api_id="api", machine="wsl-gpu", machine_uid=uid, epoch=epoch, issued_at=issued, grants=grants
    )


@dataclass(slots=True)
class GateProcess:
    """One gate below `root`; everything in it is real but the daemons."""

    root: Path
    daemons: dict[str, FakeDaemon] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None
    log: bytes = b""

    @property
    def layout(self) -> Layout:
        return Layout(self.root)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def prepare(self) -> None:
        """A machine with one spec and no repo."""
        for folder in (self.layout.repos, self.layout.cdi):
            folder.mkdir(parents=True)
        (self.layout.cdi / "nvidia.yaml").write_text(SPEC)
        self.layout.gate_settings.write_text("nodeName: node-1\nworkers: 2\n")

    async def add_repo(self, name: str, **more: str) -> FakeDaemon:
        """A fit daemon and its file in repos.d."""
        daemon = FakeDaemon(self.root / f"{name}.sock", info=dict(INFO) | {"CDISpecDirs": [str(self.layout.cdi)]})
        await daemon.start()
        created = json.dumps({"Id": "c" * 64, "Warnings": []}).encode()
        daemon.answers("v1.45", reply(created, "201 Created", b"Content-Type: application/json\r\n"))
        self.daemons[name] = daemon
        self.write_repo(name, **more)
        return daemon

    def write_repo(self, name: str, **more: str) -> None:
        values = {"name": name, "id": f"id-{name}", "upstream": str(self.root / f"{name}.sock")} | more
        text = "".join(f"{key}: {value}\n" for key, value in values.items())
        (self.layout.repos / f"{name}.yaml").write_text(text)

    async def start(self, *, kept: Mapping[str, int] | None = None, **environ: str) -> None:
        """Returns once the control socket answers as this process. `kept`: sockets by name, as sd_listen_fds(3) has
        them."""
        command = [sys.executable, "-P", "-c", RUN, str(self.root)]
        env = {**os.environ, **environ}
        if kept:
            env["LISTEN_FDNAMES"] = ":".join(kept)
            command = [sys.executable, str(HANDING), ",".join(map(str, kept.values())), *command]
        with (self.root / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, stderr=log, env=env, pass_fds=[*(kept or {}).values()]
            )
        await self.until(self._answers)

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit status."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()

    async def close(self) -> None:
        if self.process is not None:
            await self.stop(signal.SIGKILL)
        for daemon in self.daemons.values():
            await daemon.stop()

    def workers(self) -> list[int]:
        """The worker processes."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    async def control(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        """Status and decoded answer of the control socket."""
        connector = aiohttp.UnixConnector(path=str(self.layout.control("gate")))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, f"http://gate{path}", data=body) as response,
        ):
            text = await response.read()
            return response.status, json.loads(text)

    async def put(self, sent: Snapshot) -> tuple[int, Any]:
        return await self.control("PUT", "/v1/snapshot", json.dumps(sent.to_json()).encode())

    async def create(self, repo: str = "a", device: str = DEVICE) -> tuple[int, str]:
        """Status and message of a container create that asks for the device."""
        asked = {"Driver": "cdi", "Count": 0, "DeviceIDs": [device], "Capabilities": None, "Options": None}
        body = json.dumps({"Image": "x", "HostConfig": {"DeviceRequests": [asked]}}).encode()
        head = b"POST /v1.45/containers/create HTTP/1.1\r\nHost: d\r\nConnection: close\r\n"
        head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        said = await self.ask(repo, head + body)
        answer = json.loads(said.partition(b"\r\n\r\n")[2])
        return int(said.split(b" ")[1]), str(answer.get("message", ""))

    async def ask(self, repo: str, data: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(self.layout.repo_socket(repo)))
        writer.write(data)
        async with asyncio.timeout(PATIENCE):
            said = await reader.read()
        writer.close()
        return said

    async def until(self, look: Callable[[], Awaitable[bool]]) -> None:
        """Looks again and again until it is so."""
        async with asyncio.timeout(PATIENCE):
            while not await look():
                assert self.process is None or self.process.returncode is None, (self.root / "log").read_text()
                await asyncio.sleep(0.02)

    async def until_served(self, repo: str) -> None:
        """The repo's daemon is known to the gate."""

        async def fit() -> bool:
            _, status = await self.control("GET", "/v1/status")
            return any(entry["name"] == repo and entry["fit"] for entry in status["repos"])

        await self.until(fit)

    async def _answers(self) -> bool:
        try:
            status, _ = await self.control("GET", "/healthz")
            return status == 200 and json.loads(self.layout.lock("gate").read_bytes())["pid"] == self.pid
        except (aiohttp.ClientError, OSError, ValueError):
            return False


def alive(pid: int) -> bool:
    """Whether the process is there and not only waited for."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
