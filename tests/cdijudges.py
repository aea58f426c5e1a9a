"""The CDI library itself, in the releases that daemons hold, as the judge of how spec files are read."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

RELEASES = ("0.6.2", "1.0.1", "1.1.0", "1.1.2")
"""Docker 25 and 26.0 hold 0.6.2, Docker 28.1 to 29.1 hold 1.0.1, 29.2 to 29.7 hold 1.1.0, newer ones 1.1.2's parser."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one release says of a folder."""

    devices: tuple[str, ...]
    errors: Mapping[str, list[str]]
    specs: Mapping[str, Any]
    """By file: what was read, as a JSON object."""
    panic: str


@dataclass(slots=True)
class Judge:
    """One release in a process of its own, which answers line by line."""

    release: str
    stdin: IO[bytes]
    stdout: IO[bytes]

    def folder(self, files: Mapping[str, bytes]) -> Answer:
        encoded = {name: base64.b64encode(data).decode() for name, data in files.items()}
        self.stdin.write(json.dumps({"Files": encoded}).encode() + b"\n")
        self.stdin.flush()
        said = json.loads(self.stdout.readline())
        return Answer(tuple(said["Devices"]), said["Errors"], said["Specs"], said["Panic"])
