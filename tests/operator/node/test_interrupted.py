"""Setup killed at every step that writes, and on a disk that is full at every size: the old files or the new ones.

What stands in the CDI folder is always whole and names only nodes that are there, and the next run ends as if nothing
had happened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpugrant_crds import cdi, inventory
from gpugrant_crds.cdi import Spec
from gpugrant_operator.node import setup, state
from machines import NOW, Machine
from nvidia_machines import systemd, wsl

pytestmark = [pytest.mark.real, pytest.mark.req("R10", "D6"), pytest.mark.timeout(300)]

Recorded = Callable[[str], Machine]
Change = Callable[[Machine], None]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def cards_go(machine: Machine) -> None:
    """Both cards that have specs of their own; a spec that goes, one that goes, one that shrinks."""
    machine.remove_nvidia_card()
    machine.remove("dev/kfd", "dev/dri/renderD130")


def cards_come(machine: Machine) -> None:
    machine.add_nvidia_card()
    machine.write("dev/dri/renderD131")


def other_driver(machine: Machine) -> None:
    wsl(machine, driver="590.44", store="nvlti.inf_amd64_00aa11bb22cc33dd")


def nothing(machine: Machine) -> None:
    del machine


@dataclass
class Stage:
    """A machine that was set up, then changed; `before` and `after` are the roots that whole runs leave."""

    machine: Machine
    before: Path
    after: Path

    def fresh(self) -> Machine:
        """The changed machine with the root of before."""
        shutil.rmtree(self.machine.root, ignore_errors=True)
        copy(self.before, self.machine.root)
        return self.machine


def copy(source: Path, target: Path) -> None:
    """With device nodes."""
    subprocess.run(
        ["cp", "-a", f"{source}/.", str(target)] if target.exists() else ["cp", "-a", source, target], check=True
    )


def staged(machine: Machine, prepare: Change, change: Change) -> Stage:
    prepare(machine)
    machine.setup()
    before = machine.root.with_name("before")
    copy(machine.root, before)
    change(machine)
    machine.setup()
    after = machine.root.with_name("after")
    copy(machine.root, after)
    return Stage(machine, before, after)


CASES = {
    "cards go": ("workstation", nothing, cards_go),
    "cards come, with systemd": ("workstation", systemd, cards_come),
    "WSL with another driver": ("no-gpu", wsl, other_driver),
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def stage(request: pytest.FixtureRequest, recorded: Recorded) -> Stage:
    name, prepare, change = request.param
    return staged(recorded(name), prepare, change)


def specs(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "etc/cdi").iterdir() if cdi.is_spec_file(path.name)}


def assert_sound(root: Path, stage: Stage) -> None:
    """Each file is of before or of after, whole, and names nodes that are there."""
    before, after = specs(stage.before), specs(stage.after)
    for name, data in specs(root).items():
        assert data in (before.get(name), after.get(name)), name
        spec = cdi.read_spec(data, name)
        assert isinstance(spec, Spec)
        for device in spec.devices:
            for node in device.edits.device_nodes:
                assert Path(node.source).is_char_device(), f"{name}: {device.name} names {node.source}"
    for name in before.keys() & after.keys():
        assert name in specs(root), f"{name} is gone"
    known, damage = state.load(root / "var/lib/rediacc/gpu/setup.json")
    assert damage is None, damage
    for name, data in specs(root).items():
        # WSL's call writes the file itself, and the record can only follow
        assert known.owns(f"etc/cdi/{name}", data) or (stage.machine.tree / "dev/dxg").exists(), f"{name} is not ours"
    inventory.parse((root / "etc/rediacc/gpu/inventory.json").read_bytes())


def assert_done(stage: Stage) -> None:
    """A whole run ends as one that was never disturbed, with nothing left beside."""
    outcome = stage.machine.setup()
    root = stage.machine.root
    assert outcome.failures == ()
    assert specs(root) == specs(stage.after)
    assert sorted(path.name for path in (root / "dev").rglob("*")) == sorted(
        path.name for path in (stage.after / "dev").rglob("*")
    )
    assert not list(root.rglob("*.tmp"))


def killed_at(step: int, machine: Machine) -> bool:
    """Runs setup in a process that ends by SIGKILL right before its `step`th write; False: it had fewer."""
    pid = os.fork()
    if pid == 0:
        _run_until(step, str(machine.root), machine.options())
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def _run_until(step: int, root: str, options: setup.Options) -> None:
    """Never returns. The interpreter tells of each write before it is done (sys.addaudithook)."""
    left = [step]

    def audit(event: str, args: tuple[object, ...]) -> None:
        if event == "open":
            counts = isinstance(args[2], int) and bool(args[2] & WRITES) and str(args[0]).startswith(root)
        else:
            counts = event in ("os.rename", "os.remove", "os.mkdir", "os.chmod", "subprocess.Popen")
        left[0] -= counts
        if counts and left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(audit)
        setup.run(options, lambda: NOW, lambda _line: None)
    except BaseException:  # a forked test process must never run on into pytest
        os._exit(1)
    os._exit(0)


def test_killed_at_every_write(stage: Stage) -> None:
    """kill -9 before each file that is opened, renamed or removed, and before each program that is started."""
    step = 1
    while killed_at(step, stage.fresh()):
        assert_sound(stage.machine.root, stage)
        assert_done(stage)
        known, _ = state.load(stage.machine.root / "var/lib/rediacc/gpu/setup.json")
        assert known.taken_up == state.load(stage.after / "var/lib/rediacc/gpu/setup.json")[0].taken_up
        step += 1
    assert step > 10


@contextlib.contextmanager
def disk(root: Path, options: str) -> Iterator[None]:
    """A small file system at the root."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(root)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(root)], check=True)


def used(root: Path) -> tuple[int, int]:
    """Pages and files that a copy needs."""
    pages = sum(-(-path.lstat().st_size // 4096) for path in root.rglob("*") if path.is_file())
    return pages, sum(1 for _ in root.rglob("*")) + 1


@pytest.mark.parametrize("what", ["pages", "files"])
def test_a_disk_that_is_full_at_every_size(stage: Stage, what: str) -> None:
    """With room for no more, for one page or file more, and so on, until a run succeeds; then with room again."""
    pages, count = used(stage.before)
    root = stage.machine.root
    for more in range(64):
        # the least that tmpfs needs for itself is counted too, so that the first sizes really are full
        size = f"size={4 * (pages + more)}k" if what == "pages" else f"size=8m,nr_inodes={count + more}"
        with disk(root, f"{size},mode=0755"):
            try:
                copy(stage.before, root)
            except subprocess.CalledProcessError:
                continue
            outcome = attempt(stage.machine)
            assert_sound(root, stage)
            if outcome is not None and not outcome.failures:
                break
            if outcome is not None:
                assert any("no space left on device" in sentence for sentence in outcome.failures)
            subprocess.run(["mount", "-o", "remount,size=8m,nr_inodes=1000", str(root)], check=True)
            assert_done(stage)
    else:
        pytest.fail("no size was enough")


def attempt(machine: Machine) -> setup.Outcome | None:
    """None: the inventory itself could not be written."""
    options = replace(machine.options(), limits=setup.Limits(smi=5, toolkit=5, lock=1))
    try:
        return setup.run(options, lambda: NOW, lambda _line: None)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return None
