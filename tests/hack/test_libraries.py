"""Client libraries come as their locks say, or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from gpugrant_hack import libraries
from gpugrant_hack.say import Trouble
from gpugrant_hack.tools import Tools

JAR = b"what was locked"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One whose Java set is a single jar."""
    locks = tmp_path / "checkout" / libraries.LOCKS / "java"
    locks.mkdir(parents=True)
    (locks / "pom.xml").write_text("<project/>\n")
    (locks / "jars.sha256").write_text(f"{hashlib.sha256(JAR).hexdigest()}  one.jar\n")
    return tmp_path / "checkout"


def machine(folder: Path, mvn: str = "") -> Tools:
    """A machine with this script as its mvn, which gets the folder to fill as $into."""
    (folder / "bin").mkdir()
    if mvn:
        script = "#!/bin/sh\nfor word; do case $word in -DoutputDirectory=*) into=${word#*=};; esac; done\n"
        (folder / "bin/mvn").write_text(script + mvn)
        (folder / "bin/mvn").chmod(0o755)
    return Tools(folder / "cache", search=f"{folder}/bin")


def test_a_set_is_brought_once_and_again_when_its_lock_changes(tmp_path: Path, checkout: Path) -> None:
    tools = machine(tmp_path, f"printf '{JAR.decode()}' >$into/one.jar; echo x >>{tmp_path}/calls\n")

    first = libraries.bring(tools, checkout, "java")
    again = libraries.bring(tools, checkout, "java")
    (checkout / libraries.LOCKS / "java/pom.xml").write_text("<project></project>\n")
    changed = libraries.bring(tools, checkout, "java")

    assert first == again != changed
    assert (first / "one.jar").read_bytes() == JAR
    assert (tmp_path / "calls").read_text() == "x\nx\n"


TROUBLES = {
    "no program": ("", "mvn is not on this machine"),
    "a registry that refuses": ("echo 'no such package' >&2; exit 1\n", "mvn failed (no such package)"),
    "another jar": ("echo other >$into/one.jar\n", "is not what"),
    "a jar more": (f"printf '{JAR.decode()}' >$into/one.jar; cp $into/one.jar $into/two.jar\n", ": two.jar"),
    "a jar less": ("true\n", ": one.jar"),
}


@pytest.mark.parametrize(("mvn", "said"), TROUBLES.values(), ids=TROUBLES.keys())
def test_what_can_not_be_had_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, checkout: Path, mvn: str, said: str
) -> None:
    tools = machine(tmp_path, mvn)

    with pytest.raises(Trouble) as trouble:
        libraries.bring(tools, checkout, "java")

    assert str(trouble.value).startswith("the client libraries (java) can't be brought, as ")
    assert said in str(trouble.value)
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_an_unknown_set_is_refused_with_those_there_are(tmp_path: Path, checkout: Path) -> None:
    with pytest.raises(Trouble, match="no set of libraries 'ruby': it is one of python, node, java"):
        libraries.bring(machine(tmp_path), checkout, "ruby")
