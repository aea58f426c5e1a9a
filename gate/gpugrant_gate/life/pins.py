"""Pinned bind sources: each opened without following a link, and mounted, as it was opened, at a place of its own.

What is at a place stays the object that was opened, whoever moves or replaces its name. Mounts are made in the mount
namespace of the daemon that is told the place, so they end with it, and no tool that walks the machine's folders meets
them. What has a place is written down, so that the places of containers with restart policies can be made before their
daemon starts.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gpugrant_gate.life import durable, kernel
from gpugrant_gate.policy import pins
from gpugrant_gate.policy.pins import Pin

T = TypeVar("T")
_FOLDER_MODE = 0o700
"""What is pinned may lie in folders that only its owner can enter: a place must not be a way round them."""


class Unpinned(Exception):
    """A source can't be pinned; the message is one sentence."""


def inside(pid: int, work: Callable[[], T]) -> T:
    """What `work` says, done by a thread that sees the mounts of that process; 0: those of this one."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            if pid:
                kernel.enter_mounts_of(pid)
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="pins")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def make(wanted: Sequence[Pin], pid: int) -> None:
    """Puts each source into its place in the mount namespace of the process; raises Unpinned.

    A place that holds the very object already stays as it is. Returns only when the process sees each object there, by
    device and inode.
    """
    with ExitStack() as held:
        sockets = {pin: _clone_socket(pin, held) for pin in wanted if pin.socket}
        try:
            made = inside(pid, lambda: {pin: _put(pin, sockets.get(pin)) for pin in wanted})
        except OSError as error:
            raise Unpinned(f"bind sources can't be pinned for the daemon: {_said(error)}") from error
    for pin, identity in made.items():
        if _seen_by(pid, pin.place) != identity:
            raise Unpinned(f"the bind source {pin.source} is refused: its daemon does not see the place of its pin")


def _clone_socket(pin: Pin, held: ExitStack) -> tuple[int, tuple[int, int]]:
    """The gate's own socket, as the gate sees it: the daemon may not have its folder."""
    try:
        opened = os.open(pin.target, os.O_PATH | os.O_CLOEXEC)
        held.callback(os.close, opened)
        if not stat.S_ISSOCK(os.fstat(opened).st_mode):
            raise Unpinned(f"the Docker socket can't be bound: {pin.target} is no socket")
        mount = kernel.clone_mount(opened)
    except OSError as error:
        raise Unpinned(f"the Docker socket can't be bound: {pin.target}: {_said(error)}") from error
    held.callback(os.close, mount)
    return mount, _identity(os.fstat(opened))


def _put(pin: Pin, socket: tuple[int, tuple[int, int]] | None) -> tuple[int, int]:
    """In the daemon's namespace; the object's device and inode."""
    place = Path(pin.place)
    if socket is not None:
        mount, identity = socket
        if _at(place) != identity:
            _attach(mount, place, is_folder=False)
        return identity
    with ExitStack() as held:
        try:
            opened = kernel.open_beneath(pin.target)
            held.callback(os.close, opened)
            found = os.fstat(opened)
            if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
                raise Unpinned(f"the bind source {pin.source} is refused: it is neither a folder nor a plain file")
            if _at(place) != _identity(found):
                mount = kernel.clone_mount(opened)
                held.callback(os.close, mount)
                _attach(mount, place, is_folder=stat.S_ISDIR(found.st_mode))
        except OSError as error:
            raise Unpinned(f"the bind source {pin.source} is refused: {_said(error)}") from error
        return _identity(found)


def _attach(mount: int, place: Path, *, is_folder: bool) -> None:
    """On top of an older object, so that nobody ever finds the place empty."""
    place.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        found = place.lstat()
        # nothing can be mounted on what was removed since, or is of the other kind
        if stat.S_ISDIR(found.st_mode) != is_folder or _is_removed(found):
            _clear(place)
    if is_folder:
        place.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    else:
        place.touch(mode=0o600)
    kernel.attach_mount(mount, place)


def _is_removed(found: os.stat_result) -> bool:
    return found.st_nlink == 0


def placed(folder: Path, pid: int) -> frozenset[str]:
    """The places below a repo's folder in the mount namespace of the process; none where it can't be looked at."""
    try:
        return inside(pid, lambda: frozenset(map(str, _places(folder, folder))))
    except OSError:
        return frozenset()


def _places(folder: Path, within: Path) -> Iterator[Path]:
    try:
        entries = list(os.scandir(within))
    except FileNotFoundError:
        return
    for entry in entries:
        path = within / entry.name
        if pins.source(str(folder), str(path)) is not None:
            yield path
        elif entry.is_dir(follow_symlinks=False) and entry.name.startswith("+"):
            yield from _places(folder, path)


def clear(places: Collection[str], pid: int) -> None:
    """Takes these places away; raises OSError."""

    def work() -> None:
        for place in places:
            _clear(Path(place))

    inside(pid, work)


def _clear(place: Path) -> None:
    """What is mounted there, however often, and the empty thing below: never what is in a source."""
    try:
        while True:
            kernel.detach_mount(place)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):  # not mounted, not there
            raise
    try:
        place.rmdir()
    except NotADirectoryError:
        place.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        # a daemon that found its place missing made a folder of its own, and a container wrote there
        if error.errno != errno.ENOTEMPTY:
            raise


# what has a place, for the next boot


@dataclass(frozen=True, slots=True)
class Noted:
    """What of a repo has a place."""

    sources: frozenset[str] = frozenset()
    sockets: frozenset[str] = frozenset()
    """What clients call the Docker socket."""

    def with_pins(self, made: Iterable[Pin]) -> Noted:
        sources = {pin.source for pin in made if not pin.socket}
        return Noted(self.sources | sources, self.sockets | {pin.source for pin in made if pin.socket})

    def only(self, kept: Collection[str]) -> Noted:
        return Noted(self.sources & set(kept), self.sockets & set(kept))


@dataclass(frozen=True, slots=True)
class Allowed:
    """What of it a repo may still bind."""

    folder: Path
    """Of its places."""
    roots: tuple[Path, ...]
    socket: Path | None
    """The gate's; None: a bind of it is not open."""

    def pins(self, noted: Noted) -> tuple[Pin, ...]:
        below = (name for name in sorted(noted.sources) if any(Path(name).is_relative_to(root) for root in self.roots))
        made = [self._pin(name, name) for name in below]
        if self.socket is not None:
            made += [self._pin(name, str(self.socket), socket=True) for name in sorted(noted.sockets)]
        return tuple(made)

    def _pin(self, source: str, target: str, *, socket: bool = False) -> Pin:
        return Pin(source, pins.place(str(self.folder), source), target, socket)


def noted(file: Path) -> Noted:
    """What a repo's note names; nothing where there is no sound one."""
    try:
        value = json.loads(file.read_bytes())
        return Noted(frozenset(map(str, value["sources"])), frozenset(map(str, value["sockets"])))
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return Noted()


def note(file: Path, value: Noted) -> None:
    """Writes it; raises OSError."""
    if value == Noted():
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    data = {"sources": sorted(value.sources), "sockets": sorted(value.sockets)}
    durable.write(file, json.dumps(data).encode() + b"\n")


def restore(allowed: Allowed, file: Path) -> tuple[int, tuple[str, ...]]:
    """Makes a repo's places for a daemon that this process, or one after it in its mounts, is about to start.

    How many there are, and a sentence for each source that can't be pinned.
    """
    wanted = allowed.pins(noted(file))
    faults: list[str] = []
    for pin in wanted:
        try:
            make([pin], 0)
        except Unpinned as fault:
            faults.append(str(fault))
    return len(wanted) - len(faults), tuple(faults)


def _seen_by(pid: int, place: str) -> tuple[int, int] | None:
    return _at(Path(f"/proc/{pid}/root" if pid else "/") / place.lstrip("/"))


def _at(place: Path) -> tuple[int, int] | None:
    try:
        return _identity(place.lstat())
    except OSError:
        return None


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _said(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "a part of it is a symbolic link; name the place itself"
    return (error.strerror or str(error)).lower()
