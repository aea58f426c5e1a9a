"""Sealed daemons, on real ones of both generations."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from gpugrant_hack import api, processes

import rig

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.timeout(rig.PATIENCE)]

DEVICE = "rediacc.io/dri=renderD128"
OPEN_IT = "cat /dev/dri/renderD128"
NOBODY = 65534


def node(folder: Path) -> Path:
    """A device node without a device behind it: opening it says ENXIO where it is allowed, EPERM where it is not."""
    path = folder / "node"
    if not path.exists():
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(226, 128))
    return path


def grant(daemon: rig.Daemon) -> None:
    """Writes what the gate writes for a granted device."""
    edits = {"deviceNodes": [{"path": "/dev/dri/renderD128", "hostPath": str(node(daemon.root))}]}
    devices = [{"name": "renderD128", "containerEdits": edits}]
    spec = {"cdiVersion": "0.5.0", "kind": "rediacc.io/dri", "devices": devices}
    (daemon.sealed / "rediacc-dri.json").write_text(json.dumps(spec))


def revoke(daemon: rig.Daemon) -> None:
    (daemon.sealed / "rediacc-dri.json").unlink()


def alive(daemon: rig.Daemon) -> bool:
    """Whether anything runs of it: the daemon, containerd, a shim, a container."""
    found = processes.members(daemon.folder / "run")
    return bool(found.own or found.containers)


@pytest.mark.req("R43")
def test_a_daemon_reads_only_the_folder_of_its_repo(daemon):
    grant(daemon)
    run = ["run", "--rm", "--device", DEVICE, "ubuntu:24.04"]
    opened = daemon.docker(*run, "sh", "-c", OPEN_IT)
    revoke(daemon)
    refused = daemon.docker(*run, "true")

    assert "No such device or address" in opened.stderr
    assert f"unresolvable CDI devices {DEVICE}" in refused.stderr


def test_a_device_that_is_not_granted_can_t_be_opened(daemon):
    said = daemon.docker("run", "--rm", "ubuntu:24.04", "sh", "-c", "mknod /tmp/d c 226 128 && cat /tmp/d")

    assert "Operation not permitted" in said.stderr


def test_specs_of_the_machine_do_not_show(daemon):
    folder = daemon.root / "etc/cdi"
    (folder / "machine.json").write_text("{}")

    seen = list(Path(f"/proc/{daemon.pid}/root{folder}").iterdir())
    (folder / "machine.json").unlink()

    assert seen == []


def test_the_daemon_is_fit(daemon):
    info = api.get(daemon.socket, "/info")

    assert info["CDISpecDirs"] == [str(daemon.root / "etc/cdi")]
    assert (info["DefaultRuntime"], info["LiveRestoreEnabled"]) == ("runc", False)
    assert int(info["ServerVersion"].partition(".")[0]) == int(daemon.engine)


def test_the_raw_socket_is_root_s_alone(daemon):
    mode = daemon.socket.stat()

    assert (mode.st_uid, mode.st_gid, stat.S_IMODE(mode.st_mode) & 0o007) == (0, 0, 0)


def test_it_touches_nothing_of_the_machine_s_networks(daemon):
    before = Path("/sys/class/net").iterdir()

    rig.succeeded(daemon.docker("network", "create", "trial"))
    rig.succeeded(daemon.docker("run", "--rm", "--network", "trial", "ubuntu:24.04", "true"))
    rig.succeeded(daemon.docker("network", "rm", "trial"))

    assert set(before) == set(Path("/sys/class/net").iterdir())


def test_plain_containers_start_with_nothing_said(daemon):
    done = daemon.docker("run", "--rm", "--init", "ubuntu:24.04", "echo", "hello")

    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


def test_programs_of_the_machine_run_in_the_image(daemon):
    """As its nvidia-smi does, which the toolkit's spec mounts."""
    true = shutil.which("true")

    rig.succeeded(daemon.docker("run", "--rm", "--volume", f"{true}:/usr/bin/own:ro", "ubuntu:24.04", "own"))


def test_a_second_start_leaves_it_running(daemons, daemon):
    before = daemon.pid

    again = daemons.start(daemon.name, engine=daemon.engine)

    assert (again.socket, again.pid) == (daemon.socket, before)


def test_a_stopped_name_keeps_its_id_and_its_containers(daemons, engine):
    first = daemons.start(f"kept-{engine}", engine=engine)
    before = first.repo_id
    rig.succeeded(first.docker("create", "--name", "here", "ubuntu:24.04"))
    daemons.stop(first)
    assert not alive(first)

    again = daemons.start(first.name, engine=engine)

    assert again.repo_id == before
    assert rig.succeeded(again.docker("ps", "-aq", "--filter", "name=here"))
    daemons.stop(again)


@pytest.mark.req("R2")
def test_a_copy_of_a_data_root_gets_an_id_of_its_own_and_no_device_at_boot(daemons, engine):
    parent = daemons.start(f"parent-{engine}", engine=engine)
    grant(parent)
    run = ["run", "--detach", "--restart", "always", "--device", DEVICE, "--name", "job"]
    rig.succeeded(parent.docker(*run, "ubuntu:24.04", "sleep", "1000"))
    daemons.stop(parent)
    copy = parent.root / f"copy-{engine}"
    subprocess.run(["cp", "-a", str(parent.folder / "data"), str(copy)], check=True)

    fork = daemons.start(f"fork-{engine}", engine=engine, data_root=copy)
    state = json.loads(rig.succeeded(fork.docker("inspect", "job", "--format", "{{json .State}}")))
    started = fork.docker("start", "job")

    assert fork.repo_id != parent.repo_id
    assert state["Running"] is False
    assert f"unresolvable CDI devices {DEVICE}" in started.stderr
    daemons.stop(fork)


def test_a_killed_daemon_takes_its_containers_along_when_it_starts_again(daemons, engine):
    daemon = daemons.start(f"killed-{engine}", engine=engine)
    rig.succeeded(daemon.docker("run", "--detach", "ubuntu:24.04", "sleep", "1000"))
    before = {process.pid for process in processes.members(daemon.folder / "run").containers}
    os.kill(daemon.pid, signal.SIGKILL)

    daemons.start(daemon.name, engine=engine)

    after = {process.pid for process in processes.members(daemon.folder / "run").containers}
    assert before
    assert not after
    daemons.stop(daemon)


def test_down_ends_every_process_of_every_daemon_and_leaves_the_data():
    own = rig.Daemons()
    started = [own.start(name) for name in ("one", "two")]
    for daemon in started:
        rig.succeeded(daemon.docker("run", "--detach", "--restart", "always", "ubuntu:24.04", "sleep", "1000"))

    rig.succeeded(rig.script("down", "--root", own.root))
    again = rig.script("down", "--root", own.root)

    assert not any(alive(daemon) for daemon in started)
    assert all((daemon.folder / "data").is_dir() for daemon in started)
    assert str(own.root) not in Path("/proc/self/mountinfo").read_text()
    assert again.stderr == f"nothing runs below {own.root}\n"
    own.close()


def test_down_leaves_the_daemons_of_another_root_alone(daemon):
    other = rig.Daemons()
    other.start("one")

    other.close()

    assert api.answers(daemon.socket)


REFUSED = {
    "a name that is none": (["Gpu_A"], "the name 'Gpu_A' is none: small letters, digits and dashes, 63 at most"),
    "a root whose socket path is too long": (
        ["a", "--root", "/tmp/" + "x" * 100],
        "the kernel takes 107: choose a shorter",
    ),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_one_sentence(words: list[str], message: str) -> None:
    done = rig.script("daemon", *words)

    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_two_daemons_never_share_data(daemons, daemon):
    done = rig.script("daemon", "second", "--root", daemon.root, "--data-root", daemon.folder / "data")

    assert done.returncode == 1
    assert f"is the data of daemon {daemon.name}: give a copy of it" in done.stderr


def test_somebody_without_root_is_told_so():
    place = rig.short_folder()
    place.chmod(0o755)
    shutil.copytree(rig.HACK, place / "hack", ignore=shutil.ignore_patterns("__pycache__"))

    done = subprocess.run(
        [str(place / "hack/daemon"), "one", "--root", str(place / "root")],
        user=NOBODY,
        group=NOBODY,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (1, "a Docker daemon needs root: run this as root\n")
    shutil.rmtree(place)
