"""Fifty clients ask at once for one exclusive device: one holder, with admission and by the ledger alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import rig

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.timeout(300)]

CLIENTS = 50
DEVICE = "rediacc.io/amd=all"
MACHINE = "workstation"
HARDWARE = rig.CHECKOUT / "examples/machines/workstation"
APISERVER = """
import asyncio, pathlib, signal, sys
from gpugrant_crds import schema
from gpugrant_operator.apiserver import server
from gpugrant_operator.apiserver.settings import Settings
async def serve():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    root, admission = pathlib.Path(sys.argv[1]), sys.argv[2] == "on"
    async with server.running(Settings(root=root, crds=schema.crds(), admission=admission)):
        await stop.wait()
asyncio.run(serve())
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """An installation of its own with fifty repos, whose daemons needn't run: who holds the name is decided anyway."""
    root = rig.short_folder()
    folder = root / "etc/rediacc/gpu/repos.d"
    folder.mkdir(parents=True)
    for number in range(CLIENTS):
        name = f"repo-{number:02}"
        (folder / f"{name}.yaml").write_text(f"name: {name}\nid: id-{name}\nupstream: {root}/up/{name}.sock\n")
    yield root
    shutil.rmtree(root)


@contextmanager
def system(root: Path, *, admission: bool) -> Iterator[dict[str, str]]:
    """API server, gate and operator on that root, the machine made and detected."""
    environ = {**os.environ, "GPUGRANT_ROOT": str(root), "KUBECONFIG": str(root / "etc/rediacc/gpu/kubeconfig")}
    cli = [sys.executable, "-m", "gpugrant_operator.cli.gpugrant"]
    hardware = ["--root", str(root), "--hardware", str(HARDWARE)]
    with ExitStack() as stack:

        def start(*command: str) -> None:
            log = stack.enter_context((root / f"{len(list(root.glob('log-*')))}-log").open("wb"))
            process = stack.enter_context(subprocess.Popen(command, env=environ, stderr=log, stdout=log))
            stack.callback(process.terminate)

        start(sys.executable, "-c", APISERVER, str(root), "on" if admission else "off")
        rig.wait_for(lambda: kubectl(environ, "get", "--raw", "/readyz").returncode == 0)
        start(*cli, "gate", *hardware)
        machine = {"apiVersion": "gpu.rediacc.io/v1alpha1", "kind": "GpuMachine", "metadata": {"name": MACHINE}}
        rig.succeeded(kubectl(environ, "create", "-f", "-", text=json.dumps(machine)))
        start(*cli, "operator", *hardware)
        rig.succeeded(kubectl(environ, "wait", "--for=condition=Ready", f"gm/{MACHINE}", "--timeout=40s"))
        yield environ


def kubectl(environ: dict[str, str], *words: str, text: str = "") -> rig.Result:
    return rig.run([rig.succeeded(rig.script("tools", "kubectl")), *words], environ=environ, text=text)


def race(environ: dict[str, str]) -> list[tuple[int, str]]:
    """All clients connect, then all ask at the same moment; their answers."""
    script = str(Path(__file__).with_name("contender.py"))
    go, hold = os.pipe()
    clients = [
        subprocess.Popen(
            [sys.executable, script, environ["KUBECONFIG"], f"repo-{number:02}", MACHINE, DEVICE],
            stdin=go,
            stdout=subprocess.PIPE,
            close_fds=True,
            text=True,
        )
        for number in range(CLIENTS)
    ]
    os.close(go)
    for client in clients:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
    os.close(hold)
    answers = []
    for client in clients:
        out, _ = client.communicate(timeout=60)
        status, _, message = out.strip().partition(" ")
        answers.append((int(status), message))
    return answers


def stored(environ: dict[str, str]) -> list[dict[str, str]]:
    """Repo, Ready and reason of every stored grant that has a status."""
    items = json.loads(rig.succeeded(kubectl(environ, "get", "rgg", "-A", "-o", "json")))["items"]
    return [
        {"repo": item["spec"]["repo"]}
        | {c["type"]: f"{c['status']} {c['reason']}" for c in item["status"].get("conditions", [])}
        for item in items
    ]


def holders(environ: dict[str, str]) -> set[str]:
    status = json.loads(rig.succeeded(kubectl(environ, "get", "gm", MACHINE, "-o", "json")))["status"]
    return {
        holder["repo"]
        for allocation in status.get("allocations", [])
        if allocation["device"] == DEVICE
        for holder in allocation["repos"]
    }


@pytest.mark.req("R26", "R27", "R28")
def test_with_admission_one_is_stored(root: Path) -> None:
    """One 201; every other client is refused at once and told who holds the device."""
    with system(root, admission=True) as environ:
        answers = race(environ)
        created = [answer for answer in answers if answer[0] == 201]
        refused = [message for status, message in answers if status == 403]
        (held,) = stored(environ)
        rig.wait_for(lambda: holders(environ))

        assert (len(created), len(refused)) == (1, CLIENTS - 1)
        assert all(f"repo {held['repo']}" in message for message in refused)
        assert holders(environ) == {held["repo"]}


@pytest.mark.req("R28", "D7", "R48")
def test_without_admission_the_ledger_holds(root: Path) -> None:
    """All fifty are stored; one holds the name, at every moment at most one, and the others wait, Conflicted."""
    with system(root, admission=False) as environ:
        answers = race(environ)
        seen: set[str] = set()

        def settled() -> bool:
            seen.update(holders(environ))
            return sum("Conflicted" in grant for grant in stored(environ)) == CLIENTS - 1

        rig.wait_for(settled, seconds=60)

        assert [status for status, _ in answers] == [201] * CLIENTS
        assert len(seen) == 1
        assert holders(environ) == seen
        waiting = [grant for grant in stored(environ) if grant["repo"] not in seen]
        assert {grant["Conflicted"] for grant in waiting} == {"True ExclusiveHeld"}
        assert {grant["Ready"] for grant in waiting} == {"False ExclusiveHeld"}
