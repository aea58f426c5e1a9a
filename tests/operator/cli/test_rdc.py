"""`rdc` against real parts: API server, operator, gate."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from gpugrant_crds import names
from gpugrant_operator.cli import api, waiting
from gpugrant_operator.cli.api import Api
from standalone import Instance

pytestmark = pytest.mark.real

ALL = "nvidia.com/gpu=all"
ZERO = "nvidia.com/gpu=0"
AMD = "rediacc.io/amd=gpu0"


def grants(instance: Instance) -> list[dict[str, object]]:
    done = instance.rdc("repo", "gpu", "list", "-o", "json")
    assert done.exit_code == 0, done.output
    listed: list[dict[str, object]] = json.loads(done.stdout)
    return listed


def held(instance: Instance) -> set[tuple[object, object, object]]:
    return {(grant["repo"], grant["device"], grant["inForce"]) for grant in grants(instance)}


@pytest.mark.must_run
@pytest.mark.req("R6", "R22")
def test_a_grant_is_in_force_when_the_command_returns_and_gone_when_the_next_does(instance: Instance) -> None:
    done = instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL)
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"repo gpu-a may use {ALL} on {instance.machine}" in done.stdout
    assert held(instance) == {("gpu-a", ALL, True)}
    done = instance.rdc("repo", "gpu", "revoke", f"gpu-a@{instance.machine}", "--device", ALL)
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"revoked: {ALL}" in done.stdout
    assert held(instance) == set()


@pytest.mark.req("R22")
def test_both_can_be_run_again(instance: Instance) -> None:
    instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL)
    again = instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL)
    assert again.exit_code == 0
    assert f"repo gpu-a has {ALL} on {instance.machine} already" in again.stderr
    assert len(grants(instance)) == 1
    instance.rdc("repo", "gpu", "revoke", "gpu-a", "--device", ALL)
    again = instance.rdc("repo", "gpu", "revoke", "gpu-a", "--device", ALL)
    assert (again.exit_code, again.stdout) == (0, f"repo gpu-a has no grant for {ALL} on {instance.machine}\n")


@pytest.mark.req("R8", "R22")
def test_one_misspelt_name_of_two_stores_nothing(instance: Instance) -> None:
    done = instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL, "--device", "nvidia.com/gpu=al")
    assert done.exit_code == 1
    assert f"has no device nvidia.com/gpu=al; did you mean {ALL}" in done.stderr
    assert done.stderr.count("\n") == 1
    assert grants(instance) == []


@pytest.mark.req("R25", "R26", "R27")
def test_exclusive_is_refused_both_ways_and_names_the_holder(instance: Instance) -> None:
    assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL).exit_code == 0
    refused = instance.rdc("repo", "gpu", "grant", "gpu-b", "--device", ALL, "--exclusive")
    assert (refused.exit_code, "repo gpu-a holds it" in refused.stderr) == (1, True)
    upgraded = instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL, "--exclusive")
    assert upgraded.exit_code == 0, upgraded.output
    refused = instance.rdc("repo", "gpu", "grant", "gpu-b", "--device", ALL)
    assert refused.exit_code == 1
    assert "reserved for repo gpu-a" in refused.stderr
    assert f"rdc repo gpu revoke gpu-a@{instance.machine} --device {ALL}" in refused.stderr
    assert held(instance) == {("gpu-a", ALL, True)}
    kept = instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL)
    assert (kept.exit_code, "stays reserved" in kept.stderr) == (0, True)


@pytest.mark.req("R28", "R48")
def test_of_many_that_reserve_at_once_one_wins_and_the_others_leave_nothing(instance: Instance) -> None:
    barrier = threading.Barrier(6)

    def ask(repo: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gpugrant_operator.cli.rdc", "repo", "gpu", "grant", repo, "--device", AMD]
        environ = {"GPUGRANT_ROOT": str(instance.root), "PATH": "/usr/bin"}
        barrier.wait()
        return subprocess.run([*command, "--exclusive"], env=environ, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(6) as pool:
        asked = ["gpu-a", "gpu-b"] * 3
        done = list(pool.map(ask, asked))
    winners = {repo for repo, result in zip(asked, done, strict=True) if result.returncode == 0}
    assert len(winners) == 1, [result.stderr for result in done]
    (winner,) = winners
    for repo, result in zip(asked, done, strict=True):
        if repo != winner:
            assert result.returncode == 1
            assert f"repo {winner}" in result.stderr
    assert held(instance) == {(winner, AMD, True)}


@pytest.mark.req("R26")
def test_what_the_api_refuses_is_one_sentence_without_its_prefix(instance: Instance) -> None:
    assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL).exit_code == 0
    direct = Api(str(instance.layout.kubeconfig))
    try:
        spec = {"machine": instance.machine, "repo": "gpu-b", "device": ALL}
        stored = direct.create_grant("default", "by-hand", spec)
        with pytest.raises(api.ApiProblem) as refused:
            direct.change_grant("default", "by-hand", stored.metadata.uid, {"exclusive": True})
    finally:
        direct.close()
    assert refused.value.message.startswith(f"{ALL} on {instance.machine} can't be reserved while repo gpu-a holds it")


def test_a_dry_run_writes_nothing_and_says_what_it_would(instance: Instance) -> None:
    done = instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL, "--dry-run")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"would grant {ALL} on {instance.machine} to repo gpu-a as default/")
    refused = instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", "nvidia.com/gpu=9", "--dry-run")
    assert refused.exit_code == 1
    assert grants(instance) == []


def test_a_grant_ends_when_it_was_told_to(instance: Instance) -> None:
    done = instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL, "--expires-in", "2s")
    assert done.exit_code == 0, done.output
    assert held(instance) == {("gpu-a", ALL, True)}
    assert waiting.until(lambda: held(instance) == {("gpu-a", ALL, False)} or None, 20)
    renewed = instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL)
    assert renewed.exit_code == 0, renewed.output
    assert held(instance) == {("gpu-a", ALL, True)}


@pytest.mark.req("R51")
def test_revoke_takes_the_grants_of_all_namespaces(instance: Instance) -> None:
    """What it says of containers that still run: e2e/test_in_use, on a daemon that starts and stops them."""
    direct = Api(str(instance.layout.kubeconfig))
    try:
        spec = {"machine": instance.machine, "repo": "gpu-a", "device": ALL}
        direct.create_grant("kube-system", "another", spec)
    finally:
        direct.close()
    assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL, "-n", "default").exit_code == 0
    assert len(grants(instance)) == 2
    done = instance.rdc("repo", "gpu", "revoke", "gpu-a", "--device", ALL)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "(grant kube-system/another)" in done.stdout
    assert grants(instance) == []


@pytest.mark.req("R51")
def test_revoking_a_name_that_the_machine_does_not_have_is_refused(instance: Instance) -> None:
    done = instance.rdc("repo", "gpu", "revoke", "gpu-a", "--device", "nvidia.com/gpu=al")
    assert (done.exit_code, "did you mean" in done.stderr) == (1, True)


@pytest.mark.req("R9")
def test_the_grant_of_a_removed_repo_serves_no_later_one_of_its_name_and_can_be_given_anew(instance: Instance) -> None:
    assert instance.rdc("repo", "gpu", "grant", "gpu-b", "--device", ZERO).exit_code == 0
    upstream = str(instance.daemons["gpu-b"].socket)
    assert instance.gpugrant("repo", "remove", "gpu-b").exit_code == 0
    assert instance.gpugrant("repo", "add", "gpu-b", "--upstream", upstream).exit_code == 0
    anew = instance.rdc("repo", "gpu", "grant", "gpu-b", "--device", ZERO)
    assert anew.exit_code == 0, anew.output
    assert held(instance) == {("gpu-b", ZERO, True)}


@pytest.mark.req("R19", "R21")
def test_the_list_of_a_machine_has_its_cards_and_who_holds_what(instance: Instance) -> None:
    assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL, "--exclusive").exit_code == 0
    done = instance.rdc("machine", "gpu", "list", instance.machine)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"machine: {instance.machine}", "platform: native"]
    assert lines[2].startswith("inventory: ")
    rows = {line.split()[0]: re.split("  +", line)[1:] for line in lines if "=" in line}
    assert rows[ALL] == ["NVIDIA RTX 4000 Ada Generation at 0000:01:00.0", "gpu-a (exclusive)"]
    assert rows[AMD] == ["AMD Radeon PRO W7900 at 0000:03:00.0", "-"]


@pytest.mark.req("R20")
def test_the_inventory_is_printed_byte_for_byte(instance: Instance) -> None:
    done = instance.rdc("machine", "gpu", "list", instance.machine, "-o", "json")
    assert done.exit_code == 0
    assert done.stdout_bytes == instance.layout.inventory.read_bytes()
    as_yaml = instance.rdc("machine", "gpu", "list", instance.machine, "-o", "yaml")
    assert yaml.safe_load(as_yaml.stdout) == json.loads(done.stdout)


@pytest.mark.req("R19", "R21")
def test_a_broken_inventory_leaves_the_last_known_state_and_says_what_to_run(instance: Instance) -> None:
    instance.layout.inventory.write_text('{"a": ')
    done = instance.rdc("machine", "gpu", "list", instance.machine)
    assert (done.exit_code, "NVIDIA RTX 4000 Ada" in done.stdout) == (1, True)
    assert f"run: rdc machine setup {instance.machine}; the GPUs are shown as they were last recorded" in done.stderr
    as_json = instance.rdc("machine", "gpu", "list", instance.machine, "-o", "json")
    assert (as_json.exit_code, as_json.stdout) == (1, '{"a": ')
    assert instance.rdc("machine", "gpu", "list", instance.machine, "-o", "yaml").exit_code == 1


@pytest.mark.req("R10")
def test_a_machine_that_can_not_be_found_is_told_with_the_known_names(instance: Instance) -> None:
    done = instance.rdc("machine", "setup", f"{instance.machine}x")
    assert done.exit_code == 1
    assert f"did you mean {instance.machine}?" in done.stderr
    listed = instance.rdc("machine", "gpu", "list", "zzzzzzzz")
    assert (listed.exit_code, instance.machine in listed.stderr) == (1, True)


@pytest.mark.req("R10")
def test_setup_follows_a_detection_to_its_end(instance: Instance) -> None:
    before = instance.layout.inventory.stat().st_mtime_ns
    done = instance.rdc("machine", "setup", instance.machine)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"machine {instance.machine} is ready")
    assert instance.layout.inventory.stat().st_mtime_ns > before


@pytest.mark.req("R21")
def test_a_silent_gate_is_told_with_the_age_of_what_is_known(instance: Instance, tmp_path: Path) -> None:
    """Asked from a root without a gate, as on another machine."""
    assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL).exit_code == 0
    away = {"GPUGRANT_ROOT": str(tmp_path), "KUBECONFIG": str(instance.layout.kubeconfig)}
    listed = instance.rdc("repo", "gpu", "list", "gpu-a", **away)
    assert listed.exit_code == 1
    assert "gpu-a" in listed.stdout
    assert "this is what the operator knows of it, with an inventory that is " in listed.stderr
    machine = instance.rdc("machine", "gpu", "list", instance.machine, **away)
    assert machine.exit_code == 1
    assert ALL in machine.stdout
    raw = instance.rdc("machine", "gpu", "list", instance.machine, "-o", "json", **away)
    assert (raw.exit_code, raw.stdout) == (1, "")
    assert "the last inventory that is known is" in raw.stderr


def test_where_two_apis_are_known_it_says_which_one_is_used(instance: Instance, tmp_path: Path) -> None:
    other = tmp_path / "kubeconfig"
    other.write_text(instance.layout.kubeconfig.read_text())
    done = instance.rdc("repo", "gpu", "list", KUBECONFIG=str(other))
    assert done.exit_code == 0
    assert f"using the API of KUBECONFIG={other}" in done.stderr


def test_names_of_grants_are_derived_so_that_kubectl_users_find_them(instance: Instance) -> None:
    assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", ALL).exit_code == 0
    (grant,) = grants(instance)
    assert grant["name"] == names.grant_object_name("gpu-a", instance.machine, ALL)
