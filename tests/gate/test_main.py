"""A whole gate process: what it enforces after whatever happens to it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

import rig
from gatebench import reply
from gateprocess import DEVICE, RUN, GateProcess, alive, made
from gpugrant_crds import snapshot
from gpugrant_crds.layout import Layout
from gpugrant_crds.snapshot import GrantRef, SnapshotGrant


@pytest.fixture
def root() -> Iterator[Path]:
    path = rig.short_folder()
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def gate(root: Path) -> AsyncIterator[GateProcess]:
    process = GateProcess(root)
    process.prepare()
    await process.add_repo("a")
    await process.start()
    await process.until_served("a")
    yield process
    await process.close()


@pytest.mark.req("R1", "R4")
async def test_without_a_snapshot_all_hardware_is_refused_and_the_rest_goes_through(gate: GateProcess) -> None:
    status, message = await gate.create()
    assert status == 403
    assert "has no grant snapshot yet" in message
    _, health = await gate.control("GET", "/healthz")
    assert health["ok"]
    assert "all hardware is refused" in health["message"]
    assert b"200 OK" in await gate.ask("a", b"GET /version HTTP/1.0\r\n\r\n")


@pytest.mark.req("R5", "R6", "R51", "D8")
async def test_a_snapshot_counts_from_its_answer_on(gate: GateProcess) -> None:
    status, answer = await gate.put(made(1, DEVICE))
    assert (status, answer["epoch"], answer["pending"]) == (200, 1, [])
    assert answer["repos"][0]["name"] == "a"
    assert (await gate.create())[0] == 201
    assert (await gate.create(device="nvidia.com/gpu=0"))[0] == 403
    assert (await gate.put(made(2)))[0] == 200
    status, message = await gate.create()
    assert status == 403
    assert "rdc repo gpu grant a@wsl-gpu --device nvidia.com/gpu=all" in message


@pytest.mark.req("R21")
async def test_says_what_it_enforces(gate: GateProcess) -> None:
    sent = made(3, DEVICE)
    await gate.put(sent)
    _, status = await gate.control("GET", "/v1/status")
    assert status["grants"] == [{"repo": "a", "device": DEVICE}]
    assert (status["machine"], status["epoch"], status["digest"]) == ("node-1", 3, sent.digest)
    assert "inUse" not in status
    gate.daemons["a"].answers("v1.51", reply(b"[]"))
    _, status = await gate.control("GET", "/v1/status?inUse=1")
    assert status["inUse"] == []


@pytest.mark.req("R9", "R21", "R52")
async def test_only_what_it_would_admit_is_in_force(gate: GateProcess) -> None:
    (await gate.add_repo("unfit")).info["CDISpecDirs"] = []
    await gate.add_repo("other-id", id="new")
    await gate.until_served("other-id")
    gate.write_repo("silent")
    await gate.add_repo("late")
    await gate.until_served("late")
    ends = {"late": datetime.now(UTC) + timedelta(seconds=1.5)}
    names = ("a", "unfit", "other-id", "silent", "late", "gone")
    ref = GrantRef(namespace="default", name="g", uid="u")
    grants = tuple(
        SnapshotGrant(repo=name, repo_id=f"id-{name}", device=DEVICE, expires_at=ends.get(name), grant=ref)
        for name in names
    )
    sent = snapshot.build(
        api_id="api", machine="m", machine_uid="m1", epoch=1, issued_at=datetime.now(UTC), grants=grants
    )
    assert (await gate.put(sent))[0] == 200

    async def in_force() -> list[str]:
        _, status = await gate.control("GET", "/v1/status")
        assert status["epoch"] == 1
        return [grant["repo"] for grant in status["grants"]]

    async def known() -> bool:
        _, status = await gate.control("GET", "/v1/status")
        said = {repo["name"]: repo["message"] for repo in status["repos"]}
        return "CDI is off" in said.get("unfit", "") and "silent" in said

    await gate.until(known)

    async def only_a() -> bool:
        return await in_force() == ["a"]

    await gate.until(only_a)
    assert (await gate.create())[0] == 201
    (gate.layout.repos / "a.yaml").write_text("]")

    async def nothing() -> bool:
        return await in_force() == []

    await gate.until(nothing)
    gate.write_repo("a")
    await gate.until(only_a)
    gate.write_repo("a", upstream=str(gate.root / "nobody.sock"))
    await gate.until(nothing)


@pytest.mark.req("R8", "R20")
async def test_shows_devices_and_inventory_as_they_are_now(gate: GateProcess) -> None:
    assert await gate.control("GET", "/v1/devices") == (
        200,
        {"devices": ["nvidia.com/gpu=0", "nvidia.com/gpu=all"], "problems": []},
    )
    (gate.layout.cdi / "nvidia.yaml").write_text("]")
    _, devices = await gate.control("GET", "/v1/devices")
    assert devices["devices"] == []
    assert devices["problems"][0].startswith("nvidia.yaml:1")
    status, answer = await gate.control("GET", "/v1/inventory")
    assert (status, answer["reason"]) == (404, "NotFound")
    gate.layout.inventory.write_text('{"a":  1}')
    assert await gate.control("GET", "/v1/inventory") == (200, {"a": 1})


async def test_fences_off_older_and_other_snapshots(gate: GateProcess) -> None:
    await gate.put(made(5, DEVICE))
    cases = {
        "StaleEpoch": made(4, DEVICE),
        "EpochReused": made(5),
        "OtherMachine": made(9, DEVICE, uid="m2"),
    }
    for reason, sent in cases.items():
        status, answer = await gate.put(sent)
        assert (status, answer["reason"]) == (409, reason)
    assert (await gate.put(made(5, DEVICE)))[0] == 200
    assert (await gate.create())[0] == 201


MALFORMED = {
    "no JSON": b"{",
    "an unknown field": json.dumps(made(1).to_json() | {"more": 1}).encode(),
    "another digest": json.dumps(made(1).to_json() | {"machine": "other"}).encode(),
    "nothing": b"",
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_refuses_what_is_no_snapshot(gate: GateProcess, case: str) -> None:
    status, answer = await gate.control("PUT", "/v1/snapshot", MALFORMED[case])
    assert (status, answer["reason"]) == (422, "Malformed")
    assert not gate.layout.snapshot.exists()


async def test_answers_everything_in_its_own_form(gate: GateProcess) -> None:
    for method, path, code in (("GET", "/none", 404), ("DELETE", "/v1/snapshot", 405)):
        status, answer = await gate.control(method, path)
        assert (status, sorted(answer)) == (code, ["message", "reason"])
    assert stat.S_IMODE(gate.layout.control("gate").stat().st_mode) == 0o600


@pytest.mark.req("R43")
async def test_the_sealed_folder_follows_the_snapshot_and_the_specs(gate: GateProcess) -> None:
    folder = gate.layout.sealed_repo("id-a")

    def names() -> list[str]:
        specs = [yaml.safe_load(path.read_text()) for path in folder.iterdir()]
        return [device["name"] for spec in specs for device in spec["devices"]]

    assert names() == []
    await gate.put(made(1, DEVICE))
    assert names() == ["all"]
    (gate.layout.cdi / "nvidia.yaml").write_text("]")

    async def gone() -> bool:
        return names() == []

    await gate.until(gone)


@pytest.mark.req("R6")
async def test_a_killed_gate_enforces_the_last_snapshot_when_it_is_back(gate: GateProcess) -> None:
    await gate.put(made(7, DEVICE))
    workers = gate.workers()
    await gate.stop(signal.SIGKILL)

    async def dead() -> bool:
        return not any(map(alive, workers))

    gate.process = None
    await gate.until(dead)
    await gate.start()
    await gate.until_served("a")
    assert (await gate.create())[0] == 201
    assert (await gate.put(made(6)))[1]["reason"] == "StaleEpoch"


async def test_a_killed_worker_is_back_with_everything(gate: GateProcess) -> None:
    await gate.put(made(1, DEVICE))
    before = gate.workers()
    for pid in before:
        os.kill(pid, signal.SIGKILL)

    async def others() -> bool:
        now = gate.workers()
        return len(now) == len(before) and not set(now) & set(before)

    await gate.until(others)
    await gate.until_served("a")
    assert (await gate.create())[0] == 201
    assert (await gate.put(made(2)))[0] == 200
    assert (await gate.create())[0] == 403


async def test_a_damaged_snapshot_refuses_all_hardware_and_says_so(gate: GateProcess) -> None:
    await gate.put(made(1, DEVICE))
    await gate.stop()
    text = gate.layout.snapshot.read_bytes()
    gate.layout.snapshot.write_bytes(text[:-20])
    await gate.start()
    await gate.until_served("a")
    assert (await gate.create())[0] == 403
    _, health = await gate.control("GET", "/healthz")
    assert not health["ok"]
    assert "is damaged" in health["message"]
    assert list(gate.layout.sealed_repo("id-a").iterdir()) == []
    assert (await gate.put(made(1, DEVICE)))[0] == 200
    assert (await gate.create())[0] == 201


async def test_repos_come_change_and_go_without_a_restart(gate: GateProcess) -> None:
    await gate.put(made(1, DEVICE))
    reader, writer = await asyncio.open_unix_connection(str(gate.layout.repo_socket("a")))
    ping = b"GET /version HTTP/1.1\r\n\r\n"
    async with asyncio.timeout(30):
        writer.write(ping)
        await reader.readuntil(b"\r\n\r\n")
        await gate.add_repo("b", mode="0600")
        await gate.until_served("b")
        assert stat.S_IMODE(gate.layout.repo_socket("b").stat().st_mode) == 0o600
        assert (await gate.create("b"))[0] == 403
        gate.write_repo("b", listen=str(gate.root / "else.sock"))

        async def moved() -> bool:
            return (gate.root / "else.sock").exists() and not gate.layout.repo_socket("b").exists()

        await gate.until(moved)
        (gate.layout.repos / "b.yaml").unlink()

        async def gone() -> bool:
            return not (gate.root / "else.sock").exists()

        await gate.until(gone)
        writer.write(ping)
        await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert (await gate.create())[0] == 201


async def test_a_broken_repo_file_is_named_and_costs_that_repo_its_hardware(gate: GateProcess) -> None:
    await gate.put(made(1, DEVICE))
    await gate.add_repo("b")
    await gate.until_served("b")
    (gate.layout.repos / "a.yaml").write_text("name: a\nid: id-a\nupstraem: /x\n")

    async def refused() -> bool:
        return (await gate.create())[0] == 403

    await gate.until(refused)
    _, health = await gate.control("GET", "/healthz")
    assert "a.yaml:3" in health["message"]
    assert health["ok"]
    assert b"200 OK" in await gate.ask("a", b"GET /version HTTP/1.0\r\n\r\n")
    gate.write_repo("a")

    async def admitted() -> bool:
        return (await gate.create())[0] == 201

    await gate.until(admitted)


DOUBLES: dict[str, dict[str, str]] = {
    "the name": {"listen": "l.sock"},
    "the name and the socket": {},
    "the socket": {"name": "b"},
}


@pytest.mark.req("R9")
@pytest.mark.parametrize("case", DOUBLES)
async def test_a_second_file_does_not_take_over_what_is_served(gate: GateProcess, case: str) -> None:
    await gate.put(made(1, DEVICE))
    other = await gate.add_repo("b")
    (gate.layout.repos / "b.yaml").unlink()
    inode = gate.layout.repo_socket("a").stat().st_ino
    asked = len(other.heads)
    reader, writer = await asyncio.open_unix_connection(str(gate.layout.repo_socket("a")))
    ping = b"GET /v1.45/_ping HTTP/1.1\r\nHost: d\r\n\r\n"
    async with asyncio.timeout(30):
        writer.write(ping)
        await reader.readuntil(b"\r\n\r\n")
        listen = str(gate.root / DOUBLES[case].get("listen", gate.layout.repo_socket("a")))
        values = {"name": DOUBLES[case].get("name", "a"), "id": "id-b", "upstream": str(gate.root / "b.sock")}
        text = "".join(f"{key}: {value}\n" for key, value in (values | {"listen": listen}).items())
        (gate.layout.repos / "0-dup.yaml").write_text(text)

        async def refused() -> bool:
            status, message = await gate.create()
            return status == 403 and "0-dup.yaml" in message

        await gate.until(refused)
        writer.write(ping)
        await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert gate.layout.repo_socket("a").stat().st_ino == inode
    assert not (gate.root / "l.sock").exists()
    assert len(other.heads) == asked
    _, health = await gate.control("GET", "/healthz")
    assert "a.yaml: the " in health["message"]
    assert "0-dup.yaml: the " in health["message"]
    _, status = await gate.control("GET", "/v1/status")
    assert [repo["name"] for repo in status["repos"]] == ["a"]
    (gate.layout.repos / "0-dup.yaml").unlink()

    async def admitted() -> bool:
        return (await gate.create())[0] == 201

    await gate.until(admitted)


async def test_ends_within_two_seconds_with_open_streams(gate: GateProcess) -> None:
    forever = asyncio.Event()

    async def stream(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with suppress(asyncio.CancelledError):
            await forever.wait()

    gate.daemons["a"].handlers["v1.45"] = stream
    reader, writer = await asyncio.open_unix_connection(str(gate.layout.repo_socket("a")))
    writer.write(b"GET /v1.45/events HTTP/1.1\r\nHost: d\r\n\r\n")
    async with asyncio.timeout(10):
        await reader.readuntil(b"\r\n\r\n")
    began = time.monotonic()
    assert await gate.stop() == 0
    assert time.monotonic() - began < 2.5
    with suppress(ConnectionError):
        await reader.read()
    writer.close()
    forever.set()
    assert not gate.layout.repo_socket("a").exists()
    assert not gate.layout.control("gate").exists()


async def test_broken_settings_are_one_sentence(root: Path) -> None:
    process = GateProcess(root)
    process.prepare()
    process.layout.gate_settings.write_text("workers: many\n")
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", RUN, str(root), stderr=asyncio.subprocess.PIPE
    )
    _, said = await started.communicate()
    assert started.returncode == 1
    assert "gate.yaml:1" in json.loads(said)["message"]


TRIAL = """
import sys
from pathlib import Path
from gpugrant_gate.main import run_trial
root = Path(sys.argv[1])
sys.exit(run_trial(listen=root / "l.sock", upstream=root / "a.sock", name="a", grants=sys.argv[2:], root=root))
"""


async def test_a_trial_serves_one_repo_with_fixed_grants(root: Path) -> None:
    process = GateProcess(root)
    process.layout.cdi.mkdir(parents=True)
    process.layout.repos.mkdir(parents=True)
    daemon = await process.add_repo("a", listen=str(root / "l.sock"))
    (process.layout.repos / "a.yaml").unlink()
    process.process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", TRIAL, str(root), DEVICE, stderr=asyncio.subprocess.DEVNULL
    )

    async def there() -> bool:
        return (root / "l.sock").exists()

    await process.until(there)
    process.layout.repo_socket("a").parent.mkdir(parents=True)
    process.layout.repo_socket("a").symlink_to(root / "l.sock")
    assert (await process.create())[0] == 201
    assert (await process.create(device="nvidia.com/gpu=0"))[0] == 403
    assert b'"DeviceIDs"' not in daemon.heads[0]
    assert await process.stop() == 0
    assert not (root / "l.sock").exists()
    await process.close()


WORKSTATION = rig.CHECKOUT / "examples/machines/workstation"
TRIAL_OF = """
import sys
from pathlib import Path
from gpugrant_gate.main import run_trial
root, listen, upstream = map(Path, sys.argv[1:4])
sys.exit(run_trial(listen=listen, upstream=upstream, name="trial", grants=sys.argv[4:], root=root))
"""


@pytest.fixture
def sealed_daemon() -> Iterator[rig.Daemon]:
    """A sealed daemon below a root of its own that was set up with the recorded machine."""
    if os.geteuid() != 0:
        pytest.skip("a Docker daemon needs root")
    made_here = rig.Daemons()
    try:
        words = ["setup", "--root", str(made_here.root), "--hardware", str(WORKSTATION)]
        renet = [sys.executable, "-m", "gpugrant_operator.cli.renet", *words]
        rig.succeeded(rig.run(renet, environ=os.environ))
        yield made_here.start("d")
    finally:
        made_here.close()


def devices_in(folder: Path) -> set[str]:
    specs = [yaml.safe_load(path.read_text()) for path in folder.iterdir()]
    return {f"{spec['kind']}={device['name']}" for spec in specs for device in spec["devices"]}


@pytest.mark.real
@pytest.mark.req("R43")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_trial_keeps_the_sealed_folder_of_its_daemon(sealed_daemon: rig.Daemon, number: int) -> None:
    root, layout = sealed_daemon.root, Layout(sealed_daemon.root)
    stranger = layout.sealed_repo("stranger")
    stranger.mkdir()
    (stranger / "kept.yaml").write_text("{}")
    listen = root / "l.sock"
    words = [str(root), str(listen), str(sealed_daemon.socket), DEVICE]
    with (root / "trial.log").open("wb") as log:
        trial = subprocess.Popen([sys.executable, "-P", "-c", TRIAL_OF, *words], stderr=log)
    try:
        rig.wait_for(listen.exists, seconds=60)
        run = ("run", "--rm", "--network", "none", "--device", DEVICE, "ubuntu:24.04", "ls", "/dev")
        assert "nvidia0" in rig.succeeded(sealed_daemon.docker(*run, socket=listen)).split()
        assert devices_in(sealed_daemon.sealed) == {DEVICE}
        specs = [path for path in layout.cdi.iterdir() if "nvidia.com/gpu" in path.read_text()]
        texts = [path.read_text() for path in specs]
        for path in specs:
            path.unlink()
        rig.wait_for(lambda: not devices_in(sealed_daemon.sealed), seconds=30)
        for path, text in zip(specs, texts, strict=True):
            path.write_text(text)
        rig.wait_for(lambda: devices_in(sealed_daemon.sealed) == {DEVICE}, seconds=30)
    finally:
        trial.send_signal(number)
        assert trial.wait(30) == 0
    assert list(sealed_daemon.sealed.iterdir()) == []
    assert [path.name for path in stranger.iterdir()] == ["kept.yaml"]
