"""`renet setup`: detects, makes the CDI specs, records the inventory (R10 to R18).

Gather, decide, apply. Every file is there whole or not at all, a failing step leaves the last good one, and what
failed is a problem entry of the inventory. Only files of ours are written or removed; no runtime is configured.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from gpugrant_crds import cdi, inventory, timestamps
from gpugrant_crds.inventory import Inventory
from gpugrant_crds.layout import Layout
from gpugrant_operator.node import cards, files, folder, gather, nodes, nvidia_spec, programs, specs, state
from gpugrant_operator.node.cards import Cards
from gpugrant_operator.node.gather import Limits, Progress
from gpugrant_operator.node.nvidia_spec import Action
from gpugrant_operator.node.observed import Observed
from gpugrant_operator.node.state import Install
from gpugrant_operator.node.tree import Tree
from gpugrant_operator.node.vendors import nvidia

_WRITTEN = {specs.NVIDIA_FILE: "nvidia-ctk", specs.DRI_FILE: "renet", specs.AMD_FILE: "renet"}


class Busy(RuntimeError):
    """Another setup of the same root does not end; the message is a sentence for a person."""


@dataclass(frozen=True, slots=True)
class Options:
    """`install`: given by hand, and kept by later runs; None: what was given last, else `default` (R13)."""

    root: Path = Path("/")
    hardware: Path = Path("/")
    install: Install | None = None
    dry_run: bool = False
    default: Install = "auto"
    """What the machine's object asks for: it counts until somebody gives a value by hand."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`failures`: sentences for a person, one a step that failed; with any of them the exit code is 1."""

    inventory: Inventory
    failures: tuple[str, ...]
    written: tuple[str, ...]
    """Paths that were (in a dry run: would be) written or removed."""

    @property
    def exit_code(self) -> int:
        return 1 if self.failures else 0


def run(options: Options, now: Callable[[], datetime], progress: Progress) -> Outcome:
    """One whole setup. Raises Busy, and OSError when the inventory itself can't be written."""
    if options.dry_run:
        return _Run(options, now, progress).all()
    layout = Layout(options.root)
    with _locked(layout.lock("setup"), options.limits.lock, now):
        return _Run(options, now, progress).all()


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


@dataclass
class _Run:
    """The steps of one setup, in their order, and what they found."""

    options: Options
    now: Callable[[], datetime]
    progress: Progress
    problems: list[tuple[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    overlay: dict[str, bytes | None] = field(default_factory=dict)
    """What a dry run would put into the CDI folder; None: it would remove the file."""
    planned: frozenset[str] = frozenset()
    """Stand-in nodes below dev/ that are there or, in a dry run, would be."""

    def __post_init__(self) -> None:
        self.layout = Layout(self.options.root)
        self.tree = Tree(self.options.hardware)
        self.state, damage = state.load(self.layout.setup)
        if damage:
            self.problems.append(("ProbeFailed", damage))
        if self.options.install is not None:
            self.state = self.state.model_copy(update={"install_nvidia_toolkit": self.options.install})

    @property
    def _install(self) -> Install:
        return self.state.install_nvidia_toolkit or self.options.default

    def all(self) -> Outcome:
        seen = gather.gather(self.tree, self._env(), self.options.limits, self.progress)
        found = cards.join(seen)
        self.problems.extend(found.problems)
        if self._folder_ready():
            self._stand_in_nodes(seen)
            self._our_specs(seen, found)
            self._nvidia_spec(seen, found)
        result = self._inventory(seen, found)
        self._record(result)
        return Outcome(result, tuple(self.failures), tuple(self.written))

    # --- steps --------------------------------------------------------------------------------------------------

    def _folder_ready(self) -> bool:
        """The CDI folder is a real folder: watchers do not follow a link, and bind mounts need the thing itself."""
        path = self.layout.cdi
        if path.is_symlink():
            self._fail("SpecInvalid", f"{path} is a link: make it a real folder, since daemons do not watch through it")
            return False
        if self.options.dry_run:
            return True
        try:
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            files.sweep(path)
        except OSError as error:
            self._fail("GenerationFailed", f"{path} can't be used: {_why(error)}")
            return False
        return True

    def _stand_in_nodes(self, seen: Observed) -> None:
        """For a recorded tree: real nodes below the root, with the recorded numbers."""
        if self.tree.is_live:
            return
        wanted, unknown = nodes.plan(seen.device_nodes, nodes.read_numbers(self.tree, seen.device_nodes))
        self.problems.extend(("NoDeviceNode", clause) for clause in unknown)
        if self.options.dry_run:
            self.planned = frozenset(node.path for node in wanted)
            return
        if wanted:
            self.progress(f"making {len(wanted)} stand-in device nodes below {self._dev}")
        self.planned, failed = nodes.make(self._dev, wanted)
        for clause in failed:
            self._fail("NoDeviceNode", clause)
        nodes.remove(self._dev, sorted(set(self.state.nodes) - self.planned))
        self.state = self.state.model_copy(update={"nodes": tuple(sorted(self.planned))})
        self._save_state()

    def _our_specs(self, seen: Observed, found: Cards) -> None:
        there = self.planned if not self.tree.is_live else seen.device_nodes
        renders = [path.removeprefix("dri/") for path in there if path.startswith("dri/renderD")]
        complete = [card for card in found.amd_devices if {"kfd", f"dri/{card.render_node}"} <= there]
        for name, spec in (
            (specs.DRI_FILE, specs.dri(renders, self._locate)),
            (specs.AMD_FILE, specs.amd(complete, self._locate)),
        ):
            self._put(name, None if spec is None else cdi.dump(spec).encode())

    def _nvidia_spec(self, seen: Observed, found: Cards) -> None:
        install = self._install
        program = self.tree.program("nvidia-ctk")
        current = self._current(specs.NVIDIA_FILE)
        match nvidia_spec.action(
            install,
            present=found.nvidia_present,
            seen=found.nvidia_seen,
            toolkit=program is not None,
            ours=current is not None and self.state.owns(f"etc/cdi/{specs.NVIDIA_FILE}", current),
        ):
            case Action.GENERATE if program is not None:
                self.progress("generating nvidia.yaml")
                self._generate(seen, found, program)
            case Action.INSTALL:
                self._fail(
                    "ToolkitMissing",
                    "the NVIDIA Container Toolkit is not installed: install the package "
                    "nvidia-container-toolkit-base, then run renet setup again",
                )
            case Action.REMOVE:
                self._put(specs.NVIDIA_FILE, None)
            case _:
                if install == "false" and current is not None:
                    self.progress(
                        f"{self.layout.cdi / specs.NVIDIA_FILE} stays as it is (--install-nvidia-toolkit false)"
                    )

    def _generate(self, seen: Observed, found: Cards, program: Path) -> None:
        if seen.platform == "wsl":
            self._generate_wsl(found, program)
            return
        env = {**self._env(), **nvidia_spec.ENVIRONMENT}
        ended = programs.run(program, nvidia_spec.GENERATE_NATIVE, timeout=self.options.limits.toolkit, env=env)
        fault = self._fault(ended, ended.stdout.encode(), found)
        if fault is None:
            self._put(specs.NVIDIA_FILE, ended.stdout.encode())
        else:
            self._generation_failed(fault)

    def _generate_wsl(self, found: Cards, program: Path) -> None:
        """R39's call to the letter: it writes the file itself, so the old one is kept aside and put back."""
        target = self.layout.cdi / specs.NVIDIA_FILE
        args = ("cdi", "generate", "--mode=wsl", f"--output={target}")
        if self.options.dry_run:
            self.written.append(str(target))
            return
        old = self._set_aside()
        ended = programs.run(program, args, timeout=self.options.limits.toolkit, env=self._env())
        new = self._current(specs.NVIDIA_FILE) or b""
        fault = self._fault(ended, new, found)
        if fault is not None:
            self._restore(target, old)
            self._generation_failed(fault)
            return
        files.remove(self._aside)
        target.chmod(0o644)
        self.state = self.state.wrote(f"etc/cdi/{specs.NVIDIA_FILE}", new)
        self._save_state()
        if new != old:
            self.written.append(str(target))

    @property
    def _aside(self) -> Path:
        """Outside the CDI folder: there it would double every name."""
        return self.layout.state / "nvidia.yaml.kept"

    def _set_aside(self) -> bytes | None:
        """The last good spec; one that a killed run had set aside counts before what that run left in place."""
        old = self._aside.read_bytes() if self._aside.exists() else self._current(specs.NVIDIA_FILE)
        if old is not None:
            files.write(self._aside, old)
        return old

    def _restore(self, target: Path, old: bytes | None) -> None:
        if old is None:
            files.remove(target)
        else:
            files.write(target, old)
            files.remove(self._aside)

    def _fault(self, ended: programs.Ended, data: bytes, found: Cards) -> str | None:
        if not ended.ok:
            return ended.why or f"nvidia-ctk ended with {ended.code}: {ended.last_line}"
        spec = cdi.read_spec(data, specs.NVIDIA_FILE)
        clause = nvidia_spec.fault(spec, found.nvidia_minors, self._node_exists)
        return None if clause is None else f"what nvidia-ctk wrote is not whole: {clause}"

    def _generation_failed(self, fault: str) -> None:
        kept = self._current(specs.NVIDIA_FILE) is not None
        then = "the old one stays" if kept else "there is none"
        self._fail("GenerationFailed", f"nvidia.yaml was not made and {then}: {fault}")

    # --- the result ---------------------------------------------------------------------------------------------

    def _inventory(self, seen: Observed, found: Cards) -> Inventory:
        previous = self._previous()
        generators = {name: who for name, who in _WRITTEN.items() if self._is_ours(name)}
        listed, troubles = folder.describe(self.layout.cdi, self._spec_files(), generators, self._node_exists)
        self.problems.extend(troubles)
        time_now = timestamps.write(self.now())
        return Inventory(
            generated_at=time_now,
            boot_id=seen.boot_id,
            kernel=seen.kernel,
            hostname=seen.hostname,
            platform=seen.platform,
            gpus=found.gpus,
            render_nodes=found.render_nodes,
            cdi=listed,
            nvidia=inventory.Nvidia(module_version=seen.nvidia_module, toolkit_version=self._toolkit_version()),
            problems=inventory.carry_since(tuple(self.problems), previous, time_now),
        )

    def _record(self, result: Inventory) -> None:
        if self.options.dry_run:
            self.written.append(str(self.layout.inventory))
            return
        self._save_state()
        if files.write(self.layout.inventory, result.dump().encode()):
            self.written.append(str(self.layout.inventory))

    def _previous(self) -> Inventory | None:
        try:
            return inventory.parse(self.layout.inventory.read_bytes())
        except (OSError, inventory.InventoryUnreadable):
            return None

    def _toolkit_version(self) -> str | None:
        """With `false` nothing of NVIDIA's is run (R13)."""
        program = self.tree.program("nvidia-ctk")
        if program is None or self._install == "false":
            return None
        ended = programs.run(program, ("--version",), timeout=self.options.limits.smi, env=self._env())
        return nvidia.parse_toolkit_version(ended.stdout) if ended.ok else None

    # --- small things -------------------------------------------------------------------------------------------

    def _env(self) -> dict[str, str]:
        if self.tree.is_live:
            return {}
        return {"GPUGRANT_ROOT": str(self.layout.root), "GPUGRANT_HARDWARE": str(self.tree.root)}

    @property
    def _dev(self) -> Path:
        return self.layout.root / "dev"

    def _locate(self, path: str) -> str:
        return path if self.tree.is_live else str(self._dev / path.removeprefix("/dev/"))

    def _node_exists(self, source: str) -> bool:
        """Whether a device node that a spec names is there, on the machine that is described."""
        inside = f"{self._dev}/"
        if not self.tree.is_live and self.options.dry_run and source.startswith(inside):
            return source.removeprefix(inside) in self.planned
        if not self.tree.is_live and not source.startswith(inside) and source.startswith("/dev/"):
            return self.tree.exists(source.removeprefix("/"))
        try:
            return stat.S_ISCHR(Path(source).stat().st_mode) or stat.S_ISBLK(Path(source).stat().st_mode)
        except OSError:
            return False

    def _put(self, name: str, data: bytes | None) -> None:
        """Puts a spec of ours in place or takes it away; a failure keeps the old file and is said."""
        path = self.layout.cdi / name
        current = self._current(name)
        if self.options.dry_run:
            self.overlay[name] = data
            if current != data:
                self.written.append(str(path))
            return
        key = f"etc/cdi/{name}"
        try:
            if data is None:
                changed = files.remove(path)
                self.state = self.state.removed(key)
            else:
                # recorded first: a run that is killed in between must still know the file as its own
                self.state = self.state.wrote(key, data)
                self._save_state()
                changed = files.write(path, data)
        except OSError as error:
            self._fail("GenerationFailed", f"{path} can't be written: {_why(error)}")
            return
        if changed:
            self.written.append(str(path))

    def _current(self, name: str) -> bytes | None:
        data = folder.read(self.layout.cdi).get(name)
        return data if isinstance(data, bytes) else None

    def _spec_files(self) -> dict[str, bytes | str]:
        found = folder.read(self.layout.cdi)
        for name, data in self.overlay.items():
            if data is None:
                found.pop(name, None)
            else:
                found[name] = data
        return dict(sorted(found.items()))

    def _is_ours(self, name: str) -> bool:
        data = self._spec_files().get(name)
        planned = self.overlay.get(name)
        return isinstance(data, bytes) and (planned == data or self.state.owns(f"etc/cdi/{name}", data))

    def _save_state(self) -> None:
        if self.options.dry_run:
            return
        try:
            state.save(self.layout.setup, self.state)
        except OSError as error:
            self._fail("GenerationFailed", f"{self.layout.setup} can't be written: {_why(error)}")

    def _fail(self, reason: str, sentence: str) -> None:
        if sentence not in self.failures:
            self.failures.append(sentence)
            self.problems.append((reason, sentence))


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
