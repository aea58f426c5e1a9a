"""One JSON line a decision, and the gate's own log. Never a body, an environment, a command or a secret.

A worker makes ten thousand lines a second: what repeats in them is built once, lines of some milliseconds are written
together, and nothing here waits for whoever reads them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from gpugrant_gate.net import outlet
from gpugrant_gate.net.counters import Cell, Counters, Durations
from gpugrant_gate.net.outlet import AppendedFile, Outlet

_TOGETHER = 0.004
"""Seconds in which lines are gathered for one write."""
_RETRY = 0.25
"""Seconds until lines that could not be written are tried again when no new ones come."""
_TEXT_MAX = 160
"""Characters of a text."""
_LIST_MAX = 1200
"""Characters of a list; what comes after them is left out: a line stays below the 4 KiB that a pipe takes whole."""
_KINDS_MAX = 4096
"""Kinds of line kept built; clients can make up methods, so they are thrown away when there are too many."""

Follower = Callable[[bytes], None]


@dataclass(slots=True)
class _Kind:
    """All lines that differ in time, process, names, bytes and duration only."""

    text: str
    cells: tuple[Cell, ...]
    durations: Durations


class Trail:
    """The decisions of this process on their way to where they are kept, and their number."""

    def __init__(self, place: Outlet) -> None:
        self.outlet = place
        self.counters = Counters()
        self.follower: Follower | None = None
        """Gets a copy of the lines while somebody watches."""
        self._kinds: dict[tuple[Any, ...], _Kind] = {}
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._second = -1
        self._stamp = ""
        self._told_lost = 0

    def add(self, kind: tuple[Any, ...], pid: int, names: tuple[str, ...], size: int, milliseconds: float) -> None:
        """`kind` is repo, uid, method, route, verdict, status and rules."""
        its = self._kinds.get(kind)
        if its is None:
            its = self._new_kind(kind)
        for cell in its.cells:
            cell[0] += 1
        its.durations.add(milliseconds)
        more = f',"names":{_list(names)}' if names else ""
        body = f',"bytes":{size}' if size else ""
        line = f'{{"time":"{self._now()}",{its.text},"pid":{pid}{more}{body},"ms":{milliseconds:.2f}}}\n'
        self._lines.append(line)
        if self._timer is None:
            self._later(_TOGETHER)

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """A line that is no request's; long texts and lists are cut as those of requests are."""
        cut = {key: _cut(value) for key, value in fields.items()}
        self._lines.append(json.dumps({"time": self._now(), "event": event, **cut}) + "\n")
        if self._timer is None:
            self._later(_TOGETHER)

    def flush(self) -> None:
        """Writes what was gathered, and tries again what could not be written before."""
        self._timer = None
        if self._lines:
            text = "".join(self._lines).encode()
            self._lines.clear()
            self.outlet.put(text)
            if self.follower is not None:
                self.follower(text)
        else:
            self.outlet.flush()
        self.counters.lost = self.outlet.lost
        if self.outlet.waiting:
            self._later(_RETRY)
        elif self.outlet.lost != self._told_lost:
            lost, self._told_lost = self.outlet.lost - self._told_lost, self.outlet.lost
            self.outlet.put(f'{{"time":"{self._now()}","event":"lines lost","lines":{lost}}}\n'.encode())

    def close(self) -> None:
        """The last lines; no one comes after it."""
        if self._timer is not None:
            self._timer.cancel()
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.outlet.close()

    def _later(self, seconds: float) -> None:
        try:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.flush)
        except RuntimeError:  # no loop: nothing to gather for
            if self._lines:
                self.flush()

    def _new_kind(self, kind: tuple[Any, ...]) -> _Kind:
        if len(self._kinds) >= _KINDS_MAX:
            self._kinds.clear()
        repo, uid, method, route, verdict, status, rules = kind
        text = (
            f'"event":"request","repo":{_text(repo)},"uid":{uid},"method":{_text(method)},"route":{_text(route)}'
            f',"verdict":"{verdict}","status":{status}'
        )
        if rules:
            text += f',"rules":{_list(rules)}'
        counters = self.counters
        cells = (
            counters.decision(repo, route, verdict),
            *(counters.refusal(repo, rule) for rule in dict.fromkeys(rules)),
        )
        its = self._kinds[kind] = _Kind(text, cells, counters.duration(verdict))
        return its

    def _now(self) -> str:
        """RFC 3339, UTC, to the microsecond; the part that stays for a second is made once in it."""
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._stamp}.{int((now - second) * 1_000_000):06d}Z"


_stderr = outlet.standard_error(time.monotonic)
_trail = Trail(_stderr)


def configure(audit: Path | None = None) -> None:
    """Makes every log line of this process one JSON object on stderr, and every decision one in `audit` (None: on
    stderr too); called once by main."""
    global _stderr, _trail
    _stderr = outlet.standard_error(time.monotonic)
    _trail = Trail(_stderr if audit is None else Outlet(AppendedFile(audit), time.monotonic))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: structlog.WriteLogger(_stderr),  # type: ignore[arg-type]  # it only writes
        cache_logger_on_first_use=False,
    )


log: Any = structlog.get_logger("gate")
"""Events are constants, what varies are fields."""


def trail() -> Trail:
    """The one of this process."""
    return _trail


def close() -> None:
    """At the end of the process: what was gathered is written."""
    _trail.close()


def decided(
    *,
    repo: str,
    uid: int,
    pid: int,
    method: str,
    route: str,
    verdict: str,
    status: int,
    rules: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
    size: int = 0,
    milliseconds: float = 0.0,
) -> None:
    """`verdict` is admitted, refused, malformed or failed; `names` are CDI names asked for; `size` is the bytes of the
    request's body as far as it was read to judge it; the time is that until the head of the answer."""
    _trail.add((repo, uid, method, route, verdict, status, rules), pid, names, size, milliseconds)


def _cut(value: object) -> object:
    if isinstance(value, str):
        return value[:_LIST_MAX]
    return json.loads(_list(tuple(map(str, value)))) if isinstance(value, list | tuple) else value


def _text(value: str) -> str:
    return json.dumps(value[:_TEXT_MAX])


def _list(values: tuple[str, ...]) -> str:
    texts = [_text(value) for value in values[:_LIST_MAX]]
    while sum(map(len, texts)) > _LIST_MAX:
        texts.pop()
    return f"[{','.join(texts)}]"
