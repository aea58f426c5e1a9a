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


def test_reads_what_an_operator_has_a_reason_to_change(tmp_path: Path) -> None:
    text = """\
connections: 100
headTimeout: 5s
idleTimeout: 1h30m
bodyTimeout: 2m
bodyMax: 512KiB
drain: 0s
sweep: Report
audit: /var/log/audit.log
metrics: "[::1]:9469"
"""
    loaded = load(tmp_path, text)
    assert (loaded.audit, loaded.metrics) == (Path("/var/log/audit.log"), ("::1", 9469))
    assert not loaded.enforces
    assert load(tmp_path, "sweep: Enforce\n").enforces
    assert loaded.limits == settings.Limits(
        connections=100, head_timeout=5, idle_timeout=5400, body_timeout=120, body_max=512 * 1024, drain=0
    )


def test_every_key_is_explained_with_its_default() -> None:
    text = (Path(__file__).parents[2] / "gate/OPERATING.md").read_text(encoding="utf-8")
    assert [key for key in settings.KEYS if f"| `{key}` |" not in text] == []


BROKEN = {
    "an unknown key": ("workers: 2\nworker: 3\n", 'gate.yaml:2: the key "worker" is not known'),
    "a key that is nearly one": ("conections: 3\n", 'the key "conections" is not known; did you mean connections?'),
    "a time without a unit": ("drain: 30\n", '"drain" must be a time from 0s to 30d, in d, h, m and s, such as 90s'),
    "a time that is too long": ("headTimeout: 2h\n", '"headTimeout" must be a time from 1s to 1h'),
    "a size without a unit": (
        "bodyMax: 1000000\n",
        '"bodyMax" must be a size from 64KiB to 16MiB, in B, KiB, MiB or GiB',
    ),
    "a size that is too large": ("bodyMax: 1GiB\n", '"bodyMax" must be a size from 64KiB to 16MiB'),
    "a relative file": ("audit: audit.log\n", '"audit" must be an absolute path'),
    "a host name": ("metrics: localhost:9469\n", '"metrics" must be an IP address and a port, such as 127.0.0.1:9469'),
    "no port": ("metrics: 127.0.0.1\n", '"metrics" must be an IP address and a port'),
    "port 0": ("metrics: 127.0.0.1:0\n", '"metrics" must be an IP address and a port'),
    "an unknown way to sweep": ("sweep: report\n", '"sweep" must be Enforce or Report'),
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
