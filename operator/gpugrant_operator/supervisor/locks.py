"""The lock that says which process is the supervisor of a root."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from gpugrant_crds import timestamps


class Held(Exception):
    """Another process has the lock."""


@contextlib.contextmanager
def taken(path: Path, now: datetime) -> Iterator[None]:
    """Holds the lock and says who and since when; raises Held. The file stays: removing it would let two hold it."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Held(str(path)) from error
        said = json.dumps({"pid": os.getpid(), "since": timestamps.write(now)}).encode()
        # written over, then cut: whoever reads meanwhile never finds nothing, or the end of an older text
        os.pwrite(descriptor, said.ljust(os.fstat(descriptor).st_size), 0)
        os.ftruncate(descriptor, len(said))
        yield
    finally:
        os.close(descriptor)
