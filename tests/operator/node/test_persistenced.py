"""nvidia-persistenced's socket for the repo daemons (R44)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpugrant_operator.node import persistenced
from gpugrant_operator.node.run import Run
from machines import NOW, Machine
from nvidia_machines import calls, content, systemd

Recorded = Callable[[str], Machine]
SOCKET = "run/nvidia-persistenced/socket"


def drop_ins(machine: Machine) -> dict[str, str]:
    found = sorted((machine.root / "etc/systemd/system").glob("*/50-gpugrant-persistenced.conf"))
    return {path.parent.name: content(path) for path in found}


@pytest.mark.req("R44")
def test_where_it_does_not_run_nothing_happens(recorded: Recorded) -> None:
    machine = recorded("workstation")
    systemd(machine)
    machine.write("units", "docker@gpu-a.service loaded active running\n")
    assert machine.setup().inventory.problems == ()
    assert drop_ins(machine) == {}


@pytest.mark.req("R44")
def test_the_folder_is_shown_to_all_units_of_the_patterns(recorded: Recorded) -> None:
    """The folder: a socket that is made anew is seen without another start."""
    machine = recorded("workstation")
    systemd(machine)
    machine.write(SOCKET)
    outcome = machine.setup()
    assert (outcome.failures, outcome.inventory.nvidia.persistenced_socket) == ((), f"/{SOCKET}")
    assert list(drop_ins(machine)) == [
        "docker-.service.d",
        "docker@.service.d",
        "rediacc-docker-.service.d",
        "rediacc-docker@.service.d",
    ]
    for text in drop_ins(machine).values():
        assert "[Service]\nBindReadOnlyPaths=-/run/nvidia-persistenced\n" in text


@pytest.mark.req("R44")
def test_patterns_given_by_hand_are_kept_by_later_runs(recorded: Recorded) -> None:
    machine = recorded("workstation")
    systemd(machine)
    machine.write(SOCKET)
    machine.setup(daemon_units=("repo@*.service",))
    machine.setup()
    assert list(drop_ins(machine)) == ["repo@.service.d"]


@pytest.mark.req("R44")
def test_running_daemons_that_do_not_see_it_are_named_and_none_is_restarted(recorded: Recorded) -> None:
    """A unit of another name is none of ours; what is called reads files anew and starts nothing but our own units."""
    machine = recorded("workstation")
    systemd(machine)
    machine.write(SOCKET)
    machine.write(
        "units",
        "docker@gpu-a.service loaded active running Docker of gpu-a\n"
        "docker-gpu-b.service loaded active running\nnginx.service loaded active running\n",
    )
    outcome = machine.setup()
    assert outcome.exit_code == 0
    assert [(problem.reason, problem.message) for problem in outcome.inventory.problems] == [
        (
            "RestartRequired",
            "docker-gpu-b.service, docker@gpu-a.service do not see the socket of nvidia-persistenced, which their "
            "containers are given with an NVIDIA device: restart them when their containers may end",
        )
    ]
    started = [line for line in calls(machine) if " restart " in line or " start " in line or " reload " in line]
    assert not [line for line in started if "docker" in line]

    machine.write(f"proc/4711/root/{SOCKET}")
    assert machine.setup().inventory.problems == ()


@contextmanager
def listening(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield


@pytest.mark.real
@pytest.mark.req("R44")
def test_a_process_with_files_of_its_own_is_told_from_one_that_sees_the_socket(tmp_path: Path) -> None:
    """Two real sockets, one held in a mount namespace in which the folder is hidden: only that one is named."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mount namespaces need root and unshare")
    place = Path("/run/nvidia-persistenced")
    if place.exists():
        pytest.skip("this machine has an nvidia-persistenced of its own")
    serve = (
        "import socket, sys, time\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\n"
        "print('up', flush=True)\ntime.sleep(600)"
    )
    hide = f'mount -t tmpfs none {place} && exec python3 -c "$1" "$2"'
    commands = {
        "gpu-a": ["python3", "-c", serve, str(tmp_path / "gpu-a")],
        "gpu-b": ["unshare", "--mount", "sh", "-c", hide, "sh", serve, str(tmp_path / "gpu-b")],
    }
    running: list[subprocess.Popen[bytes]] = []
    run = Run(Machine(Path("/"), tmp_path).options(), lambda: NOW, lambda _line: None)
    for name in commands:
        file = run.layout.repos / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"name: {name}\nid: id-of-{name}\nupstream: {tmp_path / name}\n")
    try:
        with listening(place / "socket"):
            for command in commands.values():
                running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
                assert running[-1].stdout is not None
                assert running[-1].stdout.readline() == b"up\n"
            assert persistenced.show(run, None) == f"{place}/socket"
    finally:
        for process in running:
            process.kill()
            process.communicate()
        shutil.rmtree(place, ignore_errors=True)
    assert len(run.problems) == 1
    assert run.problems[0][1].startswith("the daemon of repo gpu-b does not see the socket")
