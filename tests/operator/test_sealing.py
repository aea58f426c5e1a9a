"""What sealing a daemon means: which unit, which text, and what speaks against it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpugrant_crds.layout import Layout
from gpugrant_crds.repofile import RepoFile
from gpugrant_operator import sealing
from gpugrant_operator.repos import Refused
from gpugrant_operator.sealing import Seen, Unit

pytestmark = pytest.mark.req("R2", "R9", "R43")

LAYOUT = Layout()
REPO = RepoFile(name="gpu-a", id="id-a", upstream=Path("/run/docker-gpu-a.sock"))
RUNS = Seen(pid=40, cgroup="0::/system.slice/docker-a.service\n")
UNITS = {
    "docker-a.service": Unit("docker-a.service", 40),
    "ssh.service": Unit("ssh.service", 7),
    "docker-gpu-a.service": Unit("docker-gpu-a.service", 0),
    "docker@gpu-t.service": Unit("docker@gpu-t.service", 40),
}


def ask(name: str) -> Unit:
    return UNITS.get(name, Unit(name, loaded=False))


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/docker-a.service", "docker-a.service"),
        ("12:devices:/x.service\n1:name=systemd:/system.slice/docker.slice/docker@a.service", "docker@a.service"),
        ("0::/system.slice/docker.service/init", "docker.service"),
        ("12:devices:/system.slice/docker.service", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker.service", None),
        ("0::/user.slice/user-0.slice/session-3.scope", None),
        ("0::/", None),
        ("", None),
    ],
)
def test_the_unit_of_a_process(cgroup: str, unit: str | None) -> None:
    assert sealing.unit_of(cgroup) == unit


@pytest.mark.parametrize(
    ("repo", "wanted", "seen", "unit"),
    [
        pytest.param("gpu-a", "ssh.service", RUNS, "ssh.service", id="what is named counts"),
        pytest.param("gpu-a", None, RUNS, "docker-a.service", id="its process is the unit's main one"),
        pytest.param(
            "gpu-a",
            None,
            replace(RUNS, cgroup="0::/system.slice/ssh.service"),
            "docker-gpu-a.service",
            id="started by hand in another service",
        ),
        pytest.param("gpu-a", None, Seen(), "docker-gpu-a.service", id="it does not run"),
        pytest.param("gpu-t", None, replace(RUNS, cgroup=""), "docker@gpu-t.service", id="a template's"),
    ],
)
def test_the_daemons_unit(repo: str, wanted: str | None, seen: Seen, unit: str) -> None:
    assert sealing.choose_unit(repo, wanted, seen, ask).name == unit


@pytest.mark.parametrize(
    ("repo", "wanted", "seen", "sentence"),
    [
        ("gpu-x", None, Seen(), "name it with --unit, such as --unit docker-gpu-x.service"),
        ("gpu-t", None, Seen(pid=41), "name it with --unit"),
        ("gpu-a", "docker-gone.service", RUNS, "systemd knows no unit docker-gone.service"),
        ("gpu-a", "docker.socket", RUNS, "docker.socket is no name of a systemd service"),
        ("gpu-a", "../x.service", RUNS, "is no name of a systemd service"),
        ("gpu-a", "x y.service", RUNS, "is no name of a systemd service"),
    ],
)
def test_a_unit_that_is_not_the_daemons(repo: str, wanted: str | None, seen: Seen, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        sealing.choose_unit(repo, wanted, seen, ask)


@pytest.mark.parametrize(
    ("repo", "seen", "sentence"),
    [
        (REPO.model_copy(update={"id": None}), RUNS, "repo gpu-a has no id, and"),
        (REPO, replace(RUNS, sealed_as="id-b"), "is sealed as the repo with id id-b"),
        (REPO, replace(RUNS, live_restore=True), 'put "live-restore": false into its daemon.json'),
        (REPO, replace(RUNS, own_containerd=False), "uses a containerd that it has not started itself"),
    ],
)
def test_what_speaks_against_it(repo: RepoFile, seen: Seen, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        sealing.check(repo, seen)


def test_one_that_can_be_sealed() -> None:
    assert sealing.check(REPO, RUNS) == sealing.check(REPO, replace(RUNS, sealed_as="id-a")) == "id-a"


def test_the_drop_in() -> None:
    text = sealing.drop_in(LAYOUT, REPO)
    assert "\nBindReadOnlyPaths=/var/lib/rediacc/gpu/sealed/id-a:/etc/cdi\n" in text
    assert "\nRequiresMountsFor=/var/lib/rediacc/gpu/sealed/id-a\n" in text
    assert text.count("TemporaryFileSystem=") == 1
    below = sealing.drop_in(Layout(Path("/srv/100%")), REPO)
    assert "BindReadOnlyPaths=/srv/100%%/var/lib/rediacc/gpu/sealed/id-a:/srv/100%%/etc/cdi\n" in below
    assert "TemporaryFileSystem=/run/cdi:ro\nTemporaryFileSystem=/srv/100%%/run/cdi:ro\n" in below


@pytest.mark.parametrize("root", ["/a b", "/a:b", '/a"b', "/a\\b", "/a\nb"])
def test_a_path_that_systemd_would_read_otherwise(root: str) -> None:
    with pytest.raises(Refused, match="can't stand in a systemd unit"):
        sealing.drop_in(Layout(Path(root)), REPO)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_drop_in(tmp_path: Path) -> None:
    unit = tmp_path / "docker-gpu-a.service"
    unit.write_text("[Service]\nExecStart=/bin/sleep 1\n")
    place = tmp_path / "docker-gpu-a.service.d" / sealing.DROP_IN
    place.parent.mkdir()
    text = sealing.drop_in(LAYOUT, REPO)
    for line, taken in ((text, True), (text.replace("BindReadOnlyPaths=", "BindReadOnlyPaths=x"), False)):
        place.write_text(line)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
        )
        assert (sealing.DROP_IN not in done.stderr) is taken, done.stderr


def test_by_hand_a_shell_takes_what_is_printed() -> None:
    text = sealing.by_hand(Layout(Path("/srv/it's here")), REPO)
    subprocess.run(["sh", "-n", "-c", text], check=True)
    assert text.splitlines()[-1] == """gpugrant repo seal gpu-a --root '/srv/it'"'"'s here'"""


def test_what_systemctl_shows() -> None:
    assert sealing.read_unit("a.service", "LoadState=loaded\nMainPID=12\n") == Unit("a.service", 12)
    assert sealing.read_unit("a.service", "LoadState=not-found\nMainPID=0\n") == Unit("a.service", 0, loaded=False)
    assert not sealing.read_unit("a.service", "").loaded
