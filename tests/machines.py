"""Machines as trees of files: copies of the recorded ones, changed as a person would change them."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpugrant_operator.node import setup
from gpugrant_operator.node.gather import Limits

EXAMPLES = Path(__file__).parents[1] / "examples/machines"
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@dataclass
class Machine:
    """A tree that is read and a root that is written."""

    tree: Path
    root: Path
    limits: Limits = field(default_factory=lambda: Limits(smi=5.0, toolkit=5.0))

    def write(self, path: str, text: str = "") -> Path:
        target = self.tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def node(self, path: str, major: int, minor: int) -> None:
        """A real character device; without a driver behind it."""
        place = self.tree / path
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(major, minor))

    def link(self, path: str, target: str) -> None:
        place = self.tree / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def script(self, path: str, body: str) -> None:
        self.write(path, f"#!/bin/sh\n{body}\n").chmod(0o755)

    def run(self, path: str, *args: str, **env: str) -> None:
        """Runs a program of the tree to its end, which must be a good one."""
        subprocess.run([str(self.tree / path), *args], env={**os.environ, **env}, check=True, timeout=60)

    def remove(self, *paths: str) -> None:
        for path in paths:
            target = self.tree / path
            shutil.rmtree(target) if target.is_dir() and not target.is_symlink() else target.unlink()

    def pci(self, address: str, vendor: str, device: str, class_code: str, driver: str | None = None) -> None:
        base = f"sys/bus/pci/devices/{address}"
        for name, value in (("vendor", vendor), ("device", device), ("class", class_code)):
            self.write(f"{base}/{name}", f"0x{value}\n")
        if driver is not None:
            self.link(f"{base}/driver", f"../../drivers/{driver}")

    def drm(self, address: str, card: int, render: int | None) -> None:
        numbers = {f"card{card}": card} | ({} if render is None else {f"renderD{render}": render})
        for name, minor in numbers.items():
            self.write(f"sys/bus/pci/devices/{address}/drm/{name}/dev", f"226:{minor}\n")
            self.link(f"sys/class/drm/{name}/device", f"../../../bus/pci/devices/{address}")
            self.write(f"dev/dri/{name}")

    def add_nvidia_card(self) -> None:
        """A second card beside the workstation's own, as the tree's README says."""
        old, new = "0000:01:00.0", "0000:04:00.0"
        shutil.copytree(
            self.tree / f"sys/bus/pci/devices/{old}", self.tree / f"sys/bus/pci/devices/{new}", symlinks=True
        )
        shutil.rmtree(self.tree / f"sys/bus/pci/devices/{new}/drm")
        text = (self.tree / f"proc/driver/nvidia/gpus/{old}/information").read_text()
        for was, now in ((old, new), ("GPU-1d9c7a42", "GPU-2e0d8b53"), ("Device Minor: \t 0", "Device Minor: \t 1")):
            text = text.replace(was, now)
        self.write(f"proc/driver/nvidia/gpus/{new}/information", text)
        self.write("dev/nvidia1")

    def remove_nvidia_card(self) -> None:
        self.remove("sys/bus/pci/devices/0000:01:00.0", "proc/driver/nvidia/gpus/0000:01:00.0", "dev/nvidia0")
        for name in ("card1", "renderD129"):
            self.remove(f"sys/class/drm/{name}", f"dev/dri/{name}")

    def options(
        self, install: setup.Install | None = None, *, dry_run: bool = False, default: setup.Install = "auto"
    ) -> setup.Options:
        return setup.Options(self.root, self.tree, install, dry_run, default, self.limits)

    def setup(
        self,
        install: setup.Install | None = None,
        *,
        dry_run: bool = False,
        default: setup.Install = "auto",
        now: datetime = NOW,
        progress: Callable[[str], None] = lambda _line: None,
        **more: Any,
    ) -> setup.Outcome:
        options = replace(self.options(install, dry_run=dry_run, default=default), **more)
        return setup.run(options, lambda: now, progress)

    def cdi(self, name: str) -> Path:
        return self.root / "etc/cdi" / name

    @property
    def inventory(self) -> Path:
        return self.root / "etc/rediacc/gpu/inventory.json"
