"""What the kernel says of a daemon: its process behind a socket, and the configuration file that it read."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rig
from gpugrant_gate.life import buildkit
from gpugrant_gate.life.buildkit import Entitlements
from gpugrant_gate.net import procfs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to others and looks at what they may write")

CLOSED = Entitlements(network_host=False, security_insecure=False, device=False)
SLEEP = "import time; print('up', flush=True); time.sleep(1000)"


@pytest.fixture
def folder() -> Iterator[Path]:
    path = rig.short_folder()
    (path / "etc").mkdir(mode=0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def config(folder: Path) -> Path:
    path = folder / "etc/daemon.json"
    path.write_text("{" + buildkit.daemon_json() + "}")
    path.chmod(0o644)
    return path


@contextlib.contextmanager
def process(*words: str, **environ: str) -> Iterator[procfs.Process]:
    """A process that runs, with these words on its command line."""
    command = [sys.executable, "-c", SLEEP, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **environ}) as running:
        assert running.stdout is not None
        running.stdout.readline()
        found = procfs.find(running.pid)
        assert found is not None
        try:
            yield found
        finally:
            running.kill()


def look(found: procfs.Process, path: Path | None, root: Path = Path("/")) -> Entitlements | str:
    return procfs.entitlements(found, path, root, time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))


def why(found: Entitlements | str) -> str:
    assert isinstance(found, str)
    return found


def test_a_process_is_known_by_number_and_start() -> None:
    with process() as found:
        assert procfs.find(found.pid) == found
        assert abs(procfs.started(found, time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)) - time.time()) < 30
    assert procfs.find(found.pid) is None


@pytest.mark.parametrize("form", [["--config-file", "{}"], ["--config-file={}"], ["-D", "--config-file={}", "-H", "x"]])
def test_reads_what_the_daemon_read(folder: Path, config: Path, form: list[str]) -> None:
    with process(*(word.format(config) for word in form)) as found:
        assert look(found, config, folder) == CLOSED


def test_says_which_line_is_missing(config: Path) -> None:
    with process("--config-file", str(config)) as found:
        assert f"add the line daemonConfig: {config}" in why(look(found, None))
    with process() as found:
        assert "add the line daemonConfig: /etc/docker/daemon.json" in why(look(found, None))


def test_another_file_than_the_daemons_says_nothing(folder: Path, config: Path) -> None:
    with process() as found:
        assert "reads /etc/docker/daemon.json and not" in why(look(found, config, folder))
    with process("--config-file", "daemon.json") as found:
        assert "reads daemon.json and not" in why(look(found, config, folder))


def test_a_change_after_the_start_is_not_what_the_daemon_read(folder: Path, config: Path) -> None:
    """Also one that sets its time back."""
    with process("--config-file", str(config)) as found:
        time.sleep(0.2)
        config.write_text("{" + buildkit.daemon_json() + "}")
        os.utime(config, (1, 1))
        assert "was changed after its daemon started: restart the daemon" in why(look(found, config, folder))
    with process("--config-file", str(config)) as found:
        assert look(found, config, folder) == CLOSED


def test_a_file_that_others_may_write_says_nothing(folder: Path, config: Path) -> None:
    for change in (lambda: config.chmod(0o664), lambda: config.chmod(0o646), lambda: os.chown(config, 65534, 0)):
        change()
        with process("--config-file", str(config)) as found:
            assert "may be written by others than root" in why(look(found, config, folder))


def test_a_folder_that_others_may_write_says_nothing(folder: Path, config: Path) -> None:
    for change in (lambda: config.parent.chmod(0o777), lambda: os.chown(config.parent, 65534, 0)):
        change()
        with process("--config-file", str(config)) as found:
            assert f"lies in {config.parent}" in why(look(found, config, folder))
        config.parent.chmod(0o755)


def test_no_link_leads_to_the_file(folder: Path, config: Path) -> None:
    (folder / "link").symlink_to(config.parent)
    by_link = folder / "link/daemon.json"
    with process("--config-file", str(by_link)) as found:
        assert "symbolic link" in why(look(found, by_link, folder))
    config.rename(folder / "other.json")
    config.symlink_to(folder / "other.json")
    with process("--config-file", str(config)) as found:
        assert "can't be read" in why(look(found, config, folder))


@pytest.mark.parametrize("content", ["{", '{"builder": {"entitlements": {"network-host": 0}}}'])
def test_a_file_that_cannot_be_understood_says_nothing(folder: Path, config: Path, content: str) -> None:
    config.write_text(content)
    with process("--config-file", str(config)) as found:
        assert "can't be understood" in why(look(found, config, folder))


def test_what_is_open_is_told_as_it_is(folder: Path, config: Path) -> None:
    config.write_text(json.dumps({"builder": {"entitlements": {"security-insecure": True}}}))
    with process("--config-file", str(config)) as found:
        assert look(found, config, folder) == Entitlements(network_host=True, security_insecure=True, device=True)


def test_sees_another_program_in_runcs_place() -> None:
    with process() as found:
        assert procfs.runs_runc(found)
    with process(DOCKER_BUILDKIT_RUNC_COMMAND="/usr/bin/nvidia-container-runtime") as found:
        assert not procfs.runs_runc(found)


def test_the_listener_is_the_daemon_where_it_listens_itself(folder: Path) -> None:
    assert procfs.behind(os.getpid(), folder / "s") == procfs.find(os.getpid())


HANDED_ON = """
import ctypes, os, socket, sys
ctypes.CDLL(None).prctl(15, b"systemd")
listener = socket.socket(socket.AF_UNIX); listener.bind(sys.argv[1]); listener.listen()
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(15, b"dockerd")
    else:
        print(pid, flush=True); continue
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)"]) if line == "other\\n" else None
    import time; time.sleep(1000)
"""


def test_where_systemd_listens_the_daemon_is_who_has_the_socket_too(folder: Path) -> None:
    """As with docker.socket: the kernel names systemd as the peer, whichever daemon answers."""
    path = folder / "s"
    with subprocess.Popen(
        [sys.executable, "-c", HANDED_ON, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as systemd:
        assert systemd.stdin is not None
        assert systemd.stdout is not None

        def start(what: str) -> int:
            print(what, file=systemd.stdin, flush=True)
            return int(systemd.stdout.readline())  # type: ignore[union-attr]  # asserted above

        rig.wait_for(path.exists)
        started: list[int] = []
        try:
            assert procfs.behind(systemd.pid, path) is None
            started.append(start("other"))  # closes the socket at exec
            rig.wait_for(lambda: procfs.behind(systemd.pid, path) is None)
            started.append(start("daemon"))
            found = rig.wait_for(lambda: procfs.behind(systemd.pid, path))
            assert found == procfs.find(started[1])
            started.append(start("daemon"))
            assert rig.wait_for(lambda: procfs.behind(systemd.pid, path) is None), "two of them: it can't be told"
        finally:
            for pid in started:
                os.kill(pid, 9)
            systemd.kill()


def test_a_socket_that_is_gone_has_nobody_behind_it(folder: Path) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(folder / "s"))
        assert procfs.behind(2**22 + 1, folder / "s") is None
