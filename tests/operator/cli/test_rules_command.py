"""`gpugrant gate rules`."""

from __future__ import annotations

import json

from click.testing import CliRunner

from gpugrant_crds import openings
from gpugrant_operator.cli.gpugrant import cli


def test_lists_each_rule_and_what_can_be_opened_with_its_cost() -> None:
    said = CliRunner().invoke(cli, ["gate", "rules"])
    assert said.exit_code == 0
    lines = said.output.splitlines()
    assert any(line.startswith("hw.privileged") and "(R45)" in line for line in lines)
    assert any(line.startswith("host.network ") and line.endswith("yes") for line in lines)
    assert any(line.startswith("host.capabilities ") and "one value at a time" in line for line in lines)
    for opening in openings.OPENINGS:
        assert any(line.startswith(opening.name) and line.endswith(opening.costs) for line in lines)
    assert any(line.startswith("rediacc") and "host.capabilities=SYS_PTRACE" in line for line in lines)


def test_as_json_each_opening_is_written_as_in_a_repos_file() -> None:
    said = CliRunner().invoke(cli, ["gate", "rules", "-o", "json"])
    data = json.loads(said.output)
    names = [opening["name"] for rule in data["rules"] for opening in rule["opens"]]
    assert sorted(names) == sorted(opening.name for opening in openings.OPENINGS)
    assert data["profiles"]["rediacc"] == list(openings.PROFILES["rediacc"])
    assert data["never"]["host.capabilities=BPF"]
