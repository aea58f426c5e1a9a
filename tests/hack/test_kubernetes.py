"""How Kubernetes' own programs are built from a module that is not made to be required."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpugrant_hack import kubernetes
from gpugrant_hack.say import Trouble
from gpugrant_hack.tools import Tools

UPSTREAM = """\
module k8s.io/kubernetes

go 1.24.0

require (
	github.com/google/cel-go v0.26.0
	k8s.io/api v0.0.0
	k8s.io/utils v0.0.0-20250604170112-4c0f3b243397
	k8s.io/kube-openapi v0.0.0-20250710124328-f3f2b991d03b
	k8s.io/apiserver v0.0.0
)
"""


def test_the_staging_modules_are_replaced_and_no_others() -> None:
    assert kubernetes.module_file(UPSTREAM, "1.35.7").splitlines() == [
        "module build",
        "go 1.24.0",
        "require k8s.io/kubernetes v1.35.7",
        "replace k8s.io/api => k8s.io/api v0.35.7",
        "replace k8s.io/apiserver => k8s.io/apiserver v0.35.7",
    ]


@pytest.mark.parametrize(
    "text",
    ["", "go 1.24.0\n", UPSTREAM.replace("go 1.24.0\n", "")],
    ids=["empty", "no staging modules", "no language"],
)
def test_a_module_of_another_shape_is_told(text: str) -> None:
    with pytest.raises(Trouble, match="has not the shape that it had"):
        kubernetes.module_file(text)


def test_both_places_of_the_version_are_stamped() -> None:
    flags = kubernetes.link_flags("1.34.2").split()

    for place in kubernetes.STAMPED:
        assert f"{place}.gitVersion=v1.34.2" in flags
        assert f"{place}.gitMinor=34" in flags


def machine(folder: Path, go: str) -> Tools:
    """A machine with this script as its Go."""
    (folder / "bin").mkdir()
    (folder / "bin/go").write_text(f"#!/bin/sh\n{go}")
    (folder / "bin/go").chmod(0o755)
    return Tools(folder / "cache", search=f"{folder}/bin:/usr/bin:/bin")


GO = """\
echo "$1 $2" >>{folder}/calls
case $1 in
mod) printf '{{"GoMod": "{folder}/upstream.mod"}}' ;;
build) while [ "$1" != -o ]; do shift; done; cp go.mod "$2" ;;
esac
"""


def test_a_program_is_built_once_and_lies_alone(tmp_path: Path) -> None:
    (tmp_path / "upstream.mod").write_text(UPSTREAM)
    tools = machine(tmp_path, GO.format(folder=tmp_path))

    built = kubernetes.bring(tools, "kube-scheduler")
    again = kubernetes.bring(tools, "kube-scheduler")

    assert built == again == tools.store / f"kube-scheduler-{kubernetes.VERSION}/kube-scheduler"
    assert "replace k8s.io/api => k8s.io/api v0." in built.read_text()
    assert [path.name for path in built.parent.iterdir()] == ["kube-scheduler"]
    assert (tmp_path / "calls").read_text() == "mod download\nbuild -p\n"


def test_a_failed_build_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    tools = machine(tmp_path, "echo 'go: downloading x v1' >&2\necho 'no such host' >&2\nexit 1\n")

    with pytest.raises(Trouble) as trouble:
        kubernetes.bring(tools, "kube-apiserver")

    assert str(trouble.value) == (
        "kube-apiserver is not on this machine and can't be built, as go mod failed (no such host): "
        "install Go 1.24 or newer and connect this machine once"
    )
    assert not [path for path in tools.store.iterdir() if path.is_dir()]


def test_without_go_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "PLACE", str(tmp_path))

    with pytest.raises(Trouble, match="can't be built, as Go is not on this machine: install Go"):
        kubernetes.bring(Tools(tmp_path / "cache", search=str(tmp_path)), "kube-apiserver")
