"""Committed values of each resource, found by (namespace, name) and listed in that order."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

Short = tuple[str, str]
"""(namespace or "", name)"""

T = TypeVar("T")


class Shelf(Generic[T]):
    """A sorted table a resource; a list is a walk from a place and costs nothing for what it passes over."""

    def __init__(self, resources: Iterable[str]) -> None:
        self._values: dict[str, dict[Short, T]] = {identity: {} for identity in resources}
        self._order: dict[str, list[Short]] = {identity: [] for identity in self._values}

    def __contains__(self, resource: str) -> bool:
        return resource in self._values

    def __len__(self) -> int:
        return sum(len(values) for values in self._values.values())

    def of(self, resource: str) -> Mapping[Short, T]:
        """All of a resource, in no order."""
        return self._values[resource]

    def items(self) -> Iterator[tuple[tuple[str, str, str], T]]:
        """All values with their whole keys."""
        for identity, values in self._values.items():
            for short, value in values.items():
                yield (identity, *short), value

    def listed(self, resource: str, namespace: str | None, after: Short | None) -> Iterator[T]:
        """In order, behind `after` when that is given; `namespace` None: of all."""
        order, values = self._order[resource], self._values[resource]
        start = (namespace, "") if namespace is not None else ("", "")
        index = bisect.bisect_left(order, start) if after is None else bisect.bisect_right(order, after)
        for position in range(index, len(order)):
            if namespace is not None and order[position][0] != namespace:
                return
            yield values[order[position]]

    def put(self, key: tuple[str, str, str], value: T) -> None:
        identity, short = key[0], (key[1], key[2])
        if short not in self._values[identity]:
            bisect.insort(self._order[identity], short)
        self._values[identity][short] = value

    def remove(self, key: tuple[str, str, str]) -> None:
        identity, short = key[0], (key[1], key[2])
        if self._values[identity].pop(short, None) is not None:
            order = self._order[identity]
            del order[bisect.bisect_left(order, short)]
