"""The supervisor's process: lock, control socket, a keeper a part, and this machine's own GpuMachine."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from gpugrant_crds import timestamps
from gpugrant_crds.layout import Layout
from gpugrant_operator.supervisor import control, locks, stop
from gpugrant_operator.supervisor.health import Health
from gpugrant_operator.supervisor.keeper import PATIENCE, Keeper, until_well
from gpugrant_operator.supervisor.parts import SUPERVISOR, Part

GIVE_WAY = signal.SIGUSR2
"""Ends the supervisor and leaves the parts to the next one. A version that does not know it is ended by it at once."""

CLAIM_EVERY = 1.0
"""Seconds between two tries to make the machine's object."""


class ClaimFailed(Exception):
    """This machine's GpuMachine can't be made; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One supervisor, whole."""

    root: Path
    hardware: Path
    version: str
    parts: tuple[Part, ...]
    claim: Callable[[], Awaitable[None]]
    """Makes the GpuMachine of this machine where there is none; raises ClaimFailed."""
    environ: Mapping[str, str]
    clock: Callable[[], datetime]
    manifests: tuple[Path, ...] = ()
    """The folders that the API server takes objects from."""
    patience: float = PATIENCE
    """Seconds for a part to answer before it is replaced."""

    @property
    def layout(self) -> Layout:
        return Layout(self.root)


def prepare(layout: Layout) -> None:
    """The folders that the supervisor needs; raises OSError."""
    for folder in (layout.run, layout.logs, layout.etc, layout.state, layout.repos):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)


def run(settings: Settings, log: FilteringBoundLogger) -> int:
    """Supervises until SIGTERM or SIGINT, then ends the parts too. Raises locks.Held, OSError."""
    prepare(settings.layout)
    started = settings.clock()
    with locks.taken(settings.layout.lock(SUPERVISOR), started):
        asyncio.run(_Supervisor(settings, timestamps.write(started), log).serve())
    return 0


class _Supervisor:
    def __init__(self, settings: Settings, since: str, log: FilteringBoundLogger) -> None:
        self._settings = settings
        self._since = since
        self._log = log
        self._keepers = tuple(
            Keeper(part, settings.layout, settings.environ, log, patience=settings.patience) for part in settings.parts
        )
        self._gives_way = False
        self._unclaimed = "the machine's object is not there yet"

    async def serve(self) -> None:
        told_to_end = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told_to_end.set)
        loop.add_signal_handler(GIVE_WAY, self._give_way, told_to_end)
        async with contextlib.AsyncExitStack() as stack:
            for keeper in self._keepers:
                if keeper.part.hands_over:
                    await stack.enter_async_context(keeper.kept.served(self._settings.layout.kept_sockets))
            await stack.enter_async_context(control.served(self._settings.layout.control(SUPERVISOR), self._healthz))
            group = await stack.enter_async_context(asyncio.TaskGroup())
            tasks = [group.create_task(keeper.keep()) for keeper in self._keepers]
            tasks.append(group.create_task(self._claim()))
            tasks.append(group.create_task(self._tell_when_ready()))
            await told_to_end.wait()
            self._log.info("ending")
            for task in tasks:
                task.cancel()
        if not self._gives_way:
            await asyncio.to_thread(self._end_parts)
        self._log.info("ended")

    def _give_way(self, told_to_end: asyncio.Event) -> None:
        self._log.info("giving_way", message="another version of the supervisor takes over; the parts go on")
        self._gives_way = True
        told_to_end.set()

    def _end_parts(self) -> None:
        stop.parts_only(self._settings.layout, [(part.name, part.signature) for part in self._settings.parts])
        for keeper in self._keepers:
            for child in keeper.children:
                child.wait()
            keeper.kept.remove()

    async def _claim(self) -> None:
        await until_well(self._settings.layout.control("apiserver"))
        while True:
            try:
                await self._settings.claim()
            except ClaimFailed as error:
                self._unclaimed = str(error)
                self._log.warning("machine_not_made", why=str(error))
                await asyncio.sleep(CLAIM_EVERY)
            else:
                self._unclaimed = ""
                return

    async def _tell_when_ready(self) -> None:
        await until_well(self._settings.layout.control(SUPERVISOR))
        self._log.info("ready", root=str(self._settings.root), kubeconfig=str(self._settings.layout.kubeconfig))

    async def _healthz(self) -> control.Answer:
        answers = await asyncio.gather(*(keeper.well() for keeper in self._keepers))
        troubles = [
            f"{keeper.part.name}: {trouble}"
            for keeper, answer in zip(self._keepers, answers, strict=True)
            if (trouble := _trouble(keeper, answer))
        ]
        if self._unclaimed:
            troubles.append(self._unclaimed)
        return {
            "ok": not troubles,
            "message": "; ".join(troubles) or "all parts are well",
            "since": self._since,
            "hardware": str(self._settings.hardware),
            "manifests": [str(folder) for folder in self._settings.manifests],
            "version": self._settings.version,
        }


def _trouble(keeper: Keeper, answer: Health | None) -> str:
    """Why the part isn't well; empty: it is."""
    if keeper.trouble:
        return keeper.trouble
    if answer is None:
        return "its control socket does not answer yet"
    return "" if answer.ok else answer.message or "it says that it is not well"
