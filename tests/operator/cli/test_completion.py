"""Completion in a real shell, with names read from a real API; and the kubectl plugin."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import rig
from standalone import Instance

PROGRAMS = Path(sys.executable).parent

PRESS_TAB = """
source <(gpugrant completion bash)
COMP_LINE=$1 COMP_POINT=${#1}
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
compopt() { :; }
_$(basename "${COMP_WORDS[0]}")_completion
printf '%s\\n' "${COMPREPLY[@]}"
"""


def tab(line: str, words: list[str], **environ: str) -> list[str]:
    """What bash is given for the line up to the cursor; `words` are as it splits them at COMP_WORDBREAKS."""
    done = subprocess.run(
        ["bash", "-c", PRESS_TAB, "bash", line, *words],
        env={"PATH": f"{PROGRAMS}:{os.environ['PATH']}", **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words", "expected"),
    [
        ("rdc mach", ["rdc", "mach"], ["machine"]),
        ("rdc repo gpu ", ["rdc", "repo", "gpu", ""], ["explain", "grant", "list", "revoke"]),
        ("gpugrant repo se", ["gpugrant", "repo", "se"], ["seal"]),
        ("renet setup --off", ["renet", "setup", "--off"], ["--offline"]),
    ],
)
def test_commands_and_options(line: str, words: list[str], expected: list[str]) -> None:
    assert tab(line, words) == expected


def test_without_an_api_there_is_nothing_and_nothing_is_said() -> None:
    assert tab("rdc machine setup ", ["rdc", "machine", "setup", ""], GPUGRANT_ROOT="/nonexistent") == []


@pytest.mark.real
@pytest.mark.req("D13")
def test_names_are_read_live(instance: Instance) -> None:
    environ = {"GPUGRANT_ROOT": str(instance.root)}
    assert tab("rdc machine setup ", ["rdc", "machine", "setup", ""], **environ) == [instance.machine]
    start = ["rdc", "repo", "gpu", "grant"]
    assert tab("rdc repo gpu grant gpu", [*start, "gpu"], **environ) == ["gpu-a", "gpu-b"]
    at = f"rdc repo gpu grant gpu-a@{instance.machine[:2]}"
    assert tab(at, [*start, "gpu-a", "@", instance.machine[:2]], **environ) == [instance.machine]
    device = "rdc repo gpu grant gpu-a --device "
    options = [*start, "gpu-a", "--device"]
    found = tab(f"{device}rediacc", [*options, "rediacc"], **environ)
    assert "rediacc.io/dri=renderD128" in found
    assert tab(f"{device}rediacc.io/dri=", [*options, "rediacc.io/dri", "="], **environ) == [
        name.partition("=")[2] for name in found if name.startswith("rediacc.io/dri=")
    ]
    assert tab(f"{device}rediacc.io/dri=renderD128", [*options, "rediacc.io/dri", "=", "renderD128"], **environ) == [
        "renderD128"
    ]
    assert instance.rdc("repo", "gpu", "grant", "gpu-a", "--device", "rediacc.io/dri=renderD128").exit_code == 0
    revoke = ["rdc", "repo", "gpu", "revoke", "gpu-a", "--device", ""]
    assert tab("rdc repo gpu revoke gpu-a --device ", revoke, **environ) == ["rediacc.io/dri=renderD128"]
    assert tab("gpugrant repo seal ", ["gpugrant", "repo", "seal", ""], **environ) == ["gpu-a", "gpu-b"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(shell: str) -> None:
    """Their own parser takes the text, where the shell is there."""
    made = subprocess.run([PROGRAMS / "gpugrant", "completion", shell], capture_output=True, text=True, check=True)
    assert all(f"_{name}_COMPLETE" in made.stdout for name in ("GPUGRANT", "RDC", "RENET"))
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=made.stdout, text=True, check=True)


@pytest.mark.real
def test_the_kubectl_plugin(instance: Instance) -> None:
    environ: Mapping[str, str] = {
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        "HOME": str(instance.root),
        "GPUGRANT_ROOT": str(instance.root),
    }
    kubectl = rig.succeeded(rig.script("tools", "kubectl")).strip()
    listed = rig.succeeded(rig.run([kubectl, "gpugrant", "repo", "list"], environ=environ))
    assert "gpu-a" in listed
    shown = rig.succeeded(rig.run([kubectl, "gpugrant", "--help"], environ=environ))
    assert shown.startswith("Usage: kubectl gpugrant ")
