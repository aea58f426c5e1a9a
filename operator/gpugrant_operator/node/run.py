"""One run of `renet setup`: what it was told, what it has written, what failed. The steps share it.

Every file goes through `put`: recorded as ours first, then there whole or not at all, and only below the root. In a dry
run nothing is written and no program that changes anything is started; what would be is kept and said.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from gpugrant_crds.layout import Layout
from gpugrant_operator.node import files, folder, programs, state
from gpugrant_operator.node.gather import Limits, Progress
from gpugrant_operator.node.state import Install
from gpugrant_operator.node.tree import Tree

DAEMON_UNITS = ("docker@*.service", "docker-*.service", "rediacc-docker-*.service", "rediacc-docker@*.service")
"""Units of repo daemons where nobody said otherwise: a template, or a name that begins like this."""


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
    offline: bool = False
    """Nothing is installed: at boot, before the repo daemons, no network is waited for."""
    daemon_units: tuple[str, ...] = ()
    """Patterns of the repo daemons' units; kept by later runs. Empty: what was given last, else DAEMON_UNITS."""
    command: tuple[str, ...] = ("renet", "setup")
    """How a unit starts this program again."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """For package managers: where the machine's proxy is."""


@dataclass
class Run:
    """Sentences for a person in `failures`, one a step that failed; (reason, message) in `problems`."""

    options: Options
    now: Callable[[], datetime]
    progress: Progress
    problems: list[tuple[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    """Paths that were (in a dry run: would be) written."""
    removed: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    """Clauses of what was (would be) done besides: an installation, a call of systemctl."""
    overlay: dict[str, bytes | None] = field(default_factory=dict)
    """Below the root: what a dry run would have put there; None: it would have removed the file."""
    persistenced_socket: str | None = None
    """Of a running nvidia-persistenced."""
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
        if self.options.daemon_units:
            self.state = self.state.model_copy(update={"daemon_units": self.options.daemon_units})

    # --- what it works with -------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        return self.layout.root

    @property
    def install(self) -> Install:
        return self.state.install_nvidia_toolkit or self.options.default

    @property
    def daemon_units(self) -> tuple[str, ...]:
        return self.state.daemon_units or DAEMON_UNITS

    @property
    def is_here(self) -> bool:
        """What is written is what the running machine reads: no recorded tree, no other root."""
        return self.tree.is_live and self.root == Path("/")

    @property
    def env(self) -> dict[str, str]:
        """For the tree's programs."""
        if self.tree.is_live:
            return {}
        return {"GPUGRANT_ROOT": str(self.root), "GPUGRANT_HARDWARE": str(self.tree.root)}

    @property
    def dev(self) -> Path:
        """Where the device nodes of a recorded tree are made."""
        return self.root / "dev"

    def locate(self, path: str) -> str:
        """Where a node below /dev lies on this machine."""
        return path if self.tree.is_live else str(self.dev / path.removeprefix("/dev/"))

    def node_exists(self, source: str) -> bool:
        """Whether a device node that a spec names is there, on the machine that is described."""
        inside = f"{self.dev}/"
        if not self.tree.is_live and self.options.dry_run and source.startswith(inside):
            return source.removeprefix(inside) in self.planned
        if not self.tree.is_live and not source.startswith(inside) and source.startswith("/dev/"):
            return self.tree.exists(source.removeprefix("/"))
        try:
            mode = Path(source).stat().st_mode
        except OSError:
            return False
        return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)

    # --- files --------------------------------------------------------------------------------------------------

    def read(self, relative: str) -> bytes | None:
        """A file below the root as it is, in a dry run as it would be; None: there is none that can be read."""
        if relative in self.overlay:
            return self.overlay[relative]
        data = folder.read_file(self.root / relative)
        return data if isinstance(data, bytes) else None

    def put(self, relative: str, data: bytes | None) -> bool:
        """Puts a file of ours in place or, with None, takes it away; False: nothing changed. What can't be written
        is a failure, and then the old file is there."""
        path = self.root / relative
        if self.options.dry_run:
            changed = self.read(relative) != data
            self.overlay[relative] = data
            self._changed(path, data, changed=changed)
            return changed
        try:
            changed = self._remove(relative) if data is None else self._write(relative, data)
        except OSError as error:
            self.fail("GenerationFailed", f"{path} can't be written: {why(error)}")
            return False
        self._changed(path, data, changed=changed)
        return changed

    def _changed(self, path: Path, data: bytes | None, *, changed: bool) -> None:
        if changed:
            (self.removed if data is None else self.written).append(str(path))

    def _write(self, relative: str, data: bytes) -> bool:
        # recorded first: a run that is killed in between must still know the file as its own
        self.state = self.state.wrote(relative, data)
        self.save()
        return files.write(self.root / relative, data)

    def _remove(self, relative: str) -> bool:
        changed = files.remove(self.root / relative)
        self.state = self.state.removed(relative)
        return changed

    def owns(self, relative: str) -> bool:
        """The file that is (in a dry run: would be) there was put there by setup."""
        data = self.read(relative)
        return data is not None and (self.overlay.get(relative) == data or self.state.owns(relative, data))

    def save(self) -> None:
        """Records what is ours; a failure is said."""
        if self.options.dry_run:
            return
        try:
            state.save(self.layout.setup, self.state)
        except OSError as error:
            self.fail("GenerationFailed", f"{self.layout.setup} can't be written: {why(error)}")

    def take_up(self, group: str, texts: Iterable[str], act: Callable[[], bool]) -> None:
        """Runs `act` unless it has succeeded for these texts before: after a failure or a kill it is tried again."""
        wanted = state.digest("\0".join(texts).encode())
        if self.state.taken_up.get(group) == wanted:
            return
        if act() and not self.options.dry_run:
            self.state = self.state.model_copy(update={"taken_up": self.state.taken_up | {group: wanted}})

    # --- programs -----------------------------------------------------------------------------------------------

    def act(
        self,
        program: Path,
        args: Sequence[str],
        *,
        timeout: float,
        shown: str = "",
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> programs.Ended:
        """Runs a program that changes the machine; in a dry run nothing is run and the answer is a success. `shown` is
        its line of progress where the whole command says too much."""
        said = f"{program.name} {' '.join(args)}"
        self.actions.append(said)
        if self.options.dry_run:
            return programs.Ended(0, "", "")
        self.progress(f"running {shown or said}")
        return programs.run(program, args, timeout=timeout, env={**self.options.environ, **self.env, **env})

    # --- what is said -------------------------------------------------------------------------------------------

    def fail(self, reason: str, sentence: str) -> None:
        """A step that failed: exit 1."""
        if sentence not in self.failures:
            self.failures.append(sentence)
            self.problems.append((reason, sentence))


def why(error: OSError) -> str:
    """The clause for a person."""
    return (error.strerror or str(error)).lower()
