"""What lies at a bind's source, component by component: lstat only, so that no link is followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from gpugrant_gate.policy.model import PathInfo

_COMPONENTS_MAX = 128
"""Deeper than any source of a real bind; bounds the look."""

_MISSING = PathInfo("missing", symlink=False, swappable=True)


def look(path: str, roots: Iterable[str] = ()) -> PathInfo:
    """What is at the absolute `path` now. Nothing that can't be seen is trusted: `missing` or swappable.

    What lies in a folder of `roots` is swappable: a container that has the folder bound is root there, and a restart
    policy mounts the source again without a request.
    """
    parts = [part for part in path.split("/") if part]
    if not path.startswith("/") or len(parts) > _COMPONENTS_MAX or any(part in (".", "..") for part in parts):
        return _MISSING
    bound = {Path(root) for root in roots}
    place = Path("/")
    here = place.lstat()
    symlink = swappable = False
    for part in parts:
        parent = here
        place /= part
        try:
            here = place.lstat()
        except OSError:
            return PathInfo("missing", symlink=symlink, swappable=True)
        symlink = symlink or stat.S_ISLNK(here.st_mode)
        swappable = swappable or place.parent in bound or _replaceable(parent, here)
    return PathInfo(_kind(here.st_mode), symlink=symlink, swappable=swappable)


def _replaceable(folder: os.stat_result, entry: os.stat_result) -> bool:
    """Somebody other than root can rename or remove `entry` in `folder` (an ACL's mask shows in the group bits)."""
    if folder.st_uid != 0:
        return True
    if not folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    sticky = bool(folder.st_mode & stat.S_ISVTX)
    return not sticky or entry.st_uid != 0


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISREG(mode):
        return "file"
    return "socket" if stat.S_ISSOCK(mode) else "other"
