"""The sealed folders: per repo id the CDI specs of its granted devices and nothing else (design 5, the second lock).

A daemon has the folder itself mounted as its CDI folder, so it is never replaced or removed: files in it are, by
rename. A folder whose id is not known any more is emptied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from gpugrant_crds import cdi
from gpugrant_gate.life import buildkit, durable

Specs = Mapping[str, cdi.Spec | cdi.Problem]

_FILE_MODE = 0o644
_FOLDER_MODE = 0o755
SPEC_MAX = 4 * 1024 * 1024
"""Bytes of a spec file that is read; a machine with 8 MIG-partitioned cards has about 200 KiB."""


def read_specs(folder: Path) -> dict[str, cdi.Spec | cdi.Problem]:
    """Every spec file of a CDI folder by its name; no folder is an empty one."""
    found: dict[str, cdi.Spec | cdi.Problem] = {}
    try:
        entries = sorted(folder.iterdir())
    except FileNotFoundError:
        return {}
    except OSError as error:
        reason = cdi.ProblemReason.SPEC_INVALID
        return {folder.name: cdi.Problem(reason, f"the folder can't be read: {error.strerror}", str(folder))}
    for path in entries:
        if cdi.is_spec_file(path.name):
            found[path.name] = _read(path)
    return found


def wanted(specs: Specs, granted: Collection[str]) -> dict[str, bytes]:
    """The files of a repo's folder: each spec cut down to the granted names that this machine really has."""
    usable = cdi.merge(specs).names
    files: dict[str, bytes] = {}
    for name, spec in specs.items():
        if isinstance(spec, cdi.Problem):
            continue
        cut = cdi.restrict(spec, [device for device in granted if usable.get(device) == spec.filename])
        if cut is not None:
            files[name if name.endswith(".yaml") else f"{name}.yaml"] = cdi.dump(buildkit.withheld(cut)).encode()
    return files


def rewrite(root: Path, folders: Mapping[str, Mapping[str, bytes]]) -> None:
    """Makes `root/<id>` hold exactly these files for every id, and every other folder below `root` nothing.

    Raises OSError when one of them could not be made so; the others are made first. What is taken away goes first, so
    that a full disk can't keep a revoked device in a folder.
    """
    root.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    others = {path.name for path in root.iterdir() if path.is_dir() and not path.is_symlink()} - set(folders)
    failed: list[OSError] = []
    for repo_id, files in [*((other, {}) for other in sorted(others)), *sorted(folders.items())]:
        try:
            fill(root / repo_id, files)
        except OSError as error:
            failed.append(error)
    if failed:
        raise failed[0]


def fill(folder: Path, files: Mapping[str, bytes]) -> None:
    """Makes the folder hold exactly these files, what is taken away first; raises OSError."""
    folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    removed = False
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
            removed = True
    if removed:
        durable.sync_folder(folder)
    for name, data in files.items():
        if not _holds(folder / name, data):
            _replace(folder / name, data)


def _replace(path: Path, data: bytes) -> None:
    try:
        durable.write(path, data, _FILE_MODE)
    except OSError:
        # the old file may hold a device that was taken away
        path.unlink(missing_ok=True)
        raise


def _holds(path: Path, data: bytes) -> bool:
    try:
        return not path.is_symlink() and path.read_bytes() == data
    except OSError:
        return False


def _read(path: Path) -> cdi.Spec | cdi.Problem:
    try:
        with path.open("rb") as file:
            data = file.read(SPEC_MAX + 1)
    except OSError as error:
        return cdi.Problem(cdi.ProblemReason.SPEC_INVALID, f"can't be read: {error.strerror}", path.name)
    if len(data) > SPEC_MAX:
        return cdi.Problem(cdi.ProblemReason.SPEC_INVALID, f"is longer than {SPEC_MAX // 1024} KiB", path.name)
    return cdi.read_spec(data, path.name)
