"""What one process knows of its repos: fitness, requests underway, changes that touch nobody else."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gatebench import DEVICE, NOW, Bench, FakeDaemon, reply
from gpugrant_crds.reasons import Reason
from gpugrant_gate.life.grants import Enforced, Grant
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net import listener
from gpugrant_gate.settings import Limits

HW = b"POST /hw HTTP/1.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.req("R52")
async def test_a_fit_daemon_is_reported_once(bench: Bench) -> None:
    await bench.until(lambda: bool(bench.statuses))
    await bench.ask(HW)
    assert [(status.name, status.id, status.fit, status.reason) for status in bench.statuses] == [
        ("a", "id-a", True, "")
    ]


@pytest.mark.req("R52", "R43")
async def test_an_unfit_daemon_gets_no_hardware_and_the_message_mends_it(bench: Bench) -> None:
    bench.daemon.info["CDISpecDirs"] = ["/opt/cdi"]
    bench.grant(DEVICE)
    said = await bench.ask(HW)
    assert b"403 Forbidden" in said
    assert b'cdi-spec-dirs\\": [\\"/etc/cdi\\"]' in said
    assert bench.statuses[-1].reason == Reason.DAEMON_UNFIT
    assert bench.daemon.heads == []


class TestMended:
    """An unfit daemon is asked again soon; here at once."""

    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(unfit_for=0.0)

    @pytest.mark.req("R52")
    async def test_a_daemon_that_was_mended_is_asked_again(self, bench: Bench) -> None:
        bench.daemon.info["DefaultRuntime"] = "nvidia"
        bench.daemon.answers("hw", reply(status="204 No Content"))
        bench.grant(DEVICE)
        assert b"403" in await bench.ask(HW)
        bench.daemon.info["DefaultRuntime"] = "runc"
        assert b"204" in await bench.ask(HW)


async def test_hardware_waits_for_a_daemon_that_is_up_again(bench: Bench) -> None:
    bench.grant(DEVICE)
    await bench.daemon.stop()
    await bench.until(lambda: bool(bench.statuses))
    said = await bench.ask(HW)
    assert b"403" in said or b"503" in said
    bench.daemon.answers("hw", reply(status="204 No Content"))
    await bench.daemon.start()
    assert b"204" in await bench.ask(HW)


async def held(bench: Bench) -> tuple[asyncio.Event, asyncio.Task[bytes]]:
    """A hardware request that the daemon holds until the event is set."""
    go_on = asyncio.Event()

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(reply(status="204 No Content"))

    bench.daemon.handlers["hw"] = handler
    bench.grant(DEVICE)
    asked = asyncio.ensure_future(bench.ask(HW))
    await bench.until(lambda: bool(bench.core.underway))
    return go_on, asked


@pytest.mark.req("R6", "R51")
async def test_a_revocation_waits_for_the_request_that_it_would_refuse(bench: Bench) -> None:
    go_on, asked = await held(bench)
    bench.grant(epoch=2)
    settled = asyncio.ensure_future(bench.core.settled())
    await asyncio.wait([settled], timeout=0.05)
    assert not settled.done()
    assert [request.devices for request in bench.core.outdated()] == [(DEVICE,)]
    go_on.set()
    async with asyncio.timeout(10):
        await settled
        assert b"204" in await asked


async def test_a_new_grant_waits_for_nobody(bench: Bench) -> None:
    go_on, asked = await held(bench)
    bench.grant(DEVICE, "vendor.com/gpu=1", epoch=2)
    async with asyncio.timeout(10):
        await bench.core.settled()
        go_on.set()
        await asked


async def test_a_client_that_goes_away_does_not_end_a_hardware_request(bench: Bench) -> None:
    """The daemon goes on with a start that it has begun: until it says so, a revocation must not be answered."""
    go_on, asked = await held(bench)
    _, writer = await bench.connect()
    writer.write(HW)
    await bench.until(lambda: len(bench.core.underway) == 2)
    writer.close()
    await writer.wait_closed()
    bench.grant(epoch=2)
    settled = asyncio.ensure_future(bench.core.settled())
    await asyncio.wait([settled], timeout=0.05)
    assert len(bench.core.outdated()) == 2
    go_on.set()
    async with asyncio.timeout(10):
        await settled
        await asked


async def test_a_grant_ends_by_the_clock_alone(bench: Bench) -> None:
    bench.daemon.answers("hw", reply(status="204 No Content"))
    bench.core.apply(Enforced("m", 1, (Grant("a", "id-a", DEVICE, NOW + timedelta(hours=1)),)))
    assert b"204" in await bench.ask(HW)
    bench.core.world = replace(bench.core.world, now=lambda: NOW + timedelta(hours=1))
    assert b"403" in await bench.ask(HW)


async def test_another_id_gets_nothing_from_the_next_request_on(bench: Bench) -> None:
    bench.daemon.answers("hw", reply(status="204 No Content"))
    bench.grant(DEVICE)
    assert b"204" in await bench.ask(HW)
    await bench.core.serve(replace(bench.repo, id="id-x"), None)
    assert b"403" in await bench.ask(HW)


async def test_changes_of_one_repo_leave_the_others_connections_alone(bench: Bench, folder: Path) -> None:
    bench.daemon.answers("plain", reply(b"x"))
    other = FakeDaemon(folder / "o.sock")
    await other.start()
    opened = listener.listen(folder / "b.sock", uid=-1, gid=-1, mode=0o600)
    reader, writer = await bench.connect()
    get = b"GET /plain HTTP/1.1\r\n\r\n"
    async with asyncio.timeout(10):
        for change in ("add", "change", "drop"):
            writer.write(get)
            await reader.readuntil(b"\r\n\r\nx")
            match change:
                case "add":
                    await bench.core.serve(Repo("b", "id-b", other.path, folder / "b.sock"), opened.sock)
                case "change":
                    await bench.core.serve(Repo("b", "id-b", other.path, folder / "b.sock", problem="x"), None)
                case _:
                    await bench.core.drop("b")
        writer.write(get)
        await reader.readuntil(b"\r\n\r\nx")
    writer.close()
    opened.close()
    await other.stop()


async def test_a_dropped_repos_connections_end(bench: Bench) -> None:
    reader, writer = await bench.connect()
    writer.write(b"GET /plain HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(10):
        await reader.readuntil(b"\r\n\r\n")
        await bench.core.drop("a")
        with suppress(ConnectionError):
            await reader.read()
        assert reader.at_eof() or reader.exception() is not None
    writer.close()


async def test_lists_the_containers_that_hold_devices(bench: Bench) -> None:
    inspected = b'{"Id": "c1", "Name": "/job", "HostConfig": {"DeviceRequests": [{"DeviceIDs": ["v.com/gpu=0", "x"]}]}}'

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listing = b"/containers/json?" in head
        writer.write(reply(b'[{"Id": "c1"}]' if listing else inspected))

    bench.daemon.handlers["v1.51"] = handler
    found, problems = await bench.core.in_use()
    assert [entry.to_json() for entry in found] == [
        {"repo": "a", "device": "v.com/gpu=0", "container": "c1", "name": "job"}
    ]
    assert problems == []


async def test_a_daemon_that_cannot_list_is_said(bench: Bench) -> None:
    await bench.daemon.stop()
    found, problems = await bench.core.in_use()
    assert found == []
    assert problems == ["the containers of repo a can't be listed: no such file or directory"]
