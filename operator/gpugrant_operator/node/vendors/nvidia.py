"""NVIDIA: procfs, NVML, nvidia-smi and nvidia-ctk as they write (reference cdi-gpu 3.2, 3.5).

nvidia-smi is not kept compatible by its makers: rows are read one by one, and a row that is none is kept as a remark.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from typing import Any

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

_MIB = 1024 * 1024

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
class Cap:
    """A line of /proc/driver/nvidia-caps/mig-minors: what /dev/nvidia-caps/nvidia-cap<number> gives.

    `card` is a card's minor; with neither card nor instance it is a control node of MIG itself.
    """

    number: int
    card: int | None = None
    gi: int | None = None
    ci: int | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """One MIG device as NVML has it."""

    gi: int
    ci: int
    uuid: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class ToolCard:
    """One card as NVML or nvidia-smi has it."""

    index: int | None
    uuid: str | None
    name: str | None
    driver_version: str | None
    memory_bytes: int | None
    address: str | None
    mig_mode: str | None
    serial: str | None
    trouble: str | None
    """What it says is wrong with the card."""
    minor: int | None = None
    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    cards: tuple[ToolCard, ...]
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


def parse_caps(text: str) -> tuple[Cap, ...] | None:
    """The lines of mig-minors, such as `gpu0/gi11/ci0/access 103` and `config 1`; None where one is none of them."""
    caps = []
    for line in filter(None, map(str.strip, text.splitlines())):
        match = re.fullmatch(
            r"(?:gpu([0-9]{1,4})/gi([0-9]{1,4})(?:/ci([0-9]{1,4}))?/access|[a-z_-]+) ([0-9]{1,7})", line
        )
        if match is None:
            return None
        card, gi, ci, number = (None if part is None else int(part) for part in match.groups())
        caps.append(Cap(number or 0, card, gi, ci))
    return tuple(caps)


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


def parse_query(text: str, fields: tuple[str, ...]) -> Answer:
    """Rows of `--format=csv,noheader,nounits`; of lines that are none the first few, printable and cut."""
    cards: list[ToolCard] = []
    remarks: list[str] = []
    for line in text.splitlines():
        cells = next(csv.reader([line], skipinitialspace=True), [])
        if len(cells) == len(fields):
            cards.append(_card(dict(zip(fields, (cell.strip() for cell in cells), strict=True))))
        elif line.strip():
            remarks.append(_remark(line))
    if len(remarks) > MOST_REMARKS:
        remarks[MOST_REMARKS:] = [f"{len(remarks) - MOST_REMARKS} more lines that are no card's"]
    return Answer(tuple(cards), tuple(remarks))


def _remark(line: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in line.strip()[:REMARK_LENGTH])


def _card(row: dict[str, str]) -> ToolCard:
    trouble = next((cell for cell in row.values() if cell in _TROUBLE), None)
    action = _cell(row.get("gpu_recovery_action", ""))
    if trouble is None and action not in (None, "None"):
        trouble = f"recovery action: {action}"
    memory = _cell(row["memory.total"])
    index = _cell(row["index"])
    mig = (_cell(row.get("mig.mode.current", "")) or "").lower()
    return ToolCard(
        index=int(index) if index and index.isdigit() else None,
        uuid=_cell(row["uuid"]),
        name=_cell(row["name"]),
        driver_version=_cell(row["driver_version"]),
        memory_bytes=int(memory) * _MIB if memory and memory.isdigit() else None,
        address=pci.address(row["pci.bus_id"]),
        mig_mode=mig if mig in ("enabled", "disabled") else None,
        serial=_cell(row.get("serial", "")),
        trouble=trouble,
    )


def _cell(text: str) -> str | None:
    """None for the many ways to say that there is no value."""
    return None if text in ("", "N/A") or text.startswith("[") else text


def parse_nvml(text: str) -> Answer | str:
    """What `node.nvml` printed, or one clause why NVML gave nothing."""
    try:
        told = json.loads(text)
        error = told["error"]
        if error is not None:
            return f"NVML says: {_remark(str(error))}"
        return Answer(tuple(_nvml_card(card, told) for card in told["cards"]), tuple(map(_remark, told["remarks"])))
    except (ValueError, TypeError, KeyError, AttributeError):
        return "NVML gave no answer that can be read"


def _nvml_card(card: dict[str, Any], told: dict[str, Any]) -> ToolCard:
    return ToolCard(
        index=card["index"],
        uuid=_clean(card["uuid"]),
        name=_clean(card["name"]),
        driver_version=_clean(told["driver"]),
        memory_bytes=card["memory"],
        address=pci.address(card["busId"] or ""),
        mig_mode={0: "disabled", 1: "enabled"}.get(card["mig"]),
        serial=_clean(card["serial"]),
        trouble=_clean(card["trouble"]),
        minor=card["minor"],
        instances=tuple(
            Instance(one["gi"], one["ci"], _clean(one["uuid"]), _clean(one["name"])) for one in card["instances"]
        ),
    )


def _clean(text: str | None) -> str | None:
    return None if not text else _remark(text) or None


def failure(code: int, output: str) -> str:
    """One clause: why nvidia-smi failed."""
    line = next((line.strip() for line in output.splitlines() if line.strip()), "")
    known = _EXIT_CODES.get(code)
    text = "; ".join(part for part in (known, line[:300]) if part)
    return f"nvidia-smi ended with {code}" + (f": {text}" if text else "")


def is_version_mismatch(text: str) -> bool:
    """The loaded module is older than the libraries: only a reboot mends it."""
    return "Driver/library version mismatch" in text
