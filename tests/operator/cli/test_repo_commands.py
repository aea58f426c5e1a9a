"""`gpugrant repo list`: one row a repo, whatever its file says."""

from __future__ import annotations

import pytest
from tests import gen

from gpugrant_operator.cli import repo_commands
from gpugrant_operator.repos import Folder


@pytest.mark.req("R52")
def test_a_repo_whose_file_can_t_be_read_keeps_its_row() -> None:
    gate = gen.gate(repos={"gpu-a": "", "gpu-b": "id-b"}, unfit={"gpu-a": "DaemonUnfit"})
    (row,) = repo_commands.unreadable(Folder({}), gate)
    assert (row["name"], row["fit"], row["reason"]) == ("gpu-a", False, "DaemonUnfit")
    assert row["message"] == "the daemon has CDI off"
    assert repo_commands.unreadable(Folder({}), None) == []
