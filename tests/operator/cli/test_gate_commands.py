"""`gpugrant gate` with fixed grants and `gpugrant gate explain`."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import rig
import stand_in_daemon
from dockerclient import inspected
from gpugrant_crds import snapshot
from gpugrant_crds.layout import Layout
from gpugrant_crds.snapshot import StoredSnapshot
from gpugrant_gate.life import stored
from gpugrant_operator import repos
from gpugrant_operator.cli import waiting
from gpugrant_operator.cli.gpugrant import cli

ALL = "nvidia.com/gpu=all"
HEAD = "POST /v1.45/containers/create HTTP/1.1\nHost: d\nContent-Type: application/json\nContent-Length: "


@pytest.fixture
def root() -> Iterator[Path]:
    made = rig.short_folder()
    yield made
    shutil.rmtree(made)


def request(host_config: str) -> str:
    body = f'{{"Image": "ubuntu:24.04", "HostConfig": {host_config}}}'
    return f"{HEAD}{len(body)}\n\n{body}"


def explain(root: Path, text: str, *words: str) -> Result:
    return CliRunner().invoke(cli, ["gate", "explain", "--root", str(root), *words, "-"], input=text)


DEVICE = f'{{"DeviceRequests": [{{"Driver": "cdi", "DeviceIDs": ["{ALL}"]}}]}}'


@pytest.mark.req("R5")
def test_a_granted_device_is_admitted_and_an_ungranted_one_refused(root: Path) -> None:
    admitted = explain(root, request(DEVICE), "--repo", "gpu-a", "--grant", ALL)
    assert (admitted.exit_code, "verdict: admitted" in admitted.stdout) == (0, True), admitted.output
    refused = explain(root, request(DEVICE), "--repo", "gpu-a")
    assert refused.exit_code == 1
    assert f"repo gpu-a has no grant for {ALL}" in refused.stdout


def test_the_machine_is_the_one_of_the_roots_snapshot(root: Path) -> None:
    layout = Layout(root)
    held = snapshot.build(
        api_id="api-1", machine="wsl-gpu", machine_uid="m", epoch=1, issued_at=datetime.now(UTC), grants=()
    )
    layout.state.mkdir(parents=True)
    stored.save(layout.snapshot, StoredSnapshot(snapshot=held))
    said = explain(root, request(DEVICE), "--repo", "gpu-a").stdout
    assert f"rdc repo gpu grant gpu-a@wsl-gpu --device {ALL}" in said
    layout.snapshot.write_text(layout.snapshot.read_text().replace("wsl-gpu", "another"))
    damaged = explain(root, request(DEVICE), "--repo", "gpu-a").stdout
    assert f"rdc repo gpu grant gpu-a@{socket.gethostname()} " in damaged, "a file that nobody can vouch for names none"


GPU_A = "name: gpu-a\nid: a1\nupstream: /d.sock\n"


def in_root(root: Path, text: str, *grants: snapshot.SnapshotGrant) -> None:
    """The root has gpu-a's file and a snapshot of the machine wsl-gpu."""
    layout = Layout(root)
    layout.repos.mkdir(parents=True)
    (layout.repos / "gpu-a.yaml").write_text(text)
    layout.state.mkdir(parents=True)
    held = snapshot.build(
        api_id="api-1", machine="wsl-gpu", machine_uid="m", epoch=1, issued_at=datetime.now(UTC), grants=grants
    )
    stored.save(layout.snapshot, StoredSnapshot(snapshot=held))


def granted(repo_id: str) -> snapshot.SnapshotGrant:
    ref = snapshot.GrantRef(namespace="default", name="g", uid="u")
    return snapshot.SnapshotGrant(repo="gpu-a", repo_id=repo_id, device=ALL, grant=ref)


@pytest.mark.req("R1")
def test_the_grants_in_force_here_count_for_a_repo_of_this_machine(root: Path) -> None:
    in_root(root, GPU_A, granted("a1"))
    admitted = explain(root, request(DEVICE), "--repo", "gpu-a")
    assert (admitted.exit_code, f"the grants that count: {ALL} (in force here)" in admitted.stdout) == (0, True)


@pytest.mark.req("R9")
def test_the_grant_of_a_repo_of_another_id_does_not_count(root: Path) -> None:
    in_root(root, GPU_A, granted("a0"))
    refused = explain(root, request(DEVICE), "--repo", "gpu-a")
    assert (refused.exit_code, "the grants that count: none" in refused.stdout) == (1, True)


FIT = {
    "CDISpecDirs": ["/etc/cdi"],
    "DefaultRuntime": "runc",
    "ServerVersion": "28.5.2",
    "SecurityOptions": ["name=cgroupns"],
}


@pytest.mark.req("R52")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "verdict: admitted"),
        ({"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}, "reads CDI specs from /etc/cdi, /var/run/cdi"),
        ({"DefaultRuntime": "nvidia"}, 'default runtime is "nvidia"'),
        ({"ServerVersion": "24.0.7"}, "the daemon is Docker 24.0.7"),
    ],
)
def test_the_daemons_info_decides_whether_it_is_fit(root: Path, change: dict[str, object], said: str) -> None:
    facts = root / "info.json"
    info = {**FIT, "CDISpecDirs": [str(Layout(root).cdi)], **change}
    facts.write_text(json.dumps(info))
    told = explain(root, request(DEVICE), "--grant", ALL, "--facts", str(facts))
    assert (told.exit_code, said in told.stdout) == (int(bool(change)), True), told.stdout
    unasked = explain(root, request(DEVICE), "--grant", ALL)
    assert "the daemon was not asked whether it is fit for CDI devices" in unasked.stdout


def test_builds_are_judged_by_what_is_known_of_the_daemon(root: Path) -> None:
    config, facts = root / "daemon.json", root / "info.json"
    closed = {"network-host": False, "security-insecure": False, "device": False}
    config.write_text(json.dumps({"builder": {"entitlements": closed}}))
    in_root(root, f"{GPU_A}daemonConfig: {config}\n")
    facts.write_text(json.dumps({**FIT, "CDISpecDirs": [str(Layout(root).cdi)]}))
    tunnel = "POST /grpc HTTP/1.1\nHost: d\nConnection: Upgrade\nUpgrade: h2c\n\n"
    admitted = explain(root, tunnel, "--repo", "gpu-a", "--facts", str(facts))
    assert admitted.exit_code == 0, admitted.stdout
    unasked = explain(root, tunnel, "--repo", "gpu-a").stdout
    assert "give docker info -f json with --facts FILE" in unasked
    assert "reads another CDI folder" not in unasked


def test_a_repo_that_is_not_there_is_said_to_be_none(root: Path) -> None:
    in_root(root, f"{GPU_A}open: [host.netwrok]\n")
    said = explain(root, request(DEVICE), "--repo", "gpu-a").stdout
    assert "has no readable file of repo gpu-a" in said
    assert "gpu-a.yaml:4: open:" in said


@pytest.mark.req("R9")
def test_a_policy_without_an_id_is_said_to_get_nothing(root: Path) -> None:
    policy = root / "p.yaml"
    policy.write_text("name: x\nupstream: /d.sock\n")
    assert "the policy has no id" in explain(root, request(DEVICE), "--policy", str(policy), "--grant", ALL).stdout


def test_files_that_can_t_be_read_are_said_in_words(root: Path) -> None:
    binary = root / "x"
    binary.write_bytes(b"\x7fELF\xed")
    for option in ("--facts", "--policy"):
        absent = explain(root, request(DEVICE), option, str(root / "none")).stderr
        assert absent == f"error: {root}/none can't be read: no such file or directory\n"
        assert explain(root, request(DEVICE), option, str(binary)).stderr.endswith("it is no UTF-8 text\n")


@pytest.mark.req("R45")
def test_privileged_is_refused_whatever_is_granted(root: Path) -> None:
    refused = explain(root, request('{"Privileged": true}'), "--grant", ALL)
    assert (refused.exit_code, "verdict: refused" in refused.stdout) == (1, True)


HOST = '{"NetworkMode": "host"}'


def test_what_a_repos_file_opens_counts(root: Path) -> None:
    text = "name: from-file\nupstream: /d.sock\nopen: [host.network]\n"
    policy = root / "p.yaml"
    policy.write_text(text)
    assert explain(root, request(HOST), "--policy", str(policy)).exit_code == 0
    assert explain(root, request('{"Privileged": true}'), "--policy", str(policy)).exit_code == 1
    closed = explain(root, request(HOST), "--repo", "from-file")
    assert (closed.exit_code, "open: [host.network] in the file of repo from-file" in closed.stdout) == (1, True)
    layout = Layout(root)
    layout.repos.mkdir(parents=True)
    (layout.repos / "x.yaml").write_text(text)
    assert explain(root, request(HOST), "--repo", "from-file").exit_code == 0


def test_the_daemons_answers_come_from_files(root: Path) -> None:
    start = "POST /containers/web/start HTTP/1.1\nHost: d\n\n"
    facts = root / "facts.json"
    facts.write_text(json.dumps([{**inspected(Privileged=True), "Name": "/web"}]))
    refused = explain(root, start, "--facts", str(facts))
    assert (refused.exit_code, "hw.privileged" in refused.stdout) == (1, True)
    facts.write_text("[1]")
    broken = explain(root, start, "--facts", str(facts))
    assert (broken.exit_code, "as docker inspect prints them" in broken.stderr) == (1, True)
    facts.write_text("x")
    assert "can't be read as JSON" in explain(root, start, "--facts", str(facts)).stderr


def test_a_policy_is_a_file_as_in_repos_d(root: Path) -> None:
    policy = root / "p.yaml"
    policy.write_text("name: from-file\nupstream: /d.sock\n")
    refused = explain(root, request(DEVICE), "--policy", str(policy))
    assert "repo from-file has no grant" in refused.stdout
    policy.write_text("name: from-file\nupstraem: /d.sock\n")
    broken = explain(root, request(DEVICE), "--policy", str(policy))
    assert (broken.exit_code, broken.stdout) == (1, "")
    assert f'{policy}:2: the key "upstraem" is not known' in broken.stderr
    missing = explain(root, request(DEVICE), "--policy", str(root / "none"))
    assert (missing.exit_code, "can't be read" in missing.stderr) == (1, True)


def test_a_file_that_is_no_request_is_refused_in_words(root: Path) -> None:
    refused = explain(root, "nonsense")
    assert (refused.exit_code, "verdict: refused" in refused.stdout) == (1, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["--listen", "/l"], "give --upstream, --repo too", id="half of a trial"),
        pytest.param(["--grant", ALL], "give --listen, --upstream, --repo too", id="a grant for no repo"),
        pytest.param(
            ["--listen", "/l", "--upstream", "/u", "--repo", "../x"], "is not a repo name", id="a name that is a path"
        ),
        pytest.param(
            ["--listen", "/l", "--upstream", "/u", "--repo", "x", "--grant", "gpu0"],
            "is not a CDI device name",
            id="a grant of no device",
        ),
        pytest.param(
            ["--repo", "x", "explain", "-"], "give --listen, --upstream too", id="options before the subcommand"
        ),
        pytest.param(
            ["--listen", "/l", "--upstream", "/u", "--repo", "x", "explain", "-"],
            'give the options after "explain"',
            id="a whole trial before the subcommand",
        ),
    ],
)
def test_wrong_usage(words: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["gate", *words])
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_socket_path_that_is_too_long_is_a_sentence() -> None:
    words = ["gate", "--listen", "/" + "l" * 107, "--upstream", "/u", "--repo", "x"]
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, "the kernel takes 107" in done.stderr) == (1, True)


@pytest.mark.real
def test_one_repos_gate_serves_until_it_is_told_to_end(root: Path) -> None:
    listen = root / "l.sock"
    with stand_in_daemon.serving(root / "d.sock", root / "etc/cdi") as daemon:
        command = [sys.executable, "-m", "gpugrant_operator.cli.gpugrant", "gate", "--root", root, "--repo", "trial"]
        words = ["--listen", listen, "--upstream", daemon.socket, "--grant", ALL]
        with subprocess.Popen([*command, *words], stderr=subprocess.DEVNULL, env=dict(os.environ)) as gate:
            try:
                assert waiting.until(lambda: repos.accepts(listen), 30) == gate.pid
            finally:
                gate.terminate()
        assert gate.returncode == 0
