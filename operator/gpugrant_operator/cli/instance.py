"""`gpugrant up`, `down`, `status`: a standalone instance as a whole."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import structlog

from gpugrant_crds import conditions
from gpugrant_crds.layout import Layout, SocketPathTooLong
from gpugrant_crds.snapshot import GateStatus, WorkerStatus
from gpugrant_crds.v1alpha1 import API_VERSION, GpuMachine
from gpugrant_gate import settings as gate_settings
from gpugrant_gate.life.documents import Broken
from gpugrant_operator import gateclient, kubeclient
from gpugrant_operator.cli import console, waiting
from gpugrant_operator.cli.console import Failure, NotReady
from gpugrant_operator.supervisor import health, keeper, locks, parts, processes, stop
from gpugrant_operator.supervisor import main as supervisor
from gpugrant_operator.supervisor.health import Health
from gpugrant_operator.supervisor.processes import Process

READY_WITHIN = 60.0
"""Seconds from `up --detach` to all parts being well."""

ANSWERS_WITHIN = 10.0
"""Seconds from a supervisor's taking the lock to its answer; it takes milliseconds on an idle machine."""

LOOK_EVERY = 0.1
"""Seconds between two looks at what is on its way."""

MACHINES = f"/apis/{API_VERSION}/gpumachines"


def up(root: Path, *, hardware: Path, detach: bool, enforce: bool = False, manifests: tuple[Path, ...] = ()) -> None:
    """Starts the instance; in the foreground returns when it was asked to end."""
    layout = Layout(root)
    try:
        parts.check_sockets(root)
        supervisor.prepare(layout)
    except SocketPathTooLong as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise console.os_error(error, f"can't write below {root}") from error
    machine = machine_name(layout, hardware)
    running = _running(layout)
    if running is not None and _superseded(running, layout, hardware, manifests):
        running = None
    if running is not None:
        if enforce:
            raise Failure(f"it already runs below {root}, and --enforce counts at the start: run gpugrant down first")
        if not detach:
            raise Failure(f"it already runs below {root}: see gpugrant status; gpugrant down stops it")
        await_ready(layout)
    elif detach:
        _start_detached(layout, hardware, enforce=enforce, manifests=manifests)
    else:
        _supervise(layout, hardware, machine, enforce=enforce, manifests=manifests)
        return
    console.note(f"machine {machine} is up; export KUBECONFIG={layout.kubeconfig}")


def machine_name(layout: Layout, hardware: Path) -> str:
    """This machine's name, as its gate has it; raises Failure."""
    try:
        own = gate_settings.host_name(hardware, socket.gethostname())
        return gate_settings.load(layout.gate_settings, own, cores=1).machine
    except Broken as error:
        raise Failure(str(error)) from error


def down(root: Path) -> None:
    """Ends what runs below the root; says so when nothing does."""
    try:
        ended = stop.everything(Layout(root), _signatures(root))
    except PermissionError as error:
        raise Failure(f"the parts below {root} are another user's: run this as root") from error
    except stop.StillRuns as error:
        raise Failure(str(error)) from error
    click.echo(f"stopped: {', '.join(ended)}" if ended else f"nothing runs below {root}")


@dataclass(frozen=True, slots=True)
class PartRow:
    """One line of `gpugrant status`; the keys of its JSON are the contract of design 11."""

    name: str
    pid: int | None
    since: str | None
    ok: bool
    message: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "pid": self.pid, "since": self.since, "ok": self.ok, "message": self.message}


def status(root: Path, *, as_json: bool) -> None:
    """Prints what runs; exits 1 unless all parts are well."""
    layout = Layout(root)
    rows = asyncio.run(_rows(layout))
    gate = _gate_status(layout)
    machine = asyncio.run(_own_machine(layout, gate))
    if as_json:
        click.echo(json.dumps(document(rows, machine, gate), indent=2))
    else:
        _print(rows, machine, gate)
    sys.exit(0 if all(row.ok for row in rows) else 1)


def row(name: str, holder: processes.Holder | None, answer: Health | None) -> PartRow:
    """What is said of one part; pure."""
    if holder is None:
        return PartRow(name, None, None, ok=False, message="not running")
    if answer is None:
        return PartRow(name, holder.pid, holder.since or None, ok=False, message="it does not answer")
    return PartRow(name, holder.pid, holder.since or answer.since or None, ok=answer.ok, message=answer.message)


async def _rows(layout: Layout) -> tuple[PartRow, ...]:
    names = (parts.SUPERVISOR, *parts.NAMES)
    try:
        holders = [processes.holder(layout.lock(name)) for name in names]
    except PermissionError as error:
        raise Failure(f"the parts below {layout.root} are another user's: run this as root") from error
    answers = await asyncio.gather(*(health.ask(layout.control(name)) for name in names))
    return tuple(map(row, names, holders, answers))


async def _own_machine(layout: Layout, gate: GateStatus | None) -> GpuMachine | None:
    """The GpuMachine that this machine's gate serves; None: the API does not answer, or there is none."""
    try:
        access = kubeclient.read_kubeconfig((layout.kubeconfig,))
        async with asyncio.timeout(health.TIMEOUT), kubeclient.KubeClient(access, agent="gpugrant") as api:
            machines = [GpuMachine.model_validate(item) for item in await api.list(MACHINES)]
    except (kubeclient.KubeconfigUnusable, kubeclient.ApiError, TimeoutError, OSError, ValueError):
        return None
    ours = [machine for machine in machines if gate is not None and machine.node == gate.machine]
    return next(iter(ours or (machines if len(machines) == 1 else ())), None)


def _gate_status(layout: Layout) -> GateStatus | None:
    try:
        return gateclient.ask(layout.control("gate"), lambda gate: gate.status())
    except gateclient.GateError:
        return None


def document(rows: tuple[PartRow, ...], machine: GpuMachine | None, gate: GateStatus | None) -> dict[str, Any]:
    """`gpugrant status -o json`; `machine` and `gate` are null where nobody answers."""
    ready = None if machine is None else conditions.find(machine.status.conditions, conditions.READY)
    return {
        "parts": [row.to_json() for row in rows],
        "machine": None
        if machine is None
        else {
            "name": machine.metadata.name,
            "ready": ready is not None and ready.status == "True",
            "reason": None if ready is None else ready.reason,
            "message": None if ready is None else ready.message,
        },
        "repos": [] if gate is None else [repo.to_json() for repo in gate.repos],
        "gate": None
        if gate is None
        else gate.model_dump(
            mode="json",
            by_alias=True,
            include={"machine", "machine_uid", "epoch", "digest", "applied_at", "problems", "workers"},
        ),
    }


def _print(rows: tuple[PartRow, ...], machine: GpuMachine | None, gate: GateStatus | None) -> None:
    console.show(
        ("PART", "PID", "SINCE", "OK", "MESSAGE"),
        [(r.name, str(r.pid or "-"), r.since or "-", "yes" if r.ok else "no", r.message) for r in rows],
    )
    if machine is not None:
        ready = conditions.find(machine.status.conditions, conditions.READY)
        said = "not looked at yet" if ready is None else ready.message or ready.reason
        click.echo(f"\nmachine {machine.metadata.name}: {said}")
    if gate is not None:
        click.echo(f"gate: epoch {gate.epoch}, {len(gate.grants)} grants in force, {len(gate.repos)} repos")
        for problem in gate.problems:
            click.echo(f"problem: {problem}")
        for worker in gate.workers:
            if worker.died or worker.hung:
                click.echo(replaced(worker))


def replaced(worker: WorkerStatus) -> str:
    """What a worker's replacements were, in a sentence."""
    counts = (("died", worker.died), ("hung", worker.hung))
    causes = " and ".join(f"{cause} {count} time{'' if count == 1 else 's'}" for cause, count in counts if count)
    repos = f" (repos {', '.join(worker.repos)})" if worker.repos else ""
    return f"worker {worker.number}{repos} {causes} since the gate started and was replaced"


def _signatures(root: Path) -> list[tuple[str, tuple[str, ...]]]:
    return [(name, parts.signature(name, root)) for name in parts.NAMES]


def _running(layout: Layout) -> Health | None:
    """What the supervisor of this root says; None: there is none."""
    try:
        held = processes.holder(layout.lock(parts.SUPERVISOR))
    except PermissionError as error:
        raise Failure(f"the supervisor below {layout.root} is another user's: run this as root") from error
    if held is None:
        return None
    answer = waiting.until(lambda: _ask(layout), ANSWERS_WITHIN)
    if answer is None:
        raise Failure(
            f"the supervisor below {layout.root} (process {held.pid}) does not answer: run gpugrant down first"
        )
    return answer


def _ask(layout: Layout) -> Health | None:
    return asyncio.run(health.ask(layout.control(parts.SUPERVISOR)))


def _superseded(running: Health, layout: Layout, hardware: Path, manifests: tuple[Path, ...]) -> bool:
    """Whether a supervisor of another version ran and has given way to this one; its parts go on until they are
    replaced. Raises Failure."""
    if running.hardware != str(hardware):
        raise Failure(
            f"it already runs below {layout.root} with --hardware {running.hardware}: run gpugrant down first"
        )
    if running.manifests != tuple(map(str, manifests)):
        told = " and ".join(f"--manifests {folder}" for folder in running.manifests) or "no --manifests"
        raise Failure(f"it already runs below {layout.root} with {told}: run gpugrant down first")
    if running.version == _version():
        return False
    console.note(f"version {running.version} runs below {layout.root}: version {_version()} takes over")
    give_way(layout)
    return True


def give_way(layout: Layout) -> None:
    """Has a supervisor that runs end and leave its parts running, for the next one to take over. Raises Failure."""
    lock = layout.lock(parts.SUPERVISOR)
    held = processes.holder(lock)
    with contextlib.suppress(ProcessLookupError):
        if held is not None:
            with Process(held.pid) as old:
                if processes.holder(lock) == held:
                    old.signal(supervisor.GIVE_WAY)
                    if not old.wait(ANSWERS_WITHIN):
                        raise Failure(f"the supervisor (process {held.pid}) does not end: run gpugrant down first")


def _version() -> str:
    return metadata.version("gpugrant")


def _start_detached(layout: Layout, hardware: Path, *, enforce: bool, manifests: tuple[Path, ...]) -> None:
    log = layout.logs / "supervisor.log"
    keeper.put_aside(log)
    more = ("--enforce",) if enforce else ()
    start = (sys.executable, "-P", "-m", parts.MODULE, "up", "--root", str(layout.root))
    argv = (*start, "--hardware", str(hardware), *parts.manifest_options(manifests), *more)
    child = processes.launch(argv, environ=os.environ, log=log)
    with Process(child.pid, child) as process:
        _await_ready(layout, lambda: _last_line(log) if process.wait(0) else None)


def await_ready(layout: Layout) -> None:
    """Returns when all parts of the running instance are well. Raises NotReady."""
    _await_ready(layout, None)


def _await_ready(layout: Layout, ended: Callable[[], str | None] | None) -> None:
    """Returns when all parts are well; `ended` gives the last words of a supervisor that has ended."""
    deadline = time.monotonic() + READY_WITHIN
    said = "the supervisor does not answer yet"
    lock = layout.lock(parts.SUPERVISOR)
    while True:
        answer = _ask(layout)
        if answer is not None:
            if answer.ok:
                return
            said = answer.message
        # One that was started at the same time may have been quicker: then that one is waited for.
        last = None if ended is None or processes.holder(lock) is not None else ended()
        if last is not None:
            raise Failure(f"the supervisor has ended: {last}")
        if time.monotonic() > deadline:
            raise NotReady(f"not ready in {READY_WITHIN:.0f} s: {said}")
        time.sleep(LOOK_EVERY)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.removeprefix("error: ") for line in reversed(lines) if line.strip()), "it said nothing")


def _supervise(layout: Layout, hardware: Path, machine: str, *, enforce: bool, manifests: tuple[Path, ...]) -> None:
    settings = supervisor.Settings(
        root=layout.root,
        hardware=hardware,
        version=_version(),
        parts=parts.standalone(
            layout.root,
            hardware=hardware,
            executable=sys.executable,
            version=_version(),
            enforce=enforce,
            manifests=manifests,
        ),
        manifests=manifests,
        claim=lambda: claim(layout, machine),
        environ=os.environ,
        clock=lambda: datetime.now(UTC),
    )
    try:
        supervisor.run(settings, _log())
    except locks.Held as error:
        raise Failure(f"it already runs below {layout.root}: see gpugrant status") from error
    except OSError as error:
        raise console.os_error(error, f"can't run below {layout.root}") from error


def _log() -> Any:
    """Lines for a person on a terminal, JSON otherwise; to stderr."""
    people = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer() if people else structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    return structlog.get_logger(part="supervisor")


async def claim(layout: Layout, machine: str) -> None:
    """Makes the GpuMachine of this machine where no object stands for it; raises supervisor.ClaimFailed."""
    try:
        access = kubeclient.read_kubeconfig((layout.kubeconfig,))
        async with kubeclient.KubeClient(access, agent="gpugrant") as api:
            present = [GpuMachine.model_validate(item).node for item in await api.list(MACHINES)]
            if machine not in present:
                await api.post(
                    MACHINES,
                    {"apiVersion": API_VERSION, "kind": "GpuMachine", "metadata": {"name": machine}, "spec": {}},
                )
    except kubeclient.Conflict:
        return  # another made it in between
    except (kubeclient.KubeconfigUnusable, kubeclient.ApiError, ValueError) as error:
        raise supervisor.ClaimFailed(f"the GpuMachine {machine} can't be made: {error}") from error
