"""Parent and worker: messages whole and in order, descriptors with the message that they came with."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpugrant_gate.life.grants import Enforced, Grant
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net import messages
from gpugrant_gate.net.channel import Channel, ChannelClosed


async def test_sends_messages_and_sockets() -> None:
    ours, theirs = socket.socketpair()
    left, right = Channel(ours), Channel(theirs)
    one, other = socket.socketpair()
    large = "x" * 3_000_000
    left.send({"kind": "first"})
    left.send({"kind": "socket"}, [one.fileno()])
    one.close()
    left.send({"kind": "large", "text": large})
    async with asyncio.timeout(10):
        assert await right.receive() == ({"kind": "first"}, [])
        message, fds = await right.receive()
        assert message == {"kind": "socket"}
        os.write(fds[0], b"hello")
        assert other.recv(5) == b"hello"
        assert (await right.receive())[0]["text"] == large
        right.send({"kind": "back"})
        assert await left.receive() == ({"kind": "back"}, [])
    os.close(fds[0])
    other.close()
    left.close()
    with pytest.raises(ChannelClosed):
        async with asyncio.timeout(10):
            await right.receive()
    with pytest.raises(ChannelClosed):
        await right.receive()


def test_what_is_enforced_comes_over_as_it_is() -> None:
    grants = (Grant("a", "id", "v.com/gpu=0"), Grant("a", "id", "v.com/gpu=1", datetime(2026, 3, 1, tzinfo=UTC)))
    enforced = Enforced("m", 7, grants, ("v.com/gpu=0",))
    assert messages.read_enforced(messages.write_enforced(enforced)) == enforced


def test_a_repo_comes_over_as_it_is() -> None:
    repo = Repo("a", "id", Path("/u"), Path("/l"), 1, 2, 0o600, sealed=True, binds=(Path("/b"),), problem="p")
    repo = replace(repo, above=(Path("/"),), binds_pinned=False)
    assert messages.read_repo(messages.write_repo(repo)) == repo
