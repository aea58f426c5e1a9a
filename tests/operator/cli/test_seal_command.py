"""`gpugrant repo seal` as a user runs it: with real daemons, without systemd and under a real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rig
import whole_machine
from gpugrant_crds import repofile
from gpugrant_crds.layout import Layout
from gpugrant_crds.repofile import RepoFile
from whole_machine import Booted, Box

pytestmark = [pytest.mark.real, pytest.mark.timeout(300), pytest.mark.req("R2", "R9", "R43")]

DAEMON = """\
[Service]
ExecStart=/usr/bin/python3 -c "import os, socket, subprocess, time; s = socket.socket(socket.AF_UNIX); \
p = '/run/docker-gpu-a.sock'; os.path.exists(p) and os.unlink(p); s.bind(p); s.listen(64); time.sleep(600)"
"""
FOLDER = "/var/lib/rediacc/gpu/sealed/id-a"


def gpugrant(*words: str) -> rig.Result:
    clean = {key: value for key, value in os.environ.items() if key not in ("GPUGRANT_ROOT", "KUBECONFIG")}
    return rig.run([sys.executable, "-m", "gpugrant_operator.cli.gpugrant", *words], environ=clean)


@pytest.fixture
def root() -> Iterator[Path]:
    folder = rig.short_folder()
    yield folder
    shutil.rmtree(folder)


def add(root: Path, **fields: object) -> Path:
    """The file of a repo whose daemon does not run."""
    repo = RepoFile.model_validate({"name": "gpu-a", "id": "id-a", "upstream": f"{root}/d.sock", **fields})
    path = Layout(root).repos / "gpu-a.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(repofile.dump(repo))
    return path


def is_sealed(path: Path) -> bool:
    repo = repofile.parse(path.read_text(), path.name)
    assert isinstance(repo, RepoFile)
    return repo.sealed


def test_a_repo_that_is_not_there(root: Path) -> None:
    add(root)
    done = gpugrant("repo", "seal", "gpu-b", "--root", str(root))
    assert (done.returncode, done.stderr) == (1, "error: there is no repo gpu-b; did you mean gpu-a?\n")


def test_without_systemd_it_says_what_to_do_by_hand_and_changes_nothing(root: Path) -> None:
    path = add(root)
    done = gpugrant("repo", "seal", "gpu-a", "--root", str(root))
    assert done.returncode == 1
    assert f"systemd does not look below {root}" in done.stderr
    assert "unshare --mount" in done.stdout
    assert f"{root}/var/lib/rediacc/gpu/sealed/id-a" in done.stdout
    assert not is_sealed(path)


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root and unshare")
def test_what_is_printed_does_it(root: Path) -> None:
    """The printed commands, with a stand-in for the daemon: it sees the folder, and nobody else does."""
    add(root)
    printed = gpugrant("repo", "seal", "gpu-a", "--root", str(root)).stdout.splitlines()
    (root / "etc/cdi").mkdir()
    (root / "etc/cdi/all.yaml").write_text("")
    script = "\n".join(printed[:2]).replace("dockerd --config-file DAEMON.JSON", f"ls -A {root}/etc/cdi")
    (root / "var/lib/rediacc/gpu/sealed/id-a").mkdir(parents=True)
    (root / "var/lib/rediacc/gpu/sealed/id-a/own.yaml").write_text("")
    assert subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout == "own.yaml\n"
    assert [path.name for path in (root / "etc/cdi").iterdir()] == ["all.yaml"]


def test_a_unit_that_is_named_is_prepared_below_another_root(root: Path) -> None:
    path = add(root)
    done = gpugrant("repo", "seal", "gpu-a", "--root", str(root), "--unit", "docker-gpu-a.service")
    assert done.returncode == 0, done.stderr
    assert "systemctl restart docker-gpu-a.service" in done.stdout
    text = (root / "etc/systemd/system/docker-gpu-a.service.d/60-gpugrant-seal.conf").read_text()
    assert f"BindReadOnlyPaths={root}/var/lib/rediacc/gpu/sealed/id-a:{root}/etc/cdi\n" in text
    assert is_sealed(path)


def test_a_daemon_that_sees_its_folder_already(daemons: rig.Daemons) -> None:
    daemon = daemons.start("gpu-a")
    path = add(daemons.root, id=daemon.repo_id, upstream=str(daemon.socket))
    assert not is_sealed(path)
    for _ in range(2):
        done = gpugrant("repo", "seal", "gpu-a", "--root", str(daemons.root))
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"repo gpu-a is sealed: its daemon sees {daemon.sealed}")
        assert is_sealed(path)
    other = gpugrant("repo", "remove", "gpu-a", "--root", str(daemons.root))
    assert other.returncode == 0
    path = add(daemons.root, id="another", upstream=str(daemon.socket))
    done = gpugrant("repo", "seal", "gpu-a", "--root", str(daemons.root))
    assert done.returncode == 1
    assert f"is sealed as the repo with id {daemon.repo_id}" in done.stderr
    assert not is_sealed(path)


@pytest.fixture
def daemons() -> Iterator[rig.Daemons]:
    made = rig.Daemons()
    yield made
    made.close()


@pytest.fixture
def box() -> Iterator[Box]:
    made = whole_machine.server()
    yield made
    shutil.rmtree(made.work)


def seal(up: Booted, *words: str) -> rig.Result:
    return up.run(sys.executable, "-m", "gpugrant_operator.cli.gpugrant", "repo", "seal", *words)


def listed(up: Booted, folder: str) -> str:
    pid = up.systemctl("show", "--property=MainPID", "--value", "docker-a.service")
    return rig.succeeded(up.run("ls", "-A", f"/proc/{pid}/root{folder}"))


def test_a_unit_under_a_real_systemd(box: Box) -> None:
    """Found by its process; in force with the next start, which fails without the folder; nothing is restarted."""
    unit = box.upper / "etc/systemd/system/docker-a.service"
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(DAEMON)
    path = add(box.upper, upstream="/run/docker-gpu-a.sock")
    with box.booted() as up:
        rig.succeeded(up.run("sh", "-c", "mkdir -p /etc/cdi /run/cdi && touch /etc/cdi/all.yaml /run/cdi/hidden.yaml"))
        up.systemctl("start", "docker-a.service")
        rig.wait_for(lambda: up.run("test", "-S", "/run/docker-gpu-a.sock").returncode == 0)
        before = up.systemctl("show", "--property=MainPID", "docker-a.service")

        missing = seal(up, "gpu-a", "--unit", "docker-b.service")
        assert (missing.returncode, is_sealed(path)) == (1, False)
        assert "systemd knows no unit docker-b.service" in missing.stderr

        done = seal(up, "gpu-a")
        assert done.returncode == 0, done.stderr
        assert "systemctl restart docker-a.service" in done.stdout
        assert is_sealed(path)
        assert up.systemctl("show", "--property=MainPID", "docker-a.service") == before
        assert listed(up, "/etc/cdi") == "all.yaml"
        assert up.systemctl("show", "--property=NeedDaemonReload", "--value", "docker-a.service") == "no"

        rig.succeeded(up.run("sh", "-c", f"echo >{FOLDER}/own.yaml"))
        up.systemctl("restart", "docker-a.service")
        assert listed(up, "/etc/cdi") == "own.yaml"
        assert listed(up, "/run/cdi") == ""
        # files come and go in the folder while the daemon runs
        rig.succeeded(up.run("sh", "-c", f"echo >{FOLDER}/.n && mv {FOLDER}/.n {FOLDER}/own.yaml"))
        rig.succeeded(up.run("sh", "-c", f"echo >{FOLDER}/more.yaml"))
        assert listed(up, "/etc/cdi").split() == ["more.yaml", "own.yaml"]
        assert rig.succeeded(up.run("ls", "-A", "/etc/cdi")) == "all.yaml"
        rig.wait_for(lambda: up.run("test", "-S", "/run/docker-gpu-a.sock").returncode == 0)
        again = seal(up, "gpu-a")
        assert again.stdout.startswith("repo gpu-a is sealed: its daemon sees"), again.stderr

        up.systemctl("stop", "docker-a.service")
        rig.succeeded(up.run("rm", "-r", FOLDER))
        assert up.run("systemctl", "start", "docker-a.service").returncode != 0 or (
            up.systemctl("show", "--property=Result", "--value", "docker-a.service") != "success"
        )
