"""AMD: what KFD's topology says about GPU nodes (reference cdi-gpu 3.4)."""

from __future__ import annotations

from dataclasses import dataclass

VENDOR_ID = 4098

NEEDED = frozenset(("vendor_id", "location_id", "drm_render_minor"))
"""Keys without which a GPU node can't be placed; `domain` is missing with old kernels."""


@dataclass(frozen=True, slots=True)
class KfdNode:
    """A GPU node of the topology: a card, or one partition of it."""

    node: int
    domain: int
    location: int
    """Bus in bits 8 to 15, device in bits 3 to 7, function (on a partitioned card: the partition) in bits 0 to 2."""
    render_minor: int
    unique_id: int
    memory_bytes: int | None

    @property
    def card_address(self) -> str:
        """The card's PCI address: function 0."""
        return f"{self.domain:04x}:{(self.location >> 8) & 0xFF:02x}:{(self.location >> 3) & 0x1F:02x}.0"

    @property
    def partition(self) -> int:
        return self.location & 7

    @property
    def render_name(self) -> str:
        return f"renderD{self.render_minor}"

    @property
    def order(self) -> tuple[int, int, int]:
        """As amd-ctk counts: domain, bus and device, partition."""
        return (self.domain, self.location, self.render_minor)


def parse_properties(text: str) -> dict[str, int]:
    """`key value` lines; what is no number is left out."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        if value.strip().isascii() and value.strip().isdigit():
            found[key] = int(value)
    return found


def gpu_node(node: int, gpu_id: int, properties: dict[str, int], bank_bytes: int) -> KfdNode | None:
    """The node as a GPU; None for a CPU node, another vendor's, or one without a render node."""
    if gpu_id == 0 or properties.get("simd_count", 0) == 0:
        return None
    if properties.get("vendor_id") != VENDOR_ID or properties.get("drm_render_minor", 0) == 0:
        return None
    return KfdNode(
        node=node,
        domain=properties.get("domain", 0),
        location=properties.get("location_id", 0),
        render_minor=properties["drm_render_minor"],
        unique_id=properties.get("unique_id", 0),
        memory_bytes=properties.get("local_mem_size", 0) or bank_bytes or None,
    )
