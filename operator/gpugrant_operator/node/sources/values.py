"""Single values of sysfs and procfs: what a file must hold, and what is said where it holds something else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from gpugrant_operator.node.tree import Tree

T = TypeVar("T")

TEXT_LENGTH = 256
"""Characters of a name or serial number that are kept."""


def read(tree: Tree, path: str, parse: Callable[[str], T | None], wanted: str, *, required: bool = False) -> T | None:
    """What the file holds as `parse` reads it; None, with a remark where something else or nothing is there.

    A file that is not there is a remark only where it is `required`.
    """
    faults = len(tree.faults)
    text = tree.text(path)
    if text is None:
        if required and len(tree.faults) == faults:
            tree.remark(path, f"is not there: it holds {wanted}")
        return None
    value = parse(text)
    if value is None:
        tree.remark(path, f"holds {_shown(text)} instead of {wanted}")
    return value


def line(tree: Tree, path: str) -> str | None:
    """A text of one line, cut to TEXT_LENGTH; None where there is none or it is empty."""
    text = tree.text(path)
    if not text:
        return None
    if "\n" in text:
        tree.remark(path, "holds several lines instead of one")
        return None
    return text[:TEXT_LENGTH]


def natural(text: str) -> int | None:
    """A number that is not negative."""
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else None


def integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,19}", text) else None


def numbers(text: str) -> tuple[int, int] | None:
    """A device's major and minor, `226:128`."""
    match = re.fullmatch(r"([0-9]{1,4}):([0-9]{1,7})", text)
    return (int(match[1]), int(match[2])) if match else None


def hex_of(digits: int) -> Callable[[str], str | None]:
    """A parser of `0x10de` as `10de`, with exactly so many digits."""

    def parse(text: str) -> str | None:
        match = re.fullmatch(rf"0x([0-9a-fA-F]{{{digits}}})", text)
        return None if match is None else match[1].lower()

    return parse


def _shown(text: str) -> str:
    if not text:
        return "nothing"
    first = text.splitlines()[0]
    return f'"{first[:40]}…"' if len(first) > 40 or "\n" in text else f'"{first}"'
