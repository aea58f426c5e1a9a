"""This machine as the operator reads it: its name, its boot, the CDI specs' hashes, the inventory. Reads only."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

import yaml

from gpugrant_crds import cdi, inventory
from gpugrant_crds.inventory import Inventory, InventoryUnreadable
from gpugrant_crds.layout import Layout
from gpugrant_crds.names import InvalidName, check_machine
from gpugrant_operator.controller.gatelink import GateLink

Stat = tuple[int, int, int]


class Unnamed(ValueError):
    """This machine has no usable name; the message is a sentence for a person."""


def local_name(layout: Layout, hardware: Path) -> str:
    """`nodeName` of gate.yaml, else the host's name, of a recorded tree its etc/hostname; raises Unnamed."""
    name = _configured(layout.gate_settings) or _host_name(hardware)
    try:
        return check_machine(name.strip().lower())
    except InvalidName as error:
        raise Unnamed(f"{error}; set nodeName in {layout.gate_settings}") from error


def _configured(path: Path) -> str:
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Unnamed(f"{path}: {' '.join(str(error).split())}") from error
    name = settings.get("nodeName") if isinstance(settings, dict) else None
    return "" if name is None else str(name)


def _host_name(hardware: Path) -> str:
    if hardware == Path("/"):
        return socket.gethostname()
    try:
        return (hardware / "etc/hostname").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unnamed(f"{hardware / 'etc/hostname'}: {error}") from error


class LocalNode:
    """The files of one root and one hardware tree; contents are read again only when a file's stat has changed."""

    def __init__(self, layout: Layout, hardware: Path, name: str, link: GateLink) -> None:
        self.name = name
        self.link = link
        self.inventory: Inventory | None = None
        self.inventory_fault = ""
        self.specs: dict[str, str] = {}
        self.settled: dict[str, str] | None = None
        """The specs as the last detection of this process left them."""
        self.tried = ""
        """The fingerprint that a detection was started for and has not shown yet."""
        self._layout = layout
        self._boot_id_file = hardware / "proc/sys/kernel/random/boot_id"
        self._inventory_seen: tuple[str, Stat | None] | None = None
        self._specs_seen: dict[str, Stat | None] | None = None

    @property
    def fingerprint(self) -> str:
        """Of the machine's hardware as its gate last said; empty: it did not."""
        report = self.link.report
        return "" if report is None else report.fingerprint

    @property
    def boot_id(self) -> str | None:
        """None: the machine has none, as a recorded tree may."""
        try:
            return self._boot_id_file.read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    async def look(self, *, again: bool = False) -> bool:
        """Reads what has changed; with `again` all of it. True: something is other than before."""
        before = (self.inventory, self.specs)
        if again:
            self._inventory_seen, self._specs_seen = None, None
        await self._look_at_inventory()
        self._look_at_specs()
        if self.inventory is not None and self.inventory.fingerprint == self.fingerprint:
            self.tried = ""
        return before != (self.inventory, self.specs)

    async def _look_at_inventory(self) -> None:
        report = self.link.report
        seen = (report.inventory_hash if report is not None else "", _stat(self._layout.inventory))
        if seen == self._inventory_seen:
            return
        raw = await self.link.inventory() or _bytes(self._layout.inventory)
        self._inventory_seen = seen
        self.inventory, self.inventory_fault = None, ""
        if raw is None:
            return
        try:
            self.inventory = inventory.parse(raw)
        except InventoryUnreadable as error:
            self.inventory_fault = f"{self._layout.inventory}: {error}"

    def _look_at_specs(self) -> None:
        try:
            paths = sorted(path for path in self._layout.cdi.iterdir() if cdi.is_spec_file(path.name))
        except OSError:
            paths = []
        seen = {path.name: _stat(path) for path in paths}
        if seen != self._specs_seen:
            self._specs_seen = seen
            self.specs = {path.name: _hash(path) for path in paths}


def _stat(path: Path) -> Stat | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _hash(path: Path) -> str:
    """sha256 in hex; empty where it can't be read, as in the inventory."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
