"""The units of setup under a real systemd: the toolkit's refresh service, ours, a daemon with files of its own."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator

import pytest

import nvidia_ctk
import rig
import whole_machine
from nvidia_machines import content
from whole_machine import Booted, Box

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

MODULES = f"/lib/modules/{platform.release()}/modules.dep"

PERSISTENCED = """\
[Service]
RuntimeDirectory=nvidia-persistenced
RuntimeDirectoryPreserve=yes
ExecStartPre=-/bin/rm /run/nvidia-persistenced/socket
ExecStart=/usr/bin/python3 -c "import socket, time; s = socket.socket(socket.AF_UNIX); \
s.bind('/run/nvidia-persistenced/socket'); s.listen(); time.sleep(600)"
"""

DAEMON = """\
[Service]
ExecStart=/bin/sleep 600
%s
"""


@pytest.fixture
def box() -> Iterator[Box]:
    """A server with driver and toolkit; the driver's module is installed, as the toolkit's service wants it."""
    made = whole_machine.server()
    for path in nvidia_ctk.programs(nvidia_ctk.NEWEST).iterdir():
        shutil.copy(path, made.upper / "usr/bin")
    for name in ("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path"):
        source = nvidia_ctk.module(nvidia_ctk.NEWEST) / "deployments/systemd" / name
        place(made, f"usr/lib/systemd/system/{name}", source.read_text())
    place(made, f"usr{MODULES}", "kernel/drivers/nvidia/nvidia.ko:\n")
    (made.upper / "usr/lib").chmod(0o755)
    yield made
    shutil.rmtree(made.work)


def place(box: Box, path: str, text: str) -> None:
    target = box.upper / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def result(up: Booted, unit: str) -> str:
    return up.systemctl("show", "--property=Result,ActiveState,ConditionResult", unit)


@pytest.mark.req("R42", "R43", "R11")
def test_the_refresh_service_writes_what_the_daemons_read(box: Box) -> None:
    """Installed, pointed, run: by itself after a driver change; a bad spec of it is replaced and reported at once."""
    with box.booted() as up:
        done = up.setup()
        assert done.returncode == 0, done.stderr
        whole = box.spec.read_bytes()
        for unit in ("nvidia-cdi-refresh.path", "gpugrant-refresh.path"):
            assert up.systemctl("is-active", unit) == "active"
        for unit in ("nvidia-cdi-refresh.service", "gpugrant-refresh.service"):
            assert up.systemctl("is-enabled", unit) == "enabled"
        assert "Result=success" in result(up, "nvidia-cdi-refresh.service")

        # a driver change: the toolkit's path unit starts its service, which makes the file anew
        rig.succeeded(up.run("rm", "/etc/cdi/nvidia.yaml"))
        rig.succeeded(up.run("sh", "-c", f"echo >>{MODULES}"))
        rig.wait_for(lambda: content(box.spec) == whole.decode(), seconds=30)
        rig.wait_for(lambda: "ActiveState=inactive" in result(up, "gpugrant-refresh.service"), seconds=30)

        # a bad one: ours reads it back
        rig.succeeded(up.run("sh", "-c", "echo ']' >/etc/cdi/.x && mv /etc/cdi/.x /etc/cdi/nvidia.yaml"))
        rig.wait_for(lambda: content(box.spec) == whole.decode(), seconds=30)
        rig.wait_for(lambda: [p.reason for p in box.inventory().problems] == ["SpecInvalid"], seconds=30)
        rig.wait_for(lambda: "ActiveState=inactive" in result(up, "gpugrant-refresh.service"), seconds=30)
        assert "Result=success" in result(up, "gpugrant-refresh.service")

        # as at a boot
        rig.succeeded(up.run("rm", "/etc/cdi/nvidia.yaml", "/etc/rediacc/gpu/inventory.json"))
        up.systemctl("start", "gpugrant-refresh.service")
        assert box.spec.read_bytes() == whole
        assert box.inventory().problems == ()


@pytest.mark.req("R44")
def test_a_daemon_that_hides_run_sees_the_socket_after_a_restart(box: Box) -> None:
    """It is named and not restarted; one that sees all of /run is not named."""
    place(box, "etc/systemd/system/nvidia-persistenced.service", PERSISTENCED)
    place(box, "etc/systemd/system/docker@.service", DAEMON % "TemporaryFileSystem=/run")
    place(box, "etc/systemd/system/docker-open.service", DAEMON % "")
    with box.booted() as up:
        up.systemctl("start", "docker@gpu-a.service", "docker-open.service")
        assert up.setup().returncode == 0
        assert not list((box.upper / "etc/systemd/system").glob("*/*persistenced*"))

        up.systemctl("start", "nvidia-persistenced.service")
        rig.wait_for(lambda: up.run("test", "-S", "/run/nvidia-persistenced/socket").returncode == 0)
        assert "gpugrant-refresh.service" in up.systemctl("show", "--property=After", "docker@gpu-a.service")
        before = up.systemctl("show", "--property=MainPID", "docker@gpu-a.service")
        done = up.setup()
        assert done.returncode == 0, done.stderr
        assert "/run/nvidia-persistenced/socket" in content(box.spec)
        problems = [problem.message for problem in box.inventory().problems]
        assert len(problems) == 1
        assert problems[0].startswith("docker@gpu-a.service does not see the socket of nvidia-persistenced")
        assert up.systemctl("show", "--property=MainPID", "docker@gpu-a.service") == before

        up.systemctl("restart", "docker@gpu-a.service")
        assert up.setup().returncode == 0
        assert box.inventory().problems == ()
        # a socket that is made anew in the folder is seen without another restart, a folder made anew is not
        for command, reasons in (("true", []), ("rm -r /run/nvidia-persistenced", ["RestartRequired"])):
            up.systemctl("stop", "nvidia-persistenced.service")
            rig.succeeded(up.run("sh", "-c", command))
            up.systemctl("start", "nvidia-persistenced.service")
            rig.wait_for(lambda: up.run("test", "-S", "/run/nvidia-persistenced/socket").returncode == 0)
            assert up.setup().returncode == 0
            assert [problem.reason for problem in box.inventory().problems] == reasons
