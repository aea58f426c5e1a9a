"""Every file means here what it means to a daemon, or no name of it can be granted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cdifiles import SPEC, spoilt, written
from cdijudges import RELEASES, Answer, Judge
from gpugrant_crds import cdi
from gpugrant_crds.cdi import Problem, ProblemReason, Spec

pytestmark = [pytest.mark.real, pytest.mark.req("R8")]

NAME = "x.yaml"
NEWEST = {"0.6.2": "0.6.0", "1.0.1": "1.0.0", "1.1.0": "1.1.0", "1.1.2": "1.1.0"}
"""The highest cdiVersion that a release takes."""

_FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


def check(judges: Mapping[str, Judge], data: bytes) -> None:
    """The law, for one file."""
    ours = cdi.read_spec(data, NAME)
    said = {release: judges[release].folder({NAME: data}) for release in RELEASES}
    if isinstance(ours, Spec) and not ours.doubts:
        for release, answer in said.items():
            if _knows(release, ours):
                assert answer == Answer(tuple(sorted(ours.names)), {}, answer.specs, ""), release
                assert _filled(answer.specs[NAME]) == _filled(json.loads(json.dumps(cdi.to_dict(ours)))), release
    elif isinstance(ours, Problem) and ours.message.startswith("the tag "):
        return  # no CDI spec has tags: refused rather than guessed, whatever a release makes of one
    elif isinstance(ours, Problem) and ours.reason is ProblemReason.SPEC_INVALID:
        latest = (said["1.1.0"], said["1.1.2"])
        assert not any(answer.specs for answer in latest), (ours, latest)
    else:
        concerned = [answer for release, answer in said.items() if isinstance(ours, Problem) or _knows(release, ours)]
        taken = [_filled(answer.specs) for answer in concerned if answer.specs]
        assert len(taken) < len(concerned) or any(spec != taken[0] for spec in taken), (ours, said)


def _knows(release: str, spec: Spec) -> bool:
    known = cdi.spec.VERSIONS
    return known.index(spec.version.removeprefix("v")) <= known.index(NEWEST[release])


def _filled(value: Any) -> Any:
    """Without empty fields: the releases' own structs write some of them and leave out others."""
    if isinstance(value, dict):
        inner = {key: _filled(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item not in (None, "", 0, False, [], {})}
    return [_filled(item) for item in value] if isinstance(value, list) else value


@_FUZZ
@given(tree=SPEC)
def test_sound_files(judges: Mapping[str, Judge], tree: dict[str, Any]) -> None:
    check(judges, written(tree).encode())
    check(judges, json.dumps(tree).encode())


@_FUZZ
@given(tree=spoilt())
def test_spoilt_files(judges: Mapping[str, Judge], tree: dict[str, Any]) -> None:
    check(judges, written(tree).encode())


@_FUZZ
@given(tree=SPEC, data=st.data())
def test_damaged_files(judges: Mapping[str, Judge], tree: dict[str, Any], data: st.DataObject) -> None:
    text = written(tree).encode()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    check(judges, text[:start] + data.draw(st.binary(max_size=4)) + text[end:])


@_FUZZ
@given(trees=st.lists(SPEC, min_size=2, max_size=4))
def test_folders(judges: Mapping[str, Judge], trees: list[dict[str, Any]]) -> None:
    """Which names stand, which collide: one file that crashes a release takes the whole folder, so it is left out."""
    files = {
        f"{number}.{'json' if number % 2 else 'yaml'}": json.dumps(tree).encode() for number, tree in enumerate(trees)
    }
    read = {name: cdi.read_spec(data, name) for name, data in files.items()}
    sound = {name: spec for name, spec in read.items() if not _in_doubt(spec)}
    ours = cdi.merge(sound)
    for release in ("1.1.0", "1.1.2"):
        answer = judges[release].folder({name: files[name] for name in sound})
        assert answer.devices == tuple(sorted(ours.names)), release
        assert set(answer.errors) == {name for name, spec in sound.items() if isinstance(spec, Problem)} | {
            file for conflict in ours.conflicts for file in conflict.files
        }, release


def _in_doubt(spec: Spec | Problem) -> bool:
    return bool(spec.doubts) if isinstance(spec, Spec) else spec.reason is ProblemReason.AMBIGUOUS_SPEC


@_FUZZ
@given(tree=SPEC)
def test_what_is_written_is_read_alike_by_every_release(judges: Mapping[str, Judge], tree: dict[str, Any]) -> None:
    spec = cdi.read_spec(json.dumps(tree), NAME)
    assume(isinstance(spec, Spec) and not spec.doubts)
    assert isinstance(spec, Spec)
    text = cdi.dump(spec)
    assert cdi.read_spec(text, NAME) == spec
    check(judges, text.encode())
