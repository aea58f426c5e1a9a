"""`rdc repo gpu revoke` where an object can't be deleted, against a small API that refuses one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import gen
from gpugrant_operator.cli.rdc import cli

ALL = "nvidia.com/gpu=all"
WHY = "it comes from git/grants/a.yaml: change it there"


@dataclass
class Store:
    """Two grants of one name; the one of the namespace git is a Git file's."""

    grants: list[dict[str, Any]] = field(
        default_factory=lambda: [
            gen.grant(namespace=namespace).to_json() | {"kind": "RepoGpuGrant"} for namespace in ("default", "git")
        ]
    )

    def delete(self, path: str) -> tuple[int, dict[str, Any]]:
        namespace, name = path.split("/")[5], path.split("/")[7]
        if namespace == "git":
            message = f'repogpugrants.gpu.rediacc.io "{name}" is forbidden: {WHY}'
            return 403, {"kind": "Status", "message": message, "reason": "Forbidden"}
        self.grants = [grant for grant in self.grants if grant["metadata"]["namespace"] != namespace]
        return 200, {"kind": "Status", "status": "Success"}

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        machine = gen.machine(gate={"repos": [{"name": "gpu-a", "id": "id-a"}]})
        return 200, {"items": [machine.to_json()] if path.split("?")[0].endswith("gpumachines") else self.grants}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    store = Store()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(*store.get(self.path))

        def do_DELETE(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._answer(*store.delete(self.path))

        def _answer(self, status: int, found: dict[str, Any]) -> None:
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "u", "user": {}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        yield path
        server.shutdown()
        thread.join()


@pytest.mark.req("R51")
def test_what_can_not_be_deleted_is_named_and_the_rest_goes(kubeconfig: Path, tmp_path: Path) -> None:
    environ = {"KUBECONFIG": str(kubeconfig), "GPUGRANT_ROOT": str(tmp_path)}
    done = CliRunner().invoke(cli, ["repo", "gpu", "revoke", "gpu-a", "--device", ALL], env=environ)
    assert done.exit_code == 1
    assert done.stdout == f"revoked: {ALL} on wsl-gpu from repo gpu-a (grant default/gpu-a-all)\n"
    assert done.stderr.endswith(f"error: the grant git/gpu-a-all stays: {WHY}\n")
