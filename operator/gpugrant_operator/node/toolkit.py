"""Installs the NVIDIA Container Toolkit where it is missing (R11, R13). An installed one, the full one too, is kept.

Offline, or where no repository serves the package: one sentence, and no half-made repository is left behind.
"""

from __future__ import annotations

from pathlib import Path

from gpugrant_operator.node import folder, packages
from gpugrant_operator.node.packages import Command, Manager
from gpugrant_operator.node.programs import Ended
from gpugrant_operator.node.run import Run

KEY = Path(__file__).with_name("nvidia-container-toolkit.asc")
"""NVIDIA's public key, armored."""

_BY_HAND = f"install the package {packages.PACKAGE}, then run renet setup again"


def install(run: Run) -> Path | None:
    """Where nvidia-ctk lies afterwards; None: it could not be installed, which is said, or this is a dry run."""
    fault = _install(run)
    program = None if fault is not None or run.options.dry_run else run.tree.program("nvidia-ctk")
    if program is None and not run.options.dry_run:
        clause = fault or "the package manager ended well, but nvidia-ctk is not there"
        run.fail("ToolkitMissing", f"the NVIDIA Container Toolkit is not installed: {clause}: {_BY_HAND}")
    return program


def _install(run: Run) -> str | None:
    """Why it failed, as one clause; None: it did not."""
    if run.options.offline:
        return "this run installs nothing (--offline)"
    if run.tree.is_live and not run.is_here and run.install != "true":
        # a trial below another root changes nothing of the machine unless it is told to
        return "below another --root it is installed only with --install-nvidia-toolkit true"
    manager = packages.choose(run.tree.text("etc/os-release") or "", lambda name: run.tree.program(name) is not None)
    if manager is None:
        known = ", ".join(manager.program for manager in packages.MANAGERS)
        return f"this machine has none of the package managers {known}"
    run.progress(f"installing {manager.package} with {manager.program}")
    added = _add_repository(run, manager)
    fault = _run_commands(run, manager)
    if fault is not None:
        for path in added:
            run.put(path, None)
        # as if they had never been there
        undone = {str(run.root / name) for name in added}
        run.written = [path for path in run.written if path not in undone]
        run.removed = [path for path in run.removed if path not in undone]
    return fault


def _add_repository(run: Run, manager: Manager) -> tuple[str, ...]:
    """The files that were made; one that somebody else set up is left as it is, since apt refuses two with two keys."""
    if any(_names_repository(data) for place in manager.lists for data in _texts(run, place)):
        return ()
    sources = manager.sources(run.root, KEY.read_text(encoding="ascii"))
    return tuple(path for path, data in sources.items() if run.put(path, data))


def _texts(run: Run, place: str) -> list[bytes]:
    """Of the machine's list files, ours left out."""
    path = run.tree.locate(place)
    if path is None:
        return []
    found = sorted(path.iterdir()) if path.is_dir() else [path]
    texts = [folder.read_file(file) for file in found if not file.name.startswith("nvidia-container-toolkit.")]
    return [text for text in texts if isinstance(text, bytes)]


def _names_repository(data: bytes) -> bool:
    marker = packages.ADDRESS.removeprefix("https://").encode()
    return any(marker in line for line in data.splitlines() if not line.lstrip().startswith(b"#"))


def _run_commands(run: Run, manager: Manager) -> str | None:
    """The last one decides: a package that can be had is installed even where a list can't be read. Of the faults
    the first says why."""
    *preparing, installing = manager.commands(run.root)
    faults = [fault for command in preparing if (fault := _run_command(run, command)) is not None]
    fault = _run_command(run, installing)
    return None if fault is None else (faults or [fault])[0]


def _run_command(run: Run, command: Command) -> str | None:
    name, *args = command
    program = run.tree.program(name)
    if program is None:
        return f"{name} is not on this machine"
    ended = run.act(program, args, timeout=run.options.limits.install, shown=_verb(command))
    return None if ended.ok else _said(name, ended)


def _verb(command: Command) -> str:
    """`apt-get update`: what a person wants to read of it."""
    name, *args = command
    return f"{name} {next((word for word in args if not word.startswith('-')), args[0])}"


def _said(name: str, ended: Ended) -> str:
    """What a package manager complains of: apt's `E:` lines and the words of the others before all else it says."""
    if ended.why:
        return ended.why
    lines = [line.strip() for line in (ended.stderr + "\n" + ended.stdout).splitlines() if line.strip()]
    telling = [line for line in lines if line.lower().startswith(("e:", "error", "no match", "no provider"))]
    line = (telling or lines or [f"exit code {ended.code}"])[0]
    return f"{name} says: {' '.join(line.split())[:300].rstrip('.:')}"
