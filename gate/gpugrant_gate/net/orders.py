"""What the gate itself tells a daemon about its containers, and how it hears of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpugrant_gate.net import upstream
from gpugrant_gate.net.upstream import Answer, Unreachable
from gpugrant_gate.settings import Limits
from gpugrant_gate.wire import framing, heads, messages
from gpugrant_gate.wire.faults import Malformed, Truncated

_EVENTS = quote(
    json.dumps({"type": ["container"], "event": ["start", "die", "destroy", "pause", "unpause", "update", "rename"]})
)
_LINE_MAX = 1024 * 1024
"""Bytes of one event; labels make it long."""


@dataclass(frozen=True, slots=True)
class Orders:
    """To one daemon. Every method raises Unreachable."""

    path: Path
    prefix: str
    """`/v1.45`, or empty."""
    limits: Limits

    async def ids(self) -> list[str]:
        """Every container, running or not."""
        answer = await self._get("/containers/json?all=1")
        if answer.status != 200 or not isinstance(answer.value, list):
            raise Unreachable(f"it answered a question of the gate with status {answer.status}")
        return [str(entry["Id"]) for entry in answer.value if isinstance(entry, dict) and "Id" in entry]

    async def inspect(self, container: str) -> Any:
        """The decoded answer; None: there is no such container any more."""
        answer = await self._get(f"/containers/{quote(container, safe='')}/json")
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise Unreachable(f"it answered a question of the gate with status {answer.status}")
        return answer.value

    async def no_restarts(self, container: str) -> None:
        """Takes the restart policy away."""
        await self._post(container, "update", {"RestartPolicy": {"Name": "no", "MaximumRetryCount": 0}})

    async def stop(self, container: str, seconds: int) -> None:
        """Ends it, with a signal first and after so many seconds by force; returns when it is over or can't be."""
        await self._post(container, f"stop?t={seconds}", within=seconds + self.limits.fact_timeout)

    async def kill(self, container: str) -> None:
        await self._post(container, "kill")

    async def _get(self, target: str) -> Answer:
        return await upstream.get(self.path, self.prefix + target, self.limits)

    async def _post(
        self, container: str, what: str, body: Mapping[str, Any] | None = None, within: float | None = None
    ) -> int:
        data = b"" if body is None else json.dumps(body).encode()
        given = () if body is None else (("content-type", "application/json"),)
        target = f"{self.prefix}/containers/{quote(container, safe='')}/{what}"
        head = messages.request("POST", target, given, framing.of_length(len(data)))
        return await told(self.path, head + data, self.limits, within or self.limits.fact_timeout)

    async def events(self) -> AsyncGenerator[str, None]:
        """The id of each container of which something is heard, first an empty text when the daemon listens to us;
        ends with the connection."""
        link = await upstream.connect(self.path, self.limits)
        try:
            link.write(messages.request("GET", f"{self.prefix}/events?filters={_EVENTS}", (), framing.NONE))
            async with asyncio.timeout(self.limits.fact_timeout):
                head = await upstream.read_head(link)
            if head.status != 200:
                raise Unreachable(f"it answered a question of the gate with status {head.status}")
            yield ""
            decoder = framing.decoder(heads.response_framing(head, "GET"))
            waiting = b""
            while not decoder.done and (link.buffered or await link.more()):
                *lines, waiting = (waiting + decoder.feed(link.take())).split(b"\n")
                for line in lines:
                    yield _container_of(line)
                if len(waiting) > _LINE_MAX:
                    raise Unreachable("it tells of events without an end")
        except (Malformed, Truncated) as error:
            raise Unreachable(str(error)) from error
        except TimeoutError as error:
            raise Unreachable(f"it did not answer within {self.limits.fact_timeout:g} s") from error
        finally:
            link.abort()


async def told(path: Path, request: bytes, limits: Limits, within: float) -> int:
    """Sends a whole request; the status of the daemon's answer. Raises Unreachable."""
    link = None
    try:
        async with asyncio.timeout(within):
            link = await upstream.connect(path, limits)
            link.write(request)
            head = await upstream.read_head(link)
            await upstream.read_body(link, heads.response_framing(head, "POST"), limits.fact_max)
            return head.status
    except TimeoutError as error:
        raise Unreachable(f"it did not answer within {within:g} s") from error
    except Malformed as error:
        raise Unreachable(str(error)) from error
    finally:
        if link is not None:
            link.abort()


def _container_of(line: bytes) -> str:
    """Empty where the event can't be read: then all are looked at."""
    try:
        return str(json.loads(line)["Actor"]["ID"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
