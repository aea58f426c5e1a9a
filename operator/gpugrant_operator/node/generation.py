"""nvidia.yaml: made by the toolkit, judged by us, put in place whole (R11, R14, R39, R40, R42).

The last spec that was whole is kept outside the CDI folder (there it would double every name). It comes back when what
stands in its place is worse: what nvidia-ctk, its refresh service or a run that was killed has left there.
"""

from __future__ import annotations

from pathlib import Path

from gpugrant_crds import cdi
from gpugrant_crds.cdi import Problem
from gpugrant_operator.node import files, nvidia_spec, programs, state
from gpugrant_operator.node.cards import Cards
from gpugrant_operator.node.run import Run, why
from gpugrant_operator.node.specs import NVIDIA_FILE, NVIDIA_KIND

FILE = f"etc/cdi/{NVIDIA_FILE}"
KEPT = "var/lib/rediacc/gpu/nvidia.yaml.kept"


def generate(run: Run, program: Path, found: Cards, *, wsl: bool) -> None:
    """Makes it anew; what fails is said, and then the last whole one is there."""
    run.progress(f"generating {NVIDIA_FILE}")
    fault = _wsl(run, program, found) if wsl else _native(run, program, found)
    if fault is None:
        _keep(run)
        return
    restore(run, found)
    then = "the old one stays" if run.read(FILE) is not None else "there is none"
    run.fail("GenerationFailed", f"{NVIDIA_FILE} was not made and {then}: {fault}")


def _native(run: Run, program: Path, found: Cards) -> str | None:
    env = {**run.env, **nvidia_spec.ENVIRONMENT}
    ended = programs.run(program, nvidia_spec.GENERATE_NATIVE, timeout=run.options.limits.toolkit, env=env)
    data = ended.stdout.encode()
    failed = _failed(ended) or _not_whole(run, data, found)
    if failed is None:
        run.put(FILE, data)
    return failed


def _wsl(run: Run, program: Path, found: Cards) -> str | None:
    """R39's call to the letter writes the file itself, so the old one is kept aside before."""
    target = run.root / FILE
    args = ("cdi", "generate", "--mode=wsl", f"--output={target}")
    if run.options.dry_run:
        run.act(program, args, timeout=0)
        run.written.append(str(target))
        return None
    old = run.read(FILE)
    if old is not None and (fault(run, old, found) is None or not (run.root / KEPT).exists()):
        _copy(run, KEPT, old)
    failed = _failed(run.act(program, args, timeout=run.options.limits.toolkit, env=nvidia_spec.ENVIRONMENT))
    new = run.read(FILE)
    failed = failed or _not_whole(run, new or b"", found)
    if failed is not None or new is None:
        _put_back(run, old)
        return failed
    run.state = run.state.wrote(FILE, new)
    run.save()
    target.chmod(0o644)
    run.written += [str(target)] if new != old else []
    return None


def _put_back(run: Run, old: bytes | None) -> None:
    """The file that was there, whatever it was; `restore` then mends one that a killed run left broken."""
    try:
        if old is None:
            files.remove(run.root / FILE)
        else:
            files.write(run.root / FILE, old)
    except OSError as error:
        run.fail("GenerationFailed", f"the old {run.root / FILE} can't be put back: {why(error)}")


def restore(run: Run, found: Cards) -> bool:
    """Puts the kept spec back where the one in place is not whole and the kept one still is; True: it did."""
    current, kept = run.read(FILE), run.read(KEPT)
    if kept is None or kept == current or (current is not None and fault(run, current, found) is None):
        return False
    return fault(run, kept, found) is None and run.put(FILE, kept)


def remove(run: Run) -> None:
    """The last card is gone: the spec and what was kept of it go too."""
    run.put(FILE, None)
    if not run.options.dry_run:
        files.remove(run.root / KEPT)


def _keep(run: Run) -> None:
    data = run.read(FILE)
    if data is not None and not run.options.dry_run:
        _copy(run, KEPT, data)


def _copy(run: Run, relative: str, data: bytes) -> None:
    try:
        files.write(run.root / relative, data)
    except OSError as error:
        run.fail("GenerationFailed", f"{run.root / relative} can't be written: {why(error)}")


def fault(run: Run, data: bytes, found: Cards) -> str | None:
    """What keeps these bytes from being a whole spec of this machine, as one clause."""
    return nvidia_spec.fault(cdi.read_spec(data, NVIDIA_FILE), found.nvidia_minors, run.node_exists)


def is_ours(run: Run, *, refreshed: bool) -> bool:
    """Setup wrote the file, or the refresh service did that setup pointed at it (design 7)."""
    data = run.read(FILE)
    if data is None:
        return False
    spec = cdi.read_spec(data, NVIDIA_FILE)
    by_service = refreshed and not isinstance(spec, Problem) and spec.kind == NVIDIA_KIND
    return run.owns(FILE) or by_service


def read_back(run: Run, found: Cards, *, refreshed: bool) -> None:
    """Judges what the refresh service left there since the last run; a bad one is a problem, and the last whole spec
    takes its place at once (R42)."""
    data = run.read(FILE)
    if data is None or not refreshed or run.state.latest(FILE) == state.digest(data):
        return
    clause = fault(run, data, found)
    if clause is not None:
        run.problems.append(("SpecInvalid", f"what the refresh service wrote to {run.root / FILE} is bad: {clause}"))
        restore(run, found)


def _failed(ended: programs.Ended) -> str | None:
    return (
        None if ended.ok else ended.why or f"nvidia-ctk ended with {ended.code}: {nvidia_spec.complaint(ended.stderr)}"
    )


def _not_whole(run: Run, data: bytes, found: Cards) -> str | None:
    clause = fault(run, data, found)
    return None if clause is None else f"what nvidia-ctk wrote is not whole: {clause}"
