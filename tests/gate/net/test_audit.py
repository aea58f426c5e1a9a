"""One JSON line a decision: what stands in it, and what never does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_gate.net import audit, counters
from gpugrant_gate.net.counters import Counters

FIELDS = {
    "time",
    "event",
    "repo",
    "uid",
    "pid",
    "method",
    "route",
    "verdict",
    "status",
    "rules",
    "names",
    "bytes",
    "ms",
}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "audit.log"
    audit.configure(file)
    yield file
    audit.configure()


def decide(**more: Any) -> None:
    given: dict[str, Any] = {
        "repo": "a",
        "uid": 7,
        "pid": 8,
        "method": "GET",
        "route": "system.ping",
        "verdict": "admitted",
        "status": 200,
        "milliseconds": 0.25,
    }
    audit.decided(**given | more)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_says_who_asked_for_what_and_what_became_of_it(path: Path) -> None:
    before = datetime.now(UTC)
    decide(verdict="refused", status=403, rules=("hw.grant", "hw.gpus"), names=("v.com/gpu=0",), size=12)
    (said,) = lines(path)
    assert set(said) == FIELDS
    assert before <= datetime.fromisoformat(said["time"]) <= datetime.now(UTC)
    assert (said["repo"], said["uid"], said["pid"], said["method"]) == ("a", 7, 8, "GET")
    assert (said["route"], said["verdict"], said["status"]) == ("system.ping", "refused", 403)
    assert (said["rules"], said["names"], said["bytes"], said["ms"]) == (
        ["hw.grant", "hw.gpus"],
        ["v.com/gpu=0"],
        12,
        0.25,
    )


@given(method=st.text(max_size=400), names=st.lists(st.text(max_size=2000), max_size=60).map(tuple))
def test_a_line_is_one_line_below_4_kib_whatever_a_client_sends(method: str, names: tuple[str, ...]) -> None:
    taken: list[bytes] = []
    audit.trail().follower = taken.append
    decide(method=method, names=names, rules=("hw.grant",) * 100)
    audit.trail().follower = None
    (said,) = taken
    assert said.count(b"\n") == 1
    assert len(said) <= 4096
    assert json.loads(said)["method"] == method[:160]


async def test_lines_of_some_milliseconds_are_written_together_and_none_is_lost_at_the_end(path: Path) -> None:
    for number in range(100):
        decide(pid=number)
    assert not path.exists()
    async with asyncio.timeout(10):
        while not path.exists():  # noqa: ASYNC110  # the trail has a timer
            await asyncio.sleep(0.001)
    decide(pid=100)
    audit.close()
    assert [line["pid"] for line in lines(path)] == list(range(101))


def test_lines_that_were_lost_are_counted_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    audit.configure(folder / "audit.log")
    for _ in range(15_000):
        decide()
    lost = audit.trail().counters.lost
    assert lost > 0
    assert "no such file" in audit.trail().outlet.trouble
    folder.mkdir()
    audit.trail().outlet.reopen()
    audit.trail().flush()
    said = lines(folder / "audit.log")
    assert said[-1] == {"time": said[-1]["time"], "event": "lines lost", "lines": lost}
    assert len(said) - 1 + lost == 15_000
    audit.configure()


def test_decisions_are_counted(path: Path) -> None:
    decide()
    decide(milliseconds=3)
    decide(verdict="refused", status=403, rules=("hw.grant", "hw.grant"), milliseconds=20_000)
    counted = audit.trail().counters
    assert counted.decisions == {("a", "system.ping", "admitted"): [2], ("a", "system.ping", "refused"): [1]}
    assert counted.refusals == {("a", "hw.grant"): [1]}
    assert (counted.durations["admitted"].spans[:5], counted.durations["admitted"].milliseconds) == (
        [1, 0, 0, 1, 0],
        3.25,
    )
    assert counted.durations["refused"].spans[-1] == 1


def test_counters_come_over_as_they_are_and_add_up(path: Path) -> None:
    decide()
    decide(verdict="failed", status=503, rules=("gate.upstream",))
    counted = audit.trail().counters
    counted.traffic = {"a": [3, 4]}
    copied = counters.read(json.loads(json.dumps(counted.write())))
    assert copied == counted
    total = Counters()
    for _ in range(2):
        total.add(copied)
    assert total.decisions[("a", "system.ping", "failed")] == [2]
    assert (total.traffic, sum(total.durations["failed"].spans)) == ({"a": [6, 8]}, 2)


def test_made_up_routes_do_not_make_endless_series() -> None:
    counted = Counters()
    for number in range(30_000):
        counted.decision("a", f"route-{number}", "admitted")[0] += 1
    assert len(counted.decisions) <= 20_001
    assert counted.decisions[("a", counters.OTHER, "admitted")][0] == 10_000


def test_a_line_that_is_no_requests_is_cut_as_well(capfd: pytest.CaptureFixture[str]) -> None:
    audit.configure()
    audit.trail().note("sweep", {"message": "x" * 9000, "devices": ["vendor.com/class=" + "y" * 400] * 64, "repo": "a"})
    audit.close()
    lines = [line for line in capfd.readouterr().err.splitlines() if '"sweep"' in line]

    assert len(lines) == 1
    assert len(lines[0]) < 4096
    assert json.loads(lines[0])["repo"] == "a"
