"""Several spec files as one folder: which names stand, which files hold them, and which names collide.

One folder only (R43), so the library's priorities between folders play no part. A name in two files is dropped by the
library; the other names of those files stay (pkg/cdi/cache.go).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpugrant_crds.cdi.spec import Problem, ProblemReason, Spec
from gpugrant_crds.names import is_qualified


@dataclass(frozen=True, slots=True)
class Conflict:
    """A name that stands in several files."""

    name: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Devices:
    """What a folder of specs offers."""

    names: Mapping[str, str]
    """Every name that can be granted → its file; in natural order (`gpu2` before `gpu10`)."""
    unusable: Mapping[str, Problem]
    """Names that stand in a file and can't be granted."""
    conflicts: tuple[Conflict, ...]
    problems: tuple[Problem, ...]
    """By file; the rest of the folder counts all the same."""


def is_spec_file(name: str) -> bool:
    """Whether the library reads a file of that name: `.yml` and `.JSON` are ignored, `.yaml` alone is read."""
    return name.endswith((".json", ".yaml"))


def natural(name: str) -> tuple[object, ...]:
    """A sort key in which digits count as numbers."""
    parts = re.split(r"([0-9]+)", name)
    return (*((int(part), "") if index % 2 else (0, part) for index, part in enumerate(parts)), name)


def merge(files: Mapping[str, Spec | Problem]) -> Devices:
    """All names of a folder's files, by file name."""
    specs = {file: spec for file, spec in sorted(files.items()) if isinstance(spec, Spec)}
    holders: dict[str, list[str]] = {}
    for file, spec in specs.items():
        for name in spec.names:
            holders.setdefault(name, []).append(file)
    names: dict[str, str] = {}
    unusable: dict[str, Problem] = {}
    for name in sorted(holders, key=natural):
        problem = _unusable(name, [specs[file] for file in holders[name]])
        if problem is None:
            names[name] = holders[name][0]
        else:
            unusable[name] = problem
    conflicts = tuple(Conflict(name, tuple(holders[name])) for name in unusable if len(holders[name]) > 1)
    return Devices(names, unusable, conflicts, _problems(files, conflicts))


def _unusable(name: str, specs: list[Spec]) -> Problem | None:
    if len(specs) > 1:
        files = " and ".join(spec.filename for spec in specs)
        message = f'"{name}" stands in {files}, so no daemon has it: remove one of them'
        return Problem(ProblemReason.SPEC_CONFLICT, message, specs[0].filename)
    if specs[0].doubts:
        return specs[0].doubts[0]
    if not is_qualified(name):
        return Problem(ProblemReason.SPEC_INVALID, f'"{name}" can\'t be granted', specs[0].filename)
    return None


def _problems(files: Mapping[str, Spec | Problem], conflicts: tuple[Conflict, ...]) -> tuple[Problem, ...]:
    found: list[Problem] = []
    for _, entry in sorted(files.items()):
        found.extend([entry] if isinstance(entry, Problem) else entry.doubts[:1])
    by_files: dict[tuple[str, ...], list[str]] = {}
    for conflict in conflicts:
        by_files.setdefault(conflict.files, []).append(conflict.name)
    for holders, names in by_files.items():
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        message = f"{listed} stand in {' and '.join(holders)} too, so no daemon has them: remove one of the files"
        found.append(Problem(ProblemReason.SPEC_CONFLICT, message, holders[0]))
    return tuple(found)
