"""One gate a root: the lock file says who runs, and the kernel lets go of it however the process ends."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from gpugrant_crds import timestamps


class Held(RuntimeError):
    """Another process has the lock."""


def take(path: Path, since: datetime) -> int:
    """The descriptor that holds the lock until it is closed; raises Held with a sentence, or OSError."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise Held(f"another gate runs here already: {path} is locked{_by(path)}") from error
    sign(descriptor, since)
    return descriptor


def sign(descriptor: int, since: datetime) -> None:
    """Says in the file who has the lock: this process, which took it or was given it; raises OSError."""
    said = json.dumps({"pid": os.getpid(), "since": timestamps.write(since)}).encode() + b"\n"
    # written over, then cut: whoever reads meanwhile never finds nothing, or the end of an older text
    os.pwrite(descriptor, said.ljust(os.fstat(descriptor).st_size), 0)
    os.ftruncate(descriptor, len(said))


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """One of several processes that have the lock; it says nothing but that it is one. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def quietly(path: Path) -> int | None:
    """The descriptor that holds the lock of a file that may be removed under it; None: another process has it. Raises
    OSError."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass  # its holder has just removed it
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a process has the lock now; it is not taken, and nothing is written."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _by(path: Path) -> str:
    try:
        pid = json.loads(path.read_bytes())["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f" by process {pid}"
