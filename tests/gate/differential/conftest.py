"""A reader that is made of what a Docker daemon is made of: Go's encoding/json and net/http."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

HERE = Path(__file__).parent
PLACES = f"{os.environ.get('PATH', '')}:/usr/local/go/bin"


class Unreadable(ValueError):
    """Go refuses it; the message is Go's."""


@dataclass(slots=True)
class GoReader:
    """One process that answers line by line."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def body(self, route: str, data: bytes) -> Any:
        """What the daemon's handler of this route gets out of the body; raises Unreadable."""
        return self._ask(Kind=route, Data=base64.b64encode(data).decode())

    def request(self, data: bytes) -> dict[str, Any]:
        """The one request that the bytes begin with, and what is left of them; raises Unreadable."""
        read: dict[str, Any] = self._ask(Kind="request", Data=base64.b64encode(data).decode())
        return {**read, "Body": _bytes(read["Body"]), "Rest": _bytes(read["Rest"])}

    def target(self, method: str, target: str) -> dict[str, Any]:
        """Where the daemon's mux goes with it."""
        read: dict[str, Any] = self._ask(Kind="target", Method=method, Target=target)
        return read

    def _ask(self, **question: str) -> Any:
        self.stdin.write(json.dumps(question).encode() + b"\n")
        self.stdin.flush()
        said = json.loads(self.stdout.readline())
        if said["Error"]:
            raise Unreadable(said["Error"])
        return said["Value"]


def _bytes(text: str | None) -> bytes:
    return base64.b64decode(text or "")


@pytest.fixture(scope="session")
def go(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoReader]:
    compiler = shutil.which("go", path=PLACES)
    if compiler is None:
        pytest.skip("no Go here: install it, or put it into PATH")
    program = tmp_path_factory.mktemp("go") / "reader"
    sources = sorted(str(file) for file in HERE.glob("*.go"))
    environ = {"HOME": str(program.parent), **os.environ}
    environ |= {"GO111MODULE": "off", "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    subprocess.run([compiler, "build", "-o", str(program), *sources], env=environ, check=True, timeout=100)
    with subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        yield GoReader(running.stdin, running.stdout)
        running.stdin.close()
