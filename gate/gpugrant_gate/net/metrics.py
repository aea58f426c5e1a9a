"""What the gate counts, in Prometheus' text format. Labels have few values: repos, routes, verdicts, rules."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gpugrant_crds.snapshot import GateStatus
from gpugrant_gate.life import durable
from gpugrant_gate.net.counters import BOUNDS, Counters

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Observed:
    """The gate at one moment."""

    status: GateStatus
    counters: Counters
    connections: Mapping[str, int]
    older_gate: bool
    now: datetime
    started: datetime


def render(observed: Observed) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(observed))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, observed: Observed) -> None:
        self._observed = observed

    def collect(self) -> Iterator[Metric]:
        yield from _counted(self._observed.counters)
        yield from _standing(self._observed)


def _counted(counters: Counters) -> Iterator[Metric]:
    decisions = CounterMetricFamily("gpugrant_gate_decisions", "Requests decided", labels=("repo", "route", "verdict"))
    failed = CounterMetricFamily(
        "gpugrant_gate_upstream_errors", "Requests that the repo's daemon did not answer as it should", labels=("repo",)
    )
    failures: dict[str, int] = {}
    for (repo, route, verdict), cell in sorted(counters.decisions.items()):
        decisions.add_metric((repo, route, verdict), cell[0])
        failures[repo] = failures.get(repo, 0) + (cell[0] if verdict == _FAILED else 0)
    for repo, count in sorted(failures.items()):
        failed.add_metric((repo,), count)
    refusals = CounterMetricFamily(
        "gpugrant_gate_refusals", "Rules that kept requests from the daemon", labels=("repo", "rule")
    )
    for (repo, rule), cell in sorted(counters.refusals.items()):
        refusals.add_metric((repo, rule), cell[0])
    durations = HistogramMetricFamily(
        "gpugrant_gate_request_duration_seconds",
        "From a request's head to the head of its answer, the daemon's own time included",
        labels=("verdict",),
    )
    for verdict, its in sorted(counters.durations.items()):
        total, buckets = 0, []
        for bound, count in zip((*(bound / 1000 for bound in BOUNDS), "+Inf"), its.spans, strict=True):
            total += count
            buckets.append((str(bound), total))
        durations.add_metric((verdict,), buckets, its.milliseconds / 1000)
    moved = CounterMetricFamily(
        "gpugrant_gate_bytes", "Bytes from a repo's clients and to them", labels=("repo", "direction")
    )
    for repo, (received, sent) in sorted(counters.traffic.items()):
        moved.add_metric((repo, "received"), received)
        moved.add_metric((repo, "sent"), sent)
    lost = CounterMetricFamily("gpugrant_gate_audit_lines_lost", "Decisions that could not be recorded")
    lost.add_metric((), counters.lost)
    yield from (decisions, refusals, failed, durations, moved, lost)


def _standing(observed: Observed) -> Iterator[Metric]:
    status = observed.status
    connections = GaugeMetricFamily("gpugrant_gate_connections", "Open connections of clients", labels=("repo",))
    for repo, count in sorted(observed.connections.items()):
        connections.add_metric((repo,), count)
    yield connections
    grants = GaugeMetricFamily("gpugrant_gate_grants", "Grants in force", labels=("repo",))
    held = Counter(grant.repo for grant in status.grants)
    for its in status.repos:
        grants.add_metric((its.name,), held[its.name])
    yield grants
    repos = GaugeMetricFamily("gpugrant_gate_repos", "Repos by whether their daemon may have hardware", labels=("fit",))
    fit = sum(its.fit for its in status.repos)
    repos.add_metric(("true",), fit)
    repos.add_metric(("false",), len(status.repos) - fit)
    yield repos
    restarts = CounterMetricFamily(
        "gpugrant_gate_worker_restarts", "Worker processes that were replaced", labels=("worker", "reason")
    )
    for worker in status.workers:
        restarts.add_metric((str(worker.number), "died"), worker.died)
        restarts.add_metric((str(worker.number), "hung"), worker.hung)
    yield restarts
    yield _gauge("snapshot_epoch", "Epoch of the snapshot in force; -1: there is none", status.epoch)
    if status.applied_at is not None:
        age = (observed.now - status.applied_at).total_seconds()
        yield _gauge("snapshot_age_seconds", "Since the snapshot in force was received", age)
    yield _gauge("pending_requests", "Hardware requests of an older snapshot that have not ended", len(status.pending))
    yield _gauge("problems", "What an operator should mend; gpugrant status says it", len(status.problems))
    yield _gauge("older_gate", "Whether an older gate still finishes its streams", int(observed.older_gate))
    yield _gauge("start_time_seconds", "When this gate started, since the epoch", observed.started.timestamp())


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gpugrant_gate_{name}", help_text, value=value)


def token(path: Path) -> str:
    """What a reader of the metrics' port must say, made where there is none; raises OSError."""
    try:
        found = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        found = ""
    if not found:
        found = secrets.token_urlsafe(32)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        durable.write(path, found.encode() + b"\n", 0o600)
    return found
