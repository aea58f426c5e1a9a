"""What the looks at all sources mean: which object comes from which file, and which may go. Pure.

Nothing is taken away because a file is broken, empty, half written or can't be read, nor because a whole folder is
gone or most of it vanished at once: that is more often a mount or a wrong checkout than a wish.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpugrant_operator.apiserver.sources.documents import Document
from gpugrant_operator.apiserver.sources.tree import Look
from gpugrant_operator.apiserver.store.journal import Key, Origin

MANY = 3
"""More missing objects than these, and more than half of the source, need a person's word."""

ACCEPT = "if that is right, run: gpugrant store accept-deletes"


@dataclass(frozen=True, slots=True)
class Declared:
    file: str
    document: Document


@dataclass(frozen=True, slots=True)
class Problem:
    """A sentence, and the object that it is about (None: none that is known)."""

    text: str
    key: Key | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    declared: Mapping[Key, Declared]
    missing: frozenset[Key]
    """No file says them any more; they go when that lasts."""
    problems: Mapping[str, Problem]
    """By the file or folder that has it."""
    waiting: Mapping[Path, frozenset[Key]]
    """What goes only when a person accepts it, by source."""
    busy: Mapping[Path, int]
    """How many objects stay because Git is at work, by source."""


def plan(looks: Sequence[Look], owned: Mapping[Key, Origin], accepted: Collection[Key]) -> Plan:
    """`owned`: the objects that came from a source and are not being deleted."""
    problems: dict[str, Problem] = {}
    held = {file for look in looks for file in _held(look, owned)}
    given = {origin.file: key for key, origin in owned.items()}
    declared: dict[Key, Declared] = {}
    for look in looks:
        for file, entry in (look.files or {}).items():
            gave = given.get(file)
            if entry.read is None:
                continue
            if entry.read.problem and (entry.read.ours or gave):
                problems[file] = Problem(entry.read.problem, gave)
            for document in entry.read.documents:
                _declare(document, file, declared, owned, held, problems)
    missing: set[Key] = set()
    waiting: dict[Path, frozenset[Key]] = {}
    busy: dict[Path, int] = {}
    for look in looks:
        ours = {key: origin for key, origin in owned.items() if within(origin.file, look.root)}
        gone = {key for key, origin in ours.items() if key not in declared and origin.file not in held}
        for folder, why in (look.unreadable or {}).items():
            problems[folder] = Problem(f"passed over: {why}")
        doubted = gone - set(accepted)
        doubt = _doubt(look, len(doubted), len(ours))
        if doubt:
            problems[str(look.root)] = Problem(doubt, min(doubted, default=None))
            waiting[look.root] = frozenset(doubted)
            gone -= doubted
        if look.busy and gone:
            busy[look.root] = len(gone)
        else:
            missing |= gone
    return Plan(declared, frozenset(missing), problems, waiting, busy)


def within(file: str, root: Path) -> bool:
    return Path(file).is_relative_to(root)


def _held(look: Look, owned: Mapping[Key, Origin]) -> Iterator[str]:
    """Files whose objects stay as they were taken last, whatever the look found."""
    for file, entry in (look.files or {}).items():
        if not entry.settled or (entry.read is not None and entry.read.problem):
            yield file
    for folder in look.unreadable or {}:
        yield from (origin.file for origin in owned.values() if within(origin.file, Path(folder)))


def _declare(
    document: Document,
    file: str,
    declared: dict[Key, Declared],
    owned: Mapping[Key, Origin],
    held: Collection[str],
    problems: dict[str, Problem],
) -> None:
    key = document.key
    first = declared[key].file if key in declared else None
    if first is None and key in owned and owned[key].file in held and owned[key].file != file:
        first = owned[key].file
    if first is None:
        declared[key] = Declared(file, document)
        return
    name = "/".join(part for part in key[1:] if part)
    said = f"{key[0].partition('.')[0]} {name} stands already in {first}, which counts"
    before = problems.get(file)
    problems[file] = Problem(said if before is None else f"{before.text}; {said}", key)


def _doubt(look: Look, gone: int, had: int) -> str:
    """Why the missing objects of this source are not taken for deleted; empty: they are."""
    if not look.there:
        if not gone:
            return f"there is no folder {look.root}: nothing is taken from it"
        return f"the folder {look.root} is gone: its {gone} objects stay; {ACCEPT}"
    if gone > MANY and 2 * gone > had:
        return f"{gone} of the {had} objects of {look.root} vanished at once: they stay; {ACCEPT}"
    return ""
