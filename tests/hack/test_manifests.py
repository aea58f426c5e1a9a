"""The committed CRDs are the models'."""

from __future__ import annotations

import pytest
from gpugrant_hack import manifests

import rig

WANTED = {"a.yaml": "a: 1\n", "b.yaml": "b: 1\n"}
CASES = {
    "equal": ({"a.yaml": "a: 1\n", "b.yaml": "b: 1\n", "README.md": "x"}, []),
    "one differs": ({"a.yaml": "a: 2\n", "b.yaml": "b: 1\n"}, ["a.yaml"]),
    "one is missing and one is left over": ({"a.yaml": "a: 1\n", "c.yaml": ""}, ["b.yaml", "c.yaml"]),
}


@pytest.mark.parametrize(("there", "changed"), CASES.values(), ids=CASES)
def test_write(tmp_path, there: dict[str, str], changed: list[str]) -> None:
    for name, text in there.items():
        (tmp_path / name).write_text(text)

    assert manifests.stale(tmp_path, WANTED) == changed
    assert manifests.write(tmp_path, WANTED) == changed
    assert manifests.stale(tmp_path, WANTED) == []


@pytest.mark.req("D3")
def test_the_committed_ones_are_up_to_date():
    assert rig.succeeded(rig.script("update-crds", "--check")) == ""
