"""The hardware behind a device name in words that a person knows a card by. Pure (R19)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpugrant_crds import atoms
from gpugrant_crds.inventory import Gpu
from gpugrant_crds.v1alpha1 import GpuStatus

Card = Gpu | GpuStatus

UNKNOWN = "-"


def told(found: Iterable[str], cards: Sequence[Card]) -> str:
    """One atom in full, several counted; `-` where nothing is known."""
    hardware = tuple(found)
    if len(hardware) == 1:
        return _one(hardware[0], cards)
    counts = Counter(_kind(atom, cards) for atom in hardware)
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items()) or UNKNOWN


def _one(atom: str, cards: Sequence[Card]) -> str:
    card = _card(atom, cards)
    if card is None:
        return _kind(atom, cards)
    place = card.pci_address or card.id
    part = _part(atom.removeprefix(f"gpu/{card.id}").strip("/"), card)
    return f"{part}{card.name} at {place}"


def _kind(atom: str, cards: Sequence[Card]) -> str:
    """What several of a kind are counted as."""
    card = _card(atom, cards)
    if card is not None:
        return card.name if atom == f"gpu/{card.id}" else f"part of {card.name}"
    kind, _, rest = atom.partition("/")
    match kind:
        case "wsl":
            return "all GPUs of this WSL machine"
        case "node":
            return f"/dev/{rest}, no card of its own"
        case "unknown":
            return f"what a hook of {rest} gives"
        case _:
            return rest


def _card(atom: str, cards: Sequence[Card]) -> Card | None:
    return next((card for card in cards if atoms.covers(f"gpu/{card.id}", atom)), None)


def _part(rest: str, card: Card) -> str:
    """`p3`, `gi1/ci0` or `vf…` of a card as a clause before its name; empty for all of it."""
    if not rest:
        return ""
    if isinstance(card, Gpu):
        instance = next((one for one in card.partitions if f"gi{one.gi}/ci{one.ci}" == rest and one.name), None)
        if instance is not None:
            return f"{instance.name} of "
    if rest.startswith("p") and rest[1:].isdigit():
        return f"partition {rest[1:]} of "
    return f"virtual function {rest[2:]} of " if rest.startswith("vf") else f"{rest} of "
