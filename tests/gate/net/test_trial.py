"""Which sealed folder a trial writes: its daemon's, and none that somebody else keeps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpugrant_crds.layout import Layout
from gpugrant_gate.life import lock, sealed
from gpugrant_gate.net import trial
from gpugrant_gate.net.trial import SealedFolder

OTHER_FOLDER = Path("/run/cdi")
pytestmark = pytest.mark.skipif(
    OTHER_FOLDER.is_dir() and any(OTHER_FOLDER.iterdir()), reason="/run/cdi has specs: no process here counts as sealed"
)

SPEC = """
cdiVersion: 0.5.0
kind: v.com/gpu
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/v0}]}
- name: "1"
  containerEdits: {deviceNodes: [{path: /dev/v1}]}
"""


KILLED = """
import os, signal, sys
from pathlib import Path
from gpugrant_crds.layout import Layout
from gpugrant_gate.net.trial import SealedFolder
SealedFolder(Layout(Path(sys.argv[1])), ["v.com/gpu=1"]).follow(int(sys.argv[2]))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Two sealed folders, and a process (this one) that sees the second as its CDI folder."""
    layout = Layout(tmp_path)
    for name in ("one", "two"):
        layout.sealed_repo(name).mkdir(parents=True)
        (layout.sealed_repo(name) / "v.yaml").write_text(SPEC)
    layout.cdi.parent.mkdir()
    layout.cdi.symlink_to(layout.sealed_repo("two"))
    return layout


def test_finds_the_folder_that_the_process_sees(layout: Layout) -> None:
    assert trial.find(os.getpid(), layout) == layout.sealed_repo("two")
    assert trial.find(0, layout) is None


def test_finds_none_for_a_daemon_that_is_not_sealed(layout: Layout) -> None:
    layout.cdi.unlink()
    layout.cdi.mkdir()
    assert trial.find(os.getpid(), layout) is None
    assert trial.find(os.getpid(), Layout(layout.root / "none")) is None


@pytest.mark.req("R43")
def test_holds_the_granted_names_while_the_daemon_is_there(layout: Layout) -> None:
    folder, specs = SealedFolder(layout, ["v.com/gpu=1"]), sealed.read_specs(layout.cdi)
    folder.follow(os.getpid())
    folder.rewrite(specs)
    text = (layout.sealed_repo("two") / "v.yaml").read_text()
    assert "/dev/v1" in text
    assert "/dev/v0" not in text
    folder.follow(0)
    assert list(layout.sealed_repo("two").iterdir()) == []
    folder.rewrite(specs)
    assert list(layout.sealed_repo("two").iterdir()) == []
    assert (layout.sealed_repo("one") / "v.yaml").read_text() == SPEC


@pytest.mark.req("R43")
def test_the_folder_of_a_trial_that_was_killed_is_emptied_by_the_next_one(layout: Layout) -> None:
    command = [sys.executable, "-c", KILLED, str(layout.root), str(os.getpid())]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "/dev/v1" in (layout.sealed_repo("two") / "v.yaml").read_text()
    SealedFolder(layout, [])
    assert list(layout.sealed_repo("two").iterdir()) == []
    assert (layout.sealed_repo("one") / "v.yaml").read_text() == SPEC
    assert list(layout.trials.iterdir()) == []


def test_a_trial_that_runs_keeps_its_folder_when_another_starts(layout: Layout) -> None:
    folder = SealedFolder(layout, ["v.com/gpu=1"])
    folder.follow(os.getpid())
    text = (layout.sealed_repo("two") / "v.yaml").read_text()
    SealedFolder(layout, []).empty()
    assert (layout.sealed_repo("two") / "v.yaml").read_text() == text
    folder.empty()
    assert list(layout.trials.iterdir()) == []


def test_leaves_the_folder_to_a_gate_that_runs_with_this_root(layout: Layout) -> None:
    held = lock.take(layout.lock("gate"), datetime.now(UTC))
    folder = SealedFolder(layout, [])
    folder.follow(os.getpid())
    folder.empty()
    assert (layout.sealed_repo("two") / "v.yaml").read_text() == SPEC
    os.close(held)
    folder.follow(os.getpid())
    assert list(layout.sealed_repo("two").iterdir()) == []
