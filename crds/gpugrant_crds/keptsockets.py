"""The name under which a gate has a listening socket kept while no gate runs (FDNAME of sd_notify(3)): the path where
clients find it, and which socket that was. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

_NAME_MAX = 255
"""Characters of an FDNAME."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a socket lies: its path, and the device and inode number of that path."""

    path: Path
    device: int
    inode: int


def name(place: Place) -> str:
    """The FDNAME; empty when the path is too long for one."""
    text = f"{quote(str(place.path), safe='/')}@{place.device:x}.{place.inode:x}"
    return text if len(text) <= _NAME_MAX else ""


def parse(text: str) -> Place | None:
    """What `name` wrote; None: it is another's name."""
    path, _, numbers = text.rpartition("@")
    device, _, inode = numbers.partition(".")
    if not path.startswith("/"):
        return None
    try:
        return Place(Path(unquote(path)), int(device, 16), int(inode, 16))
    except ValueError:
        return None
