"""The client of a gate's control socket, against real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import gen
import world as worlds
from gpugrant_crds import snapshot
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import Snapshot
from gpugrant_operator import gateclient
from gpugrant_operator.gateclient import GateClient, GateError
from world import Clock, Gate


def made(epoch: int) -> Snapshot:
    return snapshot.build(
        api_id="api-1", machine=gen.MACHINE, machine_uid="machine-1", epoch=epoch, issued_at=gen.NOW, grants=()
    )


@pytest.fixture
def gate() -> Gate:
    return Gate(None, Clock())


@asynccontextmanager
async def asking(gate: Gate, folder: Path) -> AsyncIterator[GateClient]:
    async with worlds.served(gate, folder / "gate.sock"), GateClient(folder / "gate.sock") as client:
        yield client


@pytest.mark.req("D8")
async def test_the_answers_are_typed(gate: Gate, tmp_path: Path) -> None:
    """Snapshot, status, devices and the inventory's bytes."""
    gate.bytes_of_inventory = b'{"as": "recorded"}\n'
    async with asking(gate, tmp_path) as client:
        taken = await client.put_snapshot(made(3))
        report = await client.status()
        in_use = await client.status(in_use=True)

        assert (taken.epoch, report.epoch, report.digest) == (3, 3, made(3).digest)
        assert [repo.name for repo in report.repos] == list(gen.REPOS)
        assert (report.in_use, in_use.in_use) == (None, ())
        assert (await client.devices()).devices == gen.DEVICES
        assert await client.inventory() == b'{"as": "recorded"}\n'


async def test_a_refusal_has_the_gates_reason_and_sentence(gate: Gate, tmp_path: Path) -> None:
    """Nothing is sent again."""
    async with asking(gate, tmp_path) as client:
        await client.put_snapshot(made(3))
        with pytest.raises(GateError) as refused:
            await client.put_snapshot(made(2))
        with pytest.raises(GateError) as missing:
            await client.inventory()

    assert (refused.value.reason, refused.value.unreachable) == ("StaleEpoch", False)
    assert "does not take it" in refused.value.message
    assert missing.value.message == "there is no inventory"
    assert gate.pushes == [3]


async def test_nobody_there(tmp_path: Path) -> None:
    """One error, with a sentence."""
    async with GateClient(tmp_path / "gate.sock") as client:
        with pytest.raises(GateError) as error:
            await client.status()

    assert error.value.unreachable
    assert error.value.message.startswith("the gate does not answer")


RAW = {
    "not JSON": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "can't be read"),
    "another shape": (b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"epoch": "x"}', "epoch"),
    "an error without a reason": (b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno", "answered 500"),
    "a torn answer": (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "does not answer"),
    "nothing at all": (b"", "does not answer"),
}


@pytest.mark.parametrize(("raw", "says"), RAW.values(), ids=RAW.keys())
async def test_what_is_no_answer_is_unreachable(tmp_path: Path, raw: bytes, says: str) -> None:
    """Never taken for a report."""
    async with answering(tmp_path / "gate.sock", raw), GateClient(tmp_path / "gate.sock") as client:
        with pytest.raises(GateError, match=says) as error:
            await client.status()

    assert error.value.unreachable


async def test_an_answer_without_an_end_is_cut(tmp_path: Path) -> None:
    """A bound on what is read."""
    flood = b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (gateclient.ANSWER_MAX + 1)
    async with answering(tmp_path / "gate.sock", flood), GateClient(tmp_path / "gate.sock") as client:
        with pytest.raises(GateError, match="over 16777216 bytes"):
            await client.inventory()


async def test_a_gate_that_hangs_is_given_up(tmp_path: Path) -> None:
    """Within the time that the caller has."""
    async with answering(tmp_path / "gate.sock", None), GateClient(tmp_path / "gate.sock") as client:
        with pytest.raises(GateError, match=r"no answer in 0\.05 s"):
            await client.devices(timeout=0.05)


async def test_code_without_a_loop(gate: Gate, tmp_path: Path) -> None:
    """`ask` runs one question to its end."""
    socket = tmp_path / "gate.sock"
    async with worlds.served(gate, socket):
        found = await asyncio.to_thread(gateclient.ask, socket, lambda client: client.devices())
    assert found.devices == gen.DEVICES

    with pytest.raises(GateError) as error:
        await asyncio.to_thread(gateclient.ask, socket, lambda client: client.status())
    assert error.value.reason == Reason.GATE_UNREACHABLE


@asynccontextmanager
async def answering(socket: Path, raw: bytes | None) -> AsyncIterator[None]:
    """Says `raw` to everybody and hangs up; None: says nothing."""
    silence = asyncio.Event()

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if raw is None:
            await silence.wait()
        else:
            writer.write(raw)
        writer.close()

    server = await asyncio.start_unix_server(say, str(socket))
    yield
    silence.set()
    server.close()
    await server.wait_closed()
