"""The CDI folder as it is after setup: every file read as a daemon would, every name with what stands behind it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from gpugrant_crds import atoms, cdi
from gpugrant_crds.atoms import Hardware
from gpugrant_crds.cdi import Devices, Problem, ProblemReason, Spec
from gpugrant_crds.inventory import Cdi, CdiConflict, CdiDevice, SpecFile
from gpugrant_operator.node import state

FILE_MAX = 8 * 1024 * 1024


def read(folder: Path) -> dict[str, bytes | str]:
    """Spec files by name: their bytes, or one clause why they can't be read. Folders are passed over, as the
    library does; a link to one is a read error."""
    try:
        entries = [entry for entry in folder.iterdir() if cdi.is_spec_file(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    files = [entry for entry in entries if entry.is_symlink() or not entry.is_dir()]
    return {entry.name: read_file(entry) for entry in sorted(files)}


def read_file(path: Path) -> bytes | str:
    """Its bytes, or one clause why they can't be had; never waits, whatever lies there."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return "not a file"
        with open(handle, "rb", closefd=False) as file:
            data = file.read(FILE_MAX + 1)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    finally:
        os.close(handle)
    return data if len(data) <= FILE_MAX else f"more than {FILE_MAX} bytes"


def parse(files: Mapping[str, bytes | str]) -> dict[str, Spec | Problem]:
    return {
        name: cdi.read_spec(data, name)
        if isinstance(data, bytes)
        else Problem(ProblemReason.SPEC_INVALID, f"can't be read: {data}", name)
        for name, data in files.items()
    }


def node_sources(files: Mapping[str, bytes | str]) -> frozenset[str]:
    """Where all device nodes that these files name lie on the host."""
    specs = [spec for spec in parse(files).values() if isinstance(spec, Spec)]
    edits = [edits for spec in specs for edits in (spec.edits, *(device.edits for device in spec.devices))]
    return frozenset(node.source for made in edits for node in made.device_nodes)


def describe(
    folder: Path,
    files: Mapping[str, bytes | str],
    generators: Mapping[str, str],
    exists: Callable[[str], bool],
    hardware: Hardware = Hardware(),  # noqa: B008  frozen
) -> tuple[Cdi, tuple[tuple[str, str], ...]]:
    """The inventory's part, and the problems of the folder. `exists` says whether a device node is there, `hardware`
    what stands behind it."""
    specs = parse(files)
    merged = cdi.merge(specs)
    sources = _sources(specs.values())
    stood_for = _atoms(specs.values(), hardware)
    usable = [_device(name, sources[name], exists, stood_for[name]) for name in merged.names]
    unusable = [
        CdiDevice(name=name, usable=False, reason=str(problem.reason), atoms=stood_for.get(name, ()))
        for name, problem in merged.unusable.items()
    ]
    listed = Cdi(
        directories=(str(folder),),
        files=tuple(_file(folder, name, files[name], spec, generators) for name, spec in specs.items()),
        devices=tuple(sorted([*usable, *unusable], key=lambda device: cdi.natural(device.name))),
        conflicts=tuple(CdiConflict(name=c.name, files=c.files) for c in merged.conflicts),
    )
    return listed, _problems(merged, listed)


def _file(folder: Path, name: str, data: bytes | str, spec: Spec | Problem, generators: Mapping[str, str]) -> SpecFile:
    valid = spec if isinstance(spec, Spec) else None
    error = str(spec) if isinstance(spec, Problem) else next((str(doubt) for doubt in spec.doubts), None)
    return SpecFile(
        path=str(folder / name),
        sha256=state.digest(data).removeprefix("sha256:") if isinstance(data, bytes) else "",
        kind=valid.kind if valid else None,
        cdi_version=valid.version if valid else None,
        generator=generators.get(name),
        error=error,
    )


def _sources(specs: Iterable[Spec | Problem]) -> dict[str, tuple[str, ...]]:
    """Qualified name → where its own device nodes lie on the host."""
    return {
        spec.qualified(device): tuple(node.source for node in device.edits.device_nodes)
        for spec in specs
        if isinstance(spec, Spec)
        for device in spec.devices
    }


def _atoms(specs: Iterable[Spec | Problem], hardware: Hardware) -> dict[str, tuple[str, ...]]:
    """Qualified name → its atoms; of a name in several files, those of all."""
    found: dict[str, tuple[str, ...]] = {}
    for spec in specs:
        if isinstance(spec, Spec):
            for name, given in atoms.of_spec(spec, hardware).items():
                found[name] = tuple(sorted({*found.get(name, ()), *given}))
    return found


def _device(name: str, nodes: Iterable[str], exists: Callable[[str], bool], given: tuple[str, ...]) -> CdiDevice:
    there = all(exists(node) for node in nodes)
    return CdiDevice(name=name, usable=there, reason=None if there else "NoDeviceNode", atoms=given)


def _problems(merged: Devices, listed: Cdi) -> tuple[tuple[str, str], ...]:
    found = [(str(problem.reason), str(problem)) for problem in merged.problems]
    absent = [device.name for device in listed.devices if device.reason == "NoDeviceNode"]
    if absent:
        shown = ", ".join(absent[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
        found.append(("SpecStale", f"{shown} name device nodes that are not there: run renet setup again"))
    return tuple(found)
