"""Whether a store is sound, and what to do where it is not. Reads only, also beside a running server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpugrant_operator.apiserver.objects.resources import NAMESPACES, Catalog, Resource
from gpugrant_operator.apiserver.objects.validation import Rules
from gpugrant_operator.apiserver.store import backup, manifests
from gpugrant_operator.apiserver.store.disk import TEMPORARY, read_regular
from gpugrant_operator.apiserver.store.journal import RESTORE, Contents, DamagedStore, Record
from gpugrant_operator.apiserver.store.manifests import BadManifestError

LOOKS = 4
PAUSE = 0.7
"""Seconds between two looks: a server at work needs less to take a file or to write one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: where, what, and what to do."""

    place: str
    what: str
    do: str


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...]
    contents: Contents | None = None
    """None: they can't be read, or there is no store."""


def verify(state: Path, root: Path, catalog: Catalog, pause: Callable[[float], None] = time.sleep) -> Report:
    """`state`: the folder of the journal, `root`: that of the manifests. A fault of a moment is none."""
    report = _look(state, root, catalog)
    for _ in range(LOOKS - 1):
        if not report.findings or report.contents is None:
            break
        pause(PAUSE)
        again = _look(state, root, catalog)
        report = Report(tuple(found for found in again.findings if found in report.findings), again.contents)
    return report


def _look(state: Path, root: Path, catalog: Catalog) -> Report:
    try:
        contents = backup.look(state).contents
    except DamagedStore as error:
        what, _, do = str(error).partition(": ")
        return Report((Finding(str(state), what, do or RESTORE),))
    except OSError as error:
        place = str(error.filename or state)
        return Report((Finding(place, f"it can't be read: {error.strerror}", "mend the medium or its rights"),))
    if contents is None:
        why = "there is no store here" if not root.is_dir() else "the manifests have no state beside them"
        return Report((Finding(str(state), why, f"start one with gpugrant up, or {RESTORE}"),))
    rules = {resource.id: Rules(resource) for resource in catalog.resources}
    findings = (
        *_left_over(state, root),
        *_objects(state, contents, catalog, rules),
        *_manifests(root, contents, catalog),
    )
    return Report(findings, contents)


def _left_over(state: Path, root: Path) -> Iterator[Finding]:
    for folder in (state, root):
        for path in sorted(folder.rglob(f"{TEMPORARY}*")):
            yield Finding(str(path), "a crash left it", "nothing: the next start of the API server removes it")


def _objects(state: Path, contents: Contents, catalog: Catalog, rules: dict[str, Rules]) -> Iterator[Finding]:
    uids: dict[str, str] = {}
    for key, record in contents.records.items():
        place = f"{state}: {'/'.join(filter(None, key))}"
        resource, obj = catalog.by_id(key[0]), record.obj or {}
        metadata = obj.get("metadata") or {}
        if resource is None:
            yield Finding(place, "this version serves no such kind", "use the version that wrote it; it is kept")
            continue
        if (metadata.get("namespace") or "", metadata.get("name")) != key[1:]:
            yield Finding(place, "the object has another name than its record", RESTORE)
        if metadata.get("resourceVersion") != str(record.version):
            yield Finding(place, "its resourceVersion is not that of its record", RESTORE)
        uid = str(metadata.get("uid"))
        if uid in uids:
            yield Finding(
                place, f"it has the uid of {uids[uid]}", f"{RESTORE}, or delete one of both and apply it anew"
            )
        uids[uid] = "/".join(filter(None, key))
        if key[1] and (NAMESPACES.id, "", key[1]) not in contents.records:
            yield Finding(place, f"its namespace {key[1]} is not stored", f"kubectl create namespace {key[1]}")
        if causes := rules[resource.id].check(obj, None):
            told = "; ".join(cause.line for cause in causes)
            yield Finding(place, f"its schema refuses it: {told}", "mend it with kubectl edit, or delete it")


def _manifests(root: Path, contents: Contents, catalog: Catalog) -> Iterator[Finding]:
    for found in manifests.scan(root, catalog):
        record = contents.records.get(found.key) if found.key is not None else None
        if found.resource is None or found.key is None:
            yield Finding(
                str(found.path), "no object may lie here", "move it to objects/<plural>/<namespace>/<name>.yaml"
            )
        elif why := _not_taken(found.path, found.resource, found.key, record):
            yield Finding(str(found.path), why, "mend the file, or remove it; the last good object is served")
    for key, record in contents.records.items():
        resource = catalog.by_id(key[0])
        if record.file is None or resource is None:
            continue
        path = manifests.place(root, resource, key)
        if not path.exists():
            yield Finding(str(path), "the manifest of a stored object is missing", _whole(root))


def _whole(root: Path) -> str:
    """A folder that is gone as a whole is written again; a single file that is gone is a deletion."""
    if not (root / manifests.OBJECTS).is_dir():
        return "start the API server: it writes the folder again"
    return f"the next start of the API server deletes its object; to keep it, {RESTORE}"


def _not_taken(path: Path, resource: Resource, key: tuple[str, str, str], record: Record | None) -> str:
    """Why the file is not what is served; empty: it is, or will be."""
    try:
        data = read_regular(path)
        if record is not None and manifests.digest(data) == record.file:
            return ""
        manifests.read(data, resource, key)
    except (OSError, BadManifestError) as error:
        return f"it can't be taken: {error.strerror if isinstance(error, OSError) else error}"
    return "" if record is None else _edited(data, resource, key, record)


def _edited(data: bytes, resource: Resource, key: tuple[str, str, str], record: Record) -> str:
    wanted = manifests.combined(manifests.read(data, resource, key), record.obj)
    if manifests.desired(wanted) == manifests.desired(record.obj or {}):
        return ""
    return "it says something else than the stored object"
