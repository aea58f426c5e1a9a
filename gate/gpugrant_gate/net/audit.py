"""One JSON line a decision on stderr. Never a body, an environment, a command or a secret."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog


def configure(stream: TextIO | None = None) -> None:
    """Makes every log line of this process one JSON object; called once by main."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(stream or sys.stderr),
        cache_logger_on_first_use=True,
    )


log: Any = structlog.get_logger("gate")
"""Events are constants, what varies are fields."""


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
    milliseconds: float = 0.0,
) -> None:
    """`verdict` is admitted, refused, malformed or failed; `names` are CDI names asked for."""
    log.info(
        "request",
        repo=repo,
        uid=uid,
        pid=pid,
        method=method,
        route=route,
        verdict=verdict,
        status=status,
        rules=rules,
        names=names,
        ms=round(milliseconds, 2),
    )
