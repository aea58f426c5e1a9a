"""`<root>/env` works in a plain sh, whatever the root is called."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from gpugrant_hack import shell
from gpugrant_hack.places import Root

import rig


def in_shell(root: Path, command: str, **environ: str) -> str:
    return rig.succeeded(rig.run(["sh", "-euc", command], environ={"PATH": os.environ["PATH"], **environ}))


@pytest.mark.parametrize("name", ["plain", "with space", "it's", "a$HOME`x`"])
def test_a_shell_reads_it(tmp_path, name):
    root = Root(tmp_path / name)
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    shell.write(root, programs={"sometool": tool}, plugins={}, repos=["gpu-a"])

    said = in_shell(root.path, '. "$E"; . "$E"; sometool; echo "$KUBECONFIG"; echo "$PATH"', E=str(root.env))

    found, kubeconfig, path = said.splitlines()
    assert found == "found"
    assert kubeconfig == str(root.path / "etc/rediacc/gpu/kubeconfig")
    assert path.split(":").count(str(root.bin)) == 1


def test_a_docker_host_of_the_caller_does_not_win(tmp_path):
    shell.write(Root(tmp_path), programs={}, plugins={}, repos=[])

    assert in_shell(tmp_path, '. "$E"; echo "${DOCKER_HOST-none}"', E=f"{tmp_path}/env", DOCKER_HOST="x") == "none"


def test_a_context_reaches_the_repo_s_gate(tmp_path):
    shell.write(Root(tmp_path), programs={}, plugins={}, repos=["gpu-a"])

    (meta,) = (tmp_path / "docker/contexts/meta").glob("*/meta.json")
    endpoint = json.loads(meta.read_text())["Endpoints"]["docker"]["Host"]
    assert endpoint == f"unix://{tmp_path}/run/rediacc/gpu/repos/gpu-a.sock"


def test_writing_it_again_changes_nothing_and_a_moved_tool_is_followed(tmp_path):
    for target in ("/old/docker", "/old/docker", "/new/docker"):
        shell.write(Root(tmp_path), programs={"docker": Path(target)}, plugins={}, repos=["gpu-a"])

    assert (tmp_path / "bin/docker").readlink() == Path("/new/docker")
