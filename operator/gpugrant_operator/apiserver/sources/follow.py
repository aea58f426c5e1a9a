"""The sources of one server: looks at them again and again, and brings the objects to what they say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from gpugrant_operator.apiserver import reports
from gpugrant_operator.apiserver.objects.changes import SYSTEM_NAMESPACES
from gpugrant_operator.apiserver.objects.resources import NAMESPACES
from gpugrant_operator.apiserver.objects.status import ApiError, Json, Obj, conflict
from gpugrant_operator.apiserver.registry import Options, Registry, our_annotations
from gpugrant_operator.apiserver.sources import decide, tree
from gpugrant_operator.apiserver.sources.decide import Declared, Plan, Problem
from gpugrant_operator.apiserver.sources.tree import Look
from gpugrant_operator.apiserver.store import manifests
from gpugrant_operator.apiserver.store.journal import Key, Origin

MANAGER = "gpugrant-sources"
REASON = "SourceInvalid"

REST = 20
"""A look that takes long is followed by a rest of so many times its length: a large repository costs 5 % of a core."""

log = structlog.get_logger(__name__)


@dataclass
class Sources:
    """Read-only folders, the first one that says an object counts."""

    registry: Registry
    folders: tuple[Path, ...]
    problems: dict[str, Problem] = field(default_factory=dict)
    _looks: dict[Path, Look] = field(default_factory=dict)
    _missing: dict[Key, float] = field(default_factory=dict)
    _busy: dict[Path, float] = field(default_factory=dict)
    _accepted: set[Key] = field(default_factory=set)
    _waiting: Mapping[Path, frozenset[Key]] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def message(self) -> str:
        """The problems in one line; empty: there are none."""
        return reports.in_one_line({place: problem.text for place, problem in self.problems.items()})

    def release(self) -> None:
        """Objects of folders that are no source any more become ordinary ones."""
        store = self.registry.store
        for key, origin in list(store.origins().items()):
            if not any(decide.within(origin.file, folder) for folder in self.folders):
                store.forget_origin(key)

    async def follow(self) -> None:
        """Until it is cancelled."""
        clock = asyncio.get_running_loop().time
        while self.folders:
            begun = clock()
            try:
                await self.look()
            except Exception as error:
                # The outermost edge of a look: no commit may end the API server. The log has the trace.
                log.exception("look failed")
                self.problems = {str(self.folders[0]): Problem(f"the sources can't be looked at: {error}")}
            await asyncio.sleep(max(self.registry.settings.source_interval, REST * (clock() - begun)))

    async def look(self) -> None:
        """One look at all sources, and what follows from it."""
        async with self._lock:
            catalog = self.registry.store.catalog
            for folder in self.folders:
                before = self._looks.get(folder)
                self._looks[folder] = await asyncio.to_thread(tree.look, folder, before, catalog)
            plan = decide.plan([self._looks[folder] for folder in self.folders], self._owned(), self._accepted)
            self._waiting = plan.waiting
            problems = {**plan.problems}
            for place, problem in await self._apply(plan):
                before_it = problems.get(place)
                text = problem.text if before_it is None else f"{before_it.text}; {problem.text}"
                problems[place] = Problem(text, problem.key)
            await self._tell(problems)

    async def accept_deletes(self) -> Json:
        """What was held back may go; by source, what that is."""
        async with self._lock:
            told = [
                {"source": str(folder), "objects": sorted("/".join(filter(None, key)) for key in keys)}
                for folder, keys in self._waiting.items()
                if keys
            ]
            self._accepted = {key for keys in self._waiting.values() for key in keys}
        return {"accepted": told}

    def _owned(self) -> dict[Key, Origin]:
        store = self.registry.store
        return {key: origin for key, origin in store.origins().items() if not _is_going(self._head(key))}

    def _head(self, key: Key) -> Obj | None:
        resource = self.registry.store.catalog.by_id(key[0])
        return None if resource is None else self.registry.store.head(resource, key[1], key[2])

    # --- what follows -----------------------------------------------------------------------------------------

    async def _apply(self, plan: Plan) -> list[tuple[str, Problem]]:
        """Namespaces come first and go last; what goes makes room before what comes."""
        due = self._due(plan.missing)
        self._accepted &= plan.missing
        problems = self._stuck(plan.busy)
        puts = sorted(plan.declared.items(), key=lambda item: item[0][0] != NAMESPACES.id)
        spaces = [item for item in puts if item[0][0] == NAMESPACES.id]
        for key, declared in spaces:
            problems += await self._put(key, declared)
        for key in sorted(due, key=lambda key: (key[0] == NAMESPACES.id, key)):
            problems += await self._remove(key)
        for key, declared in puts[len(spaces) :]:
            problems += await self._put(key, declared)
        return problems

    def _due(self, missing: frozenset[Key]) -> list[Key]:
        now = asyncio.get_running_loop().time()
        waiting = {key for keys in self._waiting.values() for key in keys}
        self._missing = {key: self._missing.get(key, now) for key in missing | waiting}
        delay = self.registry.settings.source_removal_delay
        return [key for key in missing if now - self._missing[key] >= delay]

    def _stuck(self, busy: Mapping[Path, int]) -> list[tuple[str, Problem]]:
        """A lock that Git left behind would keep what was taken away for ever, and silently."""
        now = asyncio.get_running_loop().time()
        self._busy = {folder: self._busy.get(folder, now) for folder in busy}
        return [
            (str(folder), Problem(f"{count} objects stay while .git/index.lock is there: remove it if no git runs"))
            for folder, count in busy.items()
            if now - self._busy[folder] >= self.registry.settings.source_lock_patience
        ]

    async def _put(self, key: Key, declared: Declared) -> list[tuple[str, Problem]]:
        store, document = self.registry.store, declared.document
        resource = store.catalog.by_id(key[0])
        if resource is None:
            return []
        await store.settled(key)
        held, known = self._head(key), store.origin_of(key)
        given = document.body["metadata"].get("annotations")
        origin = Origin(declared.file, document.digest, tuple(given) if isinstance(given, dict) else ())
        if held is not None and known is not None and known.digest == document.digest:
            if known.file != declared.file:
                store.remember_origin(key, origin)
            return []
        if _is_going(held):
            why = "the object of this name is being deleted: the file is taken when it is gone"
            return [(declared.file, Problem(why, key))]
        options = Options(field_validation="Strict", from_file=True, manager=MANAGER, origin=origin)
        try:
            body = manifests.combined(document.body, held)
            if held is None:
                written = await self.registry.create(resource, key[1], body, options)
            else:
                body = _with_ours(body, held, known)
                written = await self.registry.update(resource, key[1], key[2], body, options)
        except ApiError as error:
            return [(declared.file, Problem(error.message, key))]
        if store.origin_of(key) != origin:
            store.remember_origin(key, origin)
        log.info("object taken from a source", key="/".join(key), file=declared.file, warnings=written.warnings)
        return []

    async def _remove(self, key: Key) -> list[tuple[str, Problem]]:
        store = self.registry.store
        resource, origin = store.catalog.by_id(key[0]), store.origin_of(key)
        if resource is None or origin is None:
            return []
        if key[0] == NAMESPACES.id and key[2] in SYSTEM_NAMESPACES:
            store.forget_origin(key)
            return []
        file = Path(origin.file)
        looked = next((look for look in self._looks.values() if decide.within(origin.file, look.root)), None)
        entry = (looked.files or {}).get(origin.file) if looked is not None else None

        def guard() -> None:
            if tree.signature(file) != (entry.seen if entry is not None else None):
                raise conflict(resource.plural, resource.group, key[2], "the file came back")

        options = Options(from_file=True, manager=MANAGER, origin=origin, guard=guard)
        try:
            await self.registry.delete(resource, key[1], key[2], {}, options)
        except ApiError as error:
            if error.code == 404 or error.reason == "Conflict":
                return []
            return [(origin.file, Problem(error.message, key))]
        log.info("object deleted with its file", key="/".join(key), file=origin.file)
        return []

    async def _tell(self, problems: dict[str, Problem]) -> None:
        """A new problem is an event and a line in the log; the others stand in the health message."""
        fresh = [(place, problem) for place, problem in problems.items() if self.problems.get(place) != problem]
        self.problems = problems
        for place, problem in fresh:
            log.warning("source not taken as it is", place=place, reason=problem.text)
            key = problem.key or (NAMESPACES.id, "", SYSTEM_NAMESPACES[0])
            resource = self.registry.store.catalog.by_id(key[0])
            if resource is not None:
                await reports.warn(self.registry, reports.Subject(resource, key), REASON, f"{place}: {problem.text}")


def _is_going(obj: Obj | None) -> bool:
    return obj is not None and bool(obj["metadata"].get("deletionTimestamp"))


def _with_ours(body: Obj, held: Obj, known: Origin | None) -> Obj:
    """The body with the annotations of ours that a request wrote; those that the file gave before are the file's."""
    written = {
        key: text for key, text in our_annotations(held).items() if known is None or key not in known.annotations
    }
    annotations = {**written, **(body["metadata"].get("annotations") or {})}
    return {**body, "metadata": {**body["metadata"], **({"annotations": annotations} if annotations else {})}}
