"""The real server's answers, kept for machines that can't have it: python api_recording.py writes answers.json.gz."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]

import api_comparing  # noqa: E402
from api_script import CHAPTERS  # noqa: E402

import apiservers  # noqa: E402
from gpugrant_crds import schema  # noqa: E402

FILE = HERE / "answers.json.gz"
Answers = Mapping[str, Mapping[str, Any]]
"""By chapter and step, in normal form."""


class NotTheRealOne(Exception):
    """What was asked is no kube-apiserver with an etcd."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """`version`: the real server's gitVersion."""

    version: str
    answers: Answers


def crds() -> list[Any]:
    """Ours, and one with every schema feature that ours reads."""
    return [yaml.safe_load((HERE / "widgets.yaml").read_text()), *schema.crds()]


def all_answers(server: apiservers.ApiServer) -> Answers:
    return {
        chapter: {step.name: api_comparing.normal(step, answer) for step, answer in api_comparing.ask(server, chapter)}
        for chapter in CHAPTERS
    }


def real_version(server: apiservers.ApiServer) -> str:
    """The gitVersion of a real one; raises NotTheRealOne for any other: ours has no etcd to be asked for."""
    version = server.ask("GET", "/version").body
    told = str(version.get("gitVersion", "")) if isinstance(version, dict) else ""
    etcd = server.ask("GET", "/readyz/etcd")
    if "gpugrant" in told or not told.startswith("v1.") or (etcd.code, etcd.body) != (200, "ok"):
        raise NotTheRealOne(f"only a kube-apiserver with an etcd is recorded, and this is {told or 'unknown'}")
    return told


def record(server: apiservers.ApiServer) -> Recorded:
    return Recorded(real_version(server), all_answers(server))


def save(recorded: Recorded, file: Path = FILE) -> None:
    text = json.dumps({"version": recorded.version, "answers": recorded.answers}, sort_keys=True)
    file.write_bytes(gzip.compress(text.encode(), mtime=0))


def load(file: Path = FILE) -> Recorded:
    read = json.loads(gzip.decompress(file.read_bytes()))
    return Recorded(read["version"], read["answers"])


def main() -> None:
    with apiservers.kubernetes(crds()) as server:
        recorded = record(server)
    save(recorded)
    sys.stdout.write(f"{FILE.name}: the answers of kube-apiserver {recorded.version}\n")


if __name__ == "__main__":
    main()
