"""hack/up and hack/down as a person starts them: in the foreground, again, interrupted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import rig

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.timeout(rig.PATIENCE)]

WORKSTATION = rig.CHECKOUT / "examples/machines/workstation"


@pytest.fixture
def root() -> Iterator[Path]:
    """A root of its own, stopped and removed afterwards."""
    if os.geteuid() != 0:
        pytest.skip("hack/up needs root")
    place = rig.short_folder()
    yield place
    rig.succeeded(rig.script("down", "--root", place))
    shutil.rmtree(place)


def processes_of(root: Path) -> list[str]:
    """The command lines that name this root, and the daemons' own, which see its run folders."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{root}/" in line or line.endswith(f"{root} "):
            found.append(line)
    return found


@pytest.mark.req("R23", "R24")
def test_in_the_foreground_it_shows_the_main_job_and_ctrl_c_stops_all(root):
    # As a shell starts it in the background: SIGINT is ignored at first.
    command = [
        "sh",
        "-c",
        'trap "" INT; exec "$@"',
        "sh",
        str(rig.HACK / "up"),
        "--root",
        str(root),
        "--hardware",
        str(WORKSTATION),
    ]
    log = root / "said"
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True) as shown:
        try:
            rig.wait_for(lambda: "Ctrl-C stops it" in log.read_text() or shown.poll() is not None, seconds=120)
            os.killpg(shown.pid, signal.SIGINT)
            code = shown.wait(60)
        finally:
            shown.kill()

    text = log.read_text()
    assert code == 0, text
    assert "\nGPU 0: " in text
    assert "repo gpu-b has no grant for nvidia.com/gpu=all on workstation" in text
    assert text.index("$ docker --context gpu-a run") < text.index("$ docker --context gpu-b run")
    assert processes_of(root) == []
    assert str(root) not in Path("/proc/self/mountinfo").read_text()


def test_a_second_up_changes_nothing_and_another_machine_is_refused(root):
    system = rig.bring_up(root, WORKSTATION)
    before = system.gpugrant("status", "-o", "json").stdout

    rig.succeeded(rig.script("up", "--detach", "--root", root))
    other = rig.script("up", "--detach", "--root", root, "--hardware", WORKSTATION.parent / "no-gpu")

    assert system.gpugrant("status", "-o", "json").stdout == before
    assert other.returncode == 1
    assert f"it runs with other hardware ({WORKSTATION}): run hack/down first" in other.stderr


def test_down_and_up_again_keeps_repos_images_and_grants(root):
    system = rig.bring_up(root, WORKSTATION)
    rig.succeeded(system.rdc("repo", "gpu", "grant", "gpu-a", "--device", "rediacc.io/amd=gpu0"))
    ids = [path.read_text() for path in sorted(root.glob("daemons/*/id"))]
    rig.succeeded(rig.script("down", "--root", root))
    assert processes_of(root) == []

    again = rig.bring_up(root, WORKSTATION)

    assert [path.read_text() for path in sorted(root.glob("daemons/*/id"))] == ids
    rig.succeeded(again.kubectl("wait", "--for=condition=Ready", "rgg", "--all", "--timeout=30s"))
    seen = again.docker("gpu-a", "run", "--rm", "--device", "rediacc.io/amd=gpu0", "ubuntu:24.04", "ls", "/dev")
    assert "kfd" in rig.succeeded(seen).split()
