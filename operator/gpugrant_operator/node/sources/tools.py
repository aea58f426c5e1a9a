"""What knows an NVIDIA card best: NVML, and nvidia-smi where there is no NVML (reference cdi-gpu 3.5).

Both run as children with limits. A driver that hangs hangs for either, so that only one is waited for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gpugrant_operator.node import programs
from gpugrant_operator.node.observed import ToolRun
from gpugrant_operator.node.tree import Tree
from gpugrant_operator.node.vendors import nvidia

LIBRARY = "libnvidia-ml.so.1"

_FOLDERS = (
    "usr/lib/wsl/lib",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
)

_PROGRAM = Path(__file__).parents[1] / "nvml.py"


def ask(tree: Tree, env: Mapping[str, str], limit: float) -> ToolRun | None:
    """The answer, or why there is none; None: there is nothing to ask. `limit` is seconds for each of the two."""
    library = _library(tree)
    nvml = None if library is None else _nvml(library, env, limit)
    if nvml is not None and (nvml.answer is not None or nvml.timed_out):
        return nvml
    smi = _smi(tree, env, limit)
    if nvml is None or smi is None:
        return nvml or smi
    # nvidia-smi asks the same library: where both fail, NVML's own words are nearer to the cause
    return nvml if smi.answer is None else replace(smi, notes=(nvml.failure or "NVML failed",))


def _library(tree: Tree) -> str | None:
    """What is loaded: the tree's own library and no other, so that no machine answers for another's tree."""
    for folder in _FOLDERS:
        place = tree.locate(f"{folder}/{LIBRARY}")
        if place is not None:
            return str(place)
    # installed where only the loader's cache knows it
    return LIBRARY if tree.is_live else None


def _nvml(library: str, env: Mapping[str, str], limit: float) -> ToolRun | None:
    ended = programs.run(Path(sys.executable), ["-I", str(_PROGRAM), library], timeout=limit, env=env, name="NVML")
    if ended.code is None:
        return ToolRun(None, ended.why, timed_out=True, source="NVML")
    if not ended.ok:
        said = f": {ended.last_line}" if ended.last_line else ""
        return ToolRun(None, f"NVML ended with {ended.code}{said}", source="NVML")
    answer = nvidia.parse_nvml(ended.stdout)
    if isinstance(answer, str):
        absent = library == LIBRARY and "cannot open shared object" in answer
        return None if absent else ToolRun(None, answer, source="NVML")
    return ToolRun(answer, source="NVML")


def _smi(tree: Tree, env: Mapping[str, str], limit: float) -> ToolRun | None:
    program = tree.program("nvidia-smi")
    if program is None:
        return None
    for fields in (nvidia.QUERY, nvidia.SMALL_QUERY):
        args = [f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        ended = programs.run(program, args, timeout=limit, env=env)
        if ended.code != nvidia.BAD_ARGUMENT:
            break
    if ended.code is None:
        return ToolRun(None, ended.why, timed_out=True)
    answer = nvidia.parse_query(ended.stdout, fields)
    if not ended.ok and not answer.cards:
        return ToolRun(None, ended.why or nvidia.failure(ended.code, ended.stdout + "\n" + ended.stderr))
    return ToolRun(answer)
