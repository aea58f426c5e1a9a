"""Real kopf in a process of its own: it finds the resources, follows every change, and outlives a restart."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

OPERATOR = """
import os
import kopf

@kopf.on.startup()
def settings(settings, **_):
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.chunk_size = 500

@kopf.on.login()
def login(**kwargs):
    return kopf.login_with_kubeconfig(**kwargs)

@kopf.on.event("gpu.rediacc.io", "v1alpha1", "repogpugrants")
async def seen(type, body, patch, **_):
    print("EVENT", type, body["metadata"]["name"], flush=True)
    if type != "DELETED" and body.get("status", {}).get("observedGeneration") != body["metadata"]["generation"]:
        patch.status["observedGeneration"] = body["metadata"]["generation"]

@kopf.on.delete("gpu.rediacc.io", "v1alpha1", "gpumachines")
async def leaving(name, **_):
    print("LEAVING", name, flush=True)
"""

GRANTS = "/apis/gpu.rediacc.io/v1alpha1/namespaces/default/repogpugrants"
MACHINES = "/apis/gpu.rediacc.io/v1alpha1/gpumachines"


def grant(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.rediacc.io/v1alpha1",
        "kind": "RepoGpuGrant",
        "metadata": {"name": name},
        "spec": {"machine": "m1", "repo": "gpu-a", "device": "nvidia.com/gpu=all"},
    }


class Operator:
    """The kopf process and what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def until(self, *wanted: str) -> None:
        """Returns once one of these lines was printed."""
        assert self.process.stdout is not None
        async with asyncio.timeout(45):
            while not set(wanted) & set(self.lines):
                line = await self.process.stdout.readline()
                assert line, "\n".join(self.lines)
                self.lines.append(line.decode().strip())


@pytest.mark.must_run
@pytest.mark.req("D4")
async def test_kopf_follows_every_change(serve: Any, tmp_path: Path, eventually: Any) -> None:
    script = tmp_path / "op.py"
    script.write_text(OPERATOR)
    async with serve() as api:
        await api.client.post(GRANTS, grant("before"))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "kopf",
            "run",
            "-A",
            str(script),
            env={**os.environ, "KUBECONFIG": str(api.server.settings.layout.kubeconfig)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        operator = Operator(process)
        try:
            await operator.until("EVENT None before")
            await api.client.post(GRANTS, grant("after"))
            await operator.until("EVENT ADDED after")

            async def observed() -> bool:
                body = (await api.client.get(f"{GRANTS}/after")).body
                return bool(body["status"]["observedGeneration"] == 1)

            await eventually(observed)
            await api.client.delete(f"{GRANTS}/after")
            await operator.until("EVENT DELETED after")

            # Deletion handlers put a finalizer by JSON Patch with a test, and take it away again.
            body = {"apiVersion": "gpu.rediacc.io/v1alpha1", "kind": "GpuMachine", "metadata": {"name": "m1"}}
            await api.client.post(MACHINES, body)

            async def held() -> bool:
                return bool((await api.client.get(f"{MACHINES}/m1")).body["metadata"].get("finalizers"))

            await eventually(held)
            await api.client.delete(f"{MACHINES}/m1")
            await operator.until("LEAVING m1")

            async def gone() -> bool:
                return bool((await api.client.get(f"{MACHINES}/m1")).code == 404)

            await eventually(gone)
            assert process.returncode is None
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


@pytest.mark.must_run
async def test_kopf_outlives_a_restart_of_the_server(serve: Any, tmp_path: Path) -> None:
    script = tmp_path / "op.py"
    script.write_text(OPERATOR)
    process = None
    try:
        async with serve() as api:
            await api.client.post(GRANTS, grant("before"))
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "kopf",
                "run",
                "-A",
                str(script),
                env={**os.environ, "KUBECONFIG": str(api.server.settings.layout.kubeconfig)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            operator = Operator(process)
            await operator.until("EVENT None before")
            port = api.server.port
        async with serve() as api:
            assert api.server.port == port
            await api.client.post(GRANTS, grant("after"))
            await operator.until("EVENT ADDED after", "EVENT None after")  # resumed, or listed again
    finally:
        if process is not None:
            if process.returncode is None:
                process.terminate()
            await process.wait()
