"""When a machine's GPUs are looked for (D5): ordered rules, the first that speaks starts a detection.

Adding a cause: a function, its place in CAUSES, a case in tests/operator/reconcile/test_detection.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpugrant_crds import durations, timestamps
from gpugrant_crds.inventory import Inventory
from gpugrant_crds.v1alpha1 import DETECT_ANNOTATION, GpuMachine

INTERVAL = timedelta(hours=1)
"""Where spec.detection.interval is absent (design 3)."""

RETRY_FIRST = timedelta(seconds=30)
RETRY_LAST = timedelta(minutes=10)
"""After a failure the next automatic try waits twice as long as the one before, up to this."""

_INSTALL = {"Auto": "auto", "Always": "true", "Never": "false"}
"""spec.toolkit.install as `renet setup --toolkit-default` takes it (design 3)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A detection that ended. `message` is a sentence for a person; empty when it succeeded."""

    request: str | None
    """The annotation's value when it started."""
    succeeded: bool
    message: str
    ended: datetime


@dataclass(frozen=True, slots=True)
class Scene:
    """What the machine's node shows now. `specs` are sha256 by file name, as `settled` when the last one ended."""

    inventory: Inventory | None = None
    boot_id: str | None = None
    """None: the machine has none (a recorded tree)."""
    specs: Mapping[str, str] = field(default_factory=dict)
    settled: Mapping[str, str] | None = None
    last: Outcome | None = None
    failures: int = 0
    """Since the last success."""
    running: bool = False
    fingerprint: str = ""
    """Of the hardware now, as the gate reports it; empty: it does not."""
    tried: str = ""
    """The fingerprint that the last detection was started for: if the inventory still has another one afterwards, the
    two readers differ, and nothing is gained by trying again."""


@dataclass(frozen=True, slots=True)
class Due:
    """Start one now because of `cause`; or, with none, look again at `at`."""

    cause: str | None
    at: datetime | None = None


def due(machine: GpuMachine, scene: Scene, now: datetime) -> Due:
    """Whether a detection is due; never while one runs or the machine is being deleted."""
    if scene.running or machine.metadata.deletion_timestamp is not None:
        return Due(None)
    if requested(machine, scene.last) is not None:
        return Due("requested")
    pause = _pause(scene)
    if pause is not None and now < pause:
        return Due(None, pause)
    for cause, holds in CAUSES:
        if holds(machine, scene, now):
            return Due(cause)
    return Due(None, _next(machine, scene, now))


def requested(machine: GpuMachine, last: Outcome | None) -> str | None:
    """The request that no detection has answered yet."""
    wanted = machine.metadata.annotations.get(DETECT_ANNOTATION)
    answered = None if machine.status.detection is None else machine.status.detection.request
    if not wanted or wanted == answered or (last is not None and wanted == last.request):
        return None
    return wanted


def interval(machine: GpuMachine) -> timedelta:
    """How old an inventory may get; a text that is no duration, or zero, counts as absent."""
    text = None if machine.spec.detection is None else machine.spec.detection.interval
    return durations.read(text) or INTERVAL


def arguments(machine: GpuMachine) -> tuple[str, ...]:
    """What the machine's spec adds to `renet setup`; a value that was given there by hand outranks it (R13)."""
    install = None if machine.spec.toolkit is None else machine.spec.toolkit.install
    return () if install is None else ("--toolkit-default", _INSTALL[install])


def _never_detected(machine: GpuMachine, scene: Scene, now: datetime) -> bool:
    del machine, now
    return scene.inventory is None


def _other_boot(machine: GpuMachine, scene: Scene, now: datetime) -> bool:
    del machine, now
    return scene.inventory is not None and scene.boot_id is not None and scene.inventory.boot_id != scene.boot_id


def _specs_changed(machine: GpuMachine, scene: Scene, now: datetime) -> bool:
    """The files differ from what the inventory says; not when the last detection left them so."""
    del machine, now
    if scene.inventory is None or scene.specs == scene.settled:
        return False
    recorded = {file.path.rpartition("/")[2]: _bare(file.sha256) for file in scene.inventory.cdi.files}
    return recorded != dict(scene.specs)


def _too_old(machine: GpuMachine, scene: Scene, now: datetime) -> bool:
    following = _next(machine, scene, now)
    return following is not None and now >= following


HARDWARE = "the hardware or its driver changed"


def _hardware_changed(machine: GpuMachine, scene: Scene, now: datetime) -> bool:
    """A card, a driver, MIG or a partition is other than when the inventory was made (reference cdi-gpu 7.4)."""
    del machine, now
    if scene.inventory is None or not scene.inventory.fingerprint or not scene.fingerprint:
        return False
    return scene.fingerprint not in (scene.inventory.fingerprint, scene.tried)


CAUSES: tuple[tuple[str, Callable[[GpuMachine, Scene, datetime], bool]], ...] = (
    ("never detected", _never_detected),
    ("another boot", _other_boot),
    ("the CDI specs changed", _specs_changed),
    (HARDWARE, _hardware_changed),
    ("the interval is over", _too_old),
)


def _next(machine: GpuMachine, scene: Scene, now: datetime) -> datetime | None:
    moments = []
    if scene.inventory is not None:
        moments.append(_moment(scene.inventory.generated_at, now))
    if scene.last is not None:
        moments.append(scene.last.ended)
    return max(moments) + interval(machine) if moments else None


def _moment(text: str, now: datetime) -> datetime:
    """When the inventory was made; a time that can't be read is long ago, one that is yet to come is now."""
    try:
        return min(timestamps.read(text), now)
    except ValueError:
        return now - timedelta(days=3650)


def _pause(scene: Scene) -> datetime | None:
    if scene.last is None or scene.last.succeeded:
        return None
    return scene.last.ended + min(RETRY_FIRST * 2.0 ** min(scene.failures - 1, 16), RETRY_LAST)


def _bare(digest: str) -> str:
    return digest.removeprefix("sha256:")
