"""A gate process from its start to its end: here time, chance, signals and paths are the real ones.

Nothing is served before the last snapshot and the sealed folders are in place; without a snapshot everything but
hardware goes through.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import uvloop

from gpugrant_crds import cdi, repofile
from gpugrant_crds.layout import Layout, SocketPathTooLong, checked_socket
from gpugrant_crds.names import InvalidName, check_machine, check_repo, parse_device
from gpugrant_crds.repofile import RepoProblem
from gpugrant_crds.snapshot import Case, RepoStatus
from gpugrant_gate import settings
from gpugrant_gate.life import buildkit, lock, repo, sealed
from gpugrant_gate.life.clock import Clock
from gpugrant_gate.life.documents import Broken
from gpugrant_gate.life.grants import Enforced, Grant
from gpugrant_gate.life.repo import Repo
from gpugrant_gate.net import audit, fdstore, folders, leaving, listener, process, reign
from gpugrant_gate.net.core import Core, World
from gpugrant_gate.net.feed import Feed
from gpugrant_gate.net.listener import Found
from gpugrant_gate.net.pool import Pool
from gpugrant_gate.net.trial import SealedFolder
from gpugrant_gate.net.watched import Means
from gpugrant_gate.settings import Limits, Settings

_TRIAL_ID = "trial"


def run(root: Path, *, hardware: Path = Path("/"), enforce: bool = False) -> int:
    """Serves every repo of `root` until SIGTERM or SIGINT, or until a later gate has taken over and all that was open
    here has ended; 1 with one sentence logged when it can't. A gate that runs already hands over to this one.
    `enforce`: what ran with devices before there was a gate is no exception."""
    _prepare()
    layout = Layout(root)
    kept = fdstore.found(os.environ, os.getpid())
    try:
        own = settings.host_name(hardware, socket.gethostname())
        loaded = settings.load(layout.gate_settings, own, os.cpu_count() or 1)
        configured = replace(loaded, hardware=hardware, enforce_at_once=enforce)
        uvloop.run(_serve(configured, layout, kept, os.environ.get(fdstore.NOTIFY_SOCKET, "")))
    except (Broken, lock.Held, OSError) as error:
        audit.log.error("gate can't go on", message=str(error))
        return 1
    finally:
        audit.close()
    return 0


def run_trial(
    *,
    listen: Path,
    upstream: Path,
    name: str,
    grants: Sequence[str],
    root: Path,
    machine: str | None = None,
    policy: Path | None = None,
    enforce: bool = False,
) -> int:
    """One repo with fixed grants in this process, without operator, inventory or control socket.

    `policy` is a file as in `repos.d`: its binds and rights count, the flags win. The daemon's CDI folder must be
    `<root>/etc/cdi`; nothing else of this machine's set-up is read. Where the daemon is sealed by a folder of this
    root, the folder holds the granted devices while this runs. `enforce`: containers that hold what was not granted are
    stopped, not only reported. 1 with one sentence logged when it can't serve.
    """
    _prepare()
    layout = Layout(root)
    try:
        its = _trial_repo(listen, upstream, check_repo(name), policy, layout)
        devices = tuple(str(parse_device(device)) for device in grants)
        own = check_machine((machine or socket.gethostname()).lower())
        uvloop.run(_serve_trial(its, devices, own, layout, enforce=enforce))
    except (Broken, InvalidName, SocketPathTooLong, OSError) as error:
        audit.log.error("gate can't start", message=str(error))
        return 1
    finally:
        audit.close()
    return 0


def _prepare() -> None:
    """What holds for this process whatever its starter left it with."""
    # folders that are made on the way to a socket must not be writable by others
    os.umask(0o022)
    audit.configure()
    process.raise_descriptor_limit()
    process.keep_freed_memory()


async def _serve(configured: Settings, layout: Layout, kept: Sequence[Found], notify: str) -> None:
    """Raises lock.Held when a gate runs here that does not hand over, Broken, OSError."""
    stop = _stop_on_signals()
    feed = Feed()
    pool = Pool(configured, layout.root, feed.put)
    workers = asyncio.get_running_loop().create_task(pool.live(stop))
    try:
        successor = await reign.begin(configured, layout, pool, feed, _clock(), reign.Means(kept, notify), stop)
        if successor is not None:
            await leaving.finish(pool, successor, configured, layout, stop)
    finally:
        stop.set()
        await pool.stop(configured.limits.stop_timeout + 0.3)
        await workers
    audit.log.info("gate stopped")


async def _serve_trial(its: Repo, devices: Sequence[str], machine: str, layout: Layout, *, enforce: bool) -> None:
    stop = _stop_on_signals()
    limits = Limits()
    opened = listener.listen(its.listen, uid=its.uid, gid=its.gid, mode=its.mode)
    folder = SealedFolder(layout, devices)

    def changed(status: RepoStatus) -> None:
        _say(status)
        # in this call, so that it is filled before the first request that waited for the verdict goes on
        folder.follow(core.daemon_pid(its.name) if status.fit else 0)

    async def specs_changed() -> None:
        specs = sealed.read_specs(layout.cdi)
        core.apply(Enforced(machine, 0, granted, tuple(cdi.merge(specs).names), buildkit.auto_allowed(specs)))
        folder.rewrite(specs)

    granted = tuple(Grant(its.name, its.id, device) for device in devices)
    means = Means(enforce, asyncio.Semaphore(limits.inspects))
    world = replace(trial_world(layout, limits, _clock(), changed), sweep=means, found=_found)
    core = Core(world, machine)
    try:
        await specs_changed()
        await core.serve(its, opened.sock)
        audit.log.info("gate started", machine=machine, repo=its.name, listen=str(its.listen), grants=list(devices))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(folders.watch(layout.cdi, specs_changed, stop))
            await stop.wait()
        await core.stop(limits.stop_timeout)
    finally:
        opened.close()
        folder.empty()


def trial_world(layout: Layout, limits: Limits, now: Clock, changed: Callable[[RepoStatus], None]) -> World:
    """The real world for a core in this process."""
    # here, not above: the parent of workers never judges and need not load the policy
    from gpugrant_gate.net.judgement import Judgement

    return World(
        layout=layout,
        limits=limits,
        policy=Judgement(),
        now=now,
        monotonic=time.monotonic,
        jitter=random.random,
        changed=changed,
    )


def _found(case: Case) -> None:
    audit.trail().note("sweep", case.to_json())


def _say(status: RepoStatus) -> None:
    audit.log.info("daemon", repo=status.name, fit=status.fit, message=status.message)


def _trial_repo(listen: Path, upstream: Path, name: str, policy: Path | None, layout: Layout) -> Repo:
    """Raises repo or name errors as Broken."""
    listen, upstream = checked_socket(listen.absolute()), upstream.absolute()
    if policy is None:
        return Repo(name, _TRIAL_ID, upstream, listen, os.getuid(), os.getgid())
    try:
        text = policy.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Broken(policy, 1, f"can't be read: {error}") from error
    file = repofile.parse(text, str(policy))
    if isinstance(file, RepoProblem):
        raise Broken(policy, file.line, file.message)
    given = {"name": name, "id": file.id or _TRIAL_ID, "upstream": upstream, "listen": listen}
    found = repo.resolve(file.model_copy(update=given), str(policy), layout)
    if isinstance(found, RepoProblem):
        raise Broken(policy, found.line, found.message)
    return found


def _clock() -> Clock:
    return Clock(time.time, lambda: time.clock_gettime(time.CLOCK_BOOTTIME))


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
