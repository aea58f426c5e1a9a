"""One instance for all tests of the commands that need one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

import standalone
from standalone import Instance


@pytest.fixture(scope="session")
def shared() -> Iterator[Instance]:
    if os.geteuid() != 0:
        pytest.skip("the stand-in device nodes need root")
    with standalone.up() as instance:
        yield instance


@pytest.fixture
def instance(shared: Instance) -> Iterator[Instance]:
    """The session's instance; what a test granted is taken back."""
    yield shared
    for repo in shared.daemons:
        shared.daemons[repo].containers.clear()
        listed = shared.rdc("repo", "gpu", "list", repo, "-o", "json")

        for grant in json.loads(listed.stdout):
            revoked = shared.rdc("repo", "gpu", "revoke", f"{repo}@{grant['machine']}", "--device", grant["device"])
            assert revoked.exit_code == 0, revoked.output
