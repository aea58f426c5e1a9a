"""Kills a process that writes into a store, again and again, and looks at what is there after each time.

The child makes changes in batches of several at once and says each answer on a pipe in one write; whatever it said
must be there when the store is opened again, and what it did not say is whole or absent. The store is opened by a new
process each time, as a server opens it: with a scan of the manifests.

    python tests/crashing.py --writes 10000 --seed 1 --folder /var/tmp/crash
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpugrant_crds import schema
from gpugrant_operator.apiserver.objects.resources import NAMESPACES
from gpugrant_operator.apiserver.objects.status import ApiError
from gpugrant_operator.apiserver.registry import Options
from gpugrant_operator.apiserver.settings import Settings
from gpugrant_operator.apiserver.store import manifests, verify
from gpugrant_operator.apiserver.store.disk import Disk
from storestand import namespace, opened

MERGE = "application/merge-patch+json"
WRITERS = 6
NAMES = 5
"""Objects a writer has."""
COMPACT = 60_000
"""Bytes of the journal behind which a snapshot is made: often, so that kills fall into it."""


def settings(root: Path) -> Settings:
    return Settings(root=root, crds=schema.crds(), admission=False, compact_bytes=COMPACT)


# --- the child ------------------------------------------------------------------------------------------------


async def _write_on(root: Path, seed: int) -> None:
    """Says `ready`, then one line a change: what is tried before it, what was answered after it."""
    async with opened(settings(root), Disk()) as api:
        await api.sync.scan()
        if api.store.get(NAMESPACES, "", "default") is None:
            await api.registry.create(NAMESPACES, "", namespace(), Options())
        grants = api.store.catalog.by_plural("repogpugrants")
        assert grants is not None
        _say({"ready": True})

        async def work(writer: int) -> None:
            chance = random.Random(seed * 100 + writer)
            while True:
                name = f"g{writer}-{chance.randrange(NAMES)}"
                value = f"v{chance.randrange(10**9)}"
                there = api.store.head(grants, "default", name) is not None
                gone = there and chance.random() < 0.25
                _say({"try": name, "value": None if gone else value})
                try:
                    if gone:
                        done = await api.registry.delete(grants, "default", name, {}, Options())
                    elif there:
                        patch = {"metadata": {"labels": {"v": value}}}
                        done = await api.registry.patch(grants, "default", name, MERGE, patch, Options())
                    else:
                        done = await api.registry.create(grants, "default", _grant(name, value), Options())
                except ApiError as error:
                    _say({"refused": error.message})
                    continue
                version = int(done.obj["metadata"]["resourceVersion"])
                _say({"done": name, "value": None if gone else value, "version": version})

        await asyncio.gather(*(work(writer) for writer in range(WRITERS)))


def _grant(name: str, value: str) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.rediacc.io/v1alpha1",
        "kind": "RepoGpuGrant",
        "metadata": {"name": name, "labels": {"v": value}, "annotations": {"filler": "x" * 200}},
        "spec": {"machine": "m1", "repo": "r", "device": "nvidia.com/gpu=all"},
    }


def _say(value: dict[str, Any]) -> None:
    os.write(1, json.dumps(value).encode() + b"\n")  # below PIPE_BUF: a kill never cuts it


# --- the parent -----------------------------------------------------------------------------------------------


@dataclass
class Known:
    """What the children said. `tried`: the one change of an object that was not answered."""

    values: dict[str, str | None] = field(default_factory=dict)
    tried: dict[str, str | None] = field(default_factory=dict)
    version: int = 0
    writes: int = 0

    def hear(self, said: dict[str, Any]) -> None:
        if "refused" in said:
            raise AssertionError(f"a change was refused: {said['refused']}")
        if "try" in said:
            self.tried[said["try"]] = said["value"]
        elif "done" in said:
            del self.tried[said["done"]]
            self.values[said["done"]] = said["value"]
            self.version = max(self.version, said["version"])
            self.writes += 1


def _killed(root: Path, seed: int, known: Known, chance: random.Random, most: int) -> None:
    """One child from its start to its kill at a random moment after a random number of answers."""
    child = subprocess.Popen(
        [sys.executable, __file__, "--child", str(root), "--seed", str(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    try:
        if not any(said.get("ready") for said in _lines(child.stdout.fileno())):
            raise AssertionError("the child could not open the store")
        wanted = known.writes + chance.randint(1, most)
        for said in _lines(child.stdout.fileno()):
            known.hear(said)
            if known.writes >= wanted:
                break
        time.sleep(chance.random() * 0.01)
        child.send_signal(signal.SIGKILL)
        for said in _lines(child.stdout.fileno()):  # what it said before it was killed
            known.hear(said)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


_rest: dict[int, bytes] = {}


def _lines(descriptor: int) -> Iterator[dict[str, Any]]:
    """What the child says, until it is gone; what is left after a break comes first the next time."""
    while True:
        line, found, rest = _rest.pop(descriptor, b"").partition(b"\n")
        if found:
            _rest[descriptor] = rest
            yield json.loads(line)
            continue
        if not select.select([descriptor], [], [], 60)[0]:
            raise AssertionError("the child says nothing")
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        _rest[descriptor] = line + data


async def _check(root: Path, known: Known) -> None:
    """Opens the store as the next process would."""
    async with opened(settings(root), Disk()) as api:
        await api.sync.scan()
        await api.store.settled()
        assert api.sync.problems == {}, api.sync.problems
        assert api.store.version >= known.version, (api.store.version, known.version)
        grants = api.store.catalog.by_plural("repogpugrants")
        assert grants is not None
        found = {obj["metadata"]["name"]: obj for obj in api.store.head_list(grants)}
        for name in {*found, *known.values, *known.tried}:
            allowed = [known.values.get(name), *([known.tried[name]] if name in known.tried else [])]
            value = found[name]["metadata"]["labels"]["v"] if name in found else None
            assert value in allowed, (name, value, allowed)
            path = manifests.place(settings(root).layout.manifests, grants, (grants.id, "default", name))
            wanted = manifests.dump(manifests.desired(found[name])) if name in found else None
            assert (path.read_bytes() if path.exists() else None) == wanted, path
            known.values[name] = value
        known.tried.clear()
        known.version = api.store.version
    layout = settings(root).layout
    report = verify.verify(layout.store, layout.manifests, api.store.catalog)
    assert report.findings == (), report.findings


def crash(root: Path, *, writes: int, seed: int, most: int) -> tuple[int, int]:
    """Kills children until there were so many acknowledged writes; how many, and how many kills that took.

    `most`: the most answers that one child lives for. Raises AssertionError with the seed's own story.
    """
    chance, known, kills = random.Random(seed), Known(), 0
    while known.writes < writes:
        _killed(root, chance.randrange(10**6), known, chance, most)
        kills += 1
        asyncio.run(_check(root, known))
    return known.writes, kills


def main() -> None:
    parser = argparse.ArgumentParser(description="Kills a writing store at random moments and looks at what is left.")
    parser.add_argument("--writes", type=int, default=10_000, help="acknowledged writes in all")
    parser.add_argument("--most", type=int, default=100, help="the most of them between two kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="an empty folder for the store")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.child is not None:
        asyncio.run(_write_on(told.child, told.seed))
        return
    if told.folder is None:
        parser.error("--folder is needed")
    begun = time.monotonic()
    done, kills = crash(told.folder, writes=told.writes, seed=told.seed, most=told.most)
    sys.stdout.write(f"{done} acknowledged writes, {kills} kills, {time.monotonic() - begun:.0f} s, nothing lost\n")


if __name__ == "__main__":
    main()
