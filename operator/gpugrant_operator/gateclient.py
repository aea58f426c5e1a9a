"""A client of a gate's control socket (design 6): typed answers, or one GateError with a reason and a sentence.

It never overrides what a gate refuses, and never retries. Commands without a loop of their own use `ask`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
from pydantic import ValidationError

from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import DevicesAnswer, ErrorAnswer, GateStatus, Lenient, Snapshot, SnapshotAnswer

PUT_TIMEOUT = 20.0
"""Seconds: the gate waits up to 5 for requests judged under an older epoch, and fsyncs (design 5)."""

GET_TIMEOUT = 5.0
"""Seconds."""

ANSWER_MAX = 16 * 1024 * 1024
"""Bytes; the status of 2,000 grants has some hundred kilobytes."""

T = TypeVar("T")
A = TypeVar("A", bound=Lenient)


class GateError(Exception):
    """The gate refused or did not answer. `reason` is one of `Reason` where this version knows it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @property
    def unreachable(self) -> bool:
        return self.reason == Reason.GATE_UNREACHABLE


class GateClient:
    """Use as `async with`; requests may run at once."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path=str(self._socket), limit=4), base_url="http://gate/"
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def put_snapshot(self, snapshot: Snapshot) -> SnapshotAnswer:
        """The gate enforces it when this returns; a GateError says why not (StaleEpoch, EpochReused, OtherMachine)."""
        body = json.dumps(snapshot.to_json()).encode()
        raw = await self._request("PUT", "/v1/snapshot", timeout=PUT_TIMEOUT, body=body)
        return _read(SnapshotAnswer, raw)

    async def status(self, *, in_use: bool = False) -> GateStatus:
        """What the gate enforces; with `in_use` also the running containers that hold devices."""
        params = {"inUse": "1"} if in_use else {}
        return _read(GateStatus, await self._request("GET", "/v1/status", params=params))

    async def devices(self, *, timeout: float = 1.0) -> DevicesAnswer:  # noqa: ASYNC109  # admission's own limit
        """The usable names of the CDI specs as they are now; `timeout` is seconds (design 2.1)."""
        return _read(DevicesAnswer, await self._request("GET", "/v1/devices", timeout=timeout))

    async def inventory(self) -> bytes:
        """The bytes of inventory.json as they are recorded (R20)."""
        return await self._request("GET", "/v1/inventory")

    async def decisions(self, *, repo: str = "", refused: bool = False) -> AsyncIterator[bytes]:
        """A JSON line a decision, from now on until the gate ends, of one repo, or of all, or only what was not
        admitted; first an empty line, once it is followed. Raises GateError when it can't be."""
        if self._session is None:
            raise RuntimeError("the client is used outside of its context")
        params = {**({"repo": repo} if repo else {}), **({"refused": "1"} if refused else {})}
        limit = aiohttp.ClientTimeout(total=None, sock_connect=GET_TIMEOUT)
        followed = False
        try:
            async with self._session.get("/v1/decisions", params=params, timeout=limit) as response:
                if response.status >= 300:
                    raise _refusal(response.status, await _bounded(response.content))
                followed = True
                yield b""
                async for line in response.content:
                    yield line.rstrip(b"\n")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if followed:
                return  # it was killed
            raise GateError(Reason.GATE_UNREACHABLE, f"the gate does not answer: {_why(error, GET_TIMEOUT)}") from error

    async def _request(
        self,
        method: str,
        path: str,
        *,
        timeout: float = GET_TIMEOUT,  # noqa: ASYNC109  # aiohttp's own, so that the connection is closed with it
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> bytes:
        if self._session is None:
            raise RuntimeError("the client is used outside of its context")
        headers = None if body is None else {"Content-Type": "application/json"}
        try:
            async with self._session.request(
                method,
                path,
                params=params,
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout),
            ) as response:
                raw = await _bounded(response.content)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise GateError(Reason.GATE_UNREACHABLE, f"the gate does not answer: {_why(error, timeout)}") from error
        if response.status >= 300:
            raise _refusal(response.status, raw)
        return raw


def ask(socket: Path, question: Callable[[GateClient], Awaitable[T]]) -> T:
    """The answer to one question, for code without a loop: `ask(socket, lambda gate: gate.status())`."""

    async def asked() -> T:
        async with GateClient(socket) as gate:
            return await question(gate)

    return asyncio.run(asked())


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    raw = bytearray()
    async for chunk in content.iter_any():
        raw += chunk
        if len(raw) > ANSWER_MAX:
            raise aiohttp.ClientPayloadError(f"the answer has over {ANSWER_MAX} bytes")
    return bytes(raw)


def _why(error: Exception, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in {timeout:g} s"
    return str(error) or type(error).__name__


def _read(model: type[A], raw: bytes) -> A:
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "answer"
        raise GateError(Reason.GATE_UNREACHABLE, f"the gate's answer can't be read: {place}: {first['msg']}") from error


def _refusal(status: int, raw: bytes) -> GateError:
    try:
        said = ErrorAnswer.model_validate_json(raw)
    except ValidationError:
        return GateError(Reason.GATE_UNREACHABLE, f"the gate answered {status} without saying why")
    return GateError(said.reason, said.message)
