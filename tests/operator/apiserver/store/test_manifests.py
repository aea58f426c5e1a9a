"""Manifests as text: they read back, and a place says which object must lie there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_operator.apiserver.objects.decode import from_yaml
from gpugrant_operator.apiserver.objects.resources import catalog
from gpugrant_operator.apiserver.store import manifests

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\ufeff"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, JSON, min_size=1))
def test_a_manifest_reads_back(value: Any) -> None:
    assert from_yaml(manifests.dump(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "12:30",
        "2026-03-01",
        "yes",
        "0x10",
        "1e3",
        "~",
        "",
        " a",
        "a\nb\n",
        "a: b",
        "- a",
        "*x",
        "&x",
        "#",
        "'",
        '"',
        "x" * 300,
    ],
)
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    assert from_yaml(manifests.dump({"a": text})) == {"a": text}


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("objects/widgets/default/a.yaml", ("widgets.test.example.com", "default", "a")),
        ("objects/gpumachines/_cluster/m.yaml", ("gpumachines.gpu.rediacc.io", "", "m")),
        ("objects/namespaces/_cluster/n.yaml", ("namespaces", "", "n")),
        ("objects/widgets/_cluster/a.yaml", None),
        ("objects/gpumachines/default/m.yaml", None),
        ("objects/widgets/default/a.yml", None),
        ("objects/widgets/a.yaml", None),
        ("objects/secrets/default/s.yaml", None),
        ("objects/odd/default/a.yaml", None),
        ("a.yaml", None),
    ],
)
def test_a_place_says_which_object_must_lie_there(settings: Any, path: str, key: Any) -> None:
    root = Path("/m")
    assert manifests.locate(root, root / path, catalog(settings.crds)).key == key


def test_hidden_and_unfinished_files_are_passed_over(settings: Any, tmp_path: Path) -> None:
    folder = tmp_path / "objects/widgets/default"
    folder.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    for name in (".a.yaml", ".tmp-1", "a.yaml~", "a.yaml.replaced", "README", "a.yaml"):
        (folder / name).write_text("")
    (tmp_path / ".git/b.yaml").write_text("")
    found = list(manifests.scan(tmp_path, catalog(settings.crds)))
    assert [item.path.name for item in found] == ["a.yaml"]
