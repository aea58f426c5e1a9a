"""What a worker counts: plain numbers, cheap to add to, gathered when somebody asks for metrics."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

BOUNDS = (0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 10000.0)
"""Upper bounds of the durations counted together, in milliseconds; a last one is without bound."""
_SERIES_MAX = 20_000
"""Kinds of decision counted apart; routes, verdicts and rules are few, repos as many as repos.d has."""
OTHER = "other"

Cell = list[int]
"""One number, shared by those who add to it and those who read it."""


@dataclass(slots=True)
class Durations:
    """How long decisions of one verdict took until the head of their answer was there."""

    spans: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    milliseconds: float = 0.0

    def add(self, milliseconds: float) -> None:
        self.spans[bisect_left(BOUNDS, milliseconds)] += 1
        self.milliseconds += milliseconds


@dataclass(slots=True)
class Counters:
    """Everything since the start of a process, or the sum of several processes."""

    decisions: dict[tuple[str, str, str], Cell] = field(default_factory=dict)
    """By repo, route and verdict."""
    refusals: dict[tuple[str, str], Cell] = field(default_factory=dict)
    """By repo and rule."""
    durations: dict[str, Durations] = field(default_factory=dict)
    """By verdict."""
    traffic: dict[str, list[int]] = field(default_factory=dict)
    """By repo: bytes from its clients and to them."""
    lost: int = 0
    """Audit lines."""

    def decision(self, repo: str, route: str, verdict: str) -> Cell:
        key = (repo, route, verdict)
        if key not in self.decisions and len(self.decisions) >= _SERIES_MAX:
            key = (repo, OTHER, verdict)
        return self.decisions.setdefault(key, [0])

    def refusal(self, repo: str, rule: str) -> Cell:
        return self.refusals.setdefault((repo, rule), [0])

    def duration(self, verdict: str) -> Durations:
        return self.durations.setdefault(verdict, Durations())

    def add(self, other: Counters) -> None:
        for (repo, route, verdict), cell in other.decisions.items():
            self.decision(repo, route, verdict)[0] += cell[0]
        for (repo, rule), cell in other.refusals.items():
            self.refusal(repo, rule)[0] += cell[0]
        for verdict, theirs in other.durations.items():
            ours = self.duration(verdict)
            ours.spans = [a + b for a, b in zip(ours.spans, theirs.spans, strict=True)]
            ours.milliseconds += theirs.milliseconds
        for repo, (received, sent) in other.traffic.items():
            before = self.traffic.get(repo, [0, 0])
            self.traffic[repo] = [before[0] + received, before[1] + sent]
        self.lost += other.lost

    def write(self) -> dict[str, Any]:
        return {
            "decisions": [[*key, cell[0]] for key, cell in self.decisions.items()],
            "refusals": [[*key, cell[0]] for key, cell in self.refusals.items()],
            "durations": {verdict: [its.spans, its.milliseconds] for verdict, its in self.durations.items()},
            "traffic": self.traffic,
            "lost": self.lost,
        }


def read(data: dict[str, Any]) -> Counters:
    """What `write` made."""
    return Counters(
        {(repo, route, verdict): [count] for repo, route, verdict, count in data["decisions"]},
        {(repo, rule): [count] for repo, rule, count in data["refusals"]},
        {verdict: Durations(spans, milliseconds) for verdict, (spans, milliseconds) in data["durations"].items()},
        data["traffic"],
        data["lost"],
    )
