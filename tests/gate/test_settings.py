"""gate.yaml and the machine's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpugrant_gate import settings
from gpugrant_gate.life.documents import Broken


def load(tmp_path: Path, text: str | None, name: str = "Host-1", cores: int = 8) -> settings.Settings:
    path = tmp_path / "gate.yaml"
    if text is not None:
        path.write_text(text)
    return settings.load(path, name, cores)


def test_has_defaults_without_a_file(tmp_path: Path) -> None:
    assert load(tmp_path, None) == settings.Settings("host-1", 4)
    assert load(tmp_path, "", cores=2).workers == 2


def test_reads_both_settings(tmp_path: Path) -> None:
    assert load(tmp_path, "nodeName: node-7\nworkers: 2\n") == settings.Settings("node-7", 2)


BROKEN = {
    "an unknown key": ("workers: 2\nworker: 3\n", 'gate.yaml:2: the key "worker" is not known'),
    "a key twice": ("workers: 2\nworkers: 3\n", 'gate.yaml:2: the key "workers" is there twice'),
    "no number": ("workers: many\n", 'gate.yaml:1: "workers" must be a number from 1 to 64'),
    "no workers": ("workers: 0\n", 'gate.yaml:1: "workers" must be a number from 1 to 64'),
    "a list": ("- workers\n", "gate.yaml:1: must hold settings"),
    "no YAML": ("workers: [\n", "not YAML"),
    "a name that no object can have": ("nodeName: node_7\n", 'gate.yaml:1: nodeName: "node_7" is not a machine name'),
    "an empty name": ("nodeName:\n", 'gate.yaml:1: "nodeName" must be a text'),
}


@pytest.mark.parametrize("case", BROKEN)
def test_says_what_is_wrong_and_where(tmp_path: Path, case: str) -> None:
    text, message = BROKEN[case]
    with pytest.raises(Broken) as error:
        load(tmp_path, text)
    assert message in str(error.value)


def test_a_machine_without_a_name_is_said(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="nodeName"):
        load(tmp_path, None, name="")


def test_a_recorded_tree_brings_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hostname").write_text("recorded\n")
    assert settings.host_name(tmp_path, "ours") == "recorded"
    assert settings.host_name(Path("/"), "ours") == "ours"
    assert settings.host_name(tmp_path / "none", "ours") == ""
