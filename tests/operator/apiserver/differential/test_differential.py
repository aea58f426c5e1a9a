"""Kubernetes' own API server and ours give the same answers, save for what docs/api-differences.md lists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import api_comparing
import api_differences
import api_recording
import pytest
from api_script import CHAPTERS

import apiservers
import rig

pytestmark = [pytest.mark.real, pytest.mark.req("D11"), pytest.mark.timeout(rig.PATIENCE)]

STEPS = [(chapter, step.name) for chapter, steps in CHAPTERS.items() for step in steps]


@pytest.fixture(scope="module")
def real() -> Iterator[apiservers.ApiServer | None]:
    """The real server where it is built already, else None: building it is no part of a test run."""
    if not apiservers.is_built():
        yield None
        return
    with apiservers.kubernetes(api_recording.crds()) as server:
        yield server


@pytest.fixture(scope="module")
def theirs(real: apiservers.ApiServer | None) -> api_recording.Recorded:
    return api_recording.record(real) if real else api_recording.load()


@pytest.fixture(scope="module")
def our_server() -> Iterator[apiservers.ApiServer]:
    with apiservers.ours(api_recording.crds()) as server:
        yield server


@pytest.fixture(scope="module")
def ours(our_server: apiservers.ApiServer) -> api_recording.Answers:
    return api_recording.all_answers(our_server)


def test_the_real_server_runs_here(real: apiservers.ApiServer | None, theirs: api_recording.Recorded) -> None:
    if real is None:
        pytest.skip(
            f"answers of kube-apiserver {theirs.version} that were recorded are used: hack/tools kube-apiserver"
        )
    assert theirs.version.startswith("v1.")


@pytest.mark.parametrize(("chapter", "step"), STEPS, ids=[f"{chapter}: {step}" for chapter, step in STEPS])
def test_the_answers_are_equal(theirs: Any, ours: Any, chapter: str, step: str) -> None:
    given = json.loads(json.dumps(ours[chapter][step]))
    differences = list(api_comparing.differing(theirs.answers[chapter][step], given))
    found = api_differences.places(pointer for pointer, _, _ in differences)
    listed = api_differences.listed(chapter, step)
    told = "\n".join(f"{at}\n  real {one!r}\n  ours {other!r}" for at, one, other in differences)

    assert not found - listed, f"not listed in api_differences.py:\n{told}"
    assert not listed - found, f"listed in api_differences.py, and no longer there: {sorted(listed - found)}"


def test_every_listed_difference_is_of_a_step() -> None:
    assert api_differences.steps() <= set(STEPS)


def test_the_document_says_what_the_table_says() -> None:
    document = rig.CHECKOUT / "docs/api-differences.md"

    assert document.read_text() == api_differences.document()


def test_ours_is_not_recorded(our_server: apiservers.ApiServer) -> None:
    with pytest.raises(api_recording.NotTheRealOne, match="only a kube-apiserver with an etcd is recorded"):
        api_recording.record(our_server)


def test_what_was_recorded_is_read_again(tmp_path: Path) -> None:
    recorded = api_recording.Recorded("v1.2.3", {"a": {"b": {"code": 200}}})
    api_recording.save(recorded, tmp_path / "answers.json.gz")

    assert api_recording.load(tmp_path / "answers.json.gz") == recorded
