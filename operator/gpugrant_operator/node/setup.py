"""`renet setup`: detects, makes the CDI specs, records the inventory (R10 to R18).

Gather, decide, apply. Every file is there whole or not at all, a failing step leaves the last good one, and what
failed is a problem entry of the inventory. Only files of ours are written or removed; no runtime is configured.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpugrant_crds import cdi, inventory, timestamps
from gpugrant_crds.inventory import Inventory
from gpugrant_crds.layout import Layout
from gpugrant_operator.node import (
    cards,
    daemons,
    files,
    folder,
    gather,
    generation,
    hardware,
    nodes,
    nvidia_spec,
    persistenced,
    refresh,
    specs,
    toolkit,
)
from gpugrant_operator.node.cards import Cards
from gpugrant_operator.node.gather import Limits, Progress
from gpugrant_operator.node.nvidia_spec import Action
from gpugrant_operator.node.observed import Observed
from gpugrant_operator.node.run import Options, Run, why
from gpugrant_operator.node.state import Install

__all__ = ["Busy", "Install", "Limits", "Options", "Outcome", "run"]

_WRITTEN = {specs.NVIDIA_FILE: "nvidia-ctk", specs.DRI_FILE: "renet", specs.AMD_FILE: "renet"}


class Busy(RuntimeError):
    """Another setup of the same root does not end; the message is a sentence for a person."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`failures`: sentences for a person, one a step that failed; with any of them the exit code is 1."""

    inventory: Inventory
    failures: tuple[str, ...]
    written: tuple[str, ...]
    """Paths that were (in a dry run: would be) written."""
    removed: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    """What was (would be) done besides, as clauses."""

    @property
    def exit_code(self) -> int:
        return 1 if self.failures else 0


def run(options: Options, now: Callable[[], datetime], progress: Progress) -> Outcome:
    """One whole setup. Raises Busy, and OSError when the inventory itself can't be written."""
    if options.dry_run:
        return _all(Run(options, now, progress))
    layout = Layout(options.root)
    with _locked(layout.lock("setup"), options.limits.lock, now):
        return _all(Run(options, now, progress))


@contextmanager
def _locked(path: Path, wait: float, now: Callable[[], datetime]) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        deadline = time.monotonic() + wait
        while not _try_lock(file.fileno()):
            if time.monotonic() > deadline:
                raise Busy(f"another renet setup holds {path} and does not end: look for its process")
            time.sleep(0.1)
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "since": timestamps.write(now())}))
        file.flush()
        yield


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _all(run: Run) -> Outcome:
    """The steps in their order: nodes before the specs that name them, and away only after."""
    _sweep(run)
    seen = gather.gather(run.tree, run.env, run.options.limits, run.progress)
    found = cards.join(seen)
    run.problems.extend(found.problems)
    if _folder_ready(run):
        _make_nodes(run, seen)
        _our_specs(run, seen, found)
        _nvidia(run, seen, found)
        _remove_nodes(run)
    result = _inventory(run, seen, found)
    _record(run, result)
    return Outcome(result, tuple(run.failures), tuple(run.written), tuple(run.removed), tuple(run.actions))


def _sweep(run: Run) -> None:
    """What a killed run left half-written goes: in our own folders and wherever a file of ours lies."""
    if run.options.dry_run:
        return
    places = {run.layout.cdi, run.layout.etc, run.layout.state}
    places |= {(run.root / name).parent for name in run.state.files}
    for place in sorted(places):
        files.sweep(place)


def _folder_ready(run: Run) -> bool:
    """The CDI folder is a real folder: watchers do not follow a link, and bind mounts need the thing itself."""
    path = run.layout.cdi
    if path.is_symlink():
        run.fail("SpecInvalid", f"{path} is a link: make it a real folder, since daemons do not watch through it")
        return False
    if run.options.dry_run:
        return True
    try:
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        run.fail("GenerationFailed", f"{path} can't be used: {why(error)}")
        return False
    return True


# --- stand-in nodes -------------------------------------------------------------------------------------------------


def _make_nodes(run: Run, seen: Observed) -> None:
    """For a recorded tree: real nodes below the root, with the recorded numbers."""
    if run.tree.is_live:
        return
    known = len(run.tree.faults)
    wanted, unknown = nodes.plan(seen.device_nodes, nodes.read_numbers(run.tree, seen.device_nodes))
    run.problems.extend(("ProbeFailed", fault) for fault in run.tree.faults[known:])
    run.problems.extend(("NoDeviceNode", clause) for clause in unknown)
    if run.options.dry_run:
        run.planned = frozenset(node.path for node in wanted)
        return
    if wanted:
        run.progress(f"making {len(wanted)} stand-in device node{'s' if len(wanted) > 1 else ''} below {run.dev}")
    # recorded first, with those of before: what a killed run has made is known to the next
    named = sorted({node.path for node in wanted} | set(run.state.nodes))
    run.state = run.state.model_copy(update={"nodes": tuple(named)})
    run.save()
    run.planned, failed = nodes.make(run.dev, wanted)
    for clause in failed:
        run.fail("NoDeviceNode", clause)


def _remove_nodes(run: Run) -> None:
    """Only now, and only those that no spec names any more: one that could not be written anew still does."""
    if run.tree.is_live or run.options.dry_run:
        return
    named = folder.node_sources(folder.read(run.layout.cdi))
    gone = {name for name in run.state.nodes if name not in run.planned and str(run.dev / name) not in named}
    nodes.remove(run.dev, sorted(gone))
    left = tuple(sorted(set(run.state.nodes) - gone))
    run.state = run.state.model_copy(update={"nodes": left})


# --- specs ----------------------------------------------------------------------------------------------------------


def _our_specs(run: Run, seen: Observed, found: Cards) -> None:
    there = run.planned if not run.tree.is_live else seen.device_nodes
    renders = [path.removeprefix("dri/") for path in there if path.startswith("dri/renderD")]
    complete = [card for card in found.amd_devices if {"kfd", f"dri/{card.render_node}"} <= there]
    for name, spec in (
        (specs.DRI_FILE, specs.dri(renders, run.locate)),
        (specs.AMD_FILE, specs.amd(complete, run.locate)),
    ):
        run.put(f"etc/cdi/{name}", None if spec is None else cdi.dump(spec).encode())


def _nvidia(run: Run, seen: Observed, found: Cards) -> None:
    """The toolkit, its spec, its refresh; then our own units and the socket, which serve every value of the option."""
    wsl = seen.platform == "wsl"
    systemctl = refresh.systemctl(run)
    pointed = refresh.pointed(run) is not None
    if run.install != "false":
        generation.read_back(run, found, refreshed=pointed)
    program = run.tree.program("nvidia-ctk")
    action = _action(run, found, program, pointed=pointed)
    if action is Action.INSTALL:
        program = toolkit.install(run)
        action = _action(run, found, program or _PLANNED, pointed=pointed)
    if action is Action.GENERATE and found.nvidia_blocked:
        then = "stays as it is" if run.read(generation.FILE) is not None else "is not made"
        run.progress(f"{run.root / generation.FILE} {then}: the NVIDIA driver does not answer")
        action = Action.LEAVE
    if run.install == "false" and (run.read(generation.FILE) is not None or found.nvidia_present):
        then = "stays as it is" if run.read(generation.FILE) is not None else "is not made"
        run.progress(f"{run.root / generation.FILE} {then} (--install-nvidia-toolkit false)")
    if run.install != "false" and program is not None and systemctl is not None:
        refresh.point(run, systemctl, found)
    if action is Action.GENERATE and program is not None:
        generation.generate(run, program, found, wsl=wsl)
    elif action is Action.GENERATE and run.options.dry_run:
        run.written.append(str(run.root / generation.FILE))
    elif action is Action.REMOVE:
        generation.remove(run)
    run.persistenced_socket = persistenced.show(run, systemctl)
    if systemctl is not None:
        refresh.set_up_own(run, systemctl, wsl=wsl)


_PLANNED = Path("nvidia-ctk")
"""Stands for a toolkit that was to be installed: what then is decided without asking for it again."""


def _action(run: Run, found: Cards, program: Path | None, *, pointed: bool) -> Action:
    return nvidia_spec.action(
        run.install,
        present=found.nvidia_present,
        seen=found.nvidia_seen,
        toolkit=program is not None,
        ours=generation.is_ours(run, refreshed=pointed),
    )


# --- the result -----------------------------------------------------------------------------------------------------


def _inventory(run: Run, seen: Observed, found: Cards) -> Inventory:
    previous = _previous(run)
    generators = {name: who for name, who in _WRITTEN.items() if run.owns(f"etc/cdi/{name}")}
    behind = hardware.behind(seen, found.gpus, (f"{run.dev}/", "/dev/"))
    listed, troubles = folder.describe(run.layout.cdi, _spec_files(run), generators, run.node_exists, behind)
    run.problems.extend(troubles)
    _confirm(run, listed)
    time_now = timestamps.write(run.now())
    return Inventory(
        generated_at=time_now,
        boot_id=seen.boot_id,
        kernel=seen.kernel,
        hostname=seen.hostname,
        platform=seen.platform,
        fingerprint=seen.fingerprint,
        gpus=found.gpus,
        render_nodes=found.render_nodes,
        cdi=listed,
        nvidia=_nvidia_software(run, seen),
        problems=inventory.carry_since(tuple(run.problems), previous, time_now),
    )


def _nvidia_software(run: Run, seen: Observed) -> inventory.Nvidia:
    service = refresh.pointed(run)
    output = str(run.root / generation.FILE)
    return inventory.Nvidia(
        module_version=seen.nvidia_module,
        toolkit_version=_toolkit_version(run),
        persistenced_socket=run.persistenced_socket,
        refresh_unit=None if service is None else inventory.RefreshUnit(name=service, output=output),
    )


def _confirm(run: Run, listed: inventory.Cdi) -> None:
    """A daemon that reads the folder must list every usable name."""
    if run.options.dry_run:
        return
    usable = [device.name for device in listed.devices if device.usable]
    for repo, names in daemons.missing(run.layout, usable):
        run.problems.append(
            ("SpecUnseen", f"the daemon of repo {repo} does not list {', '.join(names)}: docker info says why")
        )
    versions = {file.path: file.cdi_version for file in listed.files if file.cdi_version and not file.error}
    for repo, release, path in daemons.too_old(run.layout, versions):
        clause = f"Docker {release} of repo {repo} can't read {path}, whose CDI version is {versions[path]}"
        run.problems.append(("SpecTooNew", f"{clause}: update Docker there, or what makes the file"))


def _spec_files(run: Run) -> dict[str, bytes | str]:
    found = folder.read(run.layout.cdi)
    for path, data in run.overlay.items():
        place, _, name = path.rpartition("/")
        if place != "etc/cdi":
            continue
        if data is None:
            found.pop(name, None)
        else:
            found[name] = data
    return dict(sorted(found.items()))


def _record(run: Run, result: Inventory) -> None:
    if run.options.dry_run:
        run.written.append(str(run.layout.inventory))
        return
    run.save()
    if files.write(run.layout.inventory, result.dump().encode()):
        run.written.append(str(run.layout.inventory))


def _previous(run: Run) -> Inventory | None:
    try:
        return inventory.parse(run.layout.inventory.read_bytes())
    except (OSError, inventory.InventoryUnreadable):
        return None


def _toolkit_version(run: Run) -> str | None:
    """With `false` nothing of NVIDIA's is run (R13)."""
    program = run.tree.program("nvidia-ctk")
    if program is None or run.install == "false":
        return None
    return refresh.toolkit_version(run, program)
