"""When the gate looks at the machine again."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gpugrant_crds import fingerprint
from gpugrant_gate.life.fingerprint import Fingerprint


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def boot(tree: Path, text: str) -> None:
    path = tree / "proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def test_it_is_read_once_a_minute(tmp_path: Path) -> None:
    clock = Clock()
    seen = Fingerprint(tmp_path, clock)
    boot(tmp_path, "a")
    first = await seen.current("sha256:1")
    boot(tmp_path, "b")
    clock.now += fingerprint.EVERY - 1
    assert await seen.current("sha256:1") == first
    clock.now += 1
    assert await seen.current("sha256:1") != first


async def test_another_inventory_makes_it_look_at_once(tmp_path: Path) -> None:
    """Else the operator would hold a new inventory against an old look, and detect once more for nothing."""
    seen = Fingerprint(tmp_path, Clock())
    boot(tmp_path, "a")
    first = await seen.current("sha256:1")
    boot(tmp_path, "b")
    assert await seen.current("sha256:2") != first


async def test_odd_things_in_place_of_files_hold_nothing_up(tmp_path: Path) -> None:
    path = tmp_path / "proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    (tmp_path / "sys").symlink_to("sys")
    began = time.monotonic()
    assert (await Fingerprint(tmp_path, Clock()).current("")).startswith("sha256:")
    assert time.monotonic() - began < 10
