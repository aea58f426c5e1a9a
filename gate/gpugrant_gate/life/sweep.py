"""What becomes of a container that holds hardware, whoever started it: pure.

It finds what no request showed: restart policies, a daemon's boot, the raw socket, a copied data root (design 5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from gpugrant_gate.life.admitted import Admitted, Ledger

ALIVE = frozenset({"running", "paused", "restarting"})
"""States (moby container/state.go) in which a container has its devices, or will have them in a moment."""
RESTARTING = "restarting"
"""It ended and its daemon waits for the time at which it starts it again."""
_GOING = frozenset({"removing", "dead"})
"""States from which no daemon starts a container again, and in which none is changed any more."""
_NO_POLICY = ("", "no")
_NO_DRIVER = 'could not select device driver "cdi"'
"""What Docker 25 to 28.1 say of containers that they restart at boot, before CDI is there."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A container as its daemon describes it now, as far as hardware goes."""

    id: str
    name: str
    state: str
    started_at: str
    policy: str
    error: str
    devices: tuple[str, ...]
    """The CDI names that it asks for."""
    foreign: tuple[str, ...] = ()
    """Device requests that no grant can be for, as clauses."""
    suspect: tuple[str, ...] = ()
    """Other ways to hardware, as the policy's rules say."""

    @property
    def alive(self) -> bool:
        return self.state in ALIVE

    @property
    def holds(self) -> bool:
        return bool(self.devices or self.foreign or self.suspect)


def read(inspected: Any, suspect: Iterable[str] = ()) -> Seen | None:
    """Of `GET /containers/{id}/json`; None where it can't be understood."""
    try:
        state, host = inspected["State"], inspected["HostConfig"]
        requests = [request for request in host.get("DeviceRequests") or () if any(request.values())]
        cdi = [request for request in requests if request.get("Driver") == "cdi"]
        return Seen(
            id=str(inspected["Id"]),
            name=str(inspected.get("Name", "")).lstrip("/"),
            state=str(state["Status"]),
            started_at=str(state.get("StartedAt", "")),
            policy=str((host.get("RestartPolicy") or {}).get("Name", "")),
            error=str(state.get("Error", "")),
            devices=tuple(dict.fromkeys(str(name) for request in cdi for name in request.get("DeviceIDs") or ())),
            foreign=tuple(
                f'a device request of driver "{request.get("Driver", "")}"'
                for request in requests
                if request not in cdi
            ),
            suspect=tuple(suspect),
        )
    except (KeyError, TypeError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class Standing:
    """What the repo may have at this moment."""

    granted: frozenset[str]
    ledger: Ledger
    stops: bool
    """Containers whose grant was taken away are stopped as well."""
    enforces: bool
    """Else what is found is only said."""


class Why(Enum):
    """How a container came to hold what it may not have."""

    REVOKED = "its grant was taken away"
    NEVER = "it was never granted"


@dataclass(frozen=True, slots=True)
class Step:
    """What has to be done about one container now; all empty: nothing."""

    why: Why | None = None
    lacking: tuple[str, ...] = ()
    """The names that are not granted."""
    calm: bool = False
    """Its daemon is about to start it: that is called off first."""
    disarm: bool = False
    """Its restart policy goes."""
    end: bool = False
    """It is stopped."""
    tell: bool = False
    """Somebody should know of it, whatever is done."""
    start: bool = False
    """Its daemon could not start it at boot, and it may have what it asks for."""

    @property
    def acts(self) -> bool:
        return self.calm or self.disarm or self.end


def decide(seen: Seen, standing: Standing) -> Step:
    """The next step; after it the container is looked at again, until there is none."""
    lacking = tuple(name for name in seen.devices if name not in standing.granted)
    if not lacking and not seen.foreign:
        return Step(start=_left_down(seen), tell=bool(seen.suspect) and seen.alive)
    why = Why.REVOKED if admitted(seen, lacking, standing.ledger) else Why.NEVER
    enforces = standing.enforces and (why is Why.REVOKED or standing.ledger.enforced)
    return Step(
        why=why,
        lacking=lacking,
        calm=enforces and seen.state == RESTARTING,
        disarm=enforces and seen.policy not in _NO_POLICY and seen.state not in _GOING,
        end=enforces and seen.alive and seen.state != RESTARTING and (why is Why.NEVER or standing.stops),
        tell=seen.alive and (why is Why.NEVER or not enforces),
    )


def admitted(seen: Seen, lacking: Collection[str], ledger: Ledger) -> bool:
    """Whether this run began when all that it lacks now was granted."""
    entry = ledger.containers.get(seen.id)
    if entry is None or seen.foreign or not set(lacking) <= set(entry.devices):
        return False
    return entry.run in ("", seen.started_at)


def _left_down(seen: Seen) -> bool:
    return not seen.alive and seen.policy not in _NO_POLICY and bool(seen.devices) and _NO_DRIVER in seen.error


def followed(
    ledger: Ledger,
    all_seen: Iterable[Seen],
    present: Collection[str] | None,
    grants: Mapping[str, str],
    starting: Collection[str],
) -> Ledger:
    """The ledger after a look. `present`: every container there is, None where only some were looked at; `grants`:
    the uid by device in force now; `starting`: containers whose start is on its way.

    What runs with granted devices only is taken in, however it came to run; what outlives its grant is bound to its
    present run; what does not run and may not start is forgotten.
    """
    containers = dict(ledger.containers)
    for seen in all_seen:
        entry = _entry(seen, containers.pop(seen.id, None), grants, ledger, seen.id in starting)
        if entry is not None:
            containers[seen.id] = entry
    if present is not None:
        containers = {id_: entry for id_, entry in containers.items() if id_ in present or id_ in starting}
    return ledger if containers == ledger.containers else replace(ledger, containers=containers)


def _entry(
    seen: Seen, before: Admitted | None, grants: Mapping[str, str], ledger: Ledger, starting: bool
) -> Admitted | None:
    lacking = [name for name in seen.devices if name not in grants]
    if not lacking and not seen.foreign:
        runs = seen.alive and bool(seen.devices)
        return Admitted({name: grants[name] for name in seen.devices}) if runs else before
    if starting:
        return before
    if before is None or not seen.alive or not admitted(seen, lacking, ledger):
        return None
    return replace(before, run=seen.started_at)


def clean(all_seen: Iterable[Seen], granted: Collection[str]) -> bool:
    """Whether nothing runs that was not granted: from then on what is found later was not there before the gate."""
    return not any(seen.alive and (seen.foreign or not set(seen.devices) <= set(granted)) for seen in all_seen)
