"""Keeps one part running: adopts the one that runs, starts it when none does, starts it again when it dies.

Being cancelled leaves the part as it is.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from gpugrant_crds.layout import Layout
from gpugrant_operator.supervisor import health, plan, processes
from gpugrant_operator.supervisor.kept import Kept
from gpugrant_operator.supervisor.parts import NOTIFY_VARIABLE, VERSION_VARIABLE, Part
from gpugrant_operator.supervisor.plan import Adopt, Observed, Replace, Start
from gpugrant_operator.supervisor.processes import Process

PATIENCE = 10.0
"""Seconds for a running part to answer before it is replaced, and for one that was asked to end."""

HAND_OVER_WITHIN = 90.0
"""Seconds for a new process to start and to take over from the one that runs."""

KEEP_SOCKETS = "/v1/sockets/keep"
"""Of a part's control socket: has it hand us its sockets again."""

LOOK_EVERY = 0.1
"""Seconds between two looks at a part that is on its way."""

LOG_MAX = 16 * 1024 * 1024
"""Bytes; at a start a longer log is put aside as `<part>.log.1`."""


class Keeper:
    """One part and the process that runs as it."""

    def __init__(
        self,
        part: Part,
        layout: Layout,
        environ: Mapping[str, str],
        log: FilteringBoundLogger,
        *,
        patience: float = PATIENCE,
    ) -> None:
        self.part = part
        self._patience = patience
        self.trouble = "not started yet"
        """Why it isn't well, as far as that is known; empty when a process runs."""
        self.children: list[subprocess.Popen[bytes]] = []
        """Those that may still run; an older gate finishes its streams for hours."""
        self.kept = Kept(self._told_main)
        self._main: int | None = None
        self._displaced = asyncio.Event()
        self._layout = layout
        self._environ = {**_without_sockets(environ), **part.environ}
        self._log = log.bind(part=part.name)

    async def keep(self) -> None:
        """Never returns."""
        delay = 0.0
        while True:
            with await self._obtain() as process:
                self.trouble = ""
                ended = await self._outlive(process)
            self.children = [child for child in self.children if child.poll() is None]
            if ended is None:
                continue
            status, was_well = ended
            delay = plan.next_delay(delay, was_well=was_well)
            self.trouble = f"it ended ({_ended(status)}), see {self._log_file}"
            self._log.warning("part_ended", pid=process.pid, status=status, again_in=delay)
            await asyncio.sleep(delay)

    async def well(self) -> health.Health | None:
        """What the part says of itself now; None: it does not answer."""
        return await health.ask(self._layout.control(self.part.name))

    async def _obtain(self) -> Process:
        while True:
            step = plan.judge(await self._observe(), self.part)
            try:
                return await self._take(step)
            except ProcessLookupError:
                continue  # it ended between the look and the grip

    async def _take(self, step: plan.Step) -> Process:
        match step:
            case Adopt(pid):
                process = Process(pid)
                self._log.info(plan.told(step), pid=pid)
                if self.part.hands_over:
                    await health.tell(self._layout.control(self.part.name), KEEP_SOCKETS)
                return process
            case Replace(pid, why, well):
                with Process(pid) as old:
                    self._log.warning(plan.told(step), pid=pid, why=why)
                    successor = await self._succeed(old) if well and self.part.hands_over else None
                    if successor is not None:
                        return successor
                    await asyncio.to_thread(old.end, self._patience)
                return await self._start()
            case Start():
                await self._wait_for(self.part.after)
                return await self._start()

    async def _start(self) -> Process:
        await asyncio.to_thread(put_aside, self._log_file)
        self._main = None
        self._displaced.clear()
        child = processes.launch(self.part.argv, environ=self._environ, log=self._log_file, sockets=self.kept.sockets)
        self.children.append(child)
        self._log.info(plan.told(Start()), pid=child.pid)
        return Process(child.pid, child)

    async def _succeed(self, old: Process) -> Process | None:
        """A new process that has taken over from the old one; None: it could not, and has ended."""
        process = await self._start()
        deadline = asyncio.get_running_loop().time() + HAND_OVER_WITHIN
        while asyncio.get_running_loop().time() < deadline and not process.wait(0):
            holder = await asyncio.to_thread(processes.holder, self._layout.lock(self.part.name))
            if holder is not None and holder.pid == process.pid:
                self._log.info("part_handed_over", pid=old.pid, to=process.pid)
                return process
            await asyncio.sleep(LOOK_EVERY)
        with process:
            await asyncio.to_thread(process.end, self._patience)
        return None

    def _told_main(self, pid: int) -> None:
        """A process says that it is the part now."""
        self._main = pid
        self._displaced.set()

    async def _observe(self) -> Observed:
        pid = await self._running()
        if pid is None:
            return Observed(None)
        if pid == self._main:
            # somebody started it on purpose beside the one that ran here
            return Observed(pid, self.part.argv, self.part.environ.get(VERSION_VARIABLE), answers=await self._answers())
        argv = processes.arguments(pid)
        version = processes.variable(pid, VERSION_VARIABLE)
        seen = Observed(pid, argv, version, answers=True)
        if isinstance(plan.judge(seen, self.part), Replace):
            return seen
        return Observed(pid, argv, version, answers=await self._answers())

    async def _running(self) -> int | None:
        """Who runs as this part: its lock's holder, or one that was started and has not taken the lock in time."""
        deadline = asyncio.get_running_loop().time() + self._patience
        while True:
            held = await asyncio.to_thread(processes.holder, self._layout.lock(self.part.name))
            if held is not None:
                return held.pid
            coming = await asyncio.to_thread(_started_as, self.part, self._layout)
            if coming is None or asyncio.get_running_loop().time() > deadline:
                return coming
            await asyncio.sleep(LOOK_EVERY)

    async def _answers(self) -> bool:
        deadline = asyncio.get_running_loop().time() + self._patience
        while await self.well() is None:
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(LOOK_EVERY)
        return True

    async def _wait_for(self, name: str | None) -> None:
        if name is None:
            return
        self.trouble = f"it waits for the {name}"
        await until_well(self._layout.control(name))

    async def _outlive(self, process: Process) -> tuple[int | None, bool] | None:
        """Waits for the end; the exit status, and whether the part ever was well. None: another process has taken its
        place."""
        async with asyncio.TaskGroup() as group:
            becoming = group.create_task(until_well(self._layout.control(self.part.name)))
            ending = group.create_task(process.ended())
            displaced = group.create_task(self._until_displaced(process.pid))
            await asyncio.wait((ending, displaced), return_when=asyncio.FIRST_COMPLETED)
            was_well = becoming.done()
            ended = (ending.result(), was_well) if ending.done() and not displaced.done() else None
            for task in (becoming, ending, displaced):
                task.cancel()
        return ended

    async def _until_displaced(self, pid: int) -> None:
        while self._main in (None, pid):
            self._displaced.clear()
            await self._displaced.wait()

    @property
    def _log_file(self) -> Path:
        return self._layout.logs / f"{self.part.name}.log"


async def until_well(socket: Path) -> None:
    """Returns when the part at this control socket says that it is well."""
    while True:
        answer = await health.ask(socket)
        if answer is not None and answer.ok:
            return
        await asyncio.sleep(LOOK_EVERY)


def _started_as(part: Part, layout: Layout) -> int | None:
    """A process of the part that has no lock yet; one that has given it away and finishes what is open is none."""
    leaving = layout.leaving(part.name)
    return next((pid for pid in processes.of(part.signature) if not processes.has(pid, leaving)), None)


def _without_sockets(environ: Mapping[str, str]) -> dict[str, str]:
    """What a service manager gave to the supervisor itself is not for its parts."""
    own = (NOTIFY_VARIABLE, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
    return {key: value for key, value in environ.items() if key not in own}


def put_aside(log: Path) -> None:
    """Renames a log that has grown too long, so that a part that keeps failing can't fill the disk."""
    try:
        if log.stat().st_size > LOG_MAX:
            log.replace(log.with_name(f"{log.name}.1"))
    except FileNotFoundError:
        return


def _ended(status: int | None) -> str:
    if status is None:
        return "its status is not known"
    return f"signal {-status}" if status < 0 else f"exit status {status}"
