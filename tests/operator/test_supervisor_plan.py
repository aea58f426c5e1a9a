"""What is done about a part, as a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpugrant_crds.layout import SocketPathTooLong
from gpugrant_operator.supervisor import parts, plan
from gpugrant_operator.supervisor.plan import Adopt, Observed, Replace, Start, Step

GATE = parts.standalone(Path("/r"), hardware=Path("/"), executable="/python", version="2")[0]


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        pytest.param(Observed(None), Start(), id="starts a part that nobody runs as"),
        pytest.param(Observed(7, GATE.argv, "2", answers=True), Adopt(7), id="adopts one that answers"),
        pytest.param(
            Observed(7, GATE.argv, "2", answers=False),
            Replace(7, "its control socket does not answer", well=False),
            id="replaces one that is mute",
        ),
        pytest.param(
            Observed(7, (*GATE.argv, "--x"), "2", answers=True),
            Replace(7, "it was started with other arguments"),
            id="replaces one with other arguments",
        ),
        pytest.param(
            Observed(7, GATE.argv, "1", answers=True),
            Replace(7, "it was started from version 1"),
            id="replaces one of another version",
        ),
        pytest.param(
            Observed(7, GATE.argv, None, answers=True),
            Replace(7, "it was started from version unknown"),
            id="replaces one of no known version",
        ),
    ],
)
def test_judges(seen: Observed, step: Step) -> None:
    assert plan.judge(seen, GATE) == step


def test_a_part_that_was_well_is_started_again_at_once() -> None:
    assert plan.next_delay(plan.LONGEST_DELAY, was_well=True) == plan.FIRST_DELAY


def test_a_part_that_never_gets_well_is_started_more_and_more_seldom_but_for_ever() -> None:
    delays = [0.0]
    for _ in range(12):
        delays.append(plan.next_delay(delays[-1], was_well=False))
    assert delays == sorted(delays)
    assert delays[-1] == plan.LONGEST_DELAY


def test_parts_are_started_with_the_same_python_and_know_their_root() -> None:
    made = parts.standalone(Path("/r"), hardware=Path("/hw"), executable="/python", version="2")
    lines = {part.name: " ".join(part.argv) for part in made}
    assert lines == {
        "gate": "/python -P -m gpugrant_operator.cli.gpugrant gate --root /r --hardware /hw",
        "apiserver": "/python -P -m gpugrant_operator.cli.gpugrant apiserver --root /r",
        "operator": "/python -P -m gpugrant_operator.cli.gpugrant operator --root /r --hardware /hw",
    }
    assert {part.environ["KUBECONFIG"] for part in made} == {"/r/etc/rediacc/gpu/kubeconfig"}


def test_only_the_gate_is_told_to_enforce() -> None:
    made = parts.standalone(Path("/r"), hardware=Path("/hw"), executable="/python", version="2", enforce=True)

    assert [part.name for part in made if "--enforce" in part.argv] == ["gate"]


def test_a_root_that_is_too_deep_for_sockets_is_told() -> None:
    with pytest.raises(SocketPathTooLong, match="choose a shorter --root"):
        parts.check_sockets(Path("/" + "d" * 100))
