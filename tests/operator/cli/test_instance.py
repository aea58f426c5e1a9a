"""`gpugrant up`, `down`, `status`, `repo`: an instance as a whole, on real parts."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import rig
import standalone
from gpugrant_crds.layout import Layout
from gpugrant_crds.snapshot import GateStatus
from gpugrant_operator import kubeclient
from gpugrant_operator.cli import instance as commands
from gpugrant_operator.cli import waiting
from gpugrant_operator.cli.gpugrant import cli
from gpugrant_operator.cli.instance import PartRow
from gpugrant_operator.supervisor import parts, processes
from gpugrant_operator.supervisor.health import Health
from gpugrant_operator.supervisor.processes import Holder
from standalone import Instance, program

ALL = "nvidia.com/gpu=all"
real = pytest.mark.real


@pytest.mark.parametrize(
    ("holder", "answer", "row"),
    [
        pytest.param(None, None, PartRow("gate", None, None, ok=False, message="not running"), id="nobody runs"),
        pytest.param(
            None,
            Health(ok=True, message="well"),
            PartRow("gate", None, None, ok=False, message="not running"),
            id="who answers without the lock is not the part",
        ),
        pytest.param(Holder(7, "t"), None, PartRow("gate", 7, "t", ok=False, message="it does not answer"), id="mute"),
        pytest.param(
            Holder(7, ""),
            Health(ok=True, message="well", since="u"),
            PartRow("gate", 7, "u", ok=True, message="well"),
            id="well",
        ),
        pytest.param(
            Holder(7, "t"),
            Health(ok=False, message="no snapshot"),
            PartRow("gate", 7, "t", ok=False, message="no snapshot"),
            id="not well",
        ),
    ],
)
def test_a_row_of_the_status(holder: Holder | None, answer: Health | None, row: PartRow) -> None:
    assert commands.row("gate", holder, answer) == row


def status(instance: Instance) -> tuple[int, dict[str, Any]]:
    done = instance.gpugrant("status", "-o", "json")
    return done.exit_code, json.loads(done.stdout)


def pids(instance: Instance) -> dict[str, int]:
    return {part["name"]: part["pid"] for part in status(instance)[1]["parts"]}


@real
@pytest.mark.must_run
def test_status_says_what_runs(instance: Instance) -> None:
    code, said = status(instance)
    assert code == 0, said
    assert [part["name"] for part in said["parts"]] == ["supervisor", "gate", "apiserver", "operator"]
    for part in said["parts"]:
        assert set(part) == {"name", "pid", "since", "ok", "message"}
        assert part["ok"]
        assert Path(f"/proc/{part['pid']}").exists()
    assert said["machine"]["name"] == instance.machine
    assert said["machine"]["ready"] is True
    assert {repo["name"]: repo["fit"] for repo in said["repos"]} == {"gpu-a": True, "gpu-b": True}
    assert said["gate"]["machine"] == instance.machine
    table = instance.gpugrant("status")
    assert table.exit_code == 0
    assert table.stdout.startswith("PART")


@real
def test_up_again_keeps_what_runs(instance: Instance) -> None:
    before = pids(instance)
    again = program("up", "--detach", "--root", instance.root, "--hardware", standalone.WORKSTATION)
    assert (again.returncode, f"machine {instance.machine} is up" in again.stderr) == (0, True)
    foreground = program("up", "--root", instance.root, "--hardware", standalone.WORKSTATION)
    assert (foreground.returncode, "it already runs below" in foreground.stderr) == (1, True)
    other = program("up", "--detach", "--root", instance.root)
    assert (other.returncode, "with --hardware" in other.stderr) == (1, True)
    assert pids(instance) == before


@real
@pytest.mark.must_run
@pytest.mark.parametrize("name", parts.NAMES)
def test_a_part_that_is_killed_is_back_with_the_grants_as_before(instance: Instance, name: str) -> None:
    assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL).exit_code == 0
    before = pids(instance)
    os.kill(before[name], signal.SIGKILL)

    def back() -> bool | None:
        code, said = status(instance)
        now = {part["name"]: part["pid"] for part in said["parts"]}
        return True if code == 0 and now[name] != before[name] else None

    assert waiting.until(back, 60), status(instance)
    assert {key: pid for key, pid in pids(instance).items() if key != name} == {
        key: pid for key, pid in before.items() if key != name
    }

    def in_force() -> bool | None:
        """In force again once the gate has looked at the daemon."""
        listed = json.loads(instance.rdc("repo", "gpu", "list", "gpu-a", "-o", "json").stdout)
        return [(grant["device"], grant["inForce"]) for grant in listed] == [(ALL, True)] or None

    assert waiting.until(in_force, 30), status(instance)


@real
@pytest.mark.must_run
def test_the_parts_outlive_the_supervisor_and_the_next_up_adopts_them(instance: Instance) -> None:
    before = pids(instance)
    os.kill(before["supervisor"], signal.SIGKILL)
    assert waiting.until(lambda: pids(instance)["supervisor"] is None or None, 30)
    code, said = status(instance)
    assert code == 1
    assert [part["ok"] for part in said["parts"]] == [False, True, True, True]
    assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL).exit_code == 0
    rig.succeeded(program("up", "--detach", "--root", instance.root, "--hardware", standalone.WORKSTATION))
    after = pids(instance)
    assert after.pop("supervisor") != before.pop("supervisor")
    assert after == before


@real
def test_a_repo_is_served_when_add_returns_and_not_any_more_when_remove_does(instance: Instance) -> None:
    added = instance.gpugrant("repo", "add", "more", "--upstream", str(instance.root / "none.sock"))
    assert added.exit_code == 0, added.output
    assert "note: nothing listens at" in added.stderr
    assert instance.layout.repo_socket("more").is_socket()
    assert stat.S_IMODE((instance.layout.repos / "more.yaml").stat().st_mode) == 0o644
    again = instance.gpugrant("repo", "add", "more", "--upstream", str(instance.root / "none.sock"))
    assert (again.exit_code, "is there already" in again.stdout) == (0, True)
    listed = json.loads(instance.gpugrant("repo", "list", "-o", "json").stdout)
    assert {repo["name"]: repo["fit"] for repo in listed} == {"gpu-a": True, "gpu-b": True, "more": False}
    assert set(listed[0]) == {"name", "id", "upstream", "listen", "sealed", "open", "fit", "reason", "message"}
    file = instance.layout.repos / "more.yaml"
    file.write_text(f"{file.read_text()}open: [host.ipc]\n")
    assert "host.ipc" in instance.gpugrant("repo", "list").stdout
    removed = instance.gpugrant("repo", "remove", "more")
    assert removed.exit_code == 0, removed.output
    assert "more" not in {repo["name"] for repo in status(instance)[1]["repos"]}
    gone = instance.gpugrant("repo", "remove", "mor")
    assert (gone.exit_code, gone.stderr) == (1, "error: there is no repo mor; there is gpu-a, gpu-b\n")


@real
def test_a_daemon_of_another_repo_is_refused(instance: Instance) -> None:
    done = instance.gpugrant("repo", "add", "more", "--upstream", str(instance.daemons["gpu-a"].socket))
    assert done.exit_code == 1
    assert "is the daemon of repo gpu-a" in done.stderr


@real
def test_the_gates_own_socket_is_no_daemon(instance: Instance) -> None:
    link = instance.root / "link.sock"
    link.symlink_to(instance.layout.repo_socket("gpu-a"))
    try:
        for upstream in (instance.layout.repo_socket("gpu-a"), link):
            done = instance.gpugrant("repo", "add", "more", "--upstream", str(upstream))
            assert (done.exit_code, done.stdout) == (1, "")
            assert done.stderr == (
                f"error: the gate itself listens at {upstream}, for repo gpu-a: "
                "give the daemon's own socket as --upstream\n"
            )
    finally:
        link.unlink()


@real
def test_a_broken_file_is_named_with_its_line_and_the_others_go_on(instance: Instance) -> None:
    broken = instance.layout.repos / "broken.yaml"
    broken.write_text("name: broken\nupstraem: /x\n")
    try:
        listed = instance.gpugrant("repo", "list")
        assert listed.exit_code == 0
        assert "broken.yaml:2: the key" in listed.stderr
        assert "gpu-a" in listed.stdout

        def told() -> bool | None:
            return any("broken.yaml" in problem for problem in status(instance)[1]["gate"]["problems"]) or None

        assert waiting.until(told, 30)
        table = instance.gpugrant("status")
        assert "problem: " in table.stdout
    finally:
        broken.unlink()


@real
def test_the_machine_is_claimed_once(instance: Instance) -> None:
    asyncio.run(commands.claim(instance.layout, instance.machine))
    access = kubeclient.read_kubeconfig((instance.layout.kubeconfig,))

    async def machines() -> list[dict[str, Any]]:
        async with kubeclient.KubeClient(access) as api:
            return await api.list(commands.MACHINES)

    assert [machine["metadata"]["name"] for machine in asyncio.run(machines())] == [instance.machine]


@real
@pytest.mark.must_run
def test_down_stops_everything_keeps_the_data_and_can_be_run_again() -> None:
    with standalone.up() as instance:
        assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL).exit_code == 0
        before = pids(instance)
        stopped = instance.gpugrant("down")
        assert (stopped.exit_code, stopped.stdout) == (0, "stopped: supervisor, gate, apiserver, operator\n")
        assert not any(processes.arguments(pid) for pid in before.values())
        assert instance.gpugrant("down").stdout == f"nothing runs below {instance.root}\n"
        code, said = status(instance)
        assert code == 1
        assert {part["message"] for part in said["parts"]} == {"not running"}
        assert (said["machine"], said["repos"], said["gate"]) == (None, [], None)
        rig.succeeded(program("up", "--detach", "--root", instance.root, "--hardware", standalone.WORKSTATION))
        listed = instance.rdc("repo", "gpu", "list", "-o", "json")
        assert [grant["device"] for grant in json.loads(listed.stdout)] == [ALL]


@real
@pytest.mark.req("R12", "R19")
def test_a_machine_without_a_gpu_says_so_and_is_well() -> None:
    with standalone.up(rig.CHECKOUT / "examples/machines/no-gpu") as instance:
        shown = instance.rdc("machine", "gpu", "list", instance.machine)
        assert (shown.exit_code, "this machine has no GPU" in shown.stdout) == (0, True)
        assert "DEVICE" not in shown.stdout
        recorded = json.loads(instance.rdc("machine", "gpu", "list", instance.machine, "-o", "json").stdout)
        assert (recorded["gpus"], recorded["cdi"]["devices"]) == ([], [])


@real
def test_in_the_foreground_it_ends_with_its_parts_when_it_is_told_to() -> None:

    root = rig.short_folder()
    layout = Layout(root)
    command = [sys.executable, "-m", "gpugrant_operator.cli.gpugrant", "up", "--root", root]
    with subprocess.Popen([*command, "--hardware", standalone.WORKSTATION], stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        events = iter(child.stderr.readline, "")
        assert any(json.loads(line)["event"] == "ready" for line in events)
        child.send_signal(signal.SIGINT)
        assert any(json.loads(line)["event"] == "ended" for line in events)
    assert child.returncode == 0
    assert all(processes.holder(layout.lock(name)) is None for name in parts.NAMES)
    shutil.rmtree(root)


@real
def test_two_that_start_at_once_end_in_one_instance() -> None:
    root = rig.short_folder()
    layout = Layout(root)
    command = [sys.executable, "-m", "gpugrant_operator.cli.gpugrant", "up", "--detach", "--root", root]
    children = [
        subprocess.Popen([*command, "--hardware", standalone.WORKSTATION], stderr=subprocess.PIPE) for _ in "ab"
    ]
    try:
        said = [child.communicate()[1].decode() for child in children]
        assert [child.returncode for child in children] == [0, 0], said
        assert processes.holder(layout.lock(parts.SUPERVISOR)) is not None
    finally:
        rig.succeeded(program("down", "--root", root))
    shutil.rmtree(root)


def test_a_root_that_is_too_deep_is_one_sentence() -> None:
    done = CliRunner().invoke(cli, ["up", "--detach", "--root", "/tmp/" + "d" * 100])
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "choose a shorter --root" in done.stderr


def test_a_root_that_can_not_be_written_is_one_sentence() -> None:
    folder = rig.short_folder()
    (folder / "file").touch()
    done = CliRunner().invoke(cli, ["up", "--detach", "--root", f"{folder}/file"])
    shutil.rmtree(folder)
    assert done.exit_code == 1
    assert done.stderr == f"error: can't write below {folder}/file: not a directory\n"


def test_a_machine_that_can_not_be_named_is_one_sentence(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.etc.mkdir(parents=True)
    layout.gate_settings.write_text("nodeName: Not A Name\n")
    done = CliRunner().invoke(cli, ["up", "--detach", "--root", str(tmp_path)])
    assert done.exit_code == 1
    assert "is not a machine name" in done.stderr


def test_a_hardware_tree_that_is_not_there_is_wrong_usage() -> None:
    done = CliRunner().invoke(cli, ["up", "--hardware", "/nonexistent"])
    assert (done.exit_code, '"/nonexistent" is not a folder' in done.stderr) == (2, True)


def test_crds_are_one_yaml_stream() -> None:

    done = CliRunner().invoke(cli, ["crds"])
    names = [crd["metadata"]["name"] for crd in yaml.safe_load_all(done.stdout)]
    assert names == ["gpumachines.gpu.rediacc.io", "repogpugrants.gpu.rediacc.io"]


def test_a_status_of_the_gate_keeps_its_contract() -> None:
    said = commands.document((), None, GateStatus(machine="m"))
    assert said["gate"]["machine"] == "m"
