"""NVIDIA: procfs, nvidia-smi and nvidia-ctk as they write (reference cdi-gpu 3.2, 3.5).

nvidia-smi is not kept compatible by its makers: rows are read one by one, and a row that is none is kept as a remark.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass

from gpugrant_operator.node.vendors import pci

QUERY = (
    "index",
    "uuid",
    "name",
    "driver_version",
    "memory.total",
    "pci.bus_id",
    "mig.mode.current",
    "serial",
    "gpu_recovery_action",
)
"""An older nvidia-smi refuses the whole query for one field that it does not know: then the small set is asked."""

SMALL_QUERY = QUERY[:6]

BAD_ARGUMENT = 2
"""nvidia-smi's exit code for an unknown field."""

_TROUBLE = ("[Unknown Error]", "[GPU requires reset]", "[GPU is lost]")
_EXIT_CODES = {
    3: "the operation is not available",
    4: "no permission",
    6: "no device was found",
    8: "a card's power cable is not attached",
    9: "the NVIDIA driver is not loaded",
    12: "the NVML library is missing",
    14: "a card's infoROM is damaged",
    15: "a card has fallen off the bus",
}


@dataclass(frozen=True, slots=True)
class ProcCard:
    """`/proc/driver/nvidia/gpus/<address>/information`."""

    address: str
    model: str | None
    uuid: str | None
    """None on a card that does not answer: the driver then writes question marks."""
    minor: int | None
    """None with old drivers."""
    excluded: bool


@dataclass(frozen=True, slots=True)
class SmiCard:
    """One row of nvidia-smi."""

    index: int | None
    uuid: str | None
    name: str | None
    driver_version: str | None
    memory_mib: int | None
    address: str | None
    mig_mode: str | None
    serial: str | None
    trouble: str | None
    """A cell that says what is wrong with the card."""


@dataclass(frozen=True, slots=True)
class SmiAnswer:
    cards: tuple[SmiCard, ...]
    remarks: tuple[str, ...]
    """Lines that are no rows: a lost card can give one while the exit code is 0."""


def parse_information(address: str, text: str) -> ProcCard:
    """Keys, a colon, tabs and blanks, values."""
    fields = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields[key.strip()] = value.strip()
    uuid = fields.get("GPU UUID", "")
    minor = fields.get("Device Minor", "")
    return ProcCard(
        address=pci.address(fields.get("Bus Location", "")) or address,
        model=fields.get("Model") or None,
        uuid=uuid if uuid.startswith("GPU-") and "?" not in uuid else None,
        minor=int(minor) if re.fullmatch(r"[0-9]{1,4}", minor) else None,
        excluded=fields.get("GPU Excluded", "No") == "Yes",
    )


def parse_module_version(text: str) -> str | None:
    """The version in /proc/driver/nvidia/version, of the closed and of the open module."""
    match = re.search(r"Module\b.*?\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return None if match is None else match[1]


def parse_toolkit_version(text: str) -> str | None:
    match = re.search(r"version (\d+\.\d+\.\d+\S*)", text)
    return None if match is None else match[1]


MOST_REMARKS = 8
"""Lines among the rows that are kept: they end in the inventory and in a status, whose size is bounded."""
REMARK_LENGTH = 300


def parse_query(text: str, fields: tuple[str, ...]) -> SmiAnswer:
    """Rows of `--format=csv,noheader,nounits`; of lines that are none the first few, printable and cut."""
    cards: list[SmiCard] = []
    remarks: list[str] = []
    for line in text.splitlines():
        cells = next(csv.reader([line], skipinitialspace=True), [])
        if len(cells) == len(fields):
            cards.append(_card(dict(zip(fields, (cell.strip() for cell in cells), strict=True))))
        elif line.strip():
            remarks.append(_remark(line))
    if len(remarks) > MOST_REMARKS:
        remarks[MOST_REMARKS:] = [f"{len(remarks) - MOST_REMARKS} more lines that are no card's"]
    return SmiAnswer(tuple(cards), tuple(remarks))


def _remark(line: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in line.strip()[:REMARK_LENGTH])


def _card(row: dict[str, str]) -> SmiCard:
    trouble = next((cell for cell in row.values() if cell in _TROUBLE), None)
    action = _cell(row.get("gpu_recovery_action", ""))
    if trouble is None and action not in (None, "None"):
        trouble = f"recovery action: {action}"
    memory = _cell(row["memory.total"])
    index = _cell(row["index"])
    mig = (_cell(row.get("mig.mode.current", "")) or "").lower()
    return SmiCard(
        index=int(index) if index and index.isdigit() else None,
        uuid=_cell(row["uuid"]),
        name=_cell(row["name"]),
        driver_version=_cell(row["driver_version"]),
        memory_mib=int(memory) if memory and memory.isdigit() else None,
        address=pci.address(row["pci.bus_id"]),
        mig_mode=mig if mig in ("enabled", "disabled") else None,
        serial=_cell(row.get("serial", "")),
        trouble=trouble,
    )


def _cell(text: str) -> str | None:
    """None for the many ways to say that there is no value."""
    return None if text in ("", "N/A") or text.startswith("[") else text


def failure(code: int, output: str) -> str:
    """One clause: why nvidia-smi failed."""
    line = next((line.strip() for line in output.splitlines() if line.strip()), "")
    known = _EXIT_CODES.get(code)
    text = "; ".join(part for part in (known, line[:300]) if part)
    return f"nvidia-smi ended with {code}" + (f": {text}" if text else "")


def is_version_mismatch(text: str) -> bool:
    """The loaded module is older than the libraries: only a reboot mends it."""
    return "Driver/library version mismatch" in text
