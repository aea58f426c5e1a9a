"""A repo's daemon as this gate knows it: asked on connect, again when another process answers, and every 10 minutes.

A daemon is known by its process. When another one answers, nothing that was found out about the first counts any more.
Where systemd listens for the daemon, the kernel names systemd at the other end whichever daemon it is: there the
process behind it is looked at as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpugrant_crds.layout import Layout
from gpugrant_gate.life import fitness
from gpugrant_gate.life.fitness import Expected, Fitness, Said
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net import procfs, upstream
from gpugrant_gate.net.procfs import Process
from gpugrant_gate.net.upstream import Answer, Unreachable
from gpugrant_gate.settings import Limits
from gpugrant_gate.wire import versions

_HIDDEN_CDI = "run/cdi"
"""The other folder that the CDI library reads by default: in a sealed daemon there is nothing in it."""


_MENDED_WITHIN = 30.0
"""Seconds after which a configuration that could not be believed is looked at again: its owner may be mending it."""


class Daemon:
    """What is known of one daemon now, and when it has to be asked again."""

    def __init__(
        self,
        repo: Repo,
        layout: Layout,
        limits: Limits,
        *,
        monotonic: Callable[[], float],
        jitter: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        """`jitter` gives numbers from 0 to 1; `changed` is called when the verdict or its process is another one."""
        self._repo = repo
        self._layout = layout
        self._limits = limits
        self._monotonic = monotonic
        self._jitter = jitter
        self._changed = changed
        self._due = 0.0
        self._lock = asyncio.Lock()
        self.listener = 0
        """The process that the kernel names at the other end of a connection; 0 while unknown."""
        self._process: Process | None = None
        """The daemon itself; None while unknown."""
        self.fitness: Fitness | None = None
        self.was_sealed = False
        """At its last answer it was fit and sealed, and so without live-restore."""
        self._seen_sealed = False
        """It was sealed when it was last looked at."""

    @property
    def pid(self) -> int:
        """Of the process that the verdict is about; 0 while unknown."""
        return self._process.pid if self._process is not None else self.listener

    @property
    def process(self) -> Process | None:
        """The daemon's own; None while it is unknown, or where what listens does not tell it."""
        return self._process

    async def alive(self) -> Process | None:
        """The daemon's own process, which is asked for again where it has ended; None where it can't be told."""
        if self._process is None or procfs.find(self._process.pid) != self._process:
            self.forget()
            await self.known()
        return self._process

    @property
    def fit(self) -> bool:
        return self.fitness is not None and self.fitness.fit

    def is_due(self) -> bool:
        return self._monotonic() >= self._due

    def due_in(self) -> float:
        """Seconds until the verdict has to be renewed."""
        return max(self._due - self._monotonic(), 0.0)

    async def known(self) -> None:
        """Returns once there is a verdict that may be used for a request; asks only an unfit or unknown daemon."""
        if self.fit:
            return
        # without an API version no request can be written, so a silent daemon is asked at every request
        if self.fitness is None or not self.fitness.api_version or self.is_due():
            await self.ask()

    async def renewed(self) -> None:
        """The same, and a daemon whose process has ended is another one, which nobody has judged yet (R52)."""
        if self._process is not None and procfs.find(self._process.pid) != self._process:
            self.forget()
        await self.known()

    async def ask(self) -> None:
        """A fresh verdict; one question at a time, and whoever waited for it does not ask again."""
        before = self._due
        async with self._lock:
            if self._due != before:
                return
            self._settle(*await self._look())

    def answered_by(self, pid: int) -> bool:
        """Whether the process at the other end is the one that was judged; if not, it is unknown from now on."""
        if self.is_judged(pid):
            return True
        self.forget()
        return False

    def is_judged(self, pid: int) -> bool:
        """The same, and nothing is changed."""
        if pid == 0 or pid != self.listener:
            return False
        process = self._process
        return process is None or process.pid == pid or procfs.find(process.pid) == process

    def forget(self) -> None:
        """The next request that needs it asks again."""
        self._due = 0.0
        if self.fitness is not None:
            self.listener, self._process = 0, None
            self.fitness = None
            self._changed()

    def recheck_seal(self) -> None:
        """A mount goes with the folder that it lies on: whoever removes the CDI folder unseals every daemon."""
        if self._seen_sealed and not is_sealed(self.pid, self._repo.id, self._layout):
            self._seen_sealed = False
            self.forget()

    def _settle(self, found: Fitness, listener: int, process: Process | None) -> None:
        self._due = self._monotonic() + self._span(found)
        changed = (found, listener, process) != (self.fitness, self.listener, self._process)
        self.fitness, self.listener, self._process = found, listener, process
        self._seen_sealed = found.sealed
        if listener:
            self.was_sealed = found.fit and found.sealed and self._repo.sealed
        if changed:
            self._changed()

    def _span(self, found: Fitness) -> float:
        """Seconds for which the verdict counts."""
        limits = self._limits
        if not found.fit:
            return limits.unfit_for
        to_mend = self._repo.daemon_config is not None and isinstance(found.builder.entitlements, str)
        return (_MENDED_WITHIN if to_mend else limits.fit_for) * (1 - self._jitter() / 10)

    async def _look(self) -> tuple[Fitness, int, Process | None]:
        """The verdict, the process that listens and the daemon's own."""
        path = self._repo.upstream
        try:
            version = await upstream.get(path, "/version", self._limits)
            said = _object(version)
            # asked as its own API has it: an answer that is only read may say more than the gate would pass on
            info = await upstream.get(path, f"/v{versions.own(said)}/info", self._limits)
            listener = version.peer.pid
            if listener <= 0:
                raise Unreachable("its process can't be seen from here: run the gate in the host's PID namespace")
            if info.peer != version.peer:
                raise Unreachable("it was replaced while it was asked")
            process = procfs.behind(listener, path)
            found = self._said(said, _object(info), listener, process)
            if process is not None and procfs.find(process.pid) != process:
                raise Unreachable("it was replaced while it was looked at")
        except Unreachable as error:
            return fitness.unreachable(path, str(error)), 0, None
        return fitness.judge(found, Expected(self._layout.cdi, self._repo.sealed)), listener, process

    def _said(self, version: dict[str, Any], info: dict[str, Any], listener: int, process: Process | None) -> Said:
        repo, layout = self._repo, self._layout
        if process is None:
            sealed = is_sealed(listener, repo.id, layout)
            return Said(version, info, sealed, entitlements="its daemon's own process can't be told from what listens")
        now, since_boot = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
        return Said(
            version,
            info,
            is_sealed(process.pid, repo.id, layout),
            own_specs=procfs.sees_same(process, layout.cdi),
            config=str(repo.daemon_config or ""),
            entitlements=procfs.entitlements(process, repo.daemon_config, layout.root, now, since_boot),
            runc=procfs.runs_runc(process),
        )


def is_sealed(pid: int, repo_id: str, layout: Layout) -> bool:
    """Whether the process sees the repo's sealed folder, and no other CDI folder with something in it.

    Seen by device and inode in its mount namespace, not believed; False where it can't be looked at.
    """
    if pid <= 0 or not repo_id:
        return False
    root = Path("/proc") / str(pid) / "root"
    try:
        seen = (root / str(layout.cdi).lstrip("/")).stat()
        ours = layout.sealed_repo(repo_id).stat()
        if (seen.st_dev, seen.st_ino) != (ours.st_dev, ours.st_ino):
            return False
        return not any((root / _HIDDEN_CDI).iterdir())
    except FileNotFoundError as error:
        return error.filename is not None and str(error.filename).endswith(_HIDDEN_CDI)
    except OSError:
        return False


def _object(answer: Answer) -> dict[str, Any]:
    if answer.status != 200 or not isinstance(answer.value, dict):
        raise Unreachable(f"it answered a question of the gate with status {answer.status}")
    return answer.value
