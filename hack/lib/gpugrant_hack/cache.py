"""The folder for what is brought: made once, shared by all checkouts and roots of a user.

An entry is built aside and renamed into place, so that a half-made one is never seen; a lock keeps two builders apart.
"""

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def folder(environ: Mapping[str, str]) -> Path:
    """`GPUGRANT_CACHE`, else `gpugrant` in the user's cache folder."""
    if explicit := environ.get("GPUGRANT_CACHE"):
        return Path(explicit).absolute()
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "/root") / ".cache"
    return Path(base).absolute() / "gpugrant"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file, waiting for others; the file stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entry(cache: Path, name: str, build: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache; `build` fills it the first time. Raises whatever `build` raises."""
    target = cache / name
    if target.is_dir():
        return target
    with locked(cache / f"{name}.lock"):
        if target.is_dir():
            return target
        aside = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=cache))
        try:
            build(aside)
            aside.chmod(0o755)
            aside.replace(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return target
