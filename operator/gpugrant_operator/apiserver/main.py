"""The process `gpugrant apiserver`: where time, randomness, signals and the environment are real."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

import structlog

from gpugrant_crds import schema
from gpugrant_crds.layout import SocketPathTooLong
from gpugrant_operator.apiserver import server
from gpugrant_operator.apiserver.settings import Settings
from gpugrant_operator.apiserver.store.journal import DamagedStore
from gpugrant_operator.control import AlreadyRunning

log = structlog.get_logger(__name__)


def run(root: Path, *, port: int = 0, sources: tuple[Path, ...] = ()) -> int:
    """Serves until SIGTERM or SIGINT; the exit code. A server that can't start says one sentence and returns 1."""
    _log_to_stderr()
    try:
        asyncio.run(_serve(Settings(root=root, crds=schema.crds(), port=port, sources=sources)))
    except (AlreadyRunning, DamagedStore, SocketPathTooLong) as error:
        return _refused(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refused(f"{where}{error.strerror or error}")
    return 0


def _refused(why: str) -> int:
    log.error("not started", reason=why)
    sys.stderr.write(f"gpugrant apiserver: {why}\n")
    return 1


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with server.running(settings):
        await stop.wait()
    log.info("stopped")


def _log_to_stderr() -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
