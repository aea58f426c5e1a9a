"""What a gate let start with devices, by container: so that a restarted gate can tell "granted once" from "never".

One file a repo, durable before a start goes on to the daemon. A copy of a repo's data root has the same containers, and
another repo with another id: to it the file says nothing (R2).
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpugrant_gate.life import durable

SCHEMA = 1


class Unwritable(OSError):
    """What was admitted can't be noted down; the message is a clause."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """One container. `devices`: the uid of the grant by which it got each of them."""

    devices: Mapping[str, str]
    run: str = ""
    """When the run began that outlives its grant; empty: the grant stood when this was last looked at. A run that
    began at another time was admitted by nobody."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """All of one repo. `enforced`: what was never granted is stopped; else it is only reported, since it may have run
    before there was a gate."""

    repo_id: str = ""
    enforced: bool = True
    containers: Mapping[str, Admitted] = field(default_factory=dict)

    def of(self, repo_id: str) -> Ledger:
        """For the repo of that id: of another one nothing counts. A repo without an id has lost it."""
        return self if repo_id in ("", self.repo_id) else Ledger(repo_id)

    def admit(self, container: str, devices: Mapping[str, str]) -> Ledger:
        """With a start that is about to go on."""
        return replace(self, containers={**self.containers, container: Admitted(dict(devices))})

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "repoId": self.repo_id,
            "enforced": self.enforced,
            "containers": {
                id_: {"devices": dict(entry.devices), "run": entry.run}
                for id_, entry in sorted(self.containers.items())
            },
        }


@dataclass(frozen=True, slots=True)
class Book:
    """Where one repo's ledger is; without a folder it lives and ends with the process."""

    folder: Path | None
    repo: str
    repo_id: str
    enforced: bool = True
    """Of a repo that has no file yet."""

    def read(self) -> Ledger:
        """As it stands; a file that can't be read is an empty one, and all counts as never granted."""
        fresh = Ledger(self.repo_id, self.enforced)
        if self.folder is None:
            return fresh
        found = _load(_file(self.folder, self.repo))
        return fresh if found is None else found.of(self.repo_id)

    def change(self, how: Callable[[Ledger], Ledger], before: Ledger) -> Ledger:
        """The ledger after the change, durable when this returns; raises Unwritable with nothing changed.

        `before` counts where there is no file: several processes write to one, and each only adds its own change.
        """
        if self.folder is None:
            return how(before)
        try:
            self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            with _locked(self.folder):
                path = _file(self.folder, self.repo)
                stored = _load(path)
                after = how(self.read() if stored is not None else before)
                if after != stored:
                    durable.write(path, json.dumps(after.to_json(), separators=(",", ":")).encode() + b"\n")
                return after
        except OSError as error:
            raise Unwritable(f"{self.folder} can't be written: {error.strerror or error}") from error


def begin(folder: Path, repos: Mapping[str, str], *, enforce: bool) -> None:
    """At a gate's start: the repos (name to id) that are there at the very first one are looked at before anything of
    theirs is stopped, unless `enforce`. A repo that comes later has no such past. Raises OSError."""
    if folder.is_dir():
        if enforce:
            for repo, repo_id in repos.items():
                book = Book(folder, repo, repo_id)
                book.change(lambda ledger: replace(ledger, enforced=True), book.read())
        return
    # whole or not at all: a folder without a repo's file says that the repo is new
    aside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    aside.mkdir(mode=0o755, parents=True)
    for repo, repo_id in repos.items():
        ledger = Ledger(repo_id, enforced=enforce)
        durable.write(_file(aside, repo), json.dumps(ledger.to_json(), separators=(",", ":")).encode() + b"\n")
    aside.rename(folder)
    durable.sync_folder(folder.parent)


def _file(folder: Path, repo: str) -> Path:
    return folder / f"{repo}.json"


def _load(path: Path) -> Ledger | None:
    """None: there is none. What can't be read admits nothing."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return Ledger()
    try:
        containers = {
            str(id_): Admitted({str(name): str(uid) for name, uid in entry["devices"].items()}, str(entry["run"]))
            for id_, entry in data["containers"].items()
        }
        return Ledger(str(data["repoId"]), bool(data["enforced"]), containers)
    except (KeyError, TypeError, AttributeError):
        return Ledger()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """An older gate that finishes may write as well."""
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
