"""For whom an exclusive device is not waited any more: daemons that are down, silent too long, or given up (design 4).

A report is read as if nothing of theirs held the device. What may be so and is not known is a doubt, and is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpugrant_crds import durations, timestamps
from gpugrant_crds.snapshot import GateStatus, RepoStatus
from gpugrant_crds.v1alpha1 import GpuMachine, GpuMachineStatus

RELEASE_TIMEOUT = timedelta(minutes=10)
"""`spec.gate.releaseTimeout` where none is given."""

Held = frozenset[tuple[str, str]]
"""Pairs of a device and a repo."""


@dataclass(frozen=True, slots=True)
class Waited:
    """A report as far as it is waited for."""

    gate: GateStatus | None
    """Without what those hold that are not waited for."""
    doubts: Held = frozenset()
    """Who may still hold which device: nobody has seen it come free."""
    given_up: Held = frozenset()
    """What somebody gave up and is not seen to be free yet."""
    recheck: tuple[datetime, ...] = ()
    """When a daemon will have been silent too long."""


def release_timeout(machine: GpuMachine) -> timedelta:
    gate = machine.spec.gate
    return (None if gate is None else durations.read(gate.release_timeout)) or RELEASE_TIMEOUT


def waited(gate: GateStatus | None, machine: GpuMachine, given_up: Held, now: datetime) -> Waited:
    """What of the report counts."""
    if gate is None:
        return Waited(None, given_up, given_up)
    timeout = release_timeout(machine)
    down = {repo.name: repo.down_since for repo in gate.repos if repo.down_since is not None}
    over = frozenset(name for name, since in down.items() if now >= _end(since, timeout))
    released = frozenset(repo.name for repo in gate.repos if repo.released)
    reported = frozenset((use.device, use.repo) for use in gate.running)
    reported |= frozenset((entry.device, entry.repo) for entry in gate.pending)
    kept = frozenset(pair for pair in given_up if pair in reported or not _looked_at(gate.repos, pair[1]))
    doubts = frozenset(pair for pair in reported if pair[1] in over and pair[1] not in released) | kept
    gone = frozenset(pair for pair in reported if pair[1] in over | released) | kept
    silent = over | released | {repo for _, repo in kept}
    counted = gate.model_copy(
        update={
            "running": tuple(entry for entry in gate.running if (entry.device, entry.repo) not in gone),
            "pending": tuple(entry for entry in gate.pending if (entry.device, entry.repo) not in gone),
            "repos": tuple(
                repo.model_copy(update={"unseen": False}) if repo.unseen and repo.name in silent else repo
                for repo in gate.repos
            ),
        }
    )
    recheck = (_end(since, timeout) for name, since in down.items() if name not in released)
    return Waited(counted, doubts, kept, tuple(moment for moment in recheck if moment > now))


def why(device: str, doubts: Iterable[str], gate: GateStatus | None) -> str:
    """The clause for a person: who may still hold the device."""
    down = {repo.name: repo.down_since for repo in gate.repos if repo.down_since is not None} if gate else {}
    names = sorted(doubts)
    silent = [
        f"the daemon of repo {name} has not answered since {_shown(down[name])}" for name in names if name in down
    ]
    others = [f"repo {name} was given up" for name in names if name not in down]
    return f"{' and '.join([*silent, *others])}, so its containers may still hold {device}"


def give_up(status: GpuMachineStatus, device: str, gate: GateStatus | None) -> tuple[GpuMachineStatus, tuple[str, ...]]:
    """The status in which nobody waits for the device to come free, and the repos that were waited for.

    They are those that it is being taken from, and those of whose containers the gate says that they still hold it
    though it was taken away from their repo.
    """
    allocation = next((its for its in status.allocations if its.device == device), None)
    holders = {holder.repo for holder in allocation.repos} if allocation is not None else set()
    waited_for = {debt.repo for debt in allocation.releasing} if allocation is not None else set()
    if gate is not None:
        waited_for |= {entry.repo for entry in gate.pending if entry.device == device}
        waited_for |= {entry.repo for entry in gate.running if entry.device == device and entry.repo not in holders}
    if allocation is None or not waited_for:
        return status, ()
    repos = tuple(sorted(waited_for))
    update = {"releasing": (), "state": "Held", "given_up": tuple(sorted({*allocation.given_up, *repos}))}
    freed = allocation.model_copy(update=update)
    others = tuple(freed if its.device == device else its for its in status.allocations)
    return status.model_copy(update={"allocations": others}), repos


def _looked_at(repos: Iterable[RepoStatus], name: str) -> bool:
    """Whether the gate knows what that repo's containers hold; of one that it does not serve it never will."""
    found = next((repo for repo in repos if repo.name == name), None)
    return found is None or (found.down_since is None and not found.unseen)


def _end(since: datetime, timeout: timedelta) -> datetime:
    try:
        return since + timeout
    except OverflowError:
        return datetime.max.replace(tzinfo=since.tzinfo)


def _shown(moment: datetime) -> str:
    return timestamps.write(moment)
