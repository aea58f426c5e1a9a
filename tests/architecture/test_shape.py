"""The shape of the code: rooms that open nothing, folders that say what they are for."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [ROOT / "crds/gpugrant_crds", ROOT / "gate/gpugrant_gate", ROOT / "operator/gpugrant_operator"]
PURE = [
    ROOT / "crds/gpugrant_crds",
    ROOT / "gate/gpugrant_gate/policy",
    ROOT / "gate/gpugrant_gate/wire",
    ROOT / "operator/gpugrant_operator/reconcile",
    ROOT / "operator/gpugrant_operator/apiserver/objects",
]
IMPURE_CALLS = {
    "open": "files are read by whoever calls a pure room",
    "print": "a pure room says what it has to say in its result",
    "input": "nothing is asked of a person here",
    "now": "the time is an argument",
    "today": "the time is an argument",
    "read_text": "files are read by whoever calls a pure room",
    "read_bytes": "files are read by whoever calls a pure room",
    "write_text": "files are written by whoever calls a pure room",
    "exists": "whether a file exists is a fact that comes in",
    "uuid4": "randomness is an argument",
    "token_hex": "randomness is an argument",
}


def modules(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


@pytest.mark.parametrize("path", modules(*PURE), ids=lambda path: str(path.relative_to(ROOT)))
def test_pure_rooms_call_nothing_impure(path: Path) -> None:
    """No file, clock, randomness or output in a pure room; each with its reason."""
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    }

    assert {name: IMPURE_CALLS[name] for name in called & IMPURE_CALLS.keys()} == {}


@pytest.mark.parametrize("path", modules(*PACKAGES), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is_for(path: Path) -> None:
    """A module docstring; an empty package file may do without where its folder has a README."""
    tree = ast.parse(path.read_text())
    if path.name == "__init__.py" and not tree.body:
        assert (path.parent.parent / "README.md").exists() or (path.parent / "README.md").exists()
        return

    assert ast.get_docstring(tree)


def test_operator_is_no_package() -> None:
    """A package called `operator` in the root would shadow the standard library's."""
    assert not (ROOT / "operator/__init__.py").exists()


@pytest.mark.req("D2")
def test_the_top_level_is_the_one_that_was_asked_for() -> None:
    """The folders of the design card; deploy/helm comes with the chart."""
    for name in ("pyproject.toml", "operator", "crds", "gate", "examples", "tests", "hack"):
        assert (ROOT / name).exists()


@pytest.mark.parametrize("name", ["crds", "gate", "operator", "examples", "tests", "hack"])
def test_every_folder_has_a_readme(name: str) -> None:
    """A newcomer knows within a minute what a folder is for."""
    text = (ROOT / name / "README.md").read_text()

    assert 100 < len(text) < 4000


def test_no_lock_file_with_addresses() -> None:
    """Locked versions have hashes and no download addresses, so that any mirror serves."""
    assert not (ROOT / "uv.lock").exists()
    for path in (ROOT / "requirements").glob("*.txt"):
        text = path.read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text
