"""README.md's own commands, in a clean copy of the project: what they print is what stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import rig

pytestmark = [pytest.mark.real, pytest.mark.must_run, pytest.mark.timeout(900)]

MARK = "=====8<====="


@dataclass(frozen=True)
class Step:
    """A command, and the output that the page shows; `…` stands for anything."""

    command: str
    shown: str


def steps(page: str) -> list[Step]:
    """The `$ ` lines of the page's console blocks with what follows each."""
    found: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append(Step(command, shown.strip("\n")))
    return found


def pattern(shown: str) -> str:
    """Blanks in a row count as one; `…` is anything in a line, a line of `…` alone any lines."""
    lines = []
    for line in shown.splitlines():
        words = [re.escape(word).replace("…", ".*") for word in line.split()]
        lines.append(r"(?:.*\n)*?" if line.strip() == "…" else r"[ \t]*" + r"[ \t]+".join(words) + r"[ \t]*\n")
    return "".join(lines)


@pytest.fixture
def copy() -> Iterator[Path]:
    """What git has of the project, as a clone would have it."""
    if os.geteuid() != 0:
        pytest.skip("hack/up needs root")
    target = rig.short_folder() / "gpugrant"
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=rig.CHECKOUT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = rig.CHECKOUT / name
        if source.is_symlink() or source.exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    yield target
    subprocess.run([target / "hack/down"], check=True)
    shutil.rmtree(target.parent)


@pytest.mark.req("D10", "D13", "R1", "R23", "R24", "R26", "R45", "R51")
def test_the_tour(copy: Path) -> None:
    """Every command of the page in one shell, in order."""
    tour = steps((copy / "README.md").read_text())
    script = "".join(f"{step.command}\necho; echo '{MARK}'\n" for step in tour)
    done = subprocess.run(
        ["bash"], cwd=copy, input=script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    printed = done.stdout.split(f"\n{MARK}\n")

    assert len(tour) >= 10
    for step, output in zip(tour, printed, strict=False):
        shape = pattern(step.shown)
        assert re.fullmatch(shape + r"\s*", output + "\n"), (
            f"$ {step.command}\nprints\n{output}\nand the page shows\n{step.shown}"
        )
    assert len(printed) == len(tour) + 1


def test_a_page_is_read_into_steps() -> None:
    """Commands and outputs of console blocks only; `…` matches what it stands for."""
    page = "```console\n$ a b\nx  … z\n…\nend\n$ c\n```\n```sh\nnot this\n```\n"

    first, second = steps(page)

    assert (first.command, second) == ("a b", Step("c", ""))
    assert re.fullmatch(pattern(first.shown), "x yy z\none\ntwo\nend\n")
    assert not re.fullmatch(pattern(first.shown), "x yy\nend\n")
