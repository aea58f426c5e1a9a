"""What setup did on this machine (`setup.json`): the option given by hand, the files and nodes that are ours.

Only a file whose hash stands here is ours to remove (R14); an option given by hand is kept by later runs (R13).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from gpugrant_operator.node import files

Install = Literal["auto", "true", "false"]

_KEPT = 2
"""Hashes of a file: the one in place and the one that is being put there, so that a kill between loses neither."""


class State(BaseModel):
    """`files`: path below the root → the sha256 of what we wrote there, newest first."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    schema_: Literal[1] = Field(default=1, alias="schema")
    install_nvidia_toolkit: Install | None = None
    files: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    """Stand-in device nodes below the root."""
    taken_up: dict[str, str] = Field(default_factory=dict)
    """Group of units → the hash of their texts as systemd has taken them up, so that what failed is tried again."""
    daemon_units: tuple[str, ...] = ()
    """Patterns of the repo daemons' units that were given by hand; empty: none were."""

    def owns(self, name: str, data: bytes) -> bool:
        return digest(data) in self.files.get(name, ())

    def latest(self, name: str) -> str | None:
        """The hash of what was put there last; None: nothing of ours was."""
        return next(iter(self.files.get(name, ())), None)

    def wrote(self, name: str, data: bytes) -> State:
        kept = (digest(data), *(known for known in self.files.get(name, ()) if known != digest(data)))
        return self.model_copy(update={"files": self.files | {name: kept[:_KEPT]}})

    def removed(self, name: str) -> State:
        return self.model_copy(update={"files": {key: v for key, v in self.files.items() if key != name}})

    def dump(self) -> bytes:
        content = self.model_dump(mode="json", by_alias=True)
        return (json.dumps(content, sort_keys=True, indent=2) + "\n").encode()


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def load(path: Path) -> tuple[State, str | None]:
    """The state, and what is wrong with its file; a damaged one counts as none: then no file is ours."""
    try:
        return State.model_validate_json(path.read_bytes()), None
    except FileNotFoundError:
        return State(), None
    except (OSError, ValidationError) as error:
        return State(), f"{path} can't be read and is made anew: {_first(error)}"


def _first(error: OSError | ValidationError) -> str:
    return error.errors()[0]["msg"].lower() if isinstance(error, ValidationError) else str(error).lower()


def save(path: Path, state: State) -> None:
    """Raises OSError."""
    files.write(path, state.dump())
