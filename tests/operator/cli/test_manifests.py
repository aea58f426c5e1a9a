"""`--manifests` and `gpugrant store accept-deletes` as commands; what they do is tried in tests/e2e."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gpugrant_operator.cli.gpugrant import cli
from gpugrant_operator.supervisor import parts


@pytest.mark.parametrize("command", ["up", "apiserver"])
@pytest.mark.parametrize(
    ("folders", "told"),
    [
        pytest.param(("git", "git/sub"), "one lies in the other", id="nested"),
        pytest.param(("var/lib/rediacc/gpu/manifests",), "the server keeps its own files", id="the server's own"),
    ],
)
def test_folders_that_lie_in_each_other_are_wrong_usage(
    tmp_path: Path, command: str, folders: tuple[str, ...], told: str
) -> None:
    words = [word for folder in folders for word in ("--manifests", str(tmp_path / folder))]
    done = CliRunner().invoke(cli, [command, "--root", str(tmp_path), *words])
    assert (done.exit_code, told in done.output) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_without_an_api_server_nothing_is_accepted(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["store", "accept-deletes", "--root", str(tmp_path)])
    assert (done.exit_code, "start it with gpugrant up" in done.output) == (1, True)


def test_the_api_server_alone_is_told_of_the_folders() -> None:
    made = parts.standalone(
        Path("/r"), hardware=Path("/"), executable="python", version="1", manifests=(Path("/git/a"), Path("/git/b"))
    )
    told = {part.name: part.argv[-4:] for part in made if "--manifests" in part.argv}
    assert told == {"apiserver": ("--manifests", "/git/a", "--manifests", "/git/b")}
